"""Exercises of notebook 09: drawing a map, measuring it, and reading a wrong caption."""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satcourse.exercises import compare
from satcourse.exercises.task import Answer, Task, between, distribution, explain, numbers, predict
from satlib.data import scenes
from satlib.data.datasets import Example
from satlib.evaluation import maps
from satlib.files.reading import read_json
from satlib.model import attention


def _enlarge(alpha: Tensor, factor: int) -> Tensor:
    """Each weight fills its cell: (h, w) -> (h factor, w factor)."""
    return functional.interpolate(alpha[None, None], scale_factor=factor, mode="nearest-exact")[0, 0]


def gaussian(sigma: float, radius: int) -> Tensor:
    """A Gaussian on whole pixels, cut off at a radius, its sum 1: (2 radius + 1,)."""
    x = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (x / sigma) ** 2)
    return kernel / kernel.sum()


def _bell(sigma: float, radius: int, half: float = 0.5) -> Tensor:
    return torch.softmax(-half * (torch.arange(-radius, radius + 1) / sigma) ** 2, 0)


def smooth(values: Tensor, kernel: Tensor) -> Tensor:
    """A map convolved with a kernel along both axes, mirrored at its border (c b a | a b c): (H, W) -> (H, W)."""
    return _smooth(values, kernel)


def _smooth(values: Tensor, kernel: Tensor, border: str = "mirror", axes: tuple[int, ...] = (0, 1)) -> Tensor:
    """The same, or with a mistake: another border ("zero", or "reflect": c b | a b c), or along fewer `axes`."""
    radius = len(kernel) // 2
    for axis in axes:
        size = values.shape[axis]
        there = torch.arange(-radius, size + radius)
        period, last = (2 * size, 2 * size - 1) if border == "mirror" else (max(1, 2 * size - 2), 2 * size - 2)
        mirrored = torch.minimum(there % period, last - there % period)
        padded = values.index_select(axis, mirrored)
        if border == "zero":
            inside = (there >= 0) & (there < size)
            padded = padded * (inside[:, None] if axis == 0 else inside)
        values = padded.unfold(axis, len(kernel), 1) @ kernel
    return values


def _valid(values: Tensor, kernel: Tensor) -> Tensor:
    """Without margins: the map gets smaller."""
    return (values.unfold(0, len(kernel), 1) @ kernel).unfold(1, len(kernel), 1) @ kernel


