"""Atomic writes."""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError

# In JSON, a line break cannot be inside a text.
_NUMBERS = re.compile(r"(?<=\[)\n\s*(?:(?:-?[\d.]+(?:[eE][-+]?\d+)?|null),?\n\s*)+(?=\])")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, delete it otherwise.

    A reader sees either the old or the new file, never a partial one, even if the writing process is killed.

    Raises:
        SatlibError: the disk is full or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise SatlibError(f"cannot write {path}: {error.strerror}; free some space or choose another folder") from error
    partial = Path(name)
    try:
        yield partial
        with open(partial, "r+b") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:
        raise SatlibError(f"cannot write {path}: {error.strerror}; free some space or choose another folder") from error
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line breaks on every system."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; a list of numbers takes one line.

    Raises:
        SatlibError: the value contains NaN or infinity, which JSON does not support, or the file cannot be written.
    """
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise SatlibError(f"cannot write {path}: {error}; check the model and its data") from error
    write_text(path, _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n")
