"""Exercises of notebook 09: maps measured, a map that a person would draw, a look by force, and a cure on trial."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.checks.task import Answer, distribution, exercise, numbers
from satcourse.widgets.steering import steered
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig


def _disc(y: float, x: float, radius: float, side: int = 56) -> Tensor:
    there = torch.arange(side)
    return (there[:, None] - y) ** 2 + (there - x) ** 2 <= radius**2


def _peaked(row: int, column: int, seed: int = 0, h: int = 7) -> Tensor:
    alpha = distribution(h * 7, seed=seed).view(h, 7) * 0.6
    alpha[row, column] += 0.4
    return alpha


def _games() -> list[tuple[Tensor, Tensor, float]]:
    return [
        (_peaked(1, 5), _disc(12, 40, 9), 1.0),
        (_peaked(1, 5), _disc(43, 12, 6), 1.0),  # row and column exchanged
        (_peaked(3, 3), _disc(27.5, 41, 9), 6.0),
        (_peaked(3, 3), _disc(27.5, 41, 9), 5.0),  # just not
        (_peaked(5, 2), _disc(40, 16, 2), 1.0),  # only its corner
        (_peaked(2, 2), _disc(19, 19, 0), 0.75),  # its middle: 19.5, 19.5
        (_peaked(2, 2), _disc(20, 20, 0), 0.75),
        (_peaked(2, 2), _disc(15, 15, 0), 5.0),  # only across
        (_peaked(2, 5, h=4), _disc(17, 43.5, 1)[:28], 1.0),  # not square
        (_peaked(2, 5, h=4), _disc(17, 38, 1)[:28], 1.0),  # as if it were
        (_peaked(2, 5, h=4), _disc(19, 45, 0)[:28], 2.5),  # just as far
    ]


@exercise(
    "9.1", "Does it point there?", difficulty=2, minutes=8, equation="Zhang et al., section 4"
)
def points_at(
    alpha: Tensor,
    mask: Tensor,
    tolerance: float,
    *,
    at: float = 0.5,
    half: float = 0.5,
    axis: int = 1,
    turn: int = 1,
    away: Answer = lambda x: x.norm(dim=1),
) -> bool:
    """Whether any pixel of the object is within `tolerance` of the middle of the heaviest of alpha's cells, H/h by W/w pixels."""
    cell = divmod(int(alpha.argmax()), alpha.shape[axis])
    middle = [
        (k + at) * size / n - half for k, size, n in zip(cell, mask.shape, alpha.shape, strict=True)
    ]
    return bool((away(mask.nonzero() - torch.tensor(middle[::turn])) <= tolerance).any())


points_at.says = "eleven games, hits and misses, by a hair too"
points_at.cases = _games
points_at.given = lambda alpha, mask, tolerance: (
    f"its peak in row {alpha.argmax() // 7}, column {alpha.argmax() % 7} of {tuple(alpha.shape)}, tolerance = {tolerance:g}, "
    f"the object around {mask.nonzero().float().mean(0).tolist()}"
)
points_at.mistakes = {
    "the - 1/2 is missing: pixel 0 has its own middle at 0": partial(points_at, half=0.0),
    "this is the upper left corner of the heaviest cell: take its middle": partial(
        points_at, at=0.0
    ),
    "row and column are exchanged: `mask.nonzero()` has the row first": partial(points_at, turn=-1),
    "a row has w cells: `divmod` by w; each is W / w wide": partial(points_at, axis=0),
    "one pixel is enough: not the middle, nor all": partial(
        points_at, away=lambda x: x.mean(0).norm()
    ),
    "a tolerance is a distance, by Pythagoras": partial(points_at, away=lambda x: x.abs().amax(1)),
}


