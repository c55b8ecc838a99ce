"""A recipe: everything that defines a run, in one small TOML file per data set and model (`satlib/recipes/`).

Each option is declared once: its type, range or choices, meaning and default. Reading a recipe, messages about mistakes,
`satlib recipe --explain` and docs/recipes.md all follow from that declaration.
"""

import difflib
import functools
import importlib.resources
import json
import math
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from satlib.errors import SatlibError

OF_MODEL = "model:"  # begins the name of an encoder that is a captioner's own
View = Literal["whole", "crop"]  # which part of a photograph the encoder sees
Look = Literal["expected", "probable", "sample"]  # what hard attention passes on when it generates captions
VIEWS: tuple[View, ...] = typing.get_args(View)
LOOKS: tuple[Look, ...] = typing.get_args(Look)
SAVE_SECONDS = 600.0  # a checkpoint is written within an epoch when the last one is this old
# A recipe's name is also that of a folder: a stranger's must not lead out of the folder that it is written to.
_NAME = r'^[^\x00-\x1f/\\:*?"<>|.][^\x00-\x1f/\\:*?"<>|]{0,59}\Z'


class _Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Options; each description is a noun phrase that completes the sentence "OPTION is ..."."""


# A table: each option with its meaning.
# fmt: off
class DataConfig(_Section):
    """The captions, and how they become word ids."""

    name: Annotated[str, Meta(description=
        "the data set: its name, or the path of your own folder")] = "flickr8k"
    vocabulary_size: Annotated[int, Meta(ge=3, le=1_000_000, description=
        "K, the largest size of the vocabulary, special tokens included")] = 10_000
    min_count: Annotated[int, Meta(ge=1, description=
        "how often a word must occur in the training captions to enter the vocabulary; rarer words become unknown")] = 1
    max_length: Annotated[int, Meta(ge=1, le=1000, description=
        "the length, in words, of the longest caption that is trained on; longer ones are left out")] = 40
    train_images: Annotated[int, Meta(ge=0, description=
        "the number of training images, from the first; 0 takes all of them (of drawn scenes, the default number)")] = 0


class EncoderConfig(_Section):
    """The network that turns an image into annotation vectors."""

    name: Annotated[str, Meta(description=
        "the encoder: one of those that satlib info lists, timm:NAME, or model:NAME (the trained encoder of a captioner)")] = "vgg19"
    pretrained: Annotated[bool, Meta(description="whether the encoder starts from its trained weights")] = True
    train: Annotated[bool, Meta(description=
        "whether the encoder is trained with the decoder; if not, it is frozen and its annotation vectors are "
        "computed once, by satlib features")] = False
    frozen_statistics: Annotated[bool, Meta(description=
        "whether an encoder that trains keeps its batch normalisation as it is: running statistics, scale and "
        "shift; advisable with pretrained weights and small batches")] = False
    scale: Annotated[float, Meta(ge=0, description=
        "the factor that annotation vectors are multiplied by; large vectors saturate an untrained LSTM. 0 measures "
        "it when training begins: 1 / root mean square of the vectors of some training images")] = 1.0
    view: Annotated[View, Meta(description=
        "the part of a photograph that the encoder sees: whole (all of it, squeezed to a square) or crop (its "
        "middle, as in the paper)")] = "whole"


class DecoderConfig(_Section):
    """The kind of decoder and of attention, and their sizes (m and n as in the paper)."""

    kind: Annotated[Literal["lstm", "transformer"], Meta(description=
        "the decoder: lstm (section 3.1.2), or transformer (Vaswani et al., 2017), which looks at the places with several "
        "heads in each layer; embedding, energy, attention_hidden, gate and output_tanh are the LSTM's, and "
        "layers and heads the Transformer's")] = "lstm"
    embedding: Annotated[int, Meta(ge=1, le=16_384, description="m, the size of the word embedding")] = 512
    hidden: Annotated[int, Meta(ge=1, le=16_384, description=
        "n, the size of the LSTM state; of all vectors of a Transformer, the word embedding among them")] = 512
    layers: Annotated[int, Meta(ge=1, le=100, description="the number of layers")] = 2
    heads: Annotated[int, Meta(ge=1, le=1024, description=
        "the number of heads in each layer, a divisor of decoder.hidden; each has a map of its own")] = 4
    attention: Annotated[Literal["soft", "hard", "none"], Meta(description=
        "the attention: soft (section 4.2), hard (section 4.1), or none (the mean annotation vector at every word)")] = "soft"
    energy: Annotated[Literal["additive", "concat", "general", "dot"], Meta(description=
        "the score of a place before the softmax: additive (the paper's MLP), concat, general or dot")] = "additive"
    attention_hidden: Annotated[int, Meta(ge=1, le=16_384, description=
        "the number of hidden units of the attention MLP")] = 256
    gate: Annotated[bool, Meta(description=
        "whether beta, the scalar gate of section 4.2.1, multiplies the context vector")] = True
    output_tanh: Annotated[bool, Meta(description=
        "whether a tanh precedes the output matrix L_o, as in the official code but not in equation 7")] = False
    dropout: Annotated[float, Meta(ge=0, lt=1, description=
        "the dropout rate in the MLPs of the initial state, on h_t before the output layer, and before L_o; of a "
        "Transformer, on what enters the first layer and on what each part of a layer adds")] = 0.5


class ObjectiveConfig(_Section):
    """The loss."""

    maximise: Annotated[Literal["likelihood", "reward"], Meta(description=
        "the training objective: likelihood (of the true captions) or reward (of captions that the model generates; "
        "needs a trained model, see --start)")] = "likelihood"
    doubly_stochastic: Annotated[float, Meta(ge=0, description=
        "lambda, the weight of the doubly stochastic penalty (equation 14); with hard attention it is 0 unless the "
        "recipe gives it")] = 1.0
    boxes: Annotated[float, Meta(ge=0, description=
        "the weight of the loss that draws the map of a phrase's last word into the boxes that people gave for the "
        "phrase (needs --entities); 0 trains without boxes")] = 0.0
    label_smoothing: Annotated[float, Meta(ge=0, lt=1, description=
        "the share of each target that is spread evenly over the vocabulary")] = 0.0


class HardConfig(_Section):
    """The estimator of the gradient of hard attention's bound (section 4.1); no effect with soft attention."""

    samples: Annotated[int, Meta(ge=1, le=1000, description=
        "N, the number of attention paths sampled per caption")] = 1
    expectation: Annotated[float, Meta(ge=0, lt=1, description=
        "the probability that an image uses the expected context vector in place of a sampled one")] = 0.5
    anneal: Annotated[float, Meta(ge=0, lt=1, description=
        "the share of training over which that probability falls from 1 to hard.expectation; 0 keeps it constant")] = 0.0
    reward: Annotated[Literal["sentence", "to-come"], Meta(description=
        "the reward of a place: sentence (the paper's: log p of the whole caption) or to-come (log p of the words "
        "from t on)")] = "sentence"
    baseline: Annotated[Literal["moving-average", "none", "leave-one-out", "learned"], Meta(description=
        "the baseline that is subtracted from the reward: moving-average (the paper's), none, leave-one-out "
        "(the mean reward of the caption's other samples) or learned (a linear function of the LSTM state, added to the moving average)")] = "moving-average"
    lambda_r: Annotated[float, Meta(ge=0, description="lambda_r, the weight of the score-function term")] = 1.0
    lambda_e: Annotated[float, Meta(ge=0, description="lambda_e, the weight of the entropy term")] = 0.01


