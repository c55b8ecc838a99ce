"""Exercises of notebook 09: maps measured, a map that a person would draw, and a wrong caption read."""

from dataclasses import dataclass, field
from functools import cache
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satcourse.exercises import compare
from satcourse.exercises.task import Answer, Task, between, distribution
from satlib.data import scenes
from satlib.data.datasets import Example
from satlib.evaluation import maps
from satlib.files.reading import read_json


def _enlarge(alpha: Tensor, factor: int) -> Tensor:
    """Each weight fills its cell: (h, w) -> (h factor, w factor)."""
    return functional.interpolate(alpha[None, None], scale_factor=factor, mode="nearest-exact")[0, 0]


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


def over(mask: Tensor, h: int, w: int) -> Tensor:
    """A map (h * w,) that is even over an object's pixels, from satlib's cover of cells; it sums to 1."""
    cover, _ = maps.cells(mask.numpy(), (h, w))
    return _evenly(torch.from_numpy(cover)).float()


def _evenly(weights: Tensor) -> Tensor:
    """Weights in a row, over their sum."""
    return weights.float().flatten() / weights.float().sum()


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


TASKS = (
    Task(
        id="9.1",
        name="points_at",
        title="Does it point there?",
        difficulty=2,
        minutes=8,
        equation="Zhang et al., section 4",
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
        id="9.2",
        name="mass_on",
        title="How much of a map is on an object?",
        difficulty=2,
        minutes=8,
        equation="notebook 09",
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
        id="9.3",
        name="over",
        title="The map that a person would draw",
        difficulty=2,
        minutes=8,
        equation="notebook 09",
        reference=over,
        cases=lambda: [
            (_disc(12, 43, 9), 7, 7),
            (_disc(20, 30, 15), 4, 4),
            (_disc(6, 13, 7, side=32)[:16], 2, 4),
            (torch.ones(14, 28, dtype=torch.bool), 7, 7),
        ],
        mistakes={
            "it does not sum to 1: divide by the sum": lambda mask, h, w: _cover(torch.empty(h, w), mask).flatten(),
            "a cell that the object only touches counts whole: count the part that it covers": lambda mask, h, w: (
                _evenly(_cover(torch.empty(h, w), mask) > 0)
            ),
            "a cell counts whole or not at all: count the part that the object covers": lambda mask, h, w: _evenly(
                _cover(torch.empty(h, w), mask) > 0.5
            ),
            "the places go column by column: the grid is read row by row": lambda mask, h, w: _evenly(
                _cover(torch.empty(h, w), mask).T
            ),
            "this is the even map, whatever the mask": lambda mask, h, w: torch.full((h * w,), 1 / (h * w)),
        },
        says="three discs, one of them on a grid that is not square, and an even map",
        others=(
            lambda mask, h, w: _evenly(_cover(torch.empty(h, w), mask)),
            lambda mask, h, w: functional.normalize(
                torch.stack([part.sum() for row in mask.chunk(h) for part in row.chunk(w, 1)]).double(), p=1, dim=0
            ),
        ),
    ),
    Task(
        id="9.4",
        name="reading",
        title="Reading a wrong caption",
        difficulty=1,
        minutes=5,
        equation="section 5.4, figure 5",
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
)
