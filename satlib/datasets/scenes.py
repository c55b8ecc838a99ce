"""The embedded data set: a procedural world of coloured shapes, drawn and described by our own code.

Every scene shows two *named* objects: saturated in colour, at least 44 pixels across. They differ in colour, and one lies
clearly above, below, left or right of the other. All else is clutter and never named: grey shapes, brown twigs, coloured
specks of at most 6 pixels; some of it lies before the objects and hides a part of them. So a caption is right or wrong
without doubt (`exact_match`), and where each of its words should look is known to the pixel (`Scene.masks`, `mentions`).

What makes it a task for attention: colour, shape, texture and size are drawn independently for two objects at any
place, so that a caption has to bind them correctly, while the clutter shares the colours (specks) and the shapes (grey).

    >>> example = scene("train-000123")
    >>> exact_match(example.captions[0], example)
    True
"""

import functools
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import RandomState
from PIL import Image

from satlib.datasets import scenes_grammar as grammar
from satlib.datasets import scenes_paint as paint
from satlib.datasets.scenes_grammar import Kind, Meaning, between, pick
from satlib.errors import SatlibError

if TYPE_CHECKING:
    from satlib.datasets import CaptionSet, Example

# Knobs, in pixels: what makes the world easier or harder to see. (The lists of shapes, colours ... stand in the grammar.)
SIDE = paint.SIDE
DIAMETER = {"small": (44.0, 52.0), "big": (76.0, 90.0)}
MARGIN = 5.0  # between an object and the edge of the picture
NEAREST = 56.0  # least distance of the centres along the axis of the relation
TOUCHING = 0.92  # and at least this part of the sum of their radii: near objects may overlap a little
SLANT = 0.45  # greatest distance along the other axis, as a part of the first
VISIBLE = 0.8  # least part of an object that clutter leaves visible

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Thing:
    """A named object: what it is and where. centre (x, y) and box (left, top, right, bottom) in pixels."""

    kind: Kind
    centre: tuple[float, float]
    diameter: float

    @property
    def shape(self) -> str:
        """Its shape, a word of `SHAPES`."""
        return self.kind.shape

    @property
    def colour(self) -> str:
        """Its colour, a word of `COLOURS`."""
        return self.kind.colour

    @property
    def texture(self) -> str:
        """Its texture, a word of `TEXTURES`."""
        return self.kind.texture

    @property
    def size(self) -> str:
        """Small or big, a word of `SIZES`."""
        return self.kind.size

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Its square bounding box, hidden parts included."""
        (x, y), half = self.centre, self.diameter / 2
        return x - half, y - half, x + half, y + half


@dataclass(frozen=True)
class Scene:
    """A scene before it is drawn.

    objects: the two named ones, the nearer (painted last) second. relation: of the first object to the second.
    captions: five raw captions.
    """

    image_id: str
    seed: int
    objects: tuple[Thing, Thing]
    relation: str
    captions: tuple[str, ...]

    @property
    def meaning(self) -> Meaning:
        """What every right caption says, in canonical form."""
        return Meaning.of(self.objects[0].kind, self.relation, self.objects[1].kind)

    def render(self) -> tuple[Image.Image, np.ndarray]:
        """Draw it: the RGB picture (224x224), and the masks, bool (2, 224, 224), of each object's *visible* pixels."""
        random = _random(self.seed, self.image_id, "paint")
        canvas = paint.Canvas(paint.background(random))
        for _ in range(between(random, *paint.GREY_SHAPES)):
            paint.grey_shape(canvas, random, _anywhere(random), random.uniform(16, 46))
        for _ in range(between(random, *paint.TWIGS)):
            paint.twig(canvas, random, _anywhere(random))
        for _ in range(between(random, *paint.SPECKS)):
            paint.speck(canvas, random, _anywhere(random))
        whole = [
            paint.named_object(
                canvas, random, number, thing.centre, thing.diameter, thing.shape, thing.colour, thing.texture
            )
            for number, thing in enumerate(self.objects)
        ]
        for _ in range(between(random, *paint.OCCLUDERS)):
            thing = self.objects[between(random, 0, 1)]
            canvas = _hide_a_part(canvas, random, thing, whole)
        return canvas.picture(), np.stack([canvas.owner == number for number in range(len(self.objects))])

    def photo(self) -> Image.Image:
        """The picture, RGB, 224x224."""
        return self.render()[0]

    @property
    def masks(self) -> np.ndarray:
        """Visible pixels of each object, bool (2, 224, 224): what hides it is left out."""
        return self.render()[1]


def scene(image_id: str, seed: int = 0) -> Scene:
    """The scene of an image id such as "train-000123"; another `seed` gives another world with the same ids.

    Raises:
        SatlibError: no such image id, or a negative seed.
    """
    if not re.fullmatch(rf"({'|'.join(SPLITS)})-[0-9]{{6}}", image_id):
        raise SatlibError(
            f"there is no scene {image_id!r}; an image id is a split and six digits, such as train-000123"
        )
    if seed < 0:
        raise SatlibError(f"the seed of the scenes is {seed}; give 0 or a positive number")
    random = _random(seed, image_id, "layout")
    kinds = _kinds(random)
    relation = pick(random, grammar.RELATIONS)
    diameters = [float(random.uniform(*DIAMETER[kind.size])) for kind in kinds]
    centres = _places(random, relation, diameters)
    objects = tuple(Thing(*each) for each in zip(kinds, centres, diameters, strict=True))
    captions = grammar.captions(random, Meaning.of(kinds[0], relation, kinds[1]))
    return Scene(image_id, seed, objects, relation, captions)


