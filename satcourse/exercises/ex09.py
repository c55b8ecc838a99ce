"""Exercises of notebook 09: maps measured, a map that a person would draw, and a wrong caption read."""

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satcourse.exercises import compare
from satcourse.exercises.task import Answer, distribution, exercise
from satlib.data import scenes


def _middle(alpha: Tensor, mask: Tensor, offset: float = 0.5, half: float = 0.5) -> list[float]:
    """The middle of the heaviest cell (y, x), in pixels; by mistake another `offset` from its corner, or of a pixel's (`half`)."""
    cell = divmod(int(alpha.argmax()), alpha.shape[1])
    return [(k + offset) * size / n - half for k, size, n in zip(cell, mask.shape, alpha.shape, strict=True)]


def _disc(y: float, x: float, radius: float, side: int = 56) -> Tensor:
    there = torch.arange(side)
    return (there[:, None] - y) ** 2 + (there - x) ** 2 <= radius**2


def _peaked(row: int, column: int, seed: int = 0, h: int = 7) -> Tensor:
    alpha = distribution(h * 7, seed=seed).view(h, 7) * 0.6
    alpha[row, column] += 0.4
    return alpha


def _games() -> list[tuple[Tensor, Tensor, float]]:
    return [
        (_peaked(1, 5), _disc(12, 43, 6), 1.0),  # on it
        (_peaked(1, 5), _disc(43, 12, 6), 1.0),  # on it, if row and column are exchanged
        (_peaked(3, 3), _disc(27.5, 41, 9), 6.0),  # beside it, within the tolerance
        (_peaked(3, 3), _disc(27.5, 41, 9), 5.0),  # and just not
        (_peaked(5, 2), _disc(40, 16, 2), 1.0),  # its corner is on it, its middle is not
        (_peaked(2, 2), _disc(19, 19, 0), 0.75),  # the middle is at 19.5, 19.5
        (_peaked(2, 2), _disc(20, 20, 0), 0.75),
        (_peaked(2, 2), _disc(15, 15, 0), 5.0),  # no farther than that up and to the left, but farther across
        (_peaked(2, 5, h=4), _disc(17, 43.5, 1)[:28], 1.0),  # neither the grid nor its cells are square
    ]


@exercise("9.1", "Does it point there?", difficulty=2, minutes=8, equation="Zhang et al., section 4")
def points_at(alpha: Tensor, mask: Tensor, tolerance: float, **mistake: float) -> bool:
    """The pointing game with a tolerance, in pixels: alpha (h, w), mask (H, W)."""
    middle = torch.tensor(_middle(alpha, mask, **mistake)).double()
    return bool(((mask.nonzero().double() - middle).norm(dim=1) <= tolerance).any())


points_at.says = "nine games, hits and misses, by a hair too"
points_at.cases = _games
points_at.given = lambda alpha, mask, tolerance: (
    f"the middle of the heaviest cell at {_middle(alpha, mask)}, the object around {mask.nonzero().float().mean(0).tolist()}, "
    f"tolerance = {tolerance:g}"
)
points_at.mistakes = {
    "the - 1/2 is missing: pixel 0 has its own middle at 0": partial(points_at, half=0.0),
    "this is the upper left corner of the heaviest cell: take its middle": partial(points_at, offset=0.0),
}


def _cover(mask: Tensor, h: int, w: int) -> Tensor:
    """The part of each cell that the object covers: (h, w)."""
    return functional.adaptive_avg_pool2d(mask[None].double(), (h, w))[0]


@exercise("9.2", "How much of a map is on an object?", difficulty=2, minutes=8, equation="Liu et al. (2017)")
def mass_on(alpha: Tensor, mask: Tensor) -> float:
    """How much of the map lies on an object, each weight spread evenly over its cell."""
    return float((alpha.double() * _cover(mask, *alpha.shape)).sum())


mass_on.says = "three maps and discs"
mass_on.cases = lambda: [
    (_peaked(1, 5), _disc(12, 43, 9)),
    (torch.full((7, 7), 1 / 49), _disc(28, 28, 10)),
    (distribution(8, seed=3).view(2, 4), _disc(6, 13, 7, side=32)[:16]),
]
mass_on.mistakes = {
    "a weight of a cell that the object only touches counts whole: count the part that it covers": lambda alpha, mask: (
        float((alpha * (_cover(mask, *alpha.shape) > 0)).sum())
    ),
    "each weight was given to every pixel of its cell": lambda *x: mass_on(*x) * x[1].numel() / x[0].numel(),
}


@exercise("9.3", "The map that a person would draw", difficulty=2, minutes=8)
def over(mask: Tensor, h: int, w: int) -> Tensor:
    """A map (h * w,) that is even over an object's pixels; it sums to 1."""
    cover = _cover(mask, h, w).float().flatten()
    return cover / cover.sum()


over.says = "three discs, one of them on a grid that is not square"
over.cases = lambda: [(_disc(12, 43, 9), 7, 7), (_disc(20, 30, 15), 4, 4), (_disc(6, 13, 7, side=32)[:16], 2, 4)]
over.mistakes = {
    "it does not sum to 1: divide by the sum": lambda *x: _cover(*x).flatten(),
    "the places go column by column: the grid is read row by row": lambda m, h, w: over(m, h, w).view(h, w).T.flatten(),
}


class WrongCaption(NamedTuple):
    """A drawn scene, a wrong caption of it by scenes-soft, and where each word looked, the end mark last: (C, h, w)."""

    photo: Image.Image
    words: list[str]
    alphas: Tensor


def wrong_caption() -> WrongCaption:
    """A true mistake on a scene that the notebook does not show (beam 3); its maps are stored to 4 places."""
    result = json.loads(Path(__file__).with_name("wrong_caption.json").read_text(encoding="utf-8"))
    return WrongCaption(scenes.scene(result["key"]).photo(), result["words"], torch.tensor(result["alphas"]))


def _read(answer: Answer) -> Any:
    guesses = answer()
    if not isinstance(guesses, (tuple, list)):
        return guesses
    return [guess.lower().strip() if isinstance(guess, str) else guess for guess in guesses]


def _advise(expected: Any, got: Any) -> str:
    """What is not right of a reading, without what would be."""
    if not isinstance(got, list) or len(got) != 3:
        return f'expected a number, a word, and "own" or "other"; got {compare.short(got)}'
    guesses = zip(reading.parts, got, expected, strict=True)
    part, guess = next((part, guess) for part, guess, right in guesses if guess != right)
    return f"{part}: expected another, got {compare.short(guess)}"


@exercise("9.4", "Reading a wrong caption", difficulty=1, minutes=5, equation="section 5.4, figure 5")
def reading() -> tuple[int, str, str]:
    """The false word's number, the true one, and whether most of its map is on its "own" object or on the "other" one."""
    return 4, "circle", "own"


reading.says = "the false word, the true one, and where it looked"
reading.cases = lambda: [()]
reading.parts = ("the false word's number", "the true word", "where it looked")
reading.observe = _read
reading.advise = _advise
reading.mistakes = {
    "words are counted from 0": lambda: (5, "circle", "own"),
    "that is the false word itself: what should it say?": lambda: (4, "square", "own"),
    "look at its map again: on which of the two objects is most of it?": lambda: (4, "circle", "other"),
}
