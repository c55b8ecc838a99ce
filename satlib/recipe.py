"""A recipe: everything that defines a run, in one small TOML file per data set and model (`satlib/recipes/`).

Each option is one line below: its name, its type with the valid values, its default and its meaning. A recipe is checked
against these lines when it is read, and `satlib recipe --explain` prints them.
"""

import difflib
import inspect
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from satlib.errors import SatlibError

OF_MODEL = "model:"  # begins the name of an encoder that is a captioner's own
View = Literal["whole", "crop"]
Look = Literal["expected", "probable", "sample"]
# What `decoder.attention` may be; `model.attention.register` adds to it.
ATTENTIONS = ["soft", "hard", "none"]
FOLDER = Path(__file__).parent / "recipes"
SAVE_SECONDS = 600.0  # a checkpoint is written within an epoch when the last one is this old

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Weight = Annotated[float, Meta(ge=0)]
Factor = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]


class _Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Options; the comment of each is a noun phrase that says what it is."""


class DataConfig(_Section):
    """The captions, and how they become word ids."""

    name: str = "flickr8k"  # the data set, or the path of your own folder
    vocabulary_size: Annotated[int, Meta(ge=3)] = (
        10_000  # K, the largest vocabulary, special tokens included
    )
    min_count: Positive = 1  # how often a word occurs in the training captions at least; rarer words are unknown words
    max_length: Positive = 40  # the length in words of the longest caption that is trained on
    train_images: Natural = (
        0  # the number of training images, from the first; 0 takes all, of each of several sets
    )
    captions: Positive = 5  # the number of captions of a training image, from the first


class EncoderConfig(_Section):
    """The network that turns an image into annotation vectors."""

    name: str = "vgg19"  # one that satlib info lists, or model:NAME, a captioner's trained encoder
    pretrained: bool = True  # whether it starts from its trained weights
    train: bool = False  # whether it is trained with the decoder; otherwise satlib features computes its vectors once
    frozen_statistics: bool = (
        False  # whether batch normalisation stays as it is in an encoder that trains
    )
    scale: Factor = (
        1.0  # the factor of annotation vectors; 1 / their root mean square brings them to about 1
    )
    view: View = "whole"  # what it sees of a photograph: whole, squeezed to a square, or crop, its middle (the paper)


class DecoderConfig(_Section):
    """The kind of decoder and of attention, and their sizes (m and n as in the paper)."""

    kind: Literal["lstm", "transformer"] = "lstm"  # section 3.1.2, or Vaswani et al. (2017)
    embedding: Positive = 512  # m, the size of the LSTM's word embedding
    hidden: Positive = 512  # n, the size of the LSTM's state; of all vectors of a Transformer
    layers: Positive = 2  # the Transformer's layers
    heads: Positive = 4  # the Transformer's heads in each layer, a divisor of decoder.hidden
    # soft: section 4.2; hard: section 4.1; none: the mean vector at every word; or the name of a registered one
    attention: str = "soft"  # soft, hard, none, or one of your own (`model.attention.register`)
    attention_hidden: Positive = 256  # the hidden units of the attention MLP
    gate: bool = (
        True  # whether beta, the scalar gate of section 4.2.1, multiplies the context vector
    )
    output_tanh: bool = (
        False  # whether a tanh precedes L_o, as in the official code but not in equation 7
    )
    dropout: Share = 0.5  # the dropout rate: initial state, h_t and output layer; of a Transformer, what each part adds


class ObjectiveConfig(_Section):
    """The loss."""

    maximise: Literal["likelihood", "reward"] = (
        "likelihood"  # of true captions, or of captions that a model generates
    )
    doubly_stochastic: Weight = (
        1.0  # lambda of equation 14; with hard attention it is 0 unless the recipe gives it
    )
    boxes: Weight = (
        0.0  # the weight of the loss that draws a noun's map into its boxes (needs --entities)
    )


class HardConfig(_Section):
    """The estimator of the gradient of hard attention's bound (section 4.1); no effect with soft attention."""

    samples: Positive = 1  # N, the number of attention paths sampled per caption
    expectation: Share = 0.5  # the probability that an image uses the expected context vector in place of a sampled one
    anneal: Share = (
        0.0  # the share of training in which that probability falls from 1; 0 keeps it constant
    )
    reward: Literal["sentence", "to-come"] = (
        "sentence"  # log p of the caption (the paper), or of the words from t on
    )
    baseline: Literal["moving-average", "none", "leave-one-out", "learned"] = (
        "moving-average"  # the reward's baseline
    )
    lambda_r: Weight = 1.0  # the weight of the score-function term
    lambda_e: Weight = 0.01  # the weight of the entropy term


