"""A recipe: everything that decides a run, in one small TOML file per data set and model (`satlib/recipes/`)."""

import dataclasses
import importlib.resources
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlib.attention import LOOKS
from satlib.decoder import DecoderConfig
from satlib.errors import SatlibError
from satlib.images import VIEWS
from satlib.objectives import HardConfig
from satlib.reward import RewardConfig
from satlib.text import LANGUAGES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class DataConfig:
    """Which captions, and how they become ids."""

    name: str = "flickr8k"  # a data set's name, or the path of your own, or where shards lie
    language: str = ""  # zh | ja | th | lo | km | my: a token is a character (satlib.text); "" where words have spaces
    vocabulary_size: int = 10_000  # K at most, special words included
    min_count: int = 1  # words seen less often in training are unknown
    max_length: int = 40  # longer training captions are left out
    train_images: int = 0  # 0: all of them; for scenes, how many to draw (0: as many as they have)
    buffer: int = 4000  # captions among which the next is drawn by lot, where shards are read as a stream


@dataclass(frozen=True)
class EncoderConfig:
    """What makes the annotation vectors."""

    name: str = "vgg19"  # see satlib.encoders
    pretrained: bool = True  # start from its trained weights
    train: bool = False  # False: frozen, annotation vectors are read from a feature store
    scale: float = 1.0  # annotation vectors are multiplied by it: large ones saturate fresh gates
    view: str = "whole"  # what it sees of a photograph: whole (squeezed to the square) | crop (the middle: the paper's)


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    maximise: str = "likelihood"  # likelihood (-log p(y|a) is minimised) | reward (satlib.reward, from a trained model)
    doubly_stochastic: float = 1.0  # lambda; with hard attention 0 where it is not given
    label_smoothing: float = 0.0  # share of a target spread over the vocabulary
    teaching: float = 0.5  # share of the loss that is the teachers', where there are any (satlib.teaching)


@dataclass(frozen=True)
class TrainingConfig:
    """How it is minimised."""

    optimiser: str = "adam"  # adam | rmsprop (Graves' form, the paper's choice for Flickr8k)
    learning_rate: float = 5e-4
    encoder_learning_rate: float = 1e-4  # when the encoder is trained too, from trained weights
    schedule: str = "constant"  # constant | cosine (to zero at the last epoch)
    warmup: int = 0  # batches over which the learning rate grows from zero
    batch_size: int = 64
    epochs: int = 30  # at most
    select: str = "bleu4"  # what chooses the epoch on dev: bleu4 or reward of generated captions | nll of the true ones
    patience: int = 10  # epochs without a better one before stopping
    clip: float = 5.0  # largest norm of the gradient; 0: no clipping
    average: float = 0.0  # decay of the moving average of the weights that is evaluated and kept; 0: none
    loop: str = (
        "plain"  # plain (Decoder.step, word by word) | fast (satlib.fast: the same values, a third of the memory)
    )
    precision: str = "auto"  # auto | float32 | bf16 | fp16; auto: see satlib.device.precision
    seed: int = 0


@dataclass(frozen=True)
class DecodingConfig:
    """How captions are generated."""

    beam: int = 3
    length_normalisation: float = 0.0
    max_length: int = 30
    look: str = "expected"  # what hard attention sees when it generates: expected | probable | sample


