"""What several commands open: a data set, what a model reads of it, a model."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from satlib.data.caption_set import CaptionSet
    from satlib.data.features import Reader
    from satlib.model.captioner import Captioner
    from satlib.recipe import Recipe


def captions_of(recipe: "Recipe", options: argparse.Namespace) -> "CaptionSet":
    """The data set of the recipe, or of --data-set."""
    from satlib.data import check, datasets

    # Not every command has each of the options that are asked for here.
    root = datasets.data_root(options.data)
    other = getattr(options, "data_set", None)
    if other:
        return datasets.load(other, root)

    # With --skip-broken, photographs may be missing: they are looked for one by one.
    skip = getattr(options, "skip_broken", False)
    captions = datasets.load(
        recipe.data.name,
        root,
        require_images=not skip,
        train_images=recipe.data.train_images,
    )
    return check.readable(captions) if skip else captions


def reader_of(
    recipe: "Recipe",
    captions: "CaptionSet",
    splits: Sequence[str],
    options: argparse.Namespace,
    captioner: "Captioner | None" = None,
) -> "Reader":
    """What a model reads of images: pixels, or annotation vectors, stored for all of the splits."""
    from satlib.data import datasets, features
    from satlib.model import encoders
    from satlib.training.features import open_store

    # An encoder that trains has other vectors after each step, and of another data set than the
    # recipe's none are stored.
    trained = captioner.holds_encoder if captioner else recipe.encoder.train
    if trained or getattr(options, "data_set", None):
        return features.Pixels(captions)

    # The store must be of the very encoder that the model was trained with.
    if captioner:
        encoder = captioner.encoder
    else:
        encoder = encoders.create(recipe.encoder.name, recipe.encoder.pretrained)
    examples = []
    for split in splits:
        examples += captions.split(split)
    root = datasets.data_root(options.data)
    return open_store(root, captions, encoder, examples)


def captioner_of(model: Path, options: argparse.Namespace) -> "Captioner":
    """A trained model, with what --attention names."""
    from satlib.model import installed
    from satlib.model.captioner import Captioner

    # First, because a model cannot be built without a class of its own.
    own = own_attention(options)
    captioner = Captioner.load(model, installed.device(options.device))
    if own.plug:
        own.plug(captioner)
    elif captioner.own_attention:
        print(
            f"satlib: {model} was trained with --attention {captioner.own_attention}, "
            "which is missing",
            file=sys.stderr,
        )
    return captioner


class OwnAttention(NamedTuple):
    """An attention of one's own.

    A function is plugged into a captioner, a class is named in a recipe.
    """

    plug: "Callable[[Captioner], None] | None" = None  # of a function
    changes: Sequence[str] = ()  # of a class: "section.key=value"


def own_attention(options: argparse.Namespace) -> OwnAttention:
    """What --attention names, nothing without it; a class is registered."""
    place = options.attention
    if not place:
        return OwnAttention()

    # The file is run at once: a mistake in it is reported before anything is computed.
    from satlib.model import attention, plugged

    found = plugged.load(place)
    if isinstance(found, type):
        attention.register(found.__name__, found)
        return OwnAttention(changes=[f"decoder.attention={found.__name__}"])
    return OwnAttention(plug=lambda captioner: plugged.plug(captioner, found, place))