class RewardConfig(_Section):
    """The reward, if objective.maximise is "reward"; no effect otherwise."""

    samples: Annotated[int, Meta(ge=2)] = 5  # N, the number of captions sampled per image
    baseline: Literal["leave-one-out", "greedy", "group"] = (
        "leave-one-out"  # RLOO, self-critical training, or GRPO
    )
    cider: Weight = 1.0  # the weight of CIDEr-D, which is 0 to 10
    bleu1: Weight = 0.0  # the weight of sentence BLEU-1, which is 0 to 1
    bleu4: Weight = 0.0  # the weight of sentence BLEU-4, which is 0 to 1
    temperature: Factor = 0.5  # the softmax temperature at which captions are sampled


class TrainingConfig(_Section):
    """The optimiser, the schedule, and early stopping."""

    optimiser: Literal["adam", "muon", "rmsprop"] = (
        "adam"  # muon: of matrices, adam for the rest; rmsprop: the paper's
    )
    learning_rate: Weight = (
        5e-4  # the peak learning rate of the decoder, and of an encoder trained from scratch
    )
    encoder_learning_rate: Weight = (
        1e-4  # the peak learning rate of an encoder trained from pretrained weights
    )
    schedule: Literal["constant", "cosine", "linear"] = (
        "constant"  # cosine falls to 0 all the time, linear at the end
    )
    warmup: Natural = 0  # the number of batches over which the learning rate grows from zero
    batches: Literal["captions", "images"] = (
        "captions"  # what a batch holds: captions of one length, or whole images
    )
    batch_size: Positive = (
        64  # captions in a batch; images, if batches hold images or the objective is reward
    )
    epochs: Positive = 30  # the largest number of epochs
    epoch_images: Natural = (
        0  # the images of an epoch, in each the next ones, if batches hold images; 0 takes all
    )
    select: Literal["bleu4", "nll", "reward"] = "bleu4"  # the dev score that selects the best epoch
    patience: Positive = 10  # epochs without a better dev score after which training stops early
    augment: bool = (
        False  # whether an encoder that trains sees random parts of the images, mirrored or not
    )
    drop_places: Share = (
        0.0  # the share of the places that a batch leaves out, drawn for each batch
    )
    drop_dimensions: Share = (
        0.0  # the dropout rate of the annotation vectors' dimensions, the same in all places
    )
    clip: Weight = 5.0  # the largest norm of the gradient; 0 turns clipping off
    average: Share = (
        0.0  # the decay of the weights' moving average, which is judged and saved; 0 turns it off
    )
    precision: Literal["auto", "float32", "bf16", "fp16"] = (
        "auto"  # of products; auto: bf16 if a GPU trains encoders
    )
    seed: Natural = 0  # the seed of all random numbers


class DecodingConfig(_Section):
    """How captions are generated."""

    beam: Positive = 3  # the beam width; 1 is greedy decoding
    length_normalisation: Weight = (
        0.0  # hypotheses are ranked by log p / length^x; 0 ranks by log p
    )
    max_length: Positive = 30  # the largest number of words in a generated caption
    no_repeat: bool = (
        False  # whether a caption has each noun, verb and adjective once at most; English only
    )
    look: Look = "expected"  # hard attention's context: the weighted mean, the likeliest place, or a place drawn


# Options of earlier versions with the values at which they changed nothing: stored models have them in their headers.
REMOVED: dict[str, Any] = {
    "data.buffer": 4000,
    "data.language": "",
    "decoder.energy": "additive",
    "decoder.normaliser": "softmax",
    "decoder.tied": True,
    "objective.words": 0.0,
    "objective.distillation": 0.5,
    "objective.label_smoothing": 0.0,
    "reward.meteor": 0.0,
    "training.logger": "none",
}


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """All values of a run, as in the file `recipe.toml` of its folder."""

    name: Annotated[
        str, Meta(pattern=r'^[^\x00-\x1f/\\:*?"<>|.][^\x00-\x1f/\\:*?"<>|]{0,59}\Z')
    ]  # also a folder's
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
        return msgspec.toml.encode(self).decode()


SECTIONS: dict[str, type[_Section]] = {
    name: kind for name, kind in typing.get_type_hints(Recipe).items() if name != "name"
}


def declared(section: str) -> dict[str, str]:
    """The options of a section with their types and meanings, as they are written above."""
    lines = re.findall(
        r"^    (\w+): (.+) = .+?  # (.+)$", inspect.getsource(SECTIONS[section]), re.MULTILINE
    )
    return {
        name: re.sub(r"^Literal.(.*).$", r"\1", kind) + ": " + meaning
        for name, kind, meaning in lines
    }


def explained(recipe: Recipe) -> str:
    """A recipe as TOML, with the valid values and the meaning of each option as a comment."""
    lines = []
    for section, kind in SECTIONS.items():
        lines += ["", f"[{section}]  # {kind.__doc__}"]
        for name, meaning in declared(section).items():
            lines.append(
                f"{f'{name} = {json.dumps(getattr(getattr(recipe, section), name))}':32}  # {meaning}"
            )
    return "\n".join(lines[1:])


def names() -> list[str]:
    """The recipes that come with satlib."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str) -> str:
    """The text of a recipe by its name, or of a TOML file by its path."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        own = f"; for your folder: own-folder --set data.name={name}" if Path(name).is_dir() else ""
        advice = own or f"{_suggestion(name, names())}; satlib has {', '.join(names())}"
        raise SatlibError(f"the recipe {name} does not exist{advice}")
    return path.read_text(encoding="utf-8-sig")  # Notepad may write a byte order mark


