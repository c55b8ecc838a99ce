"""Strict reading: text is UTF-8, and JSON is decoded into the type that its reader declares, or the file is refused in one line.

Fields that a type does not name are allowed, unless it says otherwise.
"""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from satlib.errors import SatlibError

Kind = TypeVar("Kind")
Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]


def read_text(path: Path) -> str:
    """The content of a UTF-8 text file, without a byte order mark.

    Raises:
        SatlibError: the file cannot be read, or is not UTF-8 (with the line number).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-blank lines with their numbers, counted from 1; errors as for `read_text`. Only a newline ends a line."""
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def read_json(path: Path, kind: type[Kind], what: str, advice: str = "create it again") -> Kind:
    """A JSON file as a value of type `kind`; errors as for `read_text` and `decode`."""
    return decode(read_text(path), kind, str(path), what, advice)


def decode(text: str, kind: type[Kind], where: str, what: str, advice: str) -> Kind:
    """A JSON text as a value of type `kind`, or a SatlibError: "WHERE is not WHAT (why); ADVICE"."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SatlibError(f"{where} is not {what} ({error}); {advice}") from error