def points_at(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    """satlib's pointing game, with a tolerance of its own: alpha (h, w), mask (H, W)."""
    return _points(alpha, mask, tolerance)


def _points(alpha: Tensor, mask: Tensor, tolerance: float, offset: float = 0.5, half: float = 0.5) -> bool:
    """The same, or with another `offset` of a cell's middle from its corner, or of a pixel's (`half`)."""
    cell = divmod(int(alpha.argmax()), alpha.shape[1])
    middle = [(k + offset) * size / n - half for k, size, n in zip(cell, mask.shape, alpha.shape, strict=True)]
    return bool(((mask.nonzero().double() - torch.tensor(middle).double()).norm(dim=1) <= tolerance).any())


def mass_on(alpha: Tensor, mask: Tensor) -> float:
    """satlib's measure: how much of the map lies on an object, each weight spread evenly over its cell."""
    cover, _ = maps.cells(mask.numpy(), tuple(alpha.shape))
    return float((alpha.double().numpy() * cover).sum())


def _mass(alpha: Tensor, mask: Tensor) -> float:
    factor = mask.shape[0] // alpha.shape[0]
    return float((_enlarge(alpha, factor) * mask).sum() / factor**2)


def _cover(alpha: Tensor, mask: Tensor) -> Tensor:
    """The part of each cell that the object covers."""
    h, w = alpha.shape
    return mask.float().unflatten(0, (h, -1)).unflatten(2, (w, -1)).mean((1, 3))


def movement(alphas: Tensor) -> Tensor:
    """satlib's movement: how far a map moves from each word to the next, 0 to 1."""
    return attention.movement(alphas)


class WrongCaption(NamedTuple):
    """A drawn scene, what a model of scenes-soft says of it, wrongly, and where each word looked, the end mark last: (C, h, w)."""

    photo: Image.Image
    words: list[str]
    alphas: Tensor


@cache
def _stored() -> dict[str, Any]:
    return read_json(Path(__file__).with_name("wrong_caption.json"), dict[str, Any], "a caption with its maps")


def wrong_caption() -> WrongCaption:
    """A true mistake of a scenes-soft model, as it came (beam 3); its maps are stored to 4 places."""
    result = _stored()
    return WrongCaption(scenes.scene(result["key"]).photo(), result["words"], torch.tensor(result["alphas"]))


@cache
def reading() -> tuple[int, str, str]:
    """The false word's number, the true one, and whether most of its map is on its "own" object or on the "other" one."""
    result = _stored()
    (mistake,) = maps.scene_mistakes(Example(result["key"], "test", ()), result["words"])
    scene = scenes.scene(result["key"])
    own = next(i for i, mask in enumerate(scene.masks) if np.array_equal(mask, mistake.mask))
    alpha = torch.tensor(result["alphas"][mistake.index])
    on = [mass_on(alpha, torch.from_numpy(mask)) for mask in scene.masks]
    return mistake.index, getattr(scene.objects[own].kind, mistake.kind), "own" if on[own] > on[1 - own] else "other"


def _read(answer: Answer) -> Any:
    given = answer()
    if not isinstance(given, (tuple, list)) or len(given) != 3:
        return given
    number, truth, place = given
    return {
        "the false word's number": _Guess(number, reading()[0]),
        "the true word": _Guess(truth.lower().strip() if isinstance(truth, str) else truth, reading()[1]),
        "where it looked": _Guess(place.lower().strip() if isinstance(place, str) else place, reading()[2]),
    }


def _advise(given: Any) -> str:
    """What is not right of a reading, without what would be."""
    if not isinstance(given, dict) or not all(isinstance(part, _Guess) for part in given.values()):
        return f'expected a number, a word, and "own" or "other"; got {compare.short(given)}'
    parts = list(given.items())
    number = parts[0][1].given
    if not isinstance(number, Number):
        return f"{parts[0][0]}: expected a number, got {compare.short(number)}; it comes first"
    part, guess = next((part, guess) for part, guess in parts if guess.given != guess.right)
    return f"{part}: expected another, got {compare.short(guess)}"


@dataclass(frozen=True)
class _Guess:
    """A part of the answer that is not given away when a guess is held against it."""

    given: Any
    right: Any = field(compare=False)

    def __repr__(self) -> str:
        return "another" if self.given == self.right else repr(self.given)


def _list(sigma: float, radius: int) -> list[float]:
    return [float(np.exp(-((i - radius) ** 2) / (2 * sigma**2))) for i in range(2 * radius + 1)]


def _numpy_smooth(values: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    radius = len(kernel) // 2
    for axis in (0, 1):
        width = [(radius, radius) if each == axis else (0, 0) for each in (0, 1)]
        padded = np.pad(values, width, mode="symmetric")
        values = sum(
            weight * np.take(padded, range(k, k + values.shape[axis]), axis) for k, weight in enumerate(kernel)
        )
    return values


def _by_distance(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    at = (alpha == alpha.max()).nonzero()[0].tolist()
    size = [mask.shape[i] / alpha.shape[i] for i in (0, 1)]
    y, x = ((at[i] + 0.5) * size[i] - 0.5 for i in (0, 1))
    distances = [((r - y) ** 2 + (c - x) ** 2) ** 0.5 for r, c in mask.nonzero().tolist()]
    return min(distances, default=torch.inf) <= tolerance


def _disc(y: float, x: float, radius: float, side: int = 56) -> Tensor:
    there = torch.arange(side)
    return (there[:, None] - y) ** 2 + (there - x) ** 2 <= radius**2


def _peaked(row: int, column: int, seed: int = 0, h: int = 7) -> Tensor:
    alpha = distribution(h * 7, seed=seed).view(h, 7) * 0.6
    alpha[row, column] += 0.4
    return alpha


def _hills() -> Tensor:
    """The heaviest cell at row 5, column 2; the second heaviest at 1, 1; the lightest at 3, 5."""
    alpha = torch.full((7, 7), 0.01)
    alpha[5, 2], alpha[1, 1], alpha[3, 5] = 0.3, 0.24, 0.0
    return alpha


def _games() -> list[tuple[Tensor, Tensor, float]]:
    two = torch.zeros(7, 7)
    two[0, 0], two[0, 6], two[6, 0] = 0.4, 0.3, 0.3
    return [
        (_peaked(1, 5), _disc(12, 43, 6), 1.0),  # on it
        (_peaked(1, 5), _disc(43, 12, 6), 1.0),  # on it, if row and column are exchanged
        (_peaked(3, 3), _disc(27.5, 41, 9), 6.0),  # beside it, within the tolerance
        (_peaked(3, 3), _disc(27.5, 41, 9), 5.0),  # and just not
        (two, _disc(24, 18, 9), 2.0),  # the middle of it all is on it, the peak is not
        (_peaked(5, 2), _disc(40, 16, 2), 1.0),  # its corner is on it, its middle is not
        (_peaked(0, 0), _disc(28, 28, 24), 3.0),
        (_peaked(2, 2), _disc(19, 19, 0), 0.75),  # the middle is at 19.5, 19.5
        (_peaked(2, 2), _disc(20, 20, 0), 0.75),
        (_peaked(2, 2), _disc(17, 20, 0, side=49), 3.0),  # as far as the tolerance goes
        (_peaked(2, 2), _disc(15, 15, 0), 5.0),  # no farther than that up and to the left, but farther across
        (_peaked(2, 2), _disc(17, 14, 0, side=49), 3.0),  # the same to the left
        (_hills(), _disc(11.5, 11.5, 3), 2.0),  # on the second heaviest cell
        (_hills(), _disc(27.5, 43.5, 3), 2.0),  # on the lightest
        (_hills(), _disc(0, 0, 3), 2.0),  # in the corner
        (_peaked(3, 3), _disc(27, 29, 0), 5.0),  # its distance is within the tolerance, and so is its square
        (_peaked(2, 5, h=4), _disc(17, 43.5, 1)[:28], 1.0),  # neither the grid nor its cells are square
        (_peaked(2, 5), _disc(19.5, 21.5, 1)[:, :28], 1.0),  # the grid is, its cells are not
    ]


def _game(alpha: Tensor, mask: Tensor, tolerance: float) -> str:
    """Where the peak is, how far away the object, and the tolerance."""
    row, column = divmod(int(alpha.argmax()), alpha.shape[1])
    y, x = ((k + 0.5) * size / n - 0.5 for k, size, n in zip((row, column), mask.shape, alpha.shape, strict=True))
    pixels = mask.nonzero().double()
    near = pixels[(pixels - torch.tensor([y, x])).square().sum(1).argmin()].int().tolist()
    return (
        f"the peak at row {row}, column {column}, whose middle is at ({y:g}, {x:g}), "
        f"the object's nearest pixel at ({near[0]}, {near[1]}), tolerance = {tolerance:g}"
    )


def _grounded() -> dict[str, float]:
    """What `satlib ground` measured for flickr8k-lite02-soft on the test split, of all phrases of the true captions, in percent."""
    file = resources.files("satlib") / "results" / "flickr8k-lite02-soft" / "ground-test.json"
    return json.loads(file.read_text(encoding="utf-8"))["entities"]["true"]["all"]


TASKS = (
    predict(
        "9.1",
        "centre_hits",
        lambda: _grounded()["peak centre"],
        {
            "that is a box's share of the picture, more or less: but people and dogs are seldom at the border": 31,
            "too much: skies, streets and the things in people's hands lie elsewhere": (80, 100),
            "that is about how often this model's peak is in a box: the centre does better": 48,
            "that looks like a share, from 0 to 1: in percent it is a hundred times as much": (1e-9, 1),
            "too little: even a dart thrown anywhere would be in a box for about 31 % of the phrases": (0, 28),
        },
        tolerance=0.095,
        title="The middle of the picture",
        difficulty=1,
        minutes=3,
        equation="Zhang et al., section 4",
        after="The same on photographs",
        says="more often than the peak of a map that was trained on captions alone",
    ),
    Task(
        id="9.2",
        name="gaussian",
        title="A Gaussian",
        difficulty=1,
        minutes=4,
        equation="section 5.4",
        after="How a map is drawn",
        reference=gaussian,
        cases=lambda: [(2.0, 6), (0.7, 3), (16.0, 10)],
        mistakes={
            "it is not normalised: the sum must be 1, or smoothing would brighten the map": lambda sigma, radius: (
                gaussian(sigma, radius) / gaussian(sigma, radius).max()
            ),
            "the factor 1/2 is missing": lambda sigma, radius: _bell(sigma, radius, half=1.0),
            "sigma is not squared: exp(-x^2 / (2 sigma^2))": lambda sigma, radius: _bell(sigma**0.5, radius),
            "a bracket is missing: divide by all of 2 sigma^2": lambda sigma, radius: _bell(1 / sigma, radius),
            "one pixel is missing: from -radius to radius there are 2 radius + 1": lambda sigma, radius: torch.softmax(
                -0.5 * (torch.arange(-radius, radius) / sigma) ** 2, 0
            ),
        },
        says="three widths, one of them cut off early",
        others=(_bell, lambda sigma, radius: torch.tensor(_list(sigma, radius)) / sum(_list(sigma, radius))),
    ),
    Task(
        id="9.3",
        name="smooth",
        title="Soft edges",
        difficulty=3,
        minutes=15,
        equation="section 5.4",
        after="How a map is drawn",
        reference=smooth,
        cases=lambda: [
            (numbers(8, 6).abs(), gaussian(1.0, 2)),
            (torch.ones(7, 7), gaussian(2.0, 3)),
            (numbers(4, 7, seed=1), torch.tensor([0.6, 0.3, 0.1])),
            (numbers(6, 5, seed=2), torch.tensor([0.2, 0.3, -0.2, 0.4, 0.6])),  # its sum is not 1
            (numbers(2, 3, seed=3), torch.tensor([0.5])),
        ],
        mistakes={
            "the border is dark: beyond it there are zeros; mirror the map (c b a | a b c)": lambda values, kernel: (
                _smooth(values, kernel, "zero")
            ),
            "only the rows are smoothed, from left to right: the columns too": lambda values, kernel: _smooth(
                values, kernel, axes=(1,)
            ),
            "only the columns are smoothed, from top to bottom: the rows too": lambda values, kernel: _smooth(
                values, kernel, axes=(0,)
            ),
            "the border is mirrored about its last pixel (c b | a b c), which loses weight: say it twice (c b a | a b c)": (
                lambda values, kernel: _smooth(values, kernel, "reflect")
            ),
            "there is no margin, so the map gets smaller: mirror the map beyond its border": _valid,
        },
        says="an even map stays even, four others against satlib's border",
        others=(
            lambda values, kernel: torch.from_numpy(_numpy_smooth(values.numpy(), kernel.numpy())),
            lambda values, kernel: _smooth(
                _smooth(values.double(), kernel.double(), axes=(1,)), kernel.double(), axes=(0,)
            ),
        ),
        picture=True,
    ),
    Task(
        id="9.4",
        name="points_at",
        title="The pointing game",
        difficulty=2,
        minutes=8,
        equation="Zhang et al., section 4",
        after="The pointing game",
        reference=points_at,
        cases=_games,
        mistakes={
            "the tolerance is not used: a point within it of the object counts": lambda alpha, mask, t: _points(
                alpha, mask, 0.75
            ),
            "the root is missing: the squared distance is held against the tolerance": lambda alpha, mask, t: _points(
                alpha, mask, t**0.5
            ),
            "the tolerance is taken in cells: it is in pixels": lambda alpha, mask, t: _points(
                alpha, mask, t * mask.shape[0] / alpha.shape[0]
            ),
            "the - 1/2 is missing: pixel 0 has its own middle at 0": lambda alpha, mask, t: _points(
                alpha, mask, t, half=0.0
            ),
            "this is the upper left corner of the heaviest cell: take its middle": lambda alpha, mask, t: _points(
                alpha, mask, t, offset=0.0
            ),
        },
        says="eighteen games, hits and misses, by a hair too",
        given=_game,
        others=(
            lambda alpha, mask, t: _by_distance(alpha, mask, t),
            lambda alpha, mask, t: np.bool_(_points(alpha, mask, t)),
        ),
    ),
    Task(
        id="9.5",
        name="mass_on",
        title="How much of a map is on an object?",
        difficulty=2,
        minutes=8,
        equation="notebook 09",
        after="The pointing game",
        reference=mass_on,
        cases=lambda: [
            (_peaked(1, 5), _disc(12, 43, 9)),
            (distribution(16, seed=2).view(4, 4), _disc(20, 30, 15)),
            (torch.full((7, 7), 1 / 49), _disc(28, 28, 10)),
            (distribution(8, seed=3).view(2, 4), _disc(6, 13, 7, side=32)[:16]),
        ],
        mistakes={
            "a weight of a cell that the object only touches counts whole: count the part that it covers": lambda alpha, mask: (
                float((alpha * (_cover(alpha, mask) > 0)).sum())
            ),
            "each weight was given to every pixel of its cell: it is shared among them": lambda alpha, mask: float(
                (_enlarge(alpha, mask.shape[0] // alpha.shape[0]) * mask).sum()
            ),
            "this is the part of the picture that the object covers: the map has no part in it": lambda alpha, mask: (
                mask.float().mean().item()
            ),
            "this is the mass beside the object": lambda alpha, mask: 1 - _mass(alpha, mask),
            "a cell counts whole or not at all: count the part that the object covers": lambda alpha, mask: (
                alpha[_cover(alpha, mask) > 0.5].sum().item()
            ),
        },
        says="four maps and discs, against satlib's measure",
        others=(_mass, lambda alpha, mask: (alpha.double() * _cover(alpha, mask)).sum()),
        invariants=(between(0, 1, "a part of the map"),),
    ),
    Task(
        id="9.6",
        name="movement",
        title="Does it move at all?",
        difficulty=1,
        minutes=4,
        equation="notebook 09",
        after="A gallery: right and wrong",
        reference=movement,
        cases=lambda: [(distribution(2, 4, 9),), (distribution(5, 5, 5, seed=1, sharp=3.0),), (torch.eye(3)[None],)],
        mistakes={
            "the half is missing: from one place to another the movement is 1, not 2": lambda alphas: (
                2 * movement(alphas)
            ),
            "differences are summed with their signs: they cancel out; take absolute values": lambda alphas: (
                alphas.diff(dim=1).sum(2) / 2
            ),
            "neighbouring places are compared: the difference is between a word and the next": lambda alphas: (
                alphas.diff(dim=2).abs().sum(2) / 2
            ),
            "summed over the words: sum over the places": lambda alphas: alphas.diff(dim=1).abs().sum(1) / 2,
            "the mean over the words: each pair has its own number": lambda alphas: movement(alphas).mean(1),
        },
        says="values against satlib's, from still maps to jumping ones",
        others=(
            lambda alphas: (alphas[:, 1:] - alphas[:, :-1]).clamp(min=0).sum(-1),
            lambda alphas: 1 - torch.minimum(alphas[:, 1:].double(), alphas[:, :-1].double()).sum(2),
        ),
        invariants=(between(0, 1, "a movement"),),
    ),
    Task(
        id="9.7",
        name="reading",
        title="Reading a wrong caption",
        difficulty=1,
        minutes=5,
        equation="section 5.4, figure 5",
        after="Mistakes, and what the maps say about them",
        reference=reading,
        cases=lambda: [()],
        observe=_read,
        advise=_advise,
        mistakes={
            "words are counted from 0": lambda: (reading()[0] + 1, *reading()[1:]),
            "that is the false word itself: what should it say?": lambda: (
                reading()[0],
                _stored()["words"][reading()[0]],
                reading()[2],
            ),
            "look at its map again: on which of the two objects is most of it?": lambda: (*reading()[:2], "other"),
            "the other object is described rightly: hold each of its words against the picture": lambda: (
                4,
                *reading()[1:],
            ),
            "that is the other object's shape: look at the object that the phrase is about": lambda: (
                reading()[0],
                "triangle",
                reading()[2],
            ),
        },
        says="the false word, the true one, and where it looked",
        others=(lambda: list(reading()), lambda: (10, "Circle", "own")),
    ),
    explain(
        "9.8",
        "what_explains",
        right="a",
        wrong={
            "b": "the map may lie on the object and the word may still come from somewhere else, such as the words before it",
            "c": "two models may draw equal maps, and neither of them use them",
            "d": "a sharp map is easy to read; that does not make it the cause of a word",
        },
        title="Is it an explanation?",
        difficulty=1,
        minutes=3,
        equation="section 5.4",
        after="Is attention an explanation?",
        says="the map was changed, everything else stayed, and the word followed",
    ),
)
