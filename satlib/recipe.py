"""A recipe: everything that defines a run, in one small TOML file per data set and model (`satlib/recipes/`).

The options are declared, with their ranges and meanings, in the dataclasses of `SECTIONS`; `satlib recipe --explain` prints them.
"""

import dataclasses
import difflib
import importlib.resources
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlib.beyond.rewards import RewardConfig
from satlib.configs import DataConfig, DecodingConfig, EncoderConfig, HardConfig, ObjectiveConfig, TrainingConfig
from satlib.errors import SatlibError
from satlib.model.decoder import DecoderConfig
from satlib.options import Option, options, toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "encoder": EncoderConfig,
    "decoder": DecoderConfig,
    "objective": ObjectiveConfig,
    "hard": HardConfig,
    "reward": RewardConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
# A recipe's name is also that of a folder: a stranger's must not lead out of the folder that it is written to.
_NAME = re.compile(r'[^\x00-\x1f/\\:*?"<>|.][^\x00-\x1f/\\:*?"<>|]{0,59}')


@dataclass(frozen=True)
class Recipe:
    """All values of a run, as in the file `recipe.toml` of its folder."""

    name: str
    data: DataConfig = field(default_factory=DataConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    hard: HardConfig = field(default_factory=HardConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries, as TOML and JSON have them."""
        sections = {
            section: {key: getattr(getattr(self, section), key) for key in declared(section)} for section in SECTIONS
        }
        return {"name": self.name, **sections}

    def to_toml(self) -> str:
        """The recipe as TOML, with every value."""
        lines = [f"name = {toml(self.name)}"]
        for section, values in self.to_dict().items():
            if section != "name":
                lines += ["", f"[{section}]", *(f"{key} = {toml(value)}" for key, value in values.items())]
        return "\n".join(lines) + "\n"


def declared(section: str) -> dict[str, Option]:
    """The options of a section that a recipe may give, by name."""
    return options(SECTIONS[section])


def names() -> list[str]:
    """The recipes that come with satlib."""
    folder = importlib.resources.files("satlib.recipes")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by its name, or a TOML file by its path, and change some of its values.

    Args:
        name: one of `names()`, or a path.
        changes: texts of the form "section.key=value", with the value as in TOML (the quotes of a string may be left out).

    Raises:
        SatlibError: there is no such recipe, or an option or a value is not valid.
    """
    try:
        values = tomllib.loads(read(name))
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise SatlibError(f"the recipe {name} is not TOML: {error}") from error
    values.setdefault("name", Path(name).stem)
    for change in changes:
        _apply(values, change)
    return from_dict(values)


def read(name: str) -> str:
    """The text of a recipe by its name, or of a TOML file by its path.

    Raises:
        SatlibError: there is no such recipe, or its file cannot be read.
    """
    if Path(name).suffix == ".toml":
        path = Path(name)
        if not path.is_file():
            raise SatlibError(f"the recipe {path} does not exist; satlib's own recipes are {', '.join(names())}")
        try:
            return path.read_text(encoding="utf-8")
        except OSError as error:
            raise SatlibError(f"cannot read the recipe {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SatlibError(f"the recipe {path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    if name not in names():
        raise SatlibError(
            f"no recipe is called {name!r}{_suggestion(name, names())}; choose one of {', '.join(names())}, or give the "
            "path of a .toml file"
        )
    return (importlib.resources.files("satlib.recipes") / f"{name}.toml").read_text(encoding="utf-8")


def description(name: str) -> str:
    """The first line of a recipe's file, if that is a comment; otherwise an empty text."""
    first = read(name).partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def from_dict(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from nested dictionaries; every name, type and value is checked.

    Raises:
        SatlibError: an option or a value is not valid; the message says what is.
    """
    if not isinstance(values.get("name", ""), str):
        raise SatlibError(f"the recipe's name must be a text in quotes, not {values['name']!r}")
    if "name" in values and not _NAME.fullmatch(values["name"]):
        raise SatlibError(
            f"the recipe's name, {values['name'][:50]!r}, cannot be that of a folder, as runs/NAME needs it; take up to 60 letters, "
            "digits, spaces, - and _, and no point at the beginning"
        )
    for section in values:
        if section not in ("name", *SECTIONS):
            raise SatlibError(
                f"a recipe has no section {section!r}{_suggestion(section, SECTIONS)}; the sections are {', '.join(SECTIONS)}"
            )
    sections = {section: kind(**_checked(section, values.get(section, {}))) for section, kind in SECTIONS.items()}
    if sections["decoder"].attention == "hard" and "doubly_stochastic" not in values.get("objective", {}):
        sections["objective"] = dataclasses.replace(sections["objective"], doubly_stochastic=0.0)
    made = Recipe(name=values.get("name", "recipe"), **sections)
    _require_consistent(made)
    return made


def _checked(section: str, given: Any) -> dict[str, Any]:
    """The values of a section, each of the right type and in its range."""
    if not isinstance(given, Mapping):
        raise SatlibError(f"[{section}] of the recipe must be a table of values, not {given!r}")
    known, values = declared(section), {}
    for key, value in given.items():
        name = f"{section}.{key}"
        if key not in known:
            raise SatlibError(
                f"the recipe's [{section}] has no {key!r}{_suggested_option(section, key)}; it has {', '.join(known)}"
            )
        values[key] = known[key].checked(name, value)
    return values


def _suggestion(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """A question that names the most similar of the known names, or nothing."""
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def _suggested_option(section: str, key: str) -> str:
    """As `_suggestion`, for an option; one of that very name in another section is suggested first."""
    for other in SECTIONS:
        if key in declared(other):
            return f" (did you mean {other}.{key}?)"
    return _suggestion(key, declared(section))


def _require_consistent(made: Recipe) -> None:
    """Refuse values that are valid one by one but not together."""
    if not (made.encoder.train or made.encoder.pretrained):
        raise SatlibError(
            "a frozen encoder needs pretrained weights; set encoder.pretrained = true, or encoder.train = true to train it"
        )
    if made.encoder.frozen_statistics and not made.encoder.pretrained:
        raise SatlibError(
            "encoder.frozen_statistics = true needs pretrained weights: the statistics of a new network are no statistics yet; "
            "set encoder.pretrained = true"
        )
    if made.training.select == "reward" and made.objective.maximise != "reward":
        raise SatlibError(
            'training.select = "reward" needs objective.maximise = "reward"; select by bleu4 or nll when the likelihood is '
            "maximised"
        )
    if made.training.loop == "fast" and made.objective.maximise == "reward":
        raise SatlibError(
            'training.loop = "fast" needs objective.maximise = "likelihood": captions that are sampled for a reward go through '
            "the plain loop"
        )
    if made.decoder.normaliser == "sparsemax" and made.decoder.attention != "soft":
        raise SatlibError(
            f'decoder.normaliser = "sparsemax" needs decoder.attention = "soft", not "{made.decoder.attention}": a place that is '
            "drawn needs the logarithm of its weight"
        )
    if made.decoder.normaliser == "sparsemax" and made.objective.boxes:
        raise SatlibError(
            'decoder.normaliser = "sparsemax" needs objective.boxes = 0: a map with no weight in a box gives no gradient towards it'
        )
    if made.decoder.attention == "hard" and made.hard.baseline == "other-samples" and made.hard.samples < 2:
        raise SatlibError(
            'hard.baseline = "other-samples" needs more than one sample: set hard.samples to at least 2, or choose another '
            "baseline"
        )


def without_unknown(values: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe in a shipped model's header without options that are gone; goes when those headers are written again."""
    return {
        section: {key: value for key, value in table.items() if key in declared(section)}
        if section in SECTIONS and isinstance(table, Mapping)
        else table
        for section, table in values.items()
    }


def parse_value(text: str) -> Any:
    """A value as in TOML; anything that is not TOML is a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def _apply(values: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot or section == "name":
        raise SatlibError(
            f"cannot read the change {change!r}; write it as section.key=value, for example training.epochs=3"
        )
    table = values.setdefault(section, {})
    if isinstance(table, dict):  # anything else is refused by from_dict
        table[key] = parse_value(text)
