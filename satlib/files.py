"""Files that are written whole or not at all."""

import contextlib
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it onto `path` when the block ends well, delete it otherwise.

    A reader sees the old file or the new one, never half of one, whatever kills the writer.

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
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    except OSError as error:
        raise SatlibError(f"cannot write {path}: {error.strerror}; free some space or choose another folder") from error
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, whole or not at all.

    Raises:
        SatlibError: it holds NaN or infinity, which JSON does not have, or cannot be written.
    """
    for name, number in _not_finite(value):
        raise SatlibError(f"cannot write {path}: {name} is {number}; check the model and the data that it comes from")
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _not_finite(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Where in nested dictionaries and lists there is a number that is not finite: "metrics.BLEU-1"."""
    if isinstance(value, float) and not math.isfinite(value):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _not_finite(each, f"{name}.{key}" if name else str(key))


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        SatlibError: the file is missing, unreadable, not UTF-8 or not JSON (cut short, for example).
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist") from error
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SatlibError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    except json.JSONDecodeError as error:
        raise SatlibError(f"{path} is not complete JSON (line {error.lineno}: {error.msg}); make it again") from error
