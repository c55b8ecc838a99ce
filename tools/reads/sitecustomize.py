"""Notes every file that a Python process opens, a line each, in the file that the variable SATLIB_READS names.

tools/notebooks.py puts this folder on PYTHONPATH when it executes a notebook: Python imports `sitecustomize` in every process
that it starts, so what a notebook's programs read is noted too.
"""

import os
import sys


def _note(event: str, arguments: tuple) -> None:
    """An audit hook. safetensors opens files outside Python; satlib.model.captioner raises "satlib.read" in its place."""
    if event in ("open", "satlib.read") and isinstance(arguments[0], str | os.PathLike):
        path = os.path.abspath(os.fspath(arguments[0]))
        if path not in _noted:
            _noted.add(path)
            os.write(_notes, f"{path}\n".encode())


if "SATLIB_READS" in os.environ:
    _noted: set[str] = set()
    _notes = os.open(os.environ["SATLIB_READS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    sys.addaudithook(_note)
