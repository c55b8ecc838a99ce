"""Strict reading: text is UTF-8, and JSON is decoded into the type that its reader declares, or the file is refused in one line.

A file may come from a stranger, another program or a disk that was full. Messages name the place: "images[3].split must be text,
not null". Fields that a type does not name are allowed, unless it says otherwise.
"""

import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from satlib.errors import SatlibError

Kind = TypeVar("Kind")
Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
# What msgspec calls the kinds of values, and what our readers do.
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
}
_LIMITS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}


def read_json(path: Path, kind: type[Kind], what: str, advice: str = "create it again") -> Kind:
    """A JSON file as a value of type `kind`; `what` it should be and the `advice` are for the message.

    Raises:
        SatlibError: the file is missing, unreadable, not UTF-8, not valid JSON (for example, truncated), or has another form.
    """
    return decode(_content(path).removeprefix(b"\xef\xbb\xbf"), kind, str(path), what, advice)


def read_text(path: Path) -> str:
    """The content of a UTF-8 text file, without a byte order mark.

    Raises:
        SatlibError: the file is missing, cannot be read, or is not UTF-8 (with the line number).
    """
    raw = _content(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-blank lines with their numbers, counted from 1; errors as for `read_text`. Only a newline ends a line."""
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist") from error
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error


def decode(content: bytes | str, kind: type[Kind], where: str, what: str, advice: str) -> Kind:
    """A JSON text as a value of type `kind`.

    Args:
        content: the text.
        kind: the type: a msgspec Struct, or made of them.
        where: the name of the file or of the part of it, which begins the message.
        what: completes "FILE is not ...".
        advice: what to do next, which ends the message.

    Raises:
        SatlibError: it is not valid JSON, is not UTF-8, is nested too deeply, or has another form.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    try:
        raw.decode()  # msgspec counts the bytes of a text, not of the file
        return msgspec.json.decode(raw, type=kind)
    except UnicodeDecodeError as error:
        raise SatlibError(f"{where} is not UTF-8 text (byte {error.start}); save it as UTF-8, or {advice}") from error
    except RecursionError as error:
        raise SatlibError(f"{where} is not valid JSON (it is nested too deeply); {advice}") from error
    except msgspec.ValidationError as error:
        raise SatlibError(f"{where} is not {what} ({_in_words(str(error))}); {advice}") from error
    except msgspec.DecodeError as error:
        problem = str(error).removeprefix("JSON is malformed: ").replace("Input data was truncated", "it breaks off")
        place = re.search(r"byte (\d+)", problem)
        if place and (other := re.match(rb"NaN|Infinity", raw[int(place[1]) :])):
            problem = f"{other[0].decode()}, byte {place[1]}, is not a number of JSON"
        raise SatlibError(f"{where} is not valid JSON ({problem}); {advice}") from error


def _in_words(problem: str) -> str:
    """Msgspec's words as part of a sentence: "metrics[...] must be a number, not text"."""
    problem, _, path = problem.partition(" - at `")
    place = path.rstrip("`").removeprefix("key` in `").removeprefix("$").lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(.+)`", problem):
        return f"{place}{'.' * bool(place)}{missing[1]} is missing"
    if wrong := re.fullmatch(r"Expected `(.+)`, got `(.+)`", problem):
        expected, got = (" or ".join(_WORDS.get(name, name) for name in names.split(" | ")) for names in wrong.groups())
        return f"{place or 'it'} must be {expected}, not {got}"
    if beyond := re.fullmatch(r"Expected `(?:int|float)` (>=|>|<=|<) (.+)", problem):
        return f"{place or 'it'} must be {_LIMITS[beyond[1]]} {beyond[2]}"
    problem = problem[:1].lower() + problem[1:].replace("`", "")
    return f"{place}: {problem}" if place else problem
