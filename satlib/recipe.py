"""A recipe: everything that defines a run, in one small TOML file per data set and model.

Those that come with satlib are in `satlib/recipes/`. An option is declared once, below: its name,
its type with the valid values, its meaning and its default. A recipe is checked against that when
it is read, and `satlib recipe --explain` prints it.
"""

import copy
import difflib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from satlib.errors import SatlibError

OF_MODEL = "model:"  # begins the name of an encoder that is a captioner's own
FOLDER = Path(__file__).parent / "recipes"
SAVE_SECONDS = 600.0  # a checkpoint is written within an epoch when the last one is this old

Look = Literal["expected", "probable", "sample"]

# What `decoder.attention` may be; `model.attention.register` adds to it.
ATTENTIONS = ["soft", "hard", "none"]

# Numbers by the values that they may have.
Positive = Annotated[int, Meta(ge=1)]
# What memory grows with has a limit: a file's header may say anything.
Size = Annotated[int, Meta(ge=1, le=10_000)]
Few = Annotated[int, Meta(ge=1, le=1_000)]
Natural = Annotated[int, Meta(ge=0)]
Weight = Annotated[float, Meta(ge=0)]
Factor = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, lt=1)]

# A recipe's name is also that of its run's folder: no separators, nothing hidden, nothing that
# Windows refuses.
Name = Annotated[str, Meta(pattern=r'^[^\x00-\x1f/\\:*?"<>|.][^\x00-\x1f/\\:*?"<>|]{0,59}\Z')]


class _Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Options; the text in the type of each is a noun phrase that says what the option is."""


class DataConfig(_Section):
    """The captions, and how they become word ids."""

    name: Annotated[str, "the data set, or the path of your own folder"] = "flickr8k"

    # 10,000 as in the paper, more than Flickr8k has. Whoever is short of memory sets it lower: a
    # word costs a row of the embedding and one of the output layer.
    vocabulary_size: Annotated[
        int, Meta(ge=3), "K, the largest vocabulary, special tokens included"
    ] = 10_000
    min_count: Annotated[
        Positive,
        "how often a word occurs in the training captions at least; rarer words are unknown words",
    ] = 1

    # For captions longer than those of the paper's data sets (docs/data.md): memory grows with it.
    max_length: Annotated[Size, "the length in words of the longest caption that is trained on"] = (
        40
    )
    train_images: Annotated[
        Natural,
        "the number of training images, from the first; 0 takes all, of each of several sets",
    ] = 0
    captions: Annotated[Positive, "the number of captions of a training image, from the first"] = 5


class EncoderConfig(_Section):
    """The network that turns an image into annotation vectors."""

    name: Annotated[
        str, "vgg19, efficientnet-lite0 or small, or model:NAME, a captioner's trained encoder"
    ] = "vgg19"
    pretrained: Annotated[bool, "whether it starts from its trained weights"] = True
    train: Annotated[
        bool,
        "whether it is trained with the decoder; otherwise satlib features computes its vectors "
        "once",
    ] = False
    frozen_statistics: Annotated[
        bool, "whether batch normalisation stays as it is in an encoder that trains"
    ] = False
    scale: Annotated[
        Factor,
        "the factor of annotation vectors; 1 / their root mean square brings them to about 1",
    ] = 1.0


class DecoderConfig(_Section):
    """The kind of decoder and of attention, and their sizes (m and n as in the paper)."""

    kind: Annotated[Literal["lstm", "transformer"], "section 3.1.2, or Vaswani et al. (2017)"] = (
        "lstm"
    )
    embedding: Annotated[Size, "m, the size of the LSTM's word embedding"] = 512
    hidden: Annotated[Size, "n, the size of the LSTM's state; of all vectors of a Transformer"] = (
        512
    )
    layers: Annotated[Few, "the Transformer's layers"] = 2

    # Notebook 10 reads and moves the eight maps of scenes-transformer, four in each layer; other
    # numbers are for Transformers of your own.
    heads: Annotated[Few, "the Transformer's heads in each layer, a divisor of decoder.hidden"] = 4
    attention: Annotated[
        str,
        '"soft", "hard", "none": section 4.2, section 4.1, or the mean vector at every word; or the '
        "name of your own",
    ] = "soft"
    attention_hidden: Annotated[Size, "the hidden units of the attention MLP"] = 256
    attention_layers: Annotated[
        Literal[1, 2],
        "2: another layer and a tanh on the annotation vectors, as in the official COCO script",
    ] = 1
    gate: Annotated[
        bool, "whether beta, the scalar gate of section 4.2.1, multiplies the context vector"
    ] = True
    output_tanh: Annotated[
        bool, "whether a tanh precedes L_o, as in the official code but not in equation 7"
    ] = False
    dropout: Annotated[
        Share,
        "the dropout rate: initial state, h_t and output layer; of a Transformer, what each part "
        "adds",
    ] = 0.5


class ObjectiveConfig(_Section):
    """The loss."""

    maximise: Annotated[
        Literal["likelihood", "reward"], "of true captions, or of captions that a model generates"
    ] = "likelihood"
    doubly_stochastic: Annotated[
        Weight, "lambda of equation 14; with hard attention it is 0 unless the recipe gives it"
    ] = 1.0
    boxes: Annotated[
        Weight,
        "the weight of the loss that draws a noun's map into its boxes (needs --entities)",
    ] = 0.0


class HardConfig(_Section):
    """How hard attention's gradient is estimated (section 4.1); no effect with soft attention."""

    # More paths mean less noise, at N times the cost. The recipes take one; whoever sets
    # baseline = "leave-one-out" needs two.
    samples: Annotated[Few, "N, the number of attention paths sampled per caption"] = 1

    # The paper's coin, which flickr8k-paper-hard tosses. The other recipes begin with 1 (`anneal`)
    # and end with it; 0 makes every path a sampled one.
    expectation: Annotated[
        Share,
        "the probability that an image uses the expected context vector in place of a sampled one",
    ] = 0.5
    anneal: Annotated[
        Share, "the share of training in which that probability falls from 1; 0 keeps it constant"
    ] = 0.0
    reward: Annotated[
        Literal["sentence", "to-come"],
        "log p of the caption (the paper), or of the words from t on",
    ] = "sentence"
    baseline: Annotated[
        Literal["moving-average", "none", "leave-one-out", "learned"], "the reward's baseline"
    ] = "moving-average"
    lambda_r: Annotated[Weight, "the weight of the score-function term"] = 1.0
    lambda_e: Annotated[Weight, "the weight of the entropy term"] = 0.01