def exact_match(caption: str | Sequence[str], scene: Scene) -> bool:
    """Whether a caption (or its words) names exactly the right objects, all their attributes and their relation."""
    return grammar.parse(caption) == scene.meaning


def mentions(words: Sequence[str], scene: Scene) -> list[int | None]:
    """For each word the number of the object that it names or describes, or None.

    words: a caption's words, human or generated, right or wrong. A noun phrase belongs to the object of which more of its
    words are true (to none if that is undecided), and of its words those count that are true: "small", "red", "star",
    "striped", "stripes". Articles, pronouns, verbs and relations are None.
    """
    found: list[int | None] = [None] * len(words)
    for phrase in grammar.phrases(words):
        true = [
            [index for index, (attribute, value) in phrase.said.items() if getattr(thing, attribute) == value]
            for thing in scene.objects
        ]
        if len(true[0]) == len(true[1]):
            continue
        number = 0 if len(true[0]) > len(true[1]) else 1
        for index in true[number]:
            found[index] = number
    return found


def load(train: int = 4000, dev: int = 500, test: int = 500, seed: int = 0) -> "CaptionSet":
    """The data set: so many scenes in each split, drawn when their photo is asked for.

    Raises:
        SatlibError: a negative or too large number of scenes, or a negative seed.
    """
    from satlib.datasets import CaptionSet, Example  # here, because that module offers this one

    examples = []
    for split, count in zip(SPLITS, (train, dev, test), strict=True):
        if not 0 <= count <= 1_000_000:
            raise SatlibError(f"{count} scenes were asked for {split}; give a number from 0 to 1,000,000")
        for index in range(count):
            image_id = f"{split}-{index:06d}"
            examples.append(
                Example(image_id=image_id, split=split, references=scene(image_id, seed).captions, path=None)
            )
    return CaptionSet(name="scenes", examples=tuple(examples), draw=functools.partial(_draw, seed=seed))


def _draw(example: "Example", seed: int) -> Image.Image:
    return scene(example.image_id, seed).photo()


# --- Chance ----------------------------------------------------------------------------------------------------------


def _random(seed: int, image_id: str, purpose: str) -> RandomState:
    """A stream of its own for each scene and purpose: changing the drawing leaves objects and captions as they are."""
    digest = hashlib.sha256(f"satlib scenes/{seed}/{image_id}/{purpose}".encode()).digest()
    return RandomState(np.frombuffer(digest, dtype="<u4").astype(np.uint32))


def _kinds(random: RandomState) -> tuple[Kind, Kind]:
    """Two objects, every attribute independent and uniform, but for the colours, which differ."""
    colour = pick(random, grammar.COLOURS)
    colours = (colour, pick(random, [other for other in grammar.COLOURS if other != colour]))
    first, second = (
        Kind(pick(random, grammar.SIZES), colour, pick(random, grammar.SHAPES), pick(random, grammar.TEXTURES))
        for colour in colours
    )
    return first, second


def _places(random: RandomState, relation: str, diameters: Sequence[float]) -> list[tuple[float, float]]:
    """Two centres (x, y) in the given relation: the first place out of uniform ones that keeps the rules above."""
    room = np.array([[MARGIN + diameter / 2, SIDE - MARGIN - diameter / 2] for diameter in diameters])
    least = max(NEAREST, TOUCHING * sum(diameters) / 2)
    axis = 1 if relation in ("above", "below") else 0
    sign = 1 if relation in ("above", "left of") else -1
    while True:
        centres = room[:, :1] + random.random_sample((64, 2, 2)) * (room[:, 1:] - room[:, :1])
        apart = sign * (centres[:, 1] - centres[:, 0])
        good = (apart[:, axis] >= least) & (np.abs(apart[:, 1 - axis]) <= SLANT * apart[:, axis])
        if good.any():
            return [(float(x), float(y)) for x, y in centres[np.argmax(good)]]


def _anywhere(random: RandomState) -> tuple[float, float]:
    x, y = random.uniform(0, SIDE, 2)
    return float(x), float(y)


def _hide_a_part(canvas: paint.Canvas, random: RandomState, thing: Thing, whole: Sequence[int]) -> paint.Canvas:
    """Lay a grey shape or a twig before an object, unless too little of an object would be left to see.

    whole: pixels of each object when nothing hid it. Returns the canvas to go on with.
    """
    angle, away = random.uniform(0, 2 * math.pi), thing.diameter / 2 * random.uniform(0.5, 1.1)
    centre = (thing.centre[0] + round(math.cos(angle), 6) * away, thing.centre[1] + round(math.sin(angle), 6) * away)
    tried = canvas.copy()
    if random.random_sample() < 0.5:
        paint.grey_shape(tried, random, centre, thing.diameter * random.uniform(0.4, 0.7))
    else:
        paint.twig(tried, random, centre)
    seen = [np.count_nonzero(tried.owner == number) for number in range(len(whole))]
    return tried if all(part >= VISIBLE * all_of_it for part, all_of_it in zip(seen, whole, strict=True)) else canvas
