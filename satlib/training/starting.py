"""How a run begins with a trained model.

Its weights serve hard attention from soft, or your own captions from a model of others: its words keep their weights, and new ones start
fresh. The sizes of the decoder and the encoder are the model's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from satlib import recipe
from satlib.data.caption_set import CaptionSet
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files import say
from satlib.model.captioner import Captioner, read_file
from satlib.recipe import OF_MODEL, DataConfig, Recipe
from satlib.training.checkpoint import RunState, trained_part

_ANNOTATIONS = ("name", "view", "scale")  # what the annotation vectors are
_SIZES = (
    "kind",
    "embedding",
    "hidden",
    "layers",
    "heads",
    "attention_hidden",
    "gate",
    "output_tanh",
)
_OF_WORDS = ("embedding.weight", "output.weight", "output.bias")  # a row for each word


def vocabulary(data: CaptionSet, config: DataConfig, start: Path | None) -> Vocabulary:
    """The words of the model that a run begins with, then the captions' new ones; these alone if it knows less than half of theirs."""
    own = data.vocabulary(config.vocabulary_size, config.min_count)
    known = Vocabulary(read_file(start)[1].vocabulary) if start else own
    if 2 * sum(word in known for word in own.words) <= len(own):
        return own
    return Vocabulary([*known.to_json(), *(word for word in own.to_json() if word not in known)])


def fitted(chosen: Recipe, start: Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe with the encoder and decoder's sizes of the model that a run begins with, but for `changes` (`recipe.load`)."""
    header = read_file(start)[1]
    model, values = recipe.from_dict(header.recipe).to_dict(), chosen.to_dict()
    keys = {"encoder": _ANNOTATIONS, "decoder": _SIZES}
    if header.encoder.weights is None and chosen.encoder.train:  # its training goes on
        model["encoder"] |= {"name": header.encoder.name, "train": True}
        keys["encoder"] = tuple(values["encoder"])
    elif header.encoder.weights is None:  # what training made of it stays as it is
        model["encoder"]["name"] = f"{OF_MODEL}{start}"
    changed = {change.partition("=")[0].strip() for change in changes}
    adopted = {}
    for section, names in keys.items():
        for key in names:
            name = f"{section}.{key}"
            if name not in changed and values[section][key] != model[section][key]:
                values[section][key] = adopted[name] = model[section][key]
    if adopted:
        say(f"as in {start}: {', '.join(f'{name} = {value}' for name, value in adopted.items())}")
    return recipe.from_dict(values)


def start_from(path: Path, state: RunState) -> None:
    """Begin with a trained model's weights; soft and hard attention have the same ones."""
    encoder, ours = state.captioner.encoder, state.captioner.vocabulary
    frozen = not state.captioner.recipe.encoder.train
    trained = Captioner.load(path, state.captioner.device, encoder if frozen else None)
    if frozen and trained.encoder.weights_hash != encoder.weights_hash:
        raise SatlibError(
            f"{path} was trained on other annotation vectors than those of {encoder.name}"
        )
    for fresh in (state.captioner, state.averaged):
        try:
            trained_part(fresh).load_state_dict(_weights(trained, fresh))
        except RuntimeError as error:  # names or shapes
            raise SatlibError(
                f"{path} is of another kind or size than the recipe's model"
            ) from error
    if trained.vocabulary.words != ours.words:
        known = sum(word in trained.vocabulary for word in ours.words)
        say(f"{known:,} words keep their weights of {path}; {len(ours) - known:,} start fresh")


def _weights(trained: Captioner, fresh: Captioner) -> dict[str, Any]:
    """The trained weights, with a row for each of the fresh captioner's words."""
    weights = dict((trained if fresh.recipe.encoder.train else trained.decoder).state_dict())
    words = fresh.vocabulary.words
    known = [i for i, word in enumerate(words) if word in trained.vocabulary]
    theirs = [trained.vocabulary.number(words[i]) for i in known]
    for name, own in trained_part(fresh).state_dict().items():
        if name in weights and name.removeprefix("decoder.") in _OF_WORDS:
            weights[name] = own.clone().index_copy_(
                0, torch.tensor(known, device=own.device), weights[name][theirs]
            )
    return weights
