"""Exercises of notebook 09: drawing a map, measuring it, and reading a wrong caption."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satlib import ground, objectives
from satlib.datasets import Example, scenes
from satlib.exercises.task import Answer, Task, between, distribution, numbers
from satlib.files import read_json


def enlarge(alpha: Tensor, factor: int) -> Tensor:
    """Each weight fills its cell: (h, w) -> (h factor, w factor)."""
    return functional.interpolate(alpha[None, None], scale_factor=factor, mode="nearest-exact")[0, 0]


def gaussian(sigma: float, radius: int) -> Tensor:
    """A Gaussian on whole pixels, cut off at a radius, its sum 1: (2 radius + 1,)."""
    x = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (x / sigma) ** 2)
    return kernel / kernel.sum()


def _bell(sigma: float, radius: int, power: float = 2.0, half: float = 0.5) -> Tensor:
    x = torch.arange(-radius, radius + 1).abs()
    return torch.softmax(-half * (x / sigma) ** power, 0)


def smooth(values: Tensor, kernel: Tensor) -> Tensor:
    """A map convolved with a kernel along both axes, mirrored at its border (c b a | a b c): (H, W) -> (H, W)."""
    return _smooth(values, kernel)


def _smooth(values: Tensor, kernel: Tensor, border: str = "mirror", axes: tuple[int, ...] = (0, 1)) -> Tensor:
    radius = len(kernel) // 2
    for axis in axes:
        size = values.shape[axis]
        there = torch.arange(-radius, size + radius)
        if border == "mirror":
            there = there % (2 * size)
            there = torch.minimum(there, 2 * size - 1 - there)
        inside = (there >= 0) & (there < size)
        if border == "reflect":  # c b | a b c: the last row is not said again
            there = there.abs()
            there = torch.where(there >= size, 2 * size - 2 - there, there)
            inside[:] = True
        padded = values.index_select(axis, there.clamp(0, size - 1))
        if border == "zero":
            padded = padded * (inside[:, None] if axis == 0 else inside)
        windows = padded.unfold(axis, len(kernel), 1)
        values = windows @ kernel
    return values


def points_at(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    """satlib's pointing game, with a tolerance of its own: alpha (h, w), mask (H, W)."""
    return _points(alpha, mask, tolerance)


def _points(
    alpha: Tensor, mask: Tensor, tolerance: float, offset: float = 0.5, swap: bool = False, power: float = 2
) -> bool:
    row, column = divmod(int(alpha.argmax()), alpha.shape[1])
    if swap:
        row, column = column, row
    y = (row + offset) * mask.shape[0] / alpha.shape[0] - 0.5
    x = (column + offset) * mask.shape[1] / alpha.shape[1] - 0.5
    return _near(mask, y, x, tolerance, power)


def _near(mask: Tensor, y: float, x: float, tolerance: float, power: float = 2) -> bool:
    away = mask.nonzero().double() - torch.tensor([y, x], dtype=torch.float64)
    return bool((torch.linalg.vector_norm(away, power, dim=1) <= tolerance).any())


