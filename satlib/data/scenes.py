"""The built-in data set: procedurally drawn scenes of coloured shapes with generated captions.

Every scene shows two *named* objects of different saturated colours, one clearly above, below, left
of or right of the other. Everything else is clutter and never named: grey shapes, brown twigs and
coloured specks of at most 6 pixels; some of it partly hides the objects. So every caption is right
or wrong (`exact_match`), and the pixels that each word refers to are known (`Scene.masks`,
`mentions`). Colour, shape, texture and size are independent, so a caption has to look at the right
object.
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
from satlib.data.scenes_grammar import Kind, Meaning, between, pick
from satlib.data.scenes_paint import SIDE, Point

# Settings, in pixels, that make scenes easier or harder to see.
DIAMETER = {"small": (44.0, 52.0), "big": (76.0, 90.0)}
MARGIN = 5.0  # between an object and the edge of the image
# The least distance between the centres along the axis of the relation, in pixels, and as a share
# of the sum of the radii: close objects may overlap slightly.
NEAREST = 56.0
TOUCHING = 0.92
SLANT = 0.45  # maximum distance along the other axis, as a share of the distance along the first
VISIBLE = 0.8  # minimum share of an object that clutter leaves visible


# --- A scene and its picture ------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    """A named object: its kind, and in pixels its centre and diameter, hidden parts included."""

    kind: Kind
    centre: Point
    diameter: float

    size = property(attrgetter("kind.size"))
    colour = property(attrgetter("kind.colour"))
    shape = property(attrgetter("kind.shape"))
    texture = property(attrgetter("kind.texture"))


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
        first, second = self.objects
        return Meaning.of(first.kind, self.relation, second.kind)

    def render(self) -> tuple[Image.Image, np.ndarray]:
        """The RGB image (224x224), and each object's *visible* pixels, bool (2, 224, 224)."""
        random = _random(self.seed, self.image_id, "paint")
        canvas = paint.Canvas(paint.background(random))

        # Clutter behind the objects. Every draw is in a fixed order: another order, other scenes.
        for _ in range(between(random, *paint.GREY_SHAPES)):
            centre = _anywhere(random)
            paint.grey_shape(canvas, random, centre, random.uniform(16, 46))
        for _ in range(between(random, *paint.TWIGS)):
            paint.twig(canvas, random, _anywhere(random))
        for _ in range(between(random, *paint.SPECKS)):
            paint.speck(canvas, random, _anywhere(random))

        whole = []  # the number of each object's pixels while nothing is in front of it
        for number, thing in enumerate(self.objects):
            paint.named_object(canvas, random, number, thing.centre, thing.diameter, thing.kind)
            whole.append(_masks(canvas)[number].sum())

        # Clutter in front of the objects, unless it would hide too much of one.
        for _ in range(between(random, *paint.OCCLUDERS)):
            thing = self.objects[between(random, 0, 1)]
            covered = _occluded(canvas, random, thing)
            visible = _masks(covered).sum(axis=(1, 2))
            if (visible >= VISIBLE * np.array(whole)).all():
                canvas = covered

        return canvas.picture(), _masks(canvas)

    def photo(self) -> Image.Image:
        """The RGB image, 224x224."""
        return self.render()[0]

    @property
    def masks(self) -> np.ndarray:
        """The visible pixels of each object: bool (2, 224, 224)."""
        return self.render()[1]


def _masks(canvas: paint.Canvas) -> np.ndarray:
    """The visible pixels of each object: bool (2, 224, 224)."""
    return np.stack([canvas.owner == number for number in (0, 1)])


def _anywhere(random: RandomState) -> Point:
    x, y = random.uniform(0, SIDE, 2)
    return float(x), float(y)


def _occluded(canvas: paint.Canvas, random: RandomState, thing: Thing) -> paint.Canvas:
    """A copy of the canvas with a grey shape or a twig in front of an object."""
    # Off the object's centre: in front of it, clutter would often hide more than is allowed.
    angle = random.uniform(0, 2 * math.pi)
    away = thing.diameter / 2 * random.uniform(0.5, 1.1)
    # Sine and cosine may differ in the last digit from one platform to another: rounded.
    x, y = thing.centre
    x += round(math.cos(angle), 6) * away
    y += round(math.sin(angle), 6) * away

    canvas = deepcopy(canvas)
    if random.random_sample() < 0.5:
        size = thing.diameter * random.uniform(0.4, 0.7)
        paint.grey_shape(canvas, random, (x, y), size)
    else:
        paint.twig(canvas, random, (x, y))
    return canvas


