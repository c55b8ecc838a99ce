"""How a run begins with a trained model.

Hard attention can begin with the weights of soft attention, and your own captions with those of a
model of other captions: the words that it knows keep their weights, and new ones start fresh. The
run takes the model's encoder and the sizes of its decoder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import asdict

from satlib import recipe
from satlib.data.caption_set import CaptionSet
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files import say
from satlib.model.captioner import Captioner, Header, read_file
from satlib.recipe import OF_MODEL, DataConfig, DecoderConfig, EncoderConfig, Recipe
from satlib.training.checkpoint import RunState, trained_part

# The decoder's options that decide which weights it has: all but these two.
_SIZES = tuple(
    option for option in DecoderConfig.__struct_fields__ if option not in ("attention", "dropout")
)
# The decoder's weights with a row for each word.
_OF_WORDS = ("embedding.weight", "output.weight", "output.bias")


def vocabulary(data: CaptionSet, config: DataConfig, start: Path | None) -> Vocabulary:
    """The words of a run: those of the model that it begins with, then the captions' new ones.

    The captions' words alone, if there is no such model, or if it knows half of them or fewer.
    """
    own = data.vocabulary(config.vocabulary_size, config.min_count)
    if start is None:
        return own

    theirs = Vocabulary(read_file(start)[1].vocabulary)
    known = sum(word in theirs for word in own.words)
    # A model of another language: its words would only take probability from these.
    if 2 * known <= len(own):
        return own
    new = [word for word in own.to_json() if word not in theirs]
    return Vocabulary([*theirs.to_json(), *new])


def fitted(chosen: Recipe, start: Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe with the encoder and the decoder's sizes of the model that a run begins with.

    changes: of the form "section.key=value"; these options keep the value that was set.
    """
    header = read_file(start)[1]
    model = recipe.from_dict(header.recipe)
    values = chosen.to_dict()
    theirs = {
        "encoder": _encoder_options(header, model.encoder, chosen, start),
        "decoder": {option: getattr(model.decoder, option) for option in _SIZES},
    }

    kept = {change.partition("=")[0].strip() for change in changes}
    adopted = []
    for section, options in theirs.items():
        for key, value in options.items():
            if f"{section}.{key}" not in kept and values[section][key] != value:
                values[section][key] = value
                adopted.append(f"{section}.{key} = {value}")
    if adopted:
        say(f"as in {start}: {', '.join(adopted)}")
    return recipe.from_dict(values)


def _encoder_options(
    header: Header, theirs: EncoderConfig, chosen: Recipe, start: Path
) -> dict[str, Any]:
    """The encoder's options that a run takes over from those of the model that it begins with."""
    # The model's file holds no encoder, so anybody can create it by its name. Which annotation
    # vectors the model was trained with, these two options say.
    if header.encoder.weights is not None:
        return {"name": theirs.name, "scale": theirs.scale}
    # The encoder goes on training, with all options that it was trained with.
    if chosen.encoder.train:
        return asdict(theirs) | {"name": header.encoder.name, "train": True}
    # The encoder stays as it is, and is read from the model's file.
    return {"name": f"{OF_MODEL}{start}", "scale": theirs.scale}


def start_from(path: Path, state: RunState) -> None:
    """Begin with a trained model's weights; soft and hard attention have the same ones.

    Raises:
        SatlibError: the model has another encoder, kind or size than the run's.
    """
    encoder = state.captioner.encoder
    ours = state.captioner.vocabulary
    frozen = not state.captioner.recipe.encoder.train
    trained = Captioner.load(path, state.captioner.device, encoder if frozen else None)
    if frozen and trained.encoder.weights_hash != encoder.weights_hash:
        raise SatlibError(
            f"{path} was trained on other annotation vectors than those of {encoder.name}"
        )

    # The average begins with these weights, too: it would otherwise keep the random ones.
    for fresh in (state.captioner, state.averaged):
        try:
            trained_part(fresh).load_state_dict(_weights(trained, fresh))
        # Other names or shapes.
        except RuntimeError as error:
            raise SatlibError(
                f"{path} is of another kind or size than the recipe's model"
            ) from error

    if trained.vocabulary.words != ours.words:
        known = sum(word in trained.vocabulary for word in ours.words)
        say(f"{known:,} words keep their weights of {path}; {len(ours) - known:,} start fresh")


def _weights(trained: Captioner, fresh: Captioner) -> dict[str, Any]:
    """The trained weights, with a row for each of the fresh captioner's words."""
    source = trained if fresh.recipe.encoder.train else trained.decoder
    weights = dict(source.state_dict())

    # A word has one number in the fresh vocabulary and another in the trained one.
    words = fresh.vocabulary.words
    ours = [number for number, word in enumerate(words) if word in trained.vocabulary]
    theirs = [trained.vocabulary.number(words[number]) for number in ours]
    for name, own in trained_part(fresh).state_dict().items():
        if name in weights and name.removeprefix("decoder.") in _OF_WORDS:
            rows = torch.tensor(ours, device=own.device)
            weights[name] = own.clone().index_copy_(0, rows, weights[name][theirs])
    return weights