class RewardConfig(_Section):
    """The reward, if objective.maximise is "reward"; no effect otherwise."""

    # Each caption costs a rollout of the decoder: fewer where a GPU's memory is short, more for a
    # quieter gradient.
    samples: Annotated[int, Meta(ge=2, le=1_000), "N, the number of captions sampled per image"] = 5

    # The recipes take the first; the others are there to be compared with it (docs/training.md).
    baseline: Annotated[
        Literal["leave-one-out", "greedy", "group"],
        "RLOO, self-critical training, or GRPO",
    ] = "leave-one-out"
    cider: Annotated[Weight, "the weight of CIDEr-D, which is 0 to 10"] = 1.0
    bleu1: Annotated[Weight, "the weight of sentence BLEU-1, which is 0 to 1"] = 0.0
    bleu4: Annotated[Weight, "the weight of sentence BLEU-4, which is 0 to 1"] = 0.0

    # Set to 1 for the plain policy gradient; beyond/rewards.py says why the recipes sample colder.
    temperature: Annotated[Factor, "the softmax temperature at which captions are sampled"] = 0.5


class TrainingConfig(_Section):
    """The optimiser, the schedule, and early stopping."""

    optimiser: Annotated[
        Literal["adam", "muon", "rmsprop"],
        "muon: of matrices, adam for the rest; rmsprop: as Graves (2013) has it",
    ] = "adam"
    learning_rate: Annotated[
        Weight, "the peak learning rate of the decoder, and of an encoder trained from scratch"
    ] = 5e-4
    encoder_learning_rate: Annotated[
        Weight, "the peak learning rate of an encoder trained from pretrained weights"
    ] = 1e-4
    schedule: Annotated[
        Literal["constant", "cosine", "linear"],
        "cosine falls to 0 all the time, linear at the end",
    ] = "constant"
    warmup: Annotated[
        Natural, "the number of batches over which the learning rate grows from zero"
    ] = 0
    batches: Annotated[
        Literal["captions", "images"],
        "what a batch holds: captions of one length, or whole images",
    ] = "captions"
    batch_size: Annotated[
        Positive,
        "captions in a batch; images, if batches hold images or the objective is reward",
    ] = 64
    epochs: Annotated[Positive, "the largest number of epochs"] = 30
    epoch_images: Annotated[
        Natural,
        "the images of an epoch, in each the next ones, if batches hold images; 0 takes all",
    ] = 0
    select: Annotated[
        Literal["bleu4", "nll", "reward"], "the dev score that selects the best epoch"
    ] = "bleu4"
    patience: Annotated[
        Positive, "epochs without a better dev score after which training stops early"
    ] = 10
    augment: Annotated[
        bool, "whether an encoder that trains sees random parts of the images, mirrored or not"
    ] = False
    drop_places: Annotated[
        Share, "the share of the places that a batch leaves out, drawn for each batch"
    ] = 0.0
    drop_dimensions: Annotated[
        Share, "the dropout rate of the annotation vectors' dimensions, the same in all places"
    ] = 0.0
    clip: Annotated[Weight, "the largest norm of the gradient; 0 turns clipping off"] = 5.0
    average: Annotated[
        Share,
        "the decay of the weights' moving average, which is judged and saved; 0 turns it off",
    ] = 0.0

    # Set by people with a GPU to compare its formats (docs/training.md, "Precision and memory").
    precision: Annotated[
        Literal["auto", "float32", "bf16", "fp16"],
        "of products; auto: bf16 if a GPU trains encoders",
    ] = "auto"
    seed: Annotated[Natural, "the seed of all random numbers"] = 0