class RewardConfig(_Section):
    """The reward, if objective.maximise is "reward"; no effect otherwise."""

    samples: Annotated[int, Meta(ge=2, description="N, the number of captions sampled per image")] = 5
    baseline: Annotated[Literal["leave-one-out", "greedy", "group"], Meta(description=
        "what a caption's reward is compared with: leave-one-out (the mean of the image's other captions: RLOO), greedy (the "
        "model's greedy caption: self-critical training) or group (the mean of all, divided by their standard deviation: "
        "GRPO, which is biased)")] = "leave-one-out"
    cider: Annotated[float, Meta(ge=0, description="the weight of CIDEr-D (which is 0 to 10)")] = 1.0
    bleu1: Annotated[float, Meta(ge=0, description=
        "the weight of sentence BLEU-1 (which is 0 to 1); it rewards the right words in any order")] = 0.0
    bleu4: Annotated[float, Meta(ge=0, description="the weight of sentence BLEU-4 (which is 0 to 1)")] = 0.0
    temperature: Annotated[float, Meta(ge=0.001, description=
        "the softmax temperature at which captions are sampled and their log-probability is taken")] = 0.5


class TrainingConfig(_Section):
    """The optimiser, the schedule, and early stopping."""

    optimiser: Annotated[Literal["adam", "rmsprop"], Meta(description=
        "the optimiser: adam, or rmsprop in Graves' form (the paper's choice for Flickr8k)")] = "adam"
    learning_rate: Annotated[float, Meta(ge=0, description=
        "the peak learning rate of the decoder, and of an encoder that is trained from scratch")] = 5e-4
    encoder_learning_rate: Annotated[float, Meta(ge=0, description=
        "the peak learning rate of an encoder that is trained from pretrained weights")] = 1e-4
    schedule: Annotated[Literal["constant", "cosine"], Meta(description=
        "the learning rate after the warm-up: constant, or cosine (falls to zero by the last epoch)")] = "constant"
    warmup: Annotated[int, Meta(ge=0, description=
        "the number of batches over which the learning rate grows from zero")] = 0
    batches: Annotated[Literal["captions", "images"], Meta(description=
        "what a batch holds: captions (of one length), or images (with all their captions; an encoder that is trained "
        "then encodes each once)")] = "captions"
    batch_size: Annotated[int, Meta(ge=1, le=100_000, description=
        "the number of captions in a batch; of images, if batches hold images or the objective is reward")] = 64
    epochs: Annotated[int, Meta(ge=1, description="the largest number of epochs")] = 30
    select: Annotated[Literal["bleu4", "nll", "reward"], Meta(description=
        "the dev score that selects the best epoch: bleu4 or reward (of generated captions), or nll (of the true "
        "captions)")] = "bleu4"
    patience: Annotated[int, Meta(ge=1, description=
        "the number of epochs without a better dev score after which training stops early")] = 10
    augment: Annotated[bool, Meta(description=
        "whether an encoder that is trained sees a random part of each image (at least 70 % of its area), mirrored every "
        "other time, in place of the whole")] = False
    drop_places: Annotated[float, Meta(ge=0, lt=1, description=
        "the share of the places that a batch leaves out, drawn anew for each batch; the decoder sees the others "
        "only")] = 0.0
    drop_dimensions: Annotated[float, Meta(ge=0, lt=1, description=
        "the dropout rate of the annotation vectors' dimensions: a caption loses the same ones in all places")] = 0.0
    clip: Annotated[float, Meta(ge=0, description=
        "the largest norm of the gradient; 0 turns clipping off")] = 5.0
    average: Annotated[float, Meta(ge=0, lt=1, description=
        "the decay of the moving average of the weights, which is evaluated and saved in place of the weights; 0 "
        "turns it off")] = 0.0
    precision: Annotated[Literal["auto", "float32", "bf16", "fp16"], Meta(description=
        "the number format of matrix products; auto is bf16 on a GPU with bf16 hardware, fp16 on any other GPU, and "
        "float32 elsewhere")] = "auto"
    seed: Annotated[int, Meta(ge=0, description="the seed of all random numbers")] = 0


