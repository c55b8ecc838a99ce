"""Beginning a run with the weights of a trained model: hard attention from soft, or your own captions from a model of others.

Words that both vocabularies have keep their weights; the others start fresh. The sizes of the decoder and the encoder are the
model's, whatever the recipe says.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from satlib import recipe
from satlib.errors import SatlibError
from satlib.files.progress import say
from satlib.model import captioner, shipped
from satlib.model.captioner import Captioner
from satlib.recipe import OF_MODEL, Recipe
from satlib.training.checkpoint import RunState
from satlib.training.optimisation import trained_part

# The options of the decoder that decide which weights there are, and what they do.
_SIZES = (
    "kind", "embedding", "hidden", "layers", "heads", "attention_hidden", "energy", "gate", "output_tanh",
)  # fmt: skip
_SEEN = ("name", "view", "scale")  # what the annotation vectors are
_OF_WORDS = ("embedding.weight", "output.weight", "output.bias")  # a row for each word


def fitted(chosen: Recipe, start: Path, changes: Sequence[str] = ()) -> Recipe:
    """A recipe with the encoder and the decoder's sizes of the model that a run begins with; a line says what that changes.

    Args:
        chosen: the recipe.
        start: the model's file, or its run's folder.
        changes: "section.key=value", as given to `recipe.load`: these stay as they are.

    Raises:
        SatlibError: the model cannot be read.
    """
    header = captioner.read_file(start)[1]
    model, values = recipe.from_dict(header.recipe).to_dict(), chosen.to_dict()
    given = {change.partition("=")[0].strip() for change in changes}
    taken = {}
    seen = _SEEN
    if header.encoder.in_file:
        if values["encoder"]["train"]:
            model["encoder"] |= {"name": header.encoder.name, "train": True}
            seen = tuple(values["encoder"])
        else:  # what training made of it stays as it is
            model["encoder"]["name"] = f"{OF_MODEL}{shipped.name_of(start) or start}"
    for section, keys in (("encoder", seen), ("decoder", _SIZES)):
        for key in keys:
            name = f"{section}.{key}"
            if name not in given and values[section][key] != model[section][key]:
                values[section][key] = taken[name] = model[section][key]
    if taken:
        say(f"as in {start}: {', '.join(f'{name} = {value}' for name, value in taken.items())}")
    return recipe.from_dict(values)


def start_from(path: Path, state: RunState) -> None:
    """Begin with the weights of a trained model; soft and hard attention have the same ones.

    Raises:
        SatlibError: it has another encoder or size.
    """
    frozen = not state.captioner.recipe.encoder.train
    encoder = state.captioner.encoder
    trained = Captioner.load(path, state.captioner.device, encoder if frozen else None)
    if frozen and trained.encoder.weights_hash != encoder.weights_hash:
        raise SatlibError(
            f"{path} was trained on other annotation vectors than those of {encoder.name}; leave encoder.name as it is, or let "
            "the encoder go on learning with encoder.train=true"
        )
    for fresh in {id(one): one for one in (state.captioner, state.averaged)}.values():
        weights = _weights(trained, fresh, path)
        try:
            trained_part(fresh).load_state_dict(weights)
        except RuntimeError as error:  # names or shapes
            raise SatlibError(
                f"{path} does not fit the recipe ({str(error).splitlines()[-1].strip()}); begin with a model of the same "
                "sizes and the same encoder"
            ) from error
    known = sum(word in trained.vocabulary for word in state.captioner.vocabulary.words)
    if trained.vocabulary != state.captioner.vocabulary:
        new = len(state.captioner.vocabulary) - known
        say(f"{known:,} words keep the weights that they have in {path}; {new:,} are new to it and start fresh")


def _weights(trained: Captioner, fresh: Captioner, path: Path) -> dict[str, Any]:
    """The trained weights, with a row for each of the fresh captioner's words."""
    ours, theirs = fresh.vocabulary, trained.vocabulary
    weights = dict((trained if fresh.recipe.encoder.train else trained.decoder).state_dict())
    if ours == theirs:
        return weights
    own: dict[str, Tensor] = fresh.decoder.state_dict()
    pairs = [(number, theirs.number(word)) for number, word in enumerate(ours.words) if word in theirs]
    to, of = (list(numbers) for numbers in zip(*pairs, strict=True))
    for name in filter(own.__contains__, _OF_WORDS):
        rows = own[name].clone()
        whole = f"decoder.{name}" if fresh.recipe.encoder.train else name
        if whole not in weights or weights[whole].shape[1:] != rows.shape[1:]:
            continue  # another size: load_state_dict names it
        rows[to] = weights[whole][of]
        weights[whole] = rows
    return weights
