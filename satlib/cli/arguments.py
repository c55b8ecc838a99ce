"""What the commands' parsers have in common: the parser classes, the types of arguments, and shared options."""

import argparse
import difflib
import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from satlib.recipe import SECTIONS, declared

SPLITS = ("train", "dev", "test")
MODEL = "a run's folder, a model file, or the name of a model that comes with satlib"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports a mistake in one line, as satlib does for every other mistake."""

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with status 2."""
        self.exit(2, f"satlib: {message}; see: {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[Any, list[str]]:
        """As argparse does, but a command refuses by itself what it does not know: it has the right help and similar options."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0].partition('=')[0])}")
        return options, unknown

    def _meant(self, word: str) -> str:
        """What somebody may have meant by an unknown option, as a question in brackets; empty for any other word."""
        if not word.startswith("--"):
            return ""
        key = word[2:].replace("-", "_")
        homes = [section for section in SECTIONS if key in declared(section)]
        if homes and "--set" in self._option_string_actions:
            return f" (did you mean --set {homes[0]}.{key}=VALUE?)"
        similar = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f" (did you mean {similar[0]}?)" if similar else ""


class Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, except those that mean "not given"."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, "") or action.default == []:
            return action.help
        return super()._get_help_string(action)


def change(text: str) -> str:
    """A change of a recipe's value; what it changes, and to what, is checked with the recipe."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"write it as section.key=value, for example training.epochs=3, not {text}")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def beam_width(text: str) -> int:
    """A whole number in the range of decoding.beam."""
    most = declared("decoding")["beam"].meta.le
    if most is not None and positive(text) > most:
        raise argparse.ArgumentTypeError(f"must be at most {most}, not {text}")
    return int(text)


def finite(text: str, range_in_words: str = "", least: float = -math.inf) -> float:
    """A finite number, of at least `least`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise argparse.ArgumentTypeError(f"must be a finite number{range_in_words}, not {text}")
    return value


def at_least_zero(text: str) -> float:
    """A finite number of at least 0."""
    return finite(text, " of at least 0", 0.0)


def numbers(text: str) -> list[int]:
    """Whole numbers of at least 1, with commas between them."""
    return [positive(part) for part in text.split(",")]


def values(text: str) -> list[float]:
    """Finite numbers of at least 0, with commas between them."""
    return [at_least_zero(part) for part in text.split(",")]


def printed(value: Any) -> int:
    """Print a value as JSON; gives the exit status 0."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
    return 0


# Options of several commands.
_SHARED: dict[str, dict[str, Any]] = {
    "recipe": {"help": "a recipe's name (satlib recipe lists them) or the path of a .toml file"},
    "--set": {
        "type": change,
        "action": "append",
        "default": [],
        "metavar": "SECTION.KEY=VALUE",
        "help": "change a value of the recipe; may be repeated",
    },
    "--data": {"metavar": "FOLDER", "help": "the folder of data sets; by default $SATLIB_DATA or ./data"},
    "--data-set": {
        "metavar": "NAME",
        "help": "another data set than the one of the model's recipe: a name, or the path of your own folder; its results are "
        "written to a folder of its name",
    },
    "--device": {
        "choices": ("auto", "cpu", "cuda", "mps"),
        "default": "auto",
        "help": "the device to compute on",
    },
    "--json": {"action": "store_true", "help": "print the result as JSON (docs/scripts.md describes its form)"},
    "--beam": {"type": beam_width, "help": "beam width; by default the recipe's"},
    "--attention": {
        "metavar": "FILE:FUNCTION",
        "help": "your own attend(e, a) -> (z, alpha), from a .py file or a notebook, in place of softmax and weighted mean",
    },
}


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that several commands have, by their names."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])