class DecodingConfig(_Section):
    """How captions are generated."""

    beam: Annotated[Few, "the beam width; 1 is greedy decoding"] = 3
    length_normalisation: Annotated[
        Weight, "hypotheses are ranked by log p / length^x; 0 ranks by log p"
    ] = 0.0
    max_length: Annotated[Few, "the largest number of words in a generated caption"] = 30
    no_repeat: Annotated[
        bool, "whether a caption has each noun, verb and adjective once at most; English only"
    ] = False
    look: Annotated[
        Look,
        "hard attention's context: the weighted mean, the likeliest place, or a place drawn",
    ] = "expected"


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """All values of a run, as in the file `recipe.toml` of its folder."""

    name: Name
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


# What the options are


def meanings(section: str) -> dict[str, str]:
    """The options of a section, each with its valid values and its meaning."""
    hints = typing.get_type_hints(SECTIONS[section], include_extras=True)
    return {name: f"{_valid(hint)}: {hint.__metadata__[-1]}" for name, hint in hints.items()}


def _valid(hint: Any) -> str:
    """The values that an option may have: its choices, or its type with the limits of a number."""
    kind = hint.__origin__
    if typing.get_origin(kind) is Literal:
        return ", ".join(f'"{choice}"' for choice in typing.get_args(kind))

    limits = []
    for detail in hint.__metadata__:
        if not isinstance(detail, Meta):
            continue  # the meaning
        if detail.ge is not None:
            limits.append(f">= {detail.ge}")
        if detail.gt is not None:
            limits.append(f"> {detail.gt}")
        if detail.le is not None:
            limits.append(f"<= {detail.le}")
        if detail.lt is not None:
            limits.append(f"< {detail.lt}")
    return f"{kind.__name__} {' and '.join(limits)}".strip()


def explained(recipe: Recipe) -> str:
    """A recipe as TOML, with the valid values and the meaning of each option as a comment."""
    lines = []
    for section, kind in SECTIONS.items():
        values = getattr(recipe, section)
        lines += ["", f"[{section}]  # {kind.__doc__}"]
        for name, meaning in meanings(section).items():
            setting = f"{name} = {json.dumps(getattr(values, name))}"
            lines.append(f"{setting:32}  # {meaning}")
    return "\n".join(lines[1:])


# Reading


def names() -> list[str]:
    """The recipes that come with satlib."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str) -> str:
    """The text of a recipe by its name, or of a TOML file by its path.

    Raises:
        SatlibError: there is none.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if path.is_file():
        return path.read_text(encoding="utf-8-sig")  # Notepad may write a byte order mark

    if Path(name).is_dir():  # photographs, given in place of the recipe that trains on them
        advice = f"; for your folder: own-folder --set data.name={name}"
    else:
        advice = f"{_suggestion(name, names())}; satlib has {', '.join(names())}"
    raise SatlibError(f"the recipe {name} does not exist{advice}")


def description(name: str) -> str:
    """The first line of a recipe's file, if that is a comment; otherwise an empty text."""
    comment = re.match(r"#\s*(.+)", read(name))
    return comment[1] if comment else ""


