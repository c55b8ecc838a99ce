"""Exercises of notebook 10: maps measured, a map that a person would draw, a look by force, and a
cure on trial.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.checks.task import Answer, distribution, exercise, numbers
from satcourse.widgets.steering import steered
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig


def _disc(y: float, x: float, radius: float, side: int = 56) -> Tensor:
    there = torch.arange(side)
    squared = (there[:, None] - y) ** 2 + (there - x) ** 2
    return squared <= radius**2


@exercise(
    "10.1",
    "Does it point there?",
    difficulty=2,
    minutes=8,
    equation="Zhang et al., section 4",
)
def points_at(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    """Whether any pixel of the object is within `tolerance` of the middle of the heaviest of
    alpha's cells, H/h by W/w pixels.
    """
    w = alpha.shape[1]
    row, column = divmod(int(alpha.argmax()), w)
    away = mask.nonzero() - _middle(alpha, mask, row, column)  # (N, 2), of each pixel
    return bool((away.norm(dim=1) <= tolerance).any())


def _middle(alpha: Tensor, mask: Tensor, row: float, column: float) -> Tensor:
    """Where the middle of a cell is, in pixels: (2,)."""
    h, w = alpha.shape
    H, W = mask.shape
    # The middle of pixel 0 is at 0, half a pixel from the edge of the picture.
    y = (row + 0.5) * H / h - 0.5
    x = (column + 0.5) * W / w - 0.5
    return torch.tensor([y, x])


def _peaked(row: int, column: int, seed: int = 0, h: int = 7) -> Tensor:
    alpha = distribution(h * 7, seed=seed).view(h, 7) * 0.6
    alpha[row, column] += 0.4
    return alpha


def _games() -> list[tuple[Tensor, Tensor, float]]:
    above = _peaked(1, 5)
    central = _peaked(3, 3)
    cell_2_2 = _peaked(2, 2)  # its middle is at 19.5, 19.5
    wide = _peaked(2, 5, h=4)  # 4 x 7 cells on 28 x 56 pixels: not square
    return [
        (above, _disc(12, 40, 9), 1.0),
        # Row and column exchanged.
        (above, _disc(43, 12, 6), 1.0),
        # Just near enough, and just not.
        (central, _disc(27.5, 41, 9), 6.0),
        (central, _disc(27.5, 41, 9), 5.0),
        # The object is at the corner of the cell.
        (_peaked(5, 2), _disc(40, 16, 2), 1.0),
        # One pixel, half a pixel from the middle on both axes.
        (cell_2_2, _disc(19, 19, 0), 0.75),
        (cell_2_2, _disc(20, 20, 0), 0.75),
        # Within 5 along each axis, but not across.
        (cell_2_2, _disc(15, 15, 0), 5.0),
        (wide, _disc(17, 43.5, 1)[:28], 1.0),
        # Where the peak would be if the grid were square.
        (wide, _disc(17, 38, 1)[:28], 1.0),
        # Near enough only if the middle, at 17 and 43.5, is rounded.
        (wide, _disc(14, 44, 0)[:28], 3.02),
        # Just as far as the tolerance.
        (wide, _disc(19, 45, 0)[:28], 2.5),
    ]


def _peak(alpha: Tensor) -> tuple[int, int]:
    return divmod(int(alpha.argmax()), alpha.shape[1])


def _near(place: Tensor, mask: Tensor, tolerance: float) -> bool:
    away = mask.nonzero() - place
    return bool((away.norm(dim=1) <= tolerance).any())


def _without_half_a_pixel(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    place = _middle(alpha, mask, *_peak(alpha)) + 0.5
    return _near(place, mask, tolerance)


def _corner(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    row, column = _peak(alpha)
    place = _middle(alpha, mask, row - 0.5, column - 0.5)
    return _near(place, mask, tolerance)


def _exchanged(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    place = _middle(alpha, mask, *_peak(alpha)).flip(0)
    return _near(place, mask, tolerance)


def _divided_by_h(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    h = alpha.shape[0]
    row, column = divmod(int(alpha.argmax()), h)
    place = _middle(alpha, mask, row, column)
    return _near(place, mask, tolerance)


def _middle_of_the_object(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    away = mask.nonzero() - _middle(alpha, mask, *_peak(alpha))
    return bool(away.mean(0).norm() <= tolerance)


def _along_each_axis(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    away = mask.nonzero() - _middle(alpha, mask, *_peak(alpha))
    return bool((away.abs().amax(1) <= tolerance).any())


def _rounded(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    return _near(_middle(alpha, mask, *_peak(alpha)).round(), mask, tolerance)


def _game_in_words(alpha: Tensor, mask: Tensor, tolerance: float) -> str:
    # All of these maps have 7 columns.
    row = alpha.argmax() // 7
    column = alpha.argmax() % 7
    middle = mask.nonzero().float().mean(0).tolist()
    return (
        f"its peak in row {row}, column {column} of {tuple(alpha.shape)}, "
        f"tolerance = {tolerance:g}, the object around {middle}"
    )


points_at.says = "twelve games, hits and misses, by a hair too"
points_at.cases = _games
points_at.given = _game_in_words
points_at.mistakes = {
    "the - 1/2 is missing: pixel 0 has its own middle at 0": _without_half_a_pixel,
    "this is the upper left corner of the heaviest cell: take its middle": _corner,
    "row and column are exchanged: `mask.nonzero()` has the row first": _exchanged,
    "a row has w cells: `divmod` by w; each is W / w wide": _divided_by_h,
    "one pixel is enough: not the middle, nor all": _middle_of_the_object,
    "a tolerance is a distance, by Pythagoras": _along_each_axis,
    "a squared distance: its root is what the tolerance is for": (
        lambda alpha, mask, tolerance: points_at(alpha, mask, tolerance**0.5)
    ),
    "the middle is rounded: it may lie between two pixels": _rounded,
    "an object just as far as the tolerance is within it: `<=`, not `<`": (
        lambda alpha, mask, tolerance: points_at(alpha, mask, tolerance - 1e-4)
    ),
    "one pixel alone is asked: is any pixel of the object as near as the tolerance?": (
        lambda alpha, mask, tolerance: _rounded(alpha, mask, 0.0)
    ),
    "only the pixel under the peak is asked: is any pixel of the object within `tolerance`?": (
        lambda alpha, mask, tolerance: _near(_middle(alpha, mask, *_peak(alpha)).floor(), mask, 0.0)
    ),
}


@exercise(
    "10.2",
    "How much of a map is on an object?",
    difficulty=2,
    minutes=8,
    equation="Liu et al. (2017)",
)
def mass_on(alpha: Tensor, mask: Tensor) -> float:
    """The sum of the weights on an object, where each weight is shared evenly by the pixels of its
    cell.
    """
    h, w = alpha.shape
    return float((alpha * _covered(mask, h, w)).sum())


def _covered(mask: Tensor, h: int, w: int) -> Tensor:
    """The part of each cell that the object covers: (h, w)."""
    return functional.adaptive_avg_pool2d(mask[None].double(), (h, w))[0]


def _touched(mask: Tensor, h: int, w: int) -> Tensor:
    """1 where the object covers any part of a cell."""
    return _covered(mask, h, w).ceil()


def _covered_corners(mask: Tensor, h: int, w: int) -> Tensor:
    """1 where the object covers the upper left pixel of a cell."""
    H, W = mask.shape
    return mask[:: H // h, :: W // w].double()


def _small_wide_disc() -> Tensor:
    # 16 x 32 pixels, for a grid of 2 x 4 cells.
    return _disc(6, 13, 7, side=32)[:16]


def _maps_and_discs() -> list[tuple[Tensor, Tensor]]:
    uniform = torch.full((7, 7), 1 / 49)
    two_by_four = distribution(8, seed=3).view(2, 4)
    return [
        (_peaked(1, 5), _disc(12, 43, 9)),
        (uniform, _disc(28, 28, 10)),
        (two_by_four, _small_wide_disc()),
    ]


def _mass_touched(alpha: Tensor, mask: Tensor) -> float:
    return float((alpha * _touched(mask, *alpha.shape)).sum())


def _mass_at_corners(alpha: Tensor, mask: Tensor) -> float:
    return float((alpha * _covered_corners(mask, *alpha.shape)).sum())


def _smoothly(alpha: Tensor, mask: Tensor) -> float:
    pixels = functional.interpolate(alpha[None, None], mask.shape, mode="bilinear")[0, 0]
    return float(pixels[mask].sum() / pixels.sum())


def _side(alpha: Tensor, mask: Tensor) -> int:
    """Of a cell, in pixels."""
    return len(mask) // len(alpha)


_TOUCHED = "a cell that the object only touches counts whole: count the part that it covers"
_CORNER = "of each cell one pixel is asked: count the part that the object covers"
mass_on.says = "three maps and discs"
mass_on.cases = _maps_and_discs
mass_on.mistakes = {
    _TOUCHED: _mass_touched,
    _CORNER: _mass_at_corners,
    "enlarged smoothly, weights flow into other cells: each stays in its own": _smoothly,
    "the mean weight of the object's cells: each weight is shared by its cell's pixels": (
        lambda alpha, mask: mass_on(alpha, mask) * _side(alpha, mask) ** 2 / mask.sum().item()
    ),
    "the map is repeated as a whole: each cell becomes a block, `repeat_interleave`": (
        lambda alpha, mask: float(
            alpha.repeat(_side(alpha, mask), _side(alpha, mask))[mask].sum()
            / _side(alpha, mask) ** 2
        )
    ),
}


@exercise("10.3", "The map that a person would draw", difficulty=2, minutes=8)
def over(mask: Tensor, h: int, w: int) -> Tensor:
    """A map (h * w,) that is even over an object's pixels: each cell by the part of it that is
    covered; it sums to 1.
    """
    return _as_a_map(_covered(mask, h, w))


def _as_a_map(cells: Tensor) -> Tensor:
    weights = cells.float().flatten()
    return weights / weights.sum()


def _over_touched(mask: Tensor, h: int, w: int) -> Tensor:
    return _as_a_map(_touched(mask, h, w))


def _over_corners(mask: Tensor, h: int, w: int) -> Tensor:
    return _as_a_map(_covered_corners(mask, h, w))


def _wrong_view(mask: Tensor, h: int, w: int) -> Tensor:
    H, W = mask.shape
    return _as_a_map(mask.float().view(h, w, H // h, W // w).mean((2, 3)))


def _mean_over_cells(mask: Tensor, h: int, w: int) -> Tensor:
    H, W = mask.shape
    return _as_a_map(mask.float().view(h, H // h, w, W // w).mean((0, 2)))


over.says = "three discs, one on a grid that is not square"
over.cases = lambda: [
    (_disc(12, 43, 9), 7, 7),
    (_disc(20, 30, 15), 4, 4),
    (_small_wide_disc(), 2, 4),
]
over.mistakes = {
    _TOUCHED: _over_touched,
    _CORNER: _over_corners,
    "the view mixes rows and columns: (h, H / h, w, W / w), and the mean over 1 and 3": _wrong_view,
    "the mean goes from cell to cell: it goes over the pixels of one": _mean_over_cells,
    "the mean is over pixels of many cells: it is over those of one": (
        lambda mask, h, w: _as_a_map(mask.float().view(len(mask) // h, h, -1, w).mean((0, 2)))
    ),
    "a softmax gives every cell a share: divide by the sum": (
        lambda mask, h, w: _covered(mask, h, w).float().flatten().softmax(0)
    ),
    "a cell that is mostly covered counts whole: count the part that is": (
        lambda mask, h, w: _as_a_map(_covered(mask, h, w) > 0.5)
    ),
}


@exercise(
    "10.4",
    "A forced look",
    difficulty=3,
    minutes=15,
    equation="equations 1 to 7",
)
def forced_look(decoder: Decoder, a: Tensor, words: Tensor, alpha: Tensor) -> Tensor:
    """After a step for each word, -1 first: z = sigmoid(gate(h)) * sum of alpha a, in i, f, g, o;
    logits of the new h and z.
    """
    return _look(decoder, a, words, alpha)


def _look(
    decoder: Decoder,
    a: Tensor,
    words: Tensor,
    alpha: Tensor,
    *,
    first: int = -1,
    too_early: bool = False,
    fed_twice: bool = False,
    order: str = "ifgo",
    gate: Callable[[Tensor], Tensor] = torch.sigmoid,
    said_by: str = "new",
) -> Tensor:
    """The loop of the solution; or one in which something is different."""
    annotations = decoder.project(a)
    state = decoder.initial_state(a)
    word = torch.full((len(a),), first)
    for following in words.T:
        state = decoder.predict(annotations, state, following if too_early else word).state
        word = following
    if fed_twice:
        state = decoder.predict(annotations, state, word).state

    context = (alpha[:, :, None] * a).sum(1)
    assert decoder.gate is not None  # the task's decoder has one
    z = gate(decoder.gate(state.h)) * context
    embedded = decoder.embed(word)
    gates = decoder.gates_word(embedded) + decoder.gates_state(state.h) + decoder.gates_context(z)
    part = dict(zip(order, gates.chunk(4, 1), strict=True))
    c = part["f"].sigmoid() * state.c + part["i"].sigmoid() * part["g"].tanh()
    h = part["o"].sigmoid() * c.tanh()
    own = decoder.predict(annotations, state, word).state.h
    return decoder.logits(embedded, {"new": h, "old": state.h, "own": own}[said_by], z)


def _looked(answer: Answer, t: int) -> Tensor:
    torch.manual_seed(0)
    config = DecoderConfig(embedding=4, hidden=6, attention_hidden=4, dropout=0.0)
    decoder = Decoder(config, 5, 7)
    a = numbers(3, 6, 5)
    words = torch.randint(7, (3, t))
    alpha = distribution(3, 6, sharp=3.0)
    return answer(decoder, a, words, alpha)


def _forced_at_every_word(decoder: Decoder, a: Tensor, words: Tensor, alpha: Tensor) -> Tensor:
    steps = words.shape[1] + 1
    given = alpha[:, None].expand(-1, steps, -1)
    return steered(decoder, given=given)(a, functional.pad(words, (0, 1))).logits[:, -1]


def _own_look(decoder: Decoder, a: Tensor, words: Tensor, alpha: Tensor) -> Tensor:
    # Which word comes last makes no difference: its logits are computed before it is read.
    return decoder(a, functional.pad(words, (0, 1))).logits[:, -1]


forced_look.says = "the first word, the second and the fifth of three captions"
forced_look.cases = lambda: [
    (0,),
    (1,),
    (4,),
]
forced_look.observe = _looked
forced_look.given = lambda t: f"words before: {t}"
forced_look.mistakes = {
    "the words before keep their own maps: force one look": _forced_at_every_word,
    "the gate is missing: z is multiplied by beta": partial(_look, gate=torch.ones_like),
    "alpha changes nothing: it makes z": _own_look,
    "the gate is a sigmoid: from 0 to 1": partial(_look, gate=lambda x: x),
    "before the first word there is none: -1, not the id 0": partial(_look, first=0),
    "the last word is fed twice: it is the input of the forced step alone": partial(
        _look, fed_twice=True
    ),
    "the parts are in the order i, f, g, o; the paper has i, f, o, g": partial(_look, order="ifog"),
    "the logits are of the state before the look: h is new, and z goes into it": partial(
        _look, said_by="old"
    ),
    "alpha only goes into the logits: z goes into the LSTM, too": partial(_look, said_by="own"),
    "-1 is the first word that is read, and the last one is read in the forced step": partial(
        _look, too_early=True
    ),
    "the last word is missing: it is the input of the forced step": (
        lambda decoder, a, words, alpha: _look(decoder, a, words[:, :-1], alpha)
    ),
    "the loop is over captions: over their words, words.T": (
        lambda decoder, a, words, alpha: _look(decoder, a, words.T, alpha)
    ),
}


@exercise("10.5", "On trial", difficulty=2, minutes=8)
def survives(cured: Tensor, placebos: Tensor) -> bool:
    """Whether a cure does more than each placebo, by more than two standard errors of the mean
    paired difference.
    """
    # Paired: what cure and placebo both take away says nothing about their difference.
    differences = cured.float() - placebos.float()  # (P, N)
    error = differences.std(1) / len(cured) ** 0.5
    return bool((differences.mean(1) > 2 * error).all())


def _outcomes(*cured: range) -> tuple[Tensor, Tensor]:
    """Which of 70 mistakes a cure and each placebo takes away."""
    rows = torch.zeros(len(cured), 70, dtype=torch.bool)
    for row, those in zip(rows, cured, strict=True):
        row[those.start : those.stop] = True
    return rows[0], rows[1:]


def _trials() -> list[tuple[Tensor, Tensor]]:
    # The first range is the cure's, the others are the placebos'.
    return [
        # A true cure.
        _outcomes(range(50), range(10), range(20, 45), range(60, 65)),
        # No better than the last placebos.
        _outcomes(range(40), range(5), range(8), range(35, 69), range(20, 60)),
        # No better than the first.
        _outcomes(range(40), range(42), range(5), range(8)),
        # No better than most.
        _outcomes(range(36), range(5), range(30, 70), range(20, 60), range(10, 50)),
        # Better by chance.
        _outcomes(range(40), range(36, 64), range(30)),
        # Better by chance, though nothing gets worse.
        _outcomes(range(36), range(33)),
        # A true cure, whose placebos have different errors.
        _outcomes(range(40), range(32), range(40, 60)),
        # A true cure: the same mistakes, and five more.
        _outcomes(range(37), range(32)),
        # A true cure, each of whose placebos has mistakes of its own.
        _outcomes(range(50), range(20), range(25, 45), range(50, 70)),
        # Worse.
        _outcomes(range(36), range(70)),
    ]


def _condemned_or_spared(expected: bool, got: Any) -> str | None:
    if not isinstance(got, bool):
        return None
    if expected:
        return "it condemns a true cure"
    return (
        "it lets an artefact pass: "
        "a cure must beat each placebo alone, by more than two standard errors"
    )


def _without_placebo(cured: Tensor, placebos: Tensor) -> bool:
    # More than half of the mistakes.
    return bool(sum(cured) > 35)


def _no_error_at_all(cured: Tensor, placebos: Tensor) -> bool:
    differences = cured.float() - placebos.float()
    return bool((differences.mean(1) > 0).all())


def _deviation_of_one(cured: Tensor, placebos: Tensor) -> bool:
    differences = cured.float() - placebos.float()
    return bool((differences.mean(1) > 2 * differences.std(1)).all())


def _unpaired(cured: Tensor, placebos: Tensor) -> bool:
    one = cured.float()
    others = placebos.float()
    error = ((one.var() + others.var(1)) / len(one)) ** 0.5
    return bool((one.mean() - others.mean(1) > 2 * error).all())


survives.says = (
    "true cures, and false ones that beat nothing, a weak placebo, the average one, "
    "or all by chance"
)
survives.cases = _trials
survives.advise = _condemned_or_spared
survives.mistakes = {
    "this lets an artefact pass: "
    "the cure was compared with nothing, but any push may cure as many": _without_placebo,
    "this lets an artefact pass: the first placebo alone was asked; take each": (
        lambda cured, placebos: survives(cured, placebos[:1])
    ),
    "this lets an artefact pass: weak placebos hide a strong one in their mean": (
        lambda cured, placebos: survives(cured, placebos.float().mean(0)[None])
    ),
    "this lets an artefact pass: "
    "a cure that is better by two may be so by chance": _no_error_at_all,
    "this lets an artefact pass: "
    "a mistake that a placebo alone cures counts for the cure; keep the sign of the difference": (
        # Whether two truths differ is the absolute value of their difference.
        lambda cured, placebos: all(
            survives(cured ^ one, torch.zeros(1, len(one))) for one in placebos
        )
    ),
    "this lets an artefact pass: it has to beat every placebo, not one": (
        lambda cured, placebos: any(survives(cured, placebo[None]) for placebo in placebos)
    ),
    "the standard deviation of one: the error of a mean of N is smaller, by the root of N": (
        _deviation_of_one
    ),
    "the same mistakes got both: "
    "take the differences first, and then their standard error": _unpaired,
}