# --- Making scenes ----------------------------------------------------------------------------


def scene(image_id: str, seed: int = 0) -> Scene:
    """The scene with an image id such as "train-000123".

    A different `seed` gives different scenes for the same ids.
    """
    random = _random(seed, image_id, "layout")
    # Of different colours, so that one word is enough to tell the objects apart.
    first = pick(random, grammar.COLOURS)
    second = pick(random, [colour for colour in grammar.COLOURS if colour != first])

    kinds = []
    for colour in (first, second):
        size = pick(random, grammar.SIZES)
        shape = pick(random, grammar.SHAPES)
        texture = pick(random, grammar.TEXTURES)
        kinds.append(Kind(size, colour, shape, texture))

    relation = pick(random, grammar.RELATIONS)
    diameters = [float(random.uniform(*DIAMETER[kind.size])) for kind in kinds]
    centres = _centres(random, relation, diameters)
    one, other = map(Thing, kinds, centres, diameters)
    captions = grammar.captions(random, Meaning.of(one.kind, relation, other.kind))
    return Scene(image_id, seed, (one, other), relation, captions)


def load(train: int = 4000, dev: int = 500, test: int = 500, seed: int = 0) -> CaptionSet:
    """The data set with this many scenes per split; each is drawn when its photo is requested."""
    counts = {"train": train, "dev": dev, "test": test}
    examples = []
    for split in SPLITS:
        for number in range(counts[split]):
            image_id = f"{split}-{number:06d}"
            examples.append(Example(image_id, split, scene(image_id, seed).captions))
    return CaptionSet("scenes", tuple(examples), partial(_draw, seed=seed))


def _draw(example: Example, seed: int) -> Image.Image:
    return scene(example.image_id, seed).photo()


def _random(seed: int, image_id: str, purpose: str) -> RandomState:
    """A random stream for each scene and purpose.

    Because of that, changing the drawing does not change objects or captions.
    """
    name = f"satlib scenes/{seed}/{image_id}/{purpose}"
    digest = hashlib.sha256(name.encode()).digest()
    # Eight numbers of four bytes, the lowest byte first on every platform.
    numbers = np.frombuffer(digest, dtype="<u4")
    return RandomState(numbers.astype(np.uint32))


def _centres(random: RandomState, relation: str, diameters: Sequence[float]) -> list[Point]:
    """Two centres in the given relation, by rejection sampling.

    They are the first uniform draw that satisfies the settings above.
    """
    # Each centre is this far from the edges at least, along both axes: (2, 1).
    radii = np.array(diameters)[:, None] / 2
    low = MARGIN + radii
    high = SIDE - MARGIN - radii

    least = max(NEAREST, TOUCHING * sum(diameters) / 2)
    axis = 1 if relation in ("above", "below") else 0
    sign = 1 if relation in ("above", "left of") else -1
    while True:
        # 64 draws of two centres (x, y) at a time, because numpy takes about as long for one.
        centres = low + random.random_sample((64, 2, 2)) * (high - low)  # (64, 2, 2)
        apart = sign * (centres[:, 1] - centres[:, 0])  # (64, 2)
        along, across = apart[:, axis], apart[:, 1 - axis]
        good = (along >= least) & (np.abs(across) <= SLANT * along)
        if good.any():
            first_good = centres[np.argmax(good)]  # (2, 2)
            return [(float(x), float(y)) for x, y in first_good]


# --- Judging captions -------------------------------------------------------------------------


def exact_match(caption: str | Sequence[str], scene: Scene) -> bool:
    """Whether a caption, or its words, states the right objects, attributes and relation."""
    return grammar.parse(caption) == scene.meaning


def mentions(words: Sequence[str], scene: Scene) -> list[int | None]:
    """For each word the index of the object that it correctly names or describes, or None.

    A noun phrase belongs to the object for which more of its words are true, and in a tie to
    neither.
    """
    objects: list[int | None] = [None] * len(words)
    for phrase in grammar.phrases(words):
        of_first, of_second = (_true_words(phrase, thing) for thing in scene.objects)
        if len(of_first) > len(of_second):
            for index in of_first:
                objects[index] = 0
        elif len(of_second) > len(of_first):
            for index in of_second:
                objects[index] = 1
    return objects


def _true_words(phrase: grammar.Phrase, thing: Thing) -> list[int]:
    """The indices of a phrase's words that are true of an object."""
    return [
        index
        for index, (attribute, value) in phrase.attributes.items()
        if getattr(thing, attribute) == value
    ]