class DecodingConfig(_Section):
    """How captions are generated."""

    beam: Annotated[int, Meta(ge=1, le=100, description="the beam width; 1 is greedy decoding")] = 3
    length_normalisation: Annotated[float, Meta(ge=0, description=
        "the exponent x that hypotheses are ranked by: log p / length^x; 0 ranks by log p")] = 0.0
    max_length: Annotated[int, Meta(ge=1, le=1000, description=
        "the largest number of words in a generated caption")] = 30
    look: Annotated[Look, Meta(description=
        "the context vector that hard attention passes on: expected (the weighted mean), probable (the place with "
        "the largest weight), or sample (a place drawn by the weights)")] = "expected"
# fmt: on

# Options that earlier versions had, with the values at which they changed nothing: stored models have them in their headers.
REMOVED: dict[str, Any] = {
    "data.buffer": 4000,
    "data.language": "",
    "decoder.normaliser": "softmax",
    "decoder.tied": True,
    "objective.words": 0.0,
    "objective.distillation": 0.5,
    "reward.meteor": 0.0,
    "training.logger": "none",
}


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """All values of a run, as in the file `recipe.toml` of its folder."""

    name: Annotated[str, Meta(pattern=_NAME)]
    data: DataConfig = DataConfig()
    encoder: EncoderConfig = EncoderConfig()
    decoder: DecoderConfig = DecoderConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    hard: HardConfig = HardConfig()
    reward: RewardConfig = RewardConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries, as TOML and JSON have them."""
        return msgspec.to_builtins(self)

    def to_toml(self) -> str:
        """The recipe as TOML, with every value."""
        lines = [f"name = {toml(self.name)}"]
        for section in SECTIONS:
            values = msgspec.structs.asdict(getattr(self, section))
            lines += ["", f"[{section}]", *(f"{key} = {toml(value)}" for key, value in values.items())]
        return "\n".join(lines) + "\n"


SECTIONS: dict[str, type[_Section]] = {
    name: kind for name, kind in typing.get_type_hints(Recipe).items() if name != "name"
}


class Option(NamedTuple):
    """What is declared about an option: its default, the valid texts (none if any is), and its range and meaning."""

    default: Any
    choices: tuple[str, ...]
    meta: Meta

    @property
    def meaning(self) -> str:
        """A noun phrase that completes the sentence "OPTION is ..."."""
        return self.meta.description or ""

    @property
    def range(self) -> str:
        """The valid numbers in words, such as "at least 0 and below 1"; empty if there is no limit."""
        limits = {"at least": self.meta.ge, "above": self.meta.gt, "below": self.meta.lt, "at most": self.meta.le}
        return " and ".join(f"{words} {limit:,}" for words, limit in limits.items() if limit is not None)

    def expected(self, value: Any) -> str:
        """What a value should have been that is not valid."""
        if self.choices:
            return "one of " + ", ".join(choice or '"" (none)' for choice in self.choices)
        kind = type(self.default)
        if type(value) not in ((int, float) if kind is float else (kind,)):
            return {float: "a number", int: "a whole number", bool: "true or false", str: "a text in quotes"}[kind]
        return self.range if _is_finite(value) else "a finite number"


@functools.cache
def declared(section: str) -> dict[str, Option]:
    """The options of a section, by name."""
    hints, options = typing.get_type_hints(SECTIONS[section], include_extras=True), {}
    for field in msgspec.structs.fields(SECTIONS[section]):
        kind, meta = typing.get_args(hints[field.name])
        options[field.name] = Option(field.default, typing.get_args(kind), meta)
    return options


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
    text = read(name)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        raise SatlibError(f"the recipe {name} is not TOML: {error}") from error
    if not values:
        raise SatlibError(
            f"the recipe {name} is empty; begin with a copy of another: satlib recipe flickr8k-soft > {name}"
        )
    if not text.endswith("\n"):
        raise SatlibError(
            f"the recipe {name} ends within a line; if it was cut off, copy it again, and otherwise end its last line with a line break"
        )
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
            return path.read_text(encoding="utf-8-sig")  # Notepad may write a byte order mark
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
    name = values.get("name", "recipe")
    if not isinstance(name, str):
        raise SatlibError(f"the recipe's name must be a text in quotes, not {name!r}")
    if not re.match(_NAME, name):
        raise SatlibError(
            f"the recipe's name, {name[:50]!r}, cannot be that of a folder, as runs/NAME needs it; take up to 60 letters, "
            "digits, spaces, - and _, and no point at the beginning"
        )
    sections: dict[str, Any] = {
        section: _section(section, table) for section, table in values.items() if section != "name"
    }
    recipe = Recipe(name, **sections)
    if recipe.decoder.attention == "hard" and "doubly_stochastic" not in values.get("objective", {}):
        objective = msgspec.structs.replace(recipe.objective, doubly_stochastic=0.0)
        recipe = msgspec.structs.replace(recipe, objective=objective)
    require_consistent(recipe)
    return recipe


def _section(section: str, table: Any) -> _Section:
    """A section of a recipe, from the values that are given.

    Raises:
        SatlibError: there is no such section or option, or a value is not valid.
    """
    if section not in SECTIONS:
        raise SatlibError(
            f"a recipe has no section {section!r}{_suggestion(section, SECTIONS)}; the sections are {', '.join(SECTIONS)}"
        )
    if not isinstance(table, Mapping):
        raise SatlibError(f"[{section}] of the recipe must be a table of values, not {table!r}")
    if not table:
        raise SatlibError(
            f"[{section}] of the recipe is empty; the file may be cut off: copy it again, or delete this line"
        )
    options = declared(section)
    table = {key: value for key, value in table.items() if REMOVED.get(f"{section}.{key}") != value}
    for key, value in table.items():
        if key not in options:
            homes = [f"{other}.{key}" for other in SECTIONS if key in declared(other)]
            suggestion = f" (did you mean {homes[0]}?)" if homes else _suggestion(key, options)
            raise SatlibError(f"the recipe's [{section}] has no {key!r}{suggestion}; it has {', '.join(options)}")
        try:
            msgspec.convert({key: value}, SECTIONS[section])
            valid = _is_finite(value)
        except msgspec.ValidationError:
            valid = False
        if not valid:
            option = options[key]
            raise SatlibError(
                f"{section}.{key} must be {option.expected(value)}, not {value!r}; {section}.{key} is {option.meaning}"
            )
    return msgspec.convert(table, SECTIONS[section])


def _is_finite(value: Any) -> bool:
    """Whether a value is no infinite number and no NaN; a whole number too large for a float counts as infinite."""
    try:
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:
        return False


def _suggestion(name: str, known: Iterable[str]) -> str:
    """A question that names the most similar of the known names, or nothing."""
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def require_consistent(recipe: Recipe) -> None:
    """Refuse values that are valid one by one but not together.

    Raises:
        SatlibError: there are such values; the message says which.
    """
    if not (recipe.encoder.train or recipe.encoder.pretrained):
        raise SatlibError(
            "a frozen encoder needs pretrained weights; set encoder.pretrained = true, or encoder.train = true to train it"
        )
    if recipe.encoder.train and recipe.encoder.name.startswith(OF_MODEL):
        raise SatlibError(
            f"the encoder {recipe.encoder.name} stays as it is: set encoder.train = false, or begin with the model (--start)"
        )
    if recipe.encoder.frozen_statistics and not recipe.encoder.pretrained:
        raise SatlibError(
            "encoder.frozen_statistics = true needs pretrained weights: the statistics of a new network are no statistics yet; "
            "set encoder.pretrained = true"
        )
    if recipe.training.augment and not recipe.encoder.train:
        raise SatlibError(
            "training.augment = true needs encoder.train = true: a frozen encoder's annotation vectors are computed once; "
            "training.drop_places and training.drop_dimensions vary those"
        )
    if recipe.training.augment and recipe.objective.boxes:
        raise SatlibError(
            "training.augment = true moves and mirrors what the boxes enclose; set it to false, or objective.boxes to 0"
        )
    if recipe.training.select == "reward" and recipe.objective.maximise != "reward":
        raise SatlibError(
            'training.select = "reward" needs objective.maximise = "reward"; select by bleu4 or nll when the likelihood is '
            "maximised"
        )
    decoder = recipe.decoder
    if decoder.kind == "transformer" and decoder.attention != "soft":
        raise SatlibError(
            f'decoder.kind = "transformer" needs decoder.attention = "soft", not "{decoder.attention}", which is the LSTM\'s'
        )
    if decoder.kind == "transformer" and decoder.hidden % decoder.heads:
        raise SatlibError(
            f"decoder.hidden = {decoder.hidden} cannot be shared by decoder.heads = {decoder.heads}; choose a number of heads "
            "that divides it"
        )
    if recipe.decoder.attention == "hard" and recipe.hard.baseline == "leave-one-out" and recipe.hard.samples < 2:
        raise SatlibError(
            'hard.baseline = "leave-one-out" needs more than one sample: set hard.samples to at least 2, or choose another '
            "baseline"
        )


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


def toml(value: str | float | bool) -> str:
    """A value as TOML.

    JSON writes values as TOML reads them, except for emoji, which it would write as surrogate pairs, and the DEL character.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
