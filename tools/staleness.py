"""What a notebook was made from: a hash of each file of the repository that its execution read.

`tools/notebooks.py` keeps these hashes in the notebook's metadata. A notebook is stale once a module, model, result or recipe
that it reads has changed, even if its own cells have not.
"""

import ast
import hashlib
import io
import os
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READS = ROOT / "tools" / "reads"  # on PYTHONPATH, its sitecustomize.py notes what is read
FOLDERS = ("satlib", "benchmarks", "data", "docs", "examples")
_COMPILED = re.compile(r"__pycache__/(\w+)\.cpython-\d+(?:\.opt-\d)?\.pyc(?:\.\d+)?$")


def environment(notes: Path) -> dict[str, str]:
    """The environment of a kernel whose files are to be noted in `notes`."""
    path = os.pathsep.join([str(READS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "SATLIB_READS": str(notes)}


def read(notes: Path) -> list[str]:
    """The files of the repository among those noted, relative to its root, sorted; a compiled module counts as its source."""
    found = set()
    for line in notes.read_text(encoding="utf-8").splitlines():
        path = Path(_COMPILED.sub(r"\1.py", line))
        if path.is_relative_to(ROOT) and path.is_file():
            relative = path.relative_to(ROOT)
            if relative.parts[0] in FOLDERS:
                found.add(relative.as_posix())
    return sorted(found)


def hashes(paths: Iterable[str]) -> dict[str, str]:
    """The first 12 hexadecimal digits of each file's SHA-256, "missing" for a file that is not there."""
    return {path: _hash(ROOT / path) for path in paths}


def stale(recorded: dict[str, str]) -> list[str]:
    """The files that have changed since their hashes were recorded."""
    now = hashes(recorded)
    return [path for path, value in recorded.items() if now[path] != value]


def _hash(path: Path) -> str:
    if not path.is_file():
        return "missing"
    content = path.read_bytes()
    if path.suffix == ".py":
        content = code(content.decode("utf-8")).encode()
    elif b"\0" not in content:
        content = content.replace(b"\r\n", b"\n")
    return hashlib.sha256(content).hexdigest()[:12]


def code(source: str) -> str:
    """A module without its comments, docstrings and blank lines: rewording these changes no notebook."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"