def description(name: str) -> str:
    """The first line of a recipe's file, if that is a comment; otherwise an empty text."""
    return "".join(re.findall(r"\A#\s*(.+)", read(name)))


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by its name, or a TOML file by its path, with changes of the form "section.key=value"."""
    try:
        values = {"name": Path(name).stem, **tomllib.loads(read(name))}
    except ValueError as error:
        raise SatlibError(f"the recipe {name} is not TOML: {error}") from error
    return from_dict(changed(values, changes))


def changed(values: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Nested dictionaries with changes of the form "section.key=value", the value as in TOML or a text without quotes."""
    result = {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()
    }
    for change in changes:
        option, equals, text = change.partition("=")
        section, _, key = option.strip().partition(".")
        if not (equals and key):
            raise SatlibError(
                f"cannot read {change!r}; write section.key=value, for example training.epochs=3"
            )
        result.setdefault(section, {})[key] = parse_value(text)
    return result


def parse_value(text: str) -> Any:
    """A value as in TOML; anything that is not TOML is a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text.strip()


def from_dict(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from nested dictionaries; an option or a value that is not valid, or two that do not go together, are refused."""
    values = {
        section: {
            key: value for key, value in table.items() if REMOVED.get(f"{section}.{key}") != value
        }
        if isinstance(table, Mapping)
        else table
        for section, table in values.items()
    }
    try:
        recipe = msgspec.convert(values, Recipe)
    except msgspec.ValidationError as error:
        raise SatlibError(f"the recipe is not valid: {error}{_explanation(str(error))}") from error
    if recipe.decoder.attention == "hard" and "doubly_stochastic" not in values.get(
        "objective", {}
    ):
        objective = msgspec.structs.replace(recipe.objective, doubly_stochastic=0.0)
        recipe = msgspec.structs.replace(recipe, objective=objective)
    for message, wrong in _conflicts(recipe).items():
        if wrong:
            raise SatlibError(message)
    return recipe


def _explanation(problem: str) -> str:
    """What an option is that has an invalid value, or the option that was meant."""
    if unknown := re.search(r"unknown field `(\w+)`(?: - at `\$\.(\w+)`)?", problem):
        key, section = unknown.groups()
        options = (
            [f"{name}.{option}" for name in SECTIONS for option in declared(name)]
            if section
            else SECTIONS
        )
        elsewhere = [option for option in options if option.endswith(f".{key}")]
        return (
            f" (did you mean {elsewhere[0]}?)"
            if elsewhere
            else _suggestion(f"{section}.{key}" if section else key, options)
        )
    if place := re.search(r"\$\.(\w+)\.(\w+)`", problem):
        section, key = place.groups()
        return f"; {section}.{key} is {declared(section)[key]}"
    return ""


def _suggestion(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def _conflicts(recipe: Recipe) -> dict[str, bool]:
    """What to say of values that are valid one by one but not together, and whether the recipe has them."""
    encoder, decoder, objective, training = (
        recipe.encoder,
        recipe.decoder,
        recipe.objective,
        recipe.training,
    )
    rewarded = objective.maximise == "reward"
    known = ", ".join(f'"{name}"' for name in ATTENTIONS)
    return {
        f'decoder.attention is "{decoder.attention}", not one of {known}; one of your own needs its file: '
        f"--attention FILE.py:{decoder.attention}": decoder.attention not in ATTENTIONS,
        "a frozen encoder needs pretrained weights; set encoder.pretrained or encoder.train to true": (
            not (encoder.train or encoder.pretrained)
        ),
        f"the encoder {encoder.name} stays as it is; set encoder.train = false, or begin with the model (--start)": (
            encoder.train and encoder.name.startswith(OF_MODEL)
        ),
        "training.augment needs encoder.train = true: a frozen encoder's annotation vectors are computed once": (
            training.augment and not encoder.train
        ),
        "training.augment moves what the boxes enclose; set it to false, or objective.boxes to 0": (
            training.augment and objective.boxes > 0
        ),
        'training.epoch_images needs training.batches = "images"': training.epoch_images > 0
        and training.batches != "images",
        "objective.boxes needs attention (soft or hard) and the likelihood of captions": (
            objective.boxes > 0 and (decoder.attention == "none" or rewarded)
        ),
        'training.select = "reward" needs objective.maximise = "reward"; select by bleu4 or nll': (
            training.select == "reward" and not rewarded
        ),
        'decoder.kind = "transformer" needs decoder.attention = "soft"; hard and none are the LSTM\'s': (
            decoder.kind == "transformer" and decoder.attention != "soft"
        ),
        f"decoder.heads = {decoder.heads} must divide decoder.hidden = {decoder.hidden}": (
            decoder.kind == "transformer" and decoder.hidden % decoder.heads > 0
        ),
    }
