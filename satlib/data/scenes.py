"""The built-in data set: procedurally drawn scenes of coloured shapes with generated captions.

Every scene shows two *named* objects of different saturated colours, one clearly above, below, left of or right of the other.
Everything else is clutter and never named: grey shapes, brown twigs and coloured specks of at most 6 pixels; some of it partly
hides the objects. So every caption is right or wrong (`exact_match`), and the pixels that each word refers to are known
(`Scene.masks`, `mentions`). Colour, shape, texture and size are independent, so a caption has to look at the right object.
"""

import hashlib
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np
from numpy.random import RandomState
from PIL import Image

from satlib.data import scenes_grammar as grammar
from satlib.data import scenes_paint as paint
from satlib.data.caption_set import SPLITS, CaptionSet, Example
from satlib.data.images import Box
from satlib.data.scenes_grammar import Kind, Meaning, between, pick
from satlib.data.scenes_paint import SIDE, Point

# Settings, in pixels, that make scenes easier or harder to see.
DIAMETER = {"small": (44.0, 52.0), "big": (76.0, 90.0)}
MARGIN = 5.0  # between an object and the edge of the image
NEAREST = 56.0  # minimum distance between the centres along the axis of the relation
TOUCHING = (
    0.92  # and at least this share of the sum of the radii: close objects may overlap slightly
)
SLANT = 0.45  # maximum distance along the other axis, as a share of the distance along the first
VISIBLE = 0.8  # minimum share of an object that clutter leaves visible


@dataclass(frozen=True)
class Thing:
    """A named object: its kind, and in pixels its centre, its diameter and its box, hidden parts included."""

    kind: Kind
    centre: Point
    diameter: float

    size = property(attrgetter("kind.size"))
    colour = property(attrgetter("kind.colour"))
    shape = property(attrgetter("kind.shape"))
    texture = property(attrgetter("kind.texture"))

    @property
    def box(self) -> Box:
        """(left, top, right, bottom)."""
        (x, y), half = self.centre, self.diameter / 2
        return x - half, y - half, x + half, y + half


@dataclass(frozen=True)
class Scene:
    """A scene before it is drawn."""

    image_id: str
    seed: int
    objects: tuple[Thing, Thing]  # the second is painted last and may cover the first
    relation: str  # of the first object to the second
    captions: tuple[str, ...]  # five raw captions

    @property
    def meaning(self) -> Meaning:
        """The meaning of every correct caption."""
        return Meaning.of(self.objects[0].kind, self.relation, self.objects[1].kind)

    def render(self) -> tuple[Image.Image, np.ndarray]:
        """The RGB image (224x224), and masks of each object's *visible* pixels, bool (2, 224, 224)."""
        random = _random(self.seed, self.image_id, "paint")
        canvas = paint.Canvas(paint.background(random))
        for _ in range(between(random, *paint.GREY_SHAPES)):
            paint.grey_shape(canvas, random, _anywhere(random), random.uniform(16, 46))
        for _ in range(between(random, *paint.TWIGS)):
            paint.twig(canvas, random, _anywhere(random))
        for _ in range(between(random, *paint.SPECKS)):
            paint.speck(canvas, random, _anywhere(random))
        whole = []  # the pixels of each object while nothing is in front of it
        for number, thing in enumerate(self.objects):
            paint.named_object(canvas, random, number, thing.centre, thing.diameter, thing.kind)
            whole.append((canvas.owner == number).sum())
        for _ in range(between(random, *paint.OCCLUDERS)):
            hidden = _occluded(canvas, random, self.objects[between(random, 0, 1)])
            if all((hidden.owner == number).sum() >= VISIBLE * whole[number] for number in (0, 1)):
                canvas = hidden
        return canvas.picture(), np.stack([canvas.owner == number for number in (0, 1)])

    def photo(self) -> Image.Image:
        """The RGB image, 224x224."""
        return self.render()[0]

    @property
    def masks(self) -> np.ndarray:
        """The visible pixels of each object: bool (2, 224, 224)."""
        return self.render()[1]


