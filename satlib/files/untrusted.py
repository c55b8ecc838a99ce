"""Reading what somebody else may have written: JSON is decoded strictly and compared with its form in `satlib.files.schemas`.

Messages are in a reader's words and name the place: "images[3].split must be text, not null".
"""

import copy
import re
from typing import Any

import msgspec

from satlib.errors import SatlibError

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


def matches(value: Any, form: Any, what: str, advice: str) -> None:
    """Compare a value with a form.

    Args:
        value: what was read from a file, as dictionaries and lists.
        form: a type: one of this module's classes, or made of them.
        what: "FILE is not such-and-such", the beginning of the message.
        advice: what to do next, its end.

    Raises:
        SatlibError: the value has another form; the message names the place.
    """
    problem = _problem(value, form)
    if problem:
        raise SatlibError(f"{what} ({_in_words(_with_keys(problem, value, form))}); {advice}")


def decoded(content: bytes | str, what: str, advice: str) -> Any:
    """A JSON text as dictionaries and lists; arguments as for `matches`.

    Raises:
        SatlibError: it is not valid JSON, is not UTF-8, or is nested too deeply.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    try:
        raw.decode()  # msgspec counts the bytes of a text, not of the file
        return msgspec.json.decode(raw)
    except UnicodeDecodeError as error:
        raise SatlibError(f"{what} is not UTF-8 text (byte {error.start}); save it as UTF-8, or {advice}") from error
    except RecursionError as error:
        raise SatlibError(f"{what} is not valid JSON (it is nested too deeply); {advice}") from error
    except msgspec.DecodeError as error:
        problem = str(error).removeprefix("JSON is malformed: ").replace("Input data was truncated", "it breaks off")
        place = re.search(r"byte (\d+)", problem)
        if place and (other := re.match(rb"NaN|Infinity", raw[int(place[1]) :])):
            problem = f"{other[0].decode()}, byte {place[1]}, is not a number of JSON"
        raise SatlibError(f"{what} is not valid JSON ({problem}); {advice}") from error


def _problem(value: Any, form: Any) -> str:
    """What is wrong with a value, in msgspec's words; empty if nothing is."""
    try:
        msgspec.convert(value, form)
    except RecursionError:
        return "it is nested too deeply"
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _with_keys(problem: str, value: Any, form: Any) -> str:
    """The problem, with the name of the key in the place of each [...] of its path."""
    while "[...]" in problem:
        steps = re.findall(r"\.([^.\[`]+)|\[(\d+)\]", problem[problem.rindex("`$") : problem.index("[...]")])
        value = copy.deepcopy(value)
        inside = value
        for name, number in steps:
            inside = inside[int(number) if number else name]
        keys = list(inside)
        while len(keys) > 1:  # the half that the problem is in
            half = {key: inside[key] for key in keys[: len(keys) // 2]}
            kept = dict(inside)
            inside.clear()
            inside.update(half)
            keys = list(half) if _problem(value, form) else keys[len(keys) // 2 :]
            inside.clear()
            inside.update(kept)
        problem = problem.replace("[...]", f".{keys[0][:60]}", 1)
    return problem


def _in_words(problem: str) -> str:
    """Msgspec's words as part of a sentence: "metrics.METEOR must be a number, not text"."""
    problem, _, path = problem.partition(" - at `")
    place = path.rstrip("`").removeprefix("key` in `").removeprefix("$").lstrip(".")
    if missing := re.fullmatch(r"Object missing required field `(.+)`", problem):
        return f"{place}{'.' * bool(place)}{missing[1]} is missing"
    if wrong := re.fullmatch(r"Expected `(.+)`, got `(.+)`", problem):
        expected, got = (" or ".join(_WORDS.get(name, name) for name in names.split(" | ")) for names in wrong.groups())
        return f"{place or 'it'} must be {expected}, not {got}"
    problem = problem[:1].lower() + problem[1:].replace("`", "")
    return f"{place}: {problem}" if place else problem
