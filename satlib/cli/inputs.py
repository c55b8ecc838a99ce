"""Inputs that several commands open: data sets, readers of images or annotation vectors, and trained models."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from satlib.data.caption_set import CaptionSet
    from satlib.data.features import Reader
    from satlib.model.captioner import Captioner
    from satlib.model.encoders import Encoder
    from satlib.recipe import Recipe


def data_of(recipe: "Recipe", options: argparse.Namespace) -> tuple["CaptionSet", Path]:
    """A recipe's data set, or that of --data-set, and the folder of data sets."""
    from satlib.data import datasets

    root = datasets.data_root(options.data)
    if other := getattr(options, "data_set", None):
        return datasets.load(other, root), root
    return datasets.load(recipe.data.name, root, train_images=recipe.data.train_images), root


def images_reader(captioner: "Captioner", data: "CaptionSet", root: Path, options: argparse.Namespace) -> "Reader":
    """The reader of the images of a split that a model is to see: of another data set's photographs, without a feature store."""
    from satlib.data import features

    if options.data_set:
        return features.Pixels(data, captioner.view)
    return model_reader(captioner, data, root, (options.split,))


def training_reader(recipe: "Recipe", data: "CaptionSet", root: Path) -> "Reader":
    """The reader of a new run's training and dev images."""
    from satlib.model import encoders

    encoder = None if recipe.encoder.train else encoders.create(recipe.encoder.name, recipe.encoder.pretrained)
    return reader(recipe, data, encoder, root, ("train", "dev"))


def model_reader(captioner: "Captioner", data: "CaptionSet", root: Path, splits: Sequence[str]) -> "Reader":
    """The reader of the images that a trained model is to see: of pixels, if it has an encoder of its own."""
    encoder = None if captioner.holds_encoder else captioner.encoder
    return reader(captioner.recipe, data, encoder, root, splits)


def reader(
    recipe: "Recipe", data: "CaptionSet", encoder: "Encoder | None", root: Path, splits: Sequence[str]
) -> "Reader":
    """A reader of pixels if the encoder is trained, otherwise of a feature store.

    Args:
        recipe: the run's.
        data: its data set.
        encoder: the frozen encoder; None if it is trained.
        root: the folder of data sets.
        splits: those that will be read; only their images are checked against the store.
    """
    from satlib.data import features
    from satlib.training.features import open_store

    if encoder is None:
        return features.Pixels(data, recipe.encoder.view)
    examples = [example for split in splits for example in data.split(split)]
    return open_store(root, data, encoder, recipe.encoder.view, examples, features_command(recipe, root))


def features_command(used: "Recipe", root: Path) -> str:
    """The command that computes the annotation vectors which a recipe needs, as its user would type it."""
    from satlib import recipe
    from satlib.data import datasets

    if used.name not in recipe.names():
        return "satlib features RECIPE, with the same --set"
    plain, words = recipe.load(used.name), ["satlib", "features", used.name]
    for section, key in (("data", "name"), ("data", "train_images"), ("encoder", "name"), ("encoder", "view")):
        value = getattr(getattr(used, section), key)
        if value != getattr(getattr(plain, section), key):
            words += ["--set", f"{section}.{key}={value}"]
    if root != datasets.data_root(None):
        words += ["--data", str(root)]
    return shlex.join(words)


def captioner(model: Path | str, options: argparse.Namespace) -> "Captioner":
    """A trained model; prints a line if it was trained with an attention function that its file cannot hold."""
    from satlib.model import device, shipped
    from satlib.model.captioner import Captioner

    loaded = Captioner.load(shipped.or_shipped(Path(model)), device.choose(options.device))
    if loaded.own_attention and getattr(options, "attention", None) is None:
        print(
            f"satlib: {model} was trained with --attention {loaded.own_attention}; without it the model uses softmax"
            " attention. satlib evaluate takes the same option",
            file=sys.stderr,
        )
    return loaded


def own_attention(options: argparse.Namespace) -> "Callable[[Captioner], None] | None":
    """A function that puts the attention given by --attention into a captioner; None without that option."""
    if options.attention is None:
        return None
    from satlib.training import plugged

    attend = plugged.load(options.attention)
    return lambda captioner: plugged.plug(captioner, attend, options.attention)


def results_folder(options: argparse.Namespace, data: "CaptionSet") -> Path:
    """The folder for a model's results: --out; or its run; or runs/NAME for a model that comes with satlib.

    On another data set than the model's own, it is a folder in that one.
    """
    from satlib.model import shipped

    model: Path = options.model
    if options.out:
        return options.out
    folder = (
        Path("runs") / model.name if shipped.or_shipped(model) != model else model if model.is_dir() else model.parent
    )
    return folder / data.name if options.data_set else folder
