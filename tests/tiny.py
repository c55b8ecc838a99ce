"""A training that takes a fraction of a second: a small grammar, four places of six dimensions,
an encoder of 24 weights.

In a test file that imports this module, its encoder is known by the name "tiny", and no curves
are drawn (conftest.py).
"""

import csv
import hashlib
import json

import numpy as np
import torch
from PIL import Image
from torch import nn

from satlib import recipe
from satlib.data.datasets import CaptionSet, Example
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import loop

# 4, 3 and 2 of them: counting through all three repeats a meaning only after 12 images.
COLOURS = ("red", "blue", "green", "white")
SHAPES = ("circle", "square", "star")
PLACES = ("on the left", "at the top")

GRID = (2, 2)
DIM = 6
VALUES = {
    "data": {"name": "tiny"},
    "encoder": {"name": "tiny"},
    "decoder": {"embedding": 12, "hidden": 16, "attention_hidden": 8, "dropout": 0.5},
    "training": {"learning_rate": 0.01, "batch_size": 8, "epochs": 3, "patience": 100, "seed": 3},
    "decoding": {"beam": 2, "max_length": 12},
}


def build(pretrained):
    """An encoder of one convolution over the means of four quarters, with BatchNorm.

    Its weights are the same every time.
    """
    convolution = nn.Conv2d(3, DIM, 1)
    # Other weights where they are not "pretrained", so that a mix-up is noticed.
    generator = torch.Generator().manual_seed(0 if pretrained else 1)
    for parameter in convolution.parameters():
        nn.init.normal_(parameter, generator=generator)

    quarters = nn.AdaptiveAvgPool2d(GRID)
    return encoders.Encoder(nn.Sequential(quarters, convolution, nn.BatchNorm2d(DIM)))


def save(data, folder):
    """Write a caption set as a folder of one's own: PNGs and captions.csv."""
    folder.mkdir()
    with open(folder / "captions.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for example in data.examples:
            name = f"{example.image_id}.png"
            data.photo(example).save(folder / name)
            for text in example.references:
                table.writerow([name, text, example.split])


def the_recipe(*changes):
    """The tiny recipe with some changes, each "section.key=value"."""
    return recipe.from_dict(recipe.changed({**VALUES, "name": "tiny"}, changes))


WORDS = ("a", "red", "circle", "square", "on", "the", "left", "blue")


def decided(attention="soft", seed=5, words=WORDS, changes=()):
    """A captioner that is not trained, but decided: its weights are large.

    Needs `build` among the encoders, as "tiny".
    """
    torch.manual_seed(seed)
    chosen = the_recipe(f"decoder.attention={attention}", *changes)
    vocabulary = Vocabulary(list(words))
    captioner = Captioner(chosen, vocabulary, encoders.create("tiny")).eval()

    # As initialised, every word is about as likely as any other, and rounding could decide.
    with torch.no_grad():
        for parameter in captioner.decoder.parameters():
            parameter.mul_(4)
    return captioner


def data(train=20, dev=6, test=4):
    """Captions of different lengths about a colour, a shape and a place.

    An image's number decides all three.
    """
    examples = []
    for split, count in {"train": train, "dev": dev, "test": test}.items():
        for i in range(count):
            colour = COLOURS[i % 4]
            shape = SHAPES[i % 3]
            place = PLACES[i % 2]
            references = (
                f"A {colour} {shape} {place}.",
                f"There is a {colour} {shape}",
                f"a {shape} {place} is {colour}",
            )
            examples.append(Example(f"{split}-{i}", split, references))
    return CaptionSet("tiny", tuple(examples), draw=draw)


def _numbers(image_id, count):
    """Numbers that the image id alone decides; images of one meaning have similar ones."""
    i = int(image_id.split("-")[1])
    seed = (i % 4, i % 3, i % 2)
    meaning = np.random.default_rng(seed).standard_normal(count)

    # Not Python's hash(), which differs from one process to the next.
    digest = hashlib.sha256(image_id.encode()).digest()
    own = np.random.default_rng(list(digest)).standard_normal(count)
    return meaning + 0.1 * own


def draw(example):
    """A picture of four quarters."""
    values = np.clip(128 + 60 * _numbers(example.image_id, 12), 0, 255)
    colours = values.astype(np.uint8).reshape(2, 2, 3)
    return Image.fromarray(colours.repeat(112, 0).repeat(112, 1))


class Reader:
    """Annotation vectors by image id, from nowhere."""

    def read(self, image_ids):
        vectors = [torch.from_numpy(_numbers(image_id, 4 * DIM)) for image_id in image_ids]
        return torch.stack(vectors).float().view(-1, 4, DIM)


def train(folder, *changes, captions=None, reader=None, **more):
    """The captioner of a run in a folder, by the recipe with some changes.

    `captions` take the place of `data()`.
    """
    chosen = the_recipe(*changes)
    captions = captions or data()
    if reader is None:
        # An encoder that trains needs pictures; a frozen one is done with them.
        reader = Pixels(captions) if chosen.encoder.train else Reader()
    return loop.train(chosen, captions, reader, folder, progress=False, **more)


def log(folder):
    """A run's records, one for each epoch."""
    lines = (folder / loop.LOG).read_text().splitlines()
    return [json.loads(line) for line in lines]


def session(folder, *changes, reader=None, show=False, **more):
    """A trainer of the tiny world in which nothing is trained yet."""
    chosen = the_recipe(*changes)
    cpu = torch.device("cpu")
    return loop.Trainer(chosen, data(), reader or Reader(), folder, cpu, show, **more)