def load(name: str, changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe by its name, or a TOML file by its path, with changes as for `changed`.

    Raises:
        SatlibError: there is no such recipe, or it is not valid.
    """
    try:
        values = {"name": Path(name).stem, **tomllib.loads(read(name))}
    except ValueError as error:
        raise SatlibError(f"the recipe {name} is not TOML: {error}") from error
    return from_dict(changed(values, changes))


def changed(values: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Nested dictionaries with changes of the form "section.key=value".

    The value is as in TOML, or a text without quotes.
    """
    result = copy.deepcopy(dict(values))  # the caller's values stay as they are
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
    """Build a recipe from nested dictionaries.

    Raises:
        SatlibError: an option or a value is not valid, or two values do not go together.
    """
    match values:
        # Recipes and models of earlier versions say so, and nothing else is left to say.
        case {"encoder": {"view": "whole", **options}}:
            values = {**values, "encoder": options}

    try:
        recipe = msgspec.convert(values, Recipe)
    except msgspec.ValidationError as error:
        raise SatlibError(f"the recipe is not valid: {error}{_explanation(str(error))}") from error

    # The penalty is for expected maps. Hard attention samples, so it has none by default.
    penalty_given = "doubly_stochastic" in values.get("objective", {})
    if recipe.decoder.attention == "hard" and not penalty_given:
        objective = msgspec.structs.replace(recipe.objective, doubly_stochastic=0.0)
        recipe = msgspec.structs.replace(recipe, objective=objective)

    if conflict := next(_conflicts(recipe), None):
        raise SatlibError(conflict)
    return recipe


# What is wrong


def _explanation(problem: str) -> str:
    """What to add to msgspec's message: the option that was meant, or the values that are valid."""
    unknown = re.search(r"unknown field `(\w+)`(?: - at `\$\.(\w+)`)?", problem)
    if unknown:
        key, section = unknown.groups()
        return _meant(key, section)

    invalid = re.search(r"\$\.(\w+)\.(\w+)`", problem)
    if invalid:
        section, key = invalid.groups()
        return f"; {section}.{key} is {meanings(section)[key]}"
    return ""


def _meant(key: str, section: str | None) -> str:
    """What may have been meant by the unknown key of a section, or by an unknown section (None)."""
    if section is None:
        return _suggestion(key, SECTIONS)

    options = []
    for name in SECTIONS:
        options += [f"{name}.{option}" for option in meanings(name)]
    # The right key in the wrong section is likelier than a misspelt key.
    for option in options:
        if option.endswith(f".{key}"):
            return f" (did you mean {option}?)"
    return _suggestion(f"{section}.{key}", options)


def _suggestion(name: str, known: Iterable[str]) -> str:
    similar = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {similar[0]}?)" if similar else ""


def _conflicts(recipe: Recipe) -> Iterator[str]:
    """What to say of values that are valid one by one but not together."""
    encoder = recipe.encoder
    decoder = recipe.decoder
    objective = recipe.objective
    training = recipe.training
    rewarded = objective.maximise == "reward"

    if decoder.attention not in ATTENTIONS:
        known = ", ".join(f'"{name}"' for name in ATTENTIONS)
        yield (
            f'decoder.attention is "{decoder.attention}", not one of {known}; '
            f"one of your own needs its file: --attention FILE.py:{decoder.attention}, or in a script "
            "model.attention.register"
        )

    if not (encoder.train or encoder.pretrained):
        yield (
            "a frozen encoder needs pretrained weights; "
            "set encoder.pretrained or encoder.train to true"
        )
    if encoder.train and encoder.name.startswith(OF_MODEL):
        yield (
            f"the encoder {encoder.name} stays as it is; "
            "set encoder.train = false, or begin with the model (--start)"
        )
    if training.augment and not encoder.train:
        yield (
            "training.augment needs encoder.train = true: "
            "a frozen encoder's annotation vectors are computed once"
        )
    if training.augment and objective.boxes > 0:
        yield (
            "training.augment moves what the boxes enclose; "
            "set it to false, or objective.boxes to 0"
        )
    if training.epoch_images > 0 and training.batches != "images":
        yield 'training.epoch_images needs training.batches = "images"'

    if objective.boxes > 0 and (decoder.attention == "none" or rewarded):
        yield "objective.boxes needs attention (soft or hard) and the likelihood of captions"
    if training.select == "reward" and not rewarded:
        yield (
            'training.select = "reward" needs objective.maximise = "reward"; select by bleu4 or nll'
        )

    if decoder.kind == "transformer" and decoder.attention != "soft":
        yield (
            'decoder.kind = "transformer" needs decoder.attention = "soft"; '
            "hard and none are the LSTM's"
        )
    if decoder.kind == "transformer" and decoder.hidden % decoder.heads > 0:
        yield f"decoder.heads = {decoder.heads} must divide decoder.hidden = {decoder.hidden}"
