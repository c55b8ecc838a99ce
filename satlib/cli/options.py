"""How a command is declared, and the options that several commands have."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Option = tuple[tuple[str, ...], dict[str, Any]]  # the arguments of ArgumentParser.add_argument
Command = Callable[[argparse.Namespace], int | None]

# By name; filled by the decorator `command` as modules of commands are imported.
COMMANDS: dict[str, tuple[Command, tuple[Option, ...]]] = {}


def option(*names: str, **settings: Any) -> Option:
    """An option of a command, described as for `ArgumentParser.add_argument`."""
    return names, settings


def command(*options: Option) -> Callable[[Command], Command]:
    """Decorate a function so that `satlib NAME` calls it with its options.

    It returns the exit status, None for 0.
    """

    def register(function: Command) -> Command:
        COMMANDS[function.__name__] = function, options
        return function

    return register


def positive(text: str) -> int:
    """A whole number of 1 to 1,000: no beam may be wider (`satlib.recipe`)."""
    # argparse prints the message of this exception, and of no other. The length comes first: Python
    # itself refuses to read a number of thousands of digits.
    if not (text.isdecimal() and len(text) < 5 and 1 <= int(text) <= 1_000):
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 to 1000, not {text}")
    return int(text)


SPLITS = ("train", "dev", "test")
A_MODEL = "a run's folder, a model file, or the name of a model that comes with satlib"

# What is worked with.
RECIPE = option("recipe", help="a recipe (satlib recipe lists them) or a .toml file")
# argparse appends to a copy of the default.
SET = option(
    "--set",
    action="append",
    default=[],
    metavar="SECTION.KEY=VALUE",
    help="change a value; repeatable",
)
MODEL = option("model", type=Path, help=A_MODEL)
ATTENTION = option(
    "--attention",
    metavar="FILE:NAME",
    help="your own function attend(e, a) -> (z, alpha), or class (docs/contributing.md)",
)
DATA = option("--data", metavar="FOLDER", help="the folder of data sets: $SATLIB_DATA or ./data")
DATA_SET = option(
    "--data-set",
    metavar="NAME",
    help="another data set than the model's: its name, or your own folder",
)
SPLIT = option("--split", choices=SPLITS, default="test", help="the split to measure")
ENTITIES = option(
    "--entities",
    type=Path,
    metavar="PATH",
    help="Flickr30k Entities: its folder, or annotations.zip",
)
# Without it a broken photograph ends the command: the folder may be the wrong one.
SKIP = option("--skip-broken", action="store_true", help="leave out images that cannot be read")

# How.
BEAM = option("--beam", type=positive, help="the beam width; by default the recipe's")
DEVICE = option(
    "--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="where to compute"
)

# What comes out.
OUT = option(
    "--out",
    type=Path,
    metavar="FOLDER",
    help="the folder for results; by default where the model is",
)
# 8 bits are a quarter of float32's size, for models that are given away or sent to a browser.
STORAGE = option(
    "--storage",
    choices=("float32", "float16", "int8"),
    default="int8",
    help="the number format of the weights",
)
JSON = option("--json", action="store_true", help="print the result as JSON")