@dataclass(frozen=True)
class Recipe:
    """A run, whole: what `recipe.toml` in a run's folder says."""

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
        return dataclasses.asdict(self)

    def to_toml(self) -> str:
        """The recipe as TOML, every value given."""
        lines = [f"name = {_toml(self.name)}"]
        for section in _SECTIONS:
            lines += ["", f"[{section}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in dataclasses.asdict(getattr(self, section)).items()]
        return "\n".join(lines) + "\n"


def _toml(value: str | float | bool) -> str:
    """JSON writes values as TOML reads them, but for the pairs of escapes that it makes of emoji, and the DEL mark."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "encoder": EncoderConfig,
    "decoder": DecoderConfig,
    "objective": ObjectiveConfig,
    "hard": HardConfig,
    "reward": RewardConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_CHOICES = {
    ("data", "language"): ("", *LANGUAGES),
    ("encoder", "view"): VIEWS,
    ("decoder", "attention"): ("soft", "hard", "none"),
    ("decoder", "energy"): ("additive", "concat", "general", "dot"),
    ("objective", "maximise"): ("likelihood", "reward"),
    ("hard", "reward"): ("sentence", "to-come"),
    ("hard", "baseline"): ("moving-average", "none", "other-samples", "learned"),
    ("training", "optimiser"): ("adam", "rmsprop"),
    ("training", "schedule"): ("constant", "cosine"),
    ("training", "loop"): ("plain", "fast"),
    ("training", "select"): ("bleu4", "nll", "reward"),
    ("training", "precision"): ("auto", "float32", "bf16", "fp16"),
    ("decoding", "look"): LOOKS,
}
# The smallest value that makes sense, for every number that has one.
_AT_LEAST: dict[tuple[str, str], float] = {
    ("data", "vocabulary_size"): 3,
    ("data", "min_count"): 1,
    ("data", "max_length"): 1,
    ("data", "train_images"): 0,
    ("data", "buffer"): 1,
    ("encoder", "scale"): 1e-6,
    ("decoder", "embedding"): 1,
    ("decoder", "hidden"): 1,
    ("decoder", "attention_hidden"): 1,
    ("decoder", "dropout"): 0,
    ("objective", "doubly_stochastic"): 0,
    ("objective", "label_smoothing"): 0,
    ("objective", "teaching"): 0,
    ("hard", "samples"): 1,
    ("hard", "expectation"): 0,
    ("hard", "anneal"): 0,
    ("hard", "lambda_r"): 0,
    ("hard", "lambda_e"): 0,
    ("reward", "samples"): 2,
    ("reward", "cider"): 0,
    ("reward", "bleu1"): 0,
    ("reward", "bleu4"): 0,
    ("reward", "meteor"): 0,
    ("reward", "temperature"): 1e-3,
    ("training", "learning_rate"): 0,
    ("training", "encoder_learning_rate"): 0,
    ("training", "warmup"): 0,
    ("training", "batch_size"): 1,
    ("training", "epochs"): 1,
    ("training", "patience"): 1,
    ("training", "clip"): 0,
    ("training", "average"): 0,
    ("training", "seed"): 0,
    ("decoding", "beam"): 1,
    ("decoding", "length_normalisation"): 0,
    ("decoding", "max_length"): 1,
}
_KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text in quotes"}
_BELOW_ONE = {
    ("decoder", "dropout"),
    ("objective", "label_smoothing"),
    ("objective", "teaching"),
    ("hard", "expectation"),
    ("hard", "anneal"),
    ("training", "average"),
}


def names() -> list[str]:
    """The recipes that satlib carries."""
    folder = importlib.resources.files("satlib.recipes")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by its name, or a TOML file by its path, and change some of its values.

    Args:
        name: one of `names()`, or a path.
        changes: "section.key=value" each, the value as in TOML (quotes around strings may be left out).

    Raises:
        SatlibError: no such recipe, or an unknown, mistyped or senseless value.
    """
    if Path(name).suffix == ".toml":
        path = Path(name)
        if not path.is_file():
            raise SatlibError(f"the recipe {path} does not exist; satlib carries {', '.join(names())}")
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise SatlibError(f"cannot read the recipe {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SatlibError(f"the recipe {path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    elif name in names():
        text = (importlib.resources.files("satlib.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise SatlibError(
            f"no recipe is called {name!r}; choose among {', '.join(names())} or give the path of a .toml file"
        )
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SatlibError(f"the recipe {name} is not TOML: {error}") from error
    values.setdefault("name", Path(name).stem)
    for change in changes:
        _apply(values, change)
    return from_dict(values)


def from_dict(values: dict[str, Any]) -> Recipe:
    """Build a recipe from nested dictionaries, checking every name, type and value.

    Raises:
        SatlibError: which value is wrong, and what it may be.
    """
    if not isinstance(values.get("name", ""), str):
        raise SatlibError(f"the recipe's name must be {_KINDS[str]}, not {values['name']!r}")
    unknown = set(values) - {"name", *_SECTIONS}
    if unknown:
        raise SatlibError(f"a recipe has no section {sorted(unknown)[0]!r}; the sections are {', '.join(_SECTIONS)}")
    sections = {}
    for section, kind in _SECTIONS.items():
        given = values.get(section, {})
        if not isinstance(given, dict):
            raise SatlibError(f"[{section}] of the recipe must be a table of values, not {given!r}")
        fields = {f.name: type(f.default) for f in dataclasses.fields(kind)}
        checked = {}
        for key, value in given.items():
            if key not in fields:
                raise SatlibError(f"the recipe's [{section}] has no {key!r}; it has {', '.join(fields)}")
            checked[key] = _checked(section, key, value, fields[key])
        sections[section] = kind(**checked)
    if not (sections["encoder"].train or sections["encoder"].pretrained):
        raise SatlibError(
            "a frozen encoder needs its trained weights; set encoder.pretrained = true, or encoder.train = true to train it"
        )
    if sections["training"].select == "reward" and sections["objective"].maximise != "reward":
        raise SatlibError(
            'training.select = "reward" needs objective.maximise = "reward"; choose by bleu4 or nll where likelihood is maximised'
        )
    if sections["decoder"].attention == "hard":
        if "doubly_stochastic" not in values.get("objective", {}):
            sections["objective"] = dataclasses.replace(sections["objective"], doubly_stochastic=0.0)
        if sections["hard"].baseline == "other-samples" and sections["hard"].samples < 2:
            raise SatlibError(
                'hard.baseline = "other-samples" needs other samples: set hard.samples to at least 2, or choose another baseline'
            )
    return Recipe(name=values.get("name", "recipe"), **sections)


def _checked(section: str, key: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if type(value) is not kind:
        raise SatlibError(f"{section}.{key} must be {_KINDS[kind]}, not {value!r}")
    if kind is float and not math.isfinite(value):
        raise SatlibError(f"{section}.{key} must be a finite number, not {value!r}")
    choices = _CHOICES.get((section, key))
    if choices and value not in choices:
        names = ", ".join(choice or '"" (none)' for choice in choices)
        raise SatlibError(f"{section}.{key} must be one of {names}, not {value!r}")
    least = _AT_LEAST.get((section, key))
    if least is not None and not value >= least:
        raise SatlibError(f"{section}.{key} must be at least {least}, not {value!r}")
    if (section, key) in _BELOW_ONE and not value < 1:
        raise SatlibError(f"{section}.{key} must be below 1, not {value!r}")
    return value


# What files that were written before an option existed were made with.
_BEFORE = {("encoder", "view"): "crop"}
_REMOVED = ("estimator", "temperature", "official")


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a model or a checkpoint, as `Recipe.to_dict` wrote it, with what an older satlib did without stating it."""
    whole = dict(values)
    if isinstance(whole.get("hard"), Mapping):
        whole["hard"] = {key: value for key, value in whole["hard"].items() if key not in _REMOVED}
    for (section, key), value in _BEFORE.items():
        if isinstance(whole.get(section, {}), Mapping):  # anything else is refused where the recipe is built
            whole[section] = {key: value, **whole.get(section, {})}
    return whole


def parse_value(text: str) -> Any:
    """A value as TOML has it; what TOML does not understand is a string without its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _apply(values: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot or section == "name":
        raise SatlibError(
            f"cannot read the change {change!r}; write it as section.key=value, for example training.epochs=3"
        )
    value = parse_value(text)
    table = values.setdefault(section, {})
    if isinstance(table, dict):  # anything else is refused where the recipe is built
        table[key] = value