def _cover(mask: Tensor, h: int, w: int, wrong: str = "") -> Tensor:
    """The part of each cell that the object covers (h, w); by mistake, 1 where it touches it, or covers its corner."""
    if wrong == "corner":
        return mask[:: len(mask) // h, :: mask.shape[1] // w].double()
    part = functional.adaptive_avg_pool2d(mask[None].double(), (h, w))[0]
    return part.ceil() if wrong else part


_TOUCHED = "a cell that the object only touches counts whole: count the part that it covers"
_CORNER = "of each cell one pixel is asked: count the part that the object covers"


@exercise(
    "9.2",
    "How much of a map is on an object?",
    difficulty=2,
    minutes=8,
    equation="Liu et al. (2017)",
)
def mass_on(alpha: Tensor, mask: Tensor, *, wrong: str = "") -> float:
    """The sum of the weights on an object, where each weight is shared evenly by the pixels of its cell."""
    return float((alpha * _cover(mask, *alpha.shape, wrong=wrong)).sum())


mass_on.says = "three maps and discs"
mass_on.cases = lambda: [
    (_peaked(1, 5), _disc(12, 43, 9)),
    (torch.full((7, 7), 1 / 49), _disc(28, 28, 10)),
    (distribution(8, seed=3).view(2, 4), _disc(6, 13, 7, side=32)[:16]),
]
mass_on.mistakes = {
    _TOUCHED: partial(mass_on, wrong="touched"),
    _CORNER: partial(mass_on, wrong="corner"),
}


@exercise("9.3", "The map that a person would draw", difficulty=2, minutes=8)
def over(mask: Tensor, h: int, w: int, *, wrong: str = "") -> Tensor:
    """A map (h * w,) that is even over an object's pixels: each cell by the part of it that is covered; it sums to 1."""
    cover = _cover(mask, h, w, wrong).float().flatten()
    return cover / cover.sum()


over.says = "three discs, one on a grid that is not square"
over.cases = lambda: [
    (_disc(12, 43, 9), 7, 7),
    (_disc(20, 30, 15), 4, 4),
    (_disc(6, 13, 7, side=32)[:16], 2, 4),
]
over.mistakes = {
    _TOUCHED: partial(over, wrong="touched"),
    _CORNER: partial(over, wrong="corner"),
}


def _looked(answer: Answer, t: int) -> Tensor:
    torch.manual_seed(0)
    decoder = Decoder(DecoderConfig(embedding=4, hidden=6, attention_hidden=4, dropout=0.0), 5, 7)
    return answer(
        decoder, numbers(3, 6, 5), torch.randint(7, (3, t)), distribution(3, 6, sharp=3.0)
    )


@exercise("9.4", "A forced look", difficulty=3, minutes=15, equation="equations 1 to 7")
def forced_look(
    decoder: Decoder, a: Tensor, words: Tensor, alpha: Tensor, always: bool = False
) -> Tensor:
    """After a step for each word, -1 first: z = sigmoid(gate(h)) * sum of alpha a, in i, f, g, o; logits of the new h and z."""
    given = torch.cat(
        [a.new_zeros(*words.shape, a.shape[1]) + alpha[:, None] * always, alpha[:, None]], 1
    )
    return steered(decoder, given=given)(a, functional.pad(words, (0, 1))).logits[:, -1]


forced_look.says = "the first word, the second and the fifth of three captions"
forced_look.cases = lambda: [(0,), (1,), (4,)]
forced_look.observe = _looked
forced_look.given = lambda t: f"{t} words before"
forced_look.mistakes = {
    "the words before keep their own maps: force one look": partial(forced_look, always=True),
    "the gate is missing: z is multiplied by beta": lambda d, a, y, w: forced_look(
        d, a, y, w / d(a, functional.pad(y, (0, 1))).betas[:, -1:]
    ),
    "alpha changes nothing: it makes z": lambda d, a, y, w: d(a, functional.pad(y, (0, 1))).logits[
        :, -1
    ],
}


def _outcomes(*cured: range) -> tuple[Tensor, Tensor]:
    """Which of 70 mistakes a cure and each placebo takes away."""
    rows = torch.tensor([[number in those for number in range(70)] for those in cured])
    return rows[0], rows[1:]


def _verdict(cured: Tensor, placebos: Tensor, least: float = 2.0) -> bool:
    differences = cured.float() - placebos.float()
    return bool((differences.mean(1) > least * differences.std(1) / len(cured) ** 0.5).all())


@exercise("9.5", "On trial", difficulty=2, minutes=8)
def survives(cured: Tensor, placebos: Tensor) -> bool:
    """Whether a cure does more than each placebo, by more than two standard errors of the mean paired difference."""
    return _verdict(cured, placebos)


survives.says = "true cures, and false ones that beat nothing, a weak placebo, the average one, or all by chance"
survives.cases = lambda: [
    _outcomes(range(50), range(10), range(20, 45), range(60, 65)),  # a true cure
    _outcomes(range(40), range(5), range(8), range(35, 69), range(20, 60)),  # as the last placebos
    _outcomes(range(40), range(42), range(5), range(8)),  # as the first
    _outcomes(range(36), range(5), range(30, 70), range(20, 60), range(10, 50)),  # not than most
    _outcomes(range(40), range(36, 64), range(30)),  # by chance
    _outcomes(range(36), range(33)),  # by chance, though nothing gets worse
    _outcomes(range(40), range(32), range(40, 60)),  # errors differ
    _outcomes(range(37), range(32)),  # the same, and more
    _outcomes(range(50), range(20), range(25, 45), range(50, 70)),  # each placebo has its own
    _outcomes(range(36), range(70)),  # worse
]
survives.advise = lambda expected, got: (
    f"it {'condemns a true cure' if expected else 'lets an artefact live'}"
    if isinstance(got, bool)
    else None
)
_lives = "this lets an artefact live: "
survives.mistakes = {
    _lives + "the cure was compared with nothing, but any push may cure as many": lambda c, p: bool(
        sum(c) > 35
    ),
    _lives + "the first placebo alone was asked; take each": lambda c, p: _verdict(c, p[:1]),
    _lives + "weak placebos hide a strong one in their mean": lambda c, p: _verdict(
        c, p.float().mean(0)[None]
    ),
    _lives + "a cure that is better by two may be so by chance": lambda c, p: _verdict(c, p, 0.0),
    _lives + "it has to beat every placebo, not one": lambda c, p: any(
        _verdict(c, each[None]) for each in p
    ),
    "the same mistakes got both: take the differences first, and then their standard error": lambda c, p: (
        bool(
            (
                c.float().mean() - p.float().mean(1)
                > 2 * ((c.float().var() + p.float().var(1)) / len(c)) ** 0.5
            ).all()
        )
    ),
}