def _centre_of_mass(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    h, w = alpha.shape
    y, x = ((alpha.sum(1) @ torch.arange(h).float()).item(), (alpha.sum(0) @ torch.arange(w).float()).item())
    return _near(mask, (y + 0.5) * mask.shape[0] / h - 0.5, (x + 0.5) * mask.shape[1] / w - 0.5, tolerance)


def mass_on(alpha: Tensor, mask: Tensor) -> float:
    """satlib's measure: how much of the map lies on an object, each weight spread evenly over its cell."""
    cover, _ = ground._cells(mask.numpy(), tuple(alpha.shape))
    return float((alpha.double().numpy() * cover).sum())


def _mass(alpha: Tensor, mask: Tensor) -> float:
    factor = mask.shape[0] // alpha.shape[0]
    return float((enlarge(alpha, factor) * mask).sum() / factor**2)


def _cover(alpha: Tensor, mask: Tensor) -> Tensor:
    factor = mask.shape[0] // alpha.shape[0]
    return mask.float().unflatten(0, (-1, factor)).unflatten(2, (-1, factor)).mean((1, 3))


def movement(alphas: Tensor) -> Tensor:
    """satlib's movement: how far a map moves from each word to the next, 0 to 1."""
    return objectives.movement(alphas)


class WrongCaption(NamedTuple):
    """A drawn scene, what a model of scenes-soft says of it, wrongly, and where each word looked, the end mark last: (C, 7, 7)."""

    photo: Image.Image
    words: list[str]
    alphas: Tensor


@cache
def _stored() -> dict[str, Any]:
    return read_json(Path(__file__).with_name("wrong_caption.json"))


def wrong_caption() -> WrongCaption:
    """A true mistake of a scenes-soft model, as it came (beam 3); its maps are stored to 4 places."""
    found = _stored()
    return WrongCaption(
        scenes.scene(found["key"]).photo(), found["words"], torch.tensor(found["alphas"]).view(-1, 7, 7)
    )


@cache
def reading() -> tuple[int, str, str]:
    """The false word's number, the true one, and whether most of its map is on its "own" object or on the "other" one."""
    found = _stored()
    (mistake,) = ground.scene_mistakes(Example(found["key"], "test", ()), found["words"])
    scene = scenes.scene(found["key"])
    own = next(i for i, mask in enumerate(scene.masks) if np.array_equal(mask, mistake.mask))
    alpha = torch.tensor(found["alphas"][mistake.index]).view(7, 7)
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


def _peaked(row: int, column: int, seed: int = 0) -> Tensor:
    alpha = distribution(49, seed=seed).view(7, 7) * 0.6
    alpha[row, column] += 0.4
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
        name="enlarge",
        title="A weight fills its cell",
        difficulty=1,
        minutes=5,
        equation="section 5.4",
        after="How a map is drawn",
        reference=enlarge,
        cases=lambda: [(distribution(12).view(3, 4), 4), (distribution(49, seed=1).view(7, 7), 3)],
        mistakes={
            "the whole map is repeated like a tile: each weight has to fill a cell of its own": lambda alpha, f: (
                alpha.repeat(f, f)
            ),
            "the weights are shared out over the pixels: here each pixel of a cell has the cell's weight": lambda alpha, f: (
                enlarge(alpha, f) / f**2
            ),
            "rows and columns have changed places": lambda alpha, f: enlarge(alpha.T, f),
            "this blends from cell to cell: first each cell is even, the smoothing comes after": lambda alpha, f: (
                functional.interpolate(alpha[None, None], scale_factor=f, mode="bilinear")[0, 0]
            ),
            "the weight is in one pixel of its cell: it fills the cell": lambda alpha, f: (
                functional.interpolate(alpha[None, None], scale_factor=f)[0, 0]
                * ((torch.arange(alpha.shape[0] * f) % f == 0)[:, None] & (torch.arange(alpha.shape[1] * f) % f == 0))
            ),
        },
        says="maps of 3 x 4 and 7 x 7, by 4 and by 3",
        others=(
            lambda alpha, f: alpha.repeat_interleave(f, 0).repeat_interleave(f, 1),
            lambda alpha, f: torch.kron(alpha.double(), torch.ones(f, f).double()),
        ),
        picture=True,
    ),
    Task(
        id="9.2",
        name="gaussian",
        title="A Gaussian",
        difficulty=1,
        minutes=5,
        equation="section 5.4",
        after="How a map is drawn",
        reference=gaussian,
        cases=lambda: [(2.0, 6), (0.7, 3), (16.0, 10)],
        mistakes={
            "it is not normalised: the sum must be 1, or smoothing would brighten the map": lambda sigma, radius: (
                gaussian(sigma, radius) / gaussian(sigma, radius).max()
            ),
            "the square is missing: this falls like exp(-|x|)": lambda sigma, radius: _bell(sigma, radius, power=1),
            "the factor 1/2 is missing": lambda sigma, radius: _bell(sigma, radius, half=1.0),
            "sigma is not squared: exp(-x^2 / (2 sigma^2))": lambda sigma, radius: _bell(sigma**0.5, radius),
            "one pixel is missing: from -radius to radius there are 2 radius + 1": lambda sigma, radius: torch.softmax(
                -0.5 * (torch.arange(-radius, radius) / sigma) ** 2, 0
            ),
            "this is normalised as if it went on for ever: what is cut off must be made up for": lambda sigma, radius: (
                torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2) / (sigma * (2 * torch.pi) ** 0.5)
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
        minutes=20,
        equation="section 5.4",
        after="How a map is drawn",
        reference=smooth,
        cases=lambda: [
            (numbers(8, 6).abs(), gaussian(1.0, 2)),
            (torch.ones(5, 5), gaussian(2.0, 3)),
            (numbers(4, 7, seed=1), torch.tensor([0.6, 0.3, 0.1])),
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
            "the last pixel is repeated beyond the border (a a a | a b c): mirror the map (c b a | a b c)": lambda values, kernel: (
                _smooth(values, kernel, "repeat")
            ),
            "smoothed twice along each axis": lambda values, kernel: _smooth(_smooth(values, kernel), kernel),
            "the kernel is turned round: the result at x takes kernel[k] times the value at x + k - radius": lambda values, kernel: (
                _smooth(values, kernel.flip(0))
            ),
        },
        says="an even map stays even, two others against satlib's border",
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
        minutes=10,
        equation="Zhang et al., section 4",
        after="The pointing game",
        reference=points_at,
        cases=_games,
        mistakes={
            "the tolerance is not used: a point within it of the object counts": lambda alpha, mask, t: _points(
                alpha, mask, 0.75
            ),
            "down and across are looked at one by one: the distance is the root of the sum of squares": (
                lambda alpha, mask, t: _points(alpha, mask, t, power=torch.inf)
            ),
            "row and column have changed places": lambda alpha, mask, t: _points(alpha, mask, t, swap=True),
            "this is the upper left corner of the heaviest cell: take its middle": lambda alpha, mask, t: _points(
                alpha, mask, t, offset=0.0
            ),
            "this is the middle of the whole map: take the heaviest cell": _centre_of_mass,
            "turned round: True where it points at the object": lambda alpha, mask, t: not _points(alpha, mask, t),
            "any cell on the object will do: the heaviest one must be": lambda alpha, mask, t: bool(mask.any()),
        },
        says="eleven games, hits and misses, by a hair too",
        given=_game,
        others=(
            lambda alpha, mask, t: _by_distance(alpha, mask, t),
            lambda alpha, mask, t: np.bool_(_points(alpha, mask, t)),
        ),
    ),
    Task(
        id="9.5",
        name="mass_on",
        title="How much of a map is on a thing?",
        difficulty=2,
        minutes=10,
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
                (enlarge(alpha, mask.shape[0] // alpha.shape[0]) * mask).sum()
            ),
            "this is the part of the picture that the object covers: the map has no part in it": lambda alpha, mask: (
                mask.float().mean().item()
            ),
            "only the heaviest cell is counted": lambda alpha, mask: float(
                alpha.max() * _cover(alpha, mask).flatten()[alpha.argmax()]
            ),
            "this is the mass beside the object": lambda alpha, mask: 1 - _mass(alpha, mask),
            "divided by the object's size: a mass is a sum": lambda alpha, mask: (
                _mass(alpha, mask) / mask.float().mean().item()
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
        minutes=5,
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
            "from place to place: the difference is between a word and the next": lambda alphas: (
                alphas.diff(dim=2).abs().sum(1) / 2
            ),
            "each map is compared with the first one: compare it with the one before": lambda alphas: (
                (alphas[:, 1:] - alphas[:, :1]).abs().sum(2) / 2
            ),
            "squares in place of absolute values": lambda alphas: alphas.diff(dim=1).square().sum(2) / 2,
            "the mean over the places: the sum is wanted": lambda alphas: alphas.diff(dim=1).abs().mean(2) / 2,
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
        title="A wrong caption, read",
        difficulty=1,
        minutes=5,
        equation="section 5.4, figure 5",
        after="Mistakes, and what the maps say about them",
        reference=reading,
        cases=lambda: [()],
        observe=_read,
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