def scene(image_id: str, seed: int = 0) -> Scene:
    """The scene with an image id such as "train-000123"; a different `seed` gives different scenes for the same ids."""
    random = _random(seed, image_id, "layout")
    first = pick(random, grammar.COLOURS)
    second = pick(random, [colour for colour in grammar.COLOURS if colour != first])
    kinds = [
        Kind(
            pick(random, grammar.SIZES),
            colour,
            pick(random, grammar.SHAPES),
            pick(random, grammar.TEXTURES),
        )
        for colour in (first, second)
    ]
    relation = pick(random, grammar.RELATIONS)
    diameters = [float(random.uniform(*DIAMETER[kind.size])) for kind in kinds]
    one, other = map(Thing, kinds, _places(random, relation, diameters), diameters)
    captions = grammar.captions(random, Meaning.of(kinds[0], relation, kinds[1]))
    return Scene(image_id, seed, (one, other), relation, captions)


def exact_match(caption: str | Sequence[str], scene: Scene) -> bool:
    """Whether a caption (or list of words) states the right objects, all their attributes and their relation."""
    return grammar.parse(caption) == scene.meaning


def mentions(words: Sequence[str], scene: Scene) -> list[int | None]:
    """For each word the index of the object that it correctly names or describes, or None.

    A noun phrase belongs to the object for which more of its words are true, and in a tie to neither.
    """
    objects: list[int | None] = [None] * len(words)
    for phrase in grammar.phrases(words):
        true = [
            [
                index
                for index, (attribute, value) in phrase.attributes.items()
                if getattr(thing, attribute) == value
            ]
            for thing in scene.objects
        ]
        if len(true[0]) != len(true[1]):
            number = 0 if len(true[0]) > len(true[1]) else 1
            for index in true[number]:
                objects[index] = number
    return objects


def load(train: int = 4000, dev: int = 500, test: int = 500, seed: int = 0) -> CaptionSet:
    """The data set with this many scenes per split; each scene is drawn when its photo is requested."""
    examples = [
        Example(image_id, split, scene(image_id, seed).captions)
        for split, count in zip(SPLITS, (train, dev, test), strict=True)
        for image_id in (f"{split}-{index:06d}" for index in range(count))
    ]
    return CaptionSet("scenes", tuple(examples), partial(_draw, seed=seed))


def _draw(example: Example, seed: int) -> Image.Image:
    return scene(example.image_id, seed).photo()


def _random(seed: int, image_id: str, purpose: str) -> RandomState:
    """A random stream for each scene and purpose: changing the drawing does not change objects or captions."""
    digest = hashlib.sha256(f"satlib scenes/{seed}/{image_id}/{purpose}".encode()).digest()
    return RandomState(np.frombuffer(digest, dtype="<u4").astype(np.uint32))


def _places(random: RandomState, relation: str, diameters: Sequence[float]) -> list[Point]:
    """Two centres in the given relation, by rejection sampling: the first uniform draw that satisfies the limits above."""
    room = np.array(
        [[MARGIN + diameter / 2, SIDE - MARGIN - diameter / 2] for diameter in diameters]
    )
    least = max(NEAREST, TOUCHING * sum(diameters) / 2)
    axis = 1 if relation in ("above", "below") else 0
    sign = 1 if relation in ("above", "left of") else -1
    while True:
        centres = room[:, :1] + random.random_sample((64, 2, 2)) * (room[:, 1:] - room[:, :1])
        apart = sign * (centres[:, 1] - centres[:, 0])
        good = (apart[:, axis] >= least) & (np.abs(apart[:, 1 - axis]) <= SLANT * apart[:, axis])
        if good.any():
            return [(float(x), float(y)) for x, y in centres[np.argmax(good)]]


def _anywhere(random: RandomState) -> Point:
    x, y = random.uniform(0, SIDE, 2)
    return float(x), float(y)


def _occluded(canvas: paint.Canvas, random: RandomState, thing: Thing) -> paint.Canvas:
    """A copy of the canvas with a grey shape or a twig in front of an object."""
    angle, away = random.uniform(0, 2 * math.pi), thing.diameter / 2 * random.uniform(0.5, 1.1)
    centre = (
        thing.centre[0] + round(math.cos(angle), 6) * away,
        thing.centre[1] + round(math.sin(angle), 6) * away,
    )
    canvas = deepcopy(canvas)
    if random.random_sample() < 0.5:
        paint.grey_shape(canvas, random, centre, thing.diameter * random.uniform(0.4, 0.7))
    else:
        paint.twig(canvas, random, centre)
    return canvas
