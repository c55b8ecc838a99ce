"""Atomic writes."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError

# In JSON, a line break cannot be inside a text.
_NUMBERS = re.compile(r"(?<=\[)\n\s*(?:(?:-?[\d.]+(?:[eE][-+]?\d+)?|null),?\n\s*)+(?=\])")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, delete it otherwise.

    A reader sees either the old or the new file, never a partial one, even if the writing process is killed. A full disk or a
    folder that cannot be written is a SatlibError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with open(partial, "r+b") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())
        partial.replace(path)
    except OSError as error:
        raise SatlibError(f"cannot write {path}: {error.strerror}; free some space or choose another folder") from error
    finally:
        with contextlib.suppress(OSError):  # there is none after a success, and no folder where that is a file
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line breaks on every system."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; a list of numbers takes one line; NaN and infinity are refused."""
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise SatlibError(f"cannot write {path}: {error}; check the model and its data") from error
    write_text(path, _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n")
