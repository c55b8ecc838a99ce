"""Recipe options: each is declared once, as a dataclass field that carries its default, meaning, range, choices and unit.

Validation, error messages, `satlib recipe --explain` and docs/recipes.md all read that declaration.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from satlib.errors import SatlibError

_KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text in quotes"}


@dataclass(frozen=True)
class Option:
    """What is known about one option.

    Attributes:
        default: its value where a recipe gives none; its type is the option's type.
        meaning: a noun phrase that completes the sentence "OPTION is ...".
        at_least: the smallest valid number.
        above: the largest number that is too small.
        below: the smallest number that is too large.
        at_most: the largest valid number. Sizes have one, because a stranger's recipe or model carries them.
        choices: the valid texts; empty if any text is.
        unit: what the number counts.
    """

    default: Any
    meaning: str
    at_least: float | None = None
    above: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""

    @property
    def range(self) -> str:
        """The valid numbers in words, such as "at least 0 and below 1"; empty if there is no limit."""
        limits = (
            ("at least", self.at_least),
            ("above", self.above),
            ("below", self.below),
            ("at most", self.at_most),
        )
        return " and ".join(f"{words} {limit:,}" for words, limit in limits if limit is not None)

    def checked(self, name: str, value: Any) -> Any:
        """The value in the option's type; a whole number is accepted where a number is expected.

        Raises:
            SatlibError: a wrong type, a number that is out of range or not finite, or a text that is not among the choices.
        """
        kind = type(self.default)
        if kind is float and type(value) is int:
            try:
                value = float(value)
            except OverflowError:
                value = math.inf
        if type(value) is not kind:
            raise self._refused(name, _KINDS[kind], value)
        if kind is float and not math.isfinite(value):
            raise self._refused(name, "a finite number", value)
        if self.choices and value not in self.choices:
            names = ", ".join(choice or '"" (none)' for choice in self.choices)
            raise self._refused(name, f"one of {names}", value)
        if (
            (self.at_least is not None and value < self.at_least)
            or (self.above is not None and value <= self.above)
            or (self.below is not None and value >= self.below)
            or (self.at_most is not None and value > self.at_most)
        ):
            raise self._refused(name, self.range, value)
        return value

    def _refused(self, name: str, expected: str, value: Any) -> SatlibError:
        return SatlibError(f"{name} must be {expected}, not {value!r}; {name} is {self.meaning}")


def option(
    default: Any,
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] = (),
    unit: str = "",
) -> Any:
    """A dataclass field that declares an option (the arguments are `Option`'s)."""
    declared = Option(default, meaning, at_least, above, below, at_most, tuple(choices), unit)
    return dataclasses.field(default=default, metadata={"option": declared})


def options(config: type) -> dict[str, Option]:
    """The options that a dataclass declares, by name."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(config)}


def toml(value: str | float | bool) -> str:
    """A value as TOML.

    JSON writes values as TOML reads them, except for emoji, which it would write as surrogate pairs, and the DEL character.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
