"""Exercises of notebook 08: training for real: half precision, several processes, when to stop."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from satlib import objectives
from satlib.exercises.task import Answer, Task, distribution, numbers

Gradients = list[Tensor]


def precise_penalty(alphas: Tensor) -> Tensor:
    """satlib's penalty of maps in bf16: sums in float32."""
    return objectives.doubly_stochastic_penalty(alphas)


def _half_maps() -> list[tuple[Tensor]]:
    even = distribution(
        2, 49, 49, seed=2, sharp=0.3
    )  # each place gets about 1: the penalty is made of small differences
    return [(distribution(2, 12, 49).bfloat16(),), (distribution(3, 9, 196, seed=1).bfloat16(),), (even.bfloat16(),)]


def _with_kind(answer: Answer, alphas: Tensor) -> Any:
    given = answer(alphas)
    if not isinstance(given, Tensor):
        return given
    # More precision than asked for is no mistake.
    return {"the values": given, "at least float32": given.dtype in (torch.float32, torch.float64)}


def rows_of(rows: int, rank: int, size: int) -> list[int]:
    """Every `size`-th row from `rank` on, as satlib.distributed deals them."""
    return list(range(rank, rows, size))


def _blocks(rows: int, rank: int, size: int) -> list[int]:
    each, left = divmod(rows, size)
    start = rank * each + min(rank, left)
    return list(range(start, start + each + (rank < left)))


def _deal(answer: Answer, rows: int, size: int) -> Any:
    """Who gets what: any division will do that leaves no row out, gives none twice, and is fair."""
    shares = [answer(rows, rank, size) for rank in range(size)]
    try:
        dealt = [int(row) for share in shares for row in share]
    except (TypeError, ValueError):
        return shares[0]
    return {
        "how often each row is dealt": [dealt.count(row) for row in range(rows)],
        "rows that do not exist": sum(not 0 <= row < rows for row in dealt),
        "rows of the ranks, from the fewest": sorted(len(share) for share in shares),
    }


def whole_gradient(gradients: Tensor, rows: Tensor) -> Tensor:
    """The gradient of the mean over all rows from those of the ranks' means: (R, W), (R,) -> (W,)."""
    return (gradients * rows.unsqueeze(1)).sum(0) / rows.sum()


def clipped(gradients: Gradients, most: float) -> Gradients:
    """torch's clipping by the norm of all gradients together."""
    weights = [torch.nn.Parameter(torch.zeros_like(each)) for each in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(weights, most)
    return [weight.grad for weight in weights]


def _norm(gradients: Gradients) -> Tensor:
    return torch.cat([each.flatten() for each in gradients]).norm()


def _clipped(gradients: Gradients, most: float) -> Gradients:
    return [each * min(1.0, most / _norm(gradients).item()) for each in gradients]


def best_and_last(scores: list[float], patience: int) -> tuple[int, int]:
    """The best epoch, and the epoch after which training stops: `patience` epochs without a better score, or the end; from 1."""
    best = 0
    for epoch, score in enumerate(scores):
        if score > scores[best]:
            best = epoch
        if epoch - best >= patience:
            return best + 1, epoch + 1
    return best + 1, len(scores)


def _stop(scores: Sequence[float], patience: int, better: Any = lambda new, old: new > old) -> tuple[int, int]:
    best, waited = 1, 0
    for epoch in range(2, len(scores) + 1):
        waited += 1
        if better(scores[epoch - 1], scores[best - 1]):
            best, waited = epoch, 0
        if waited == patience:
            return best, epoch
    return best, len(scores)


def _never_anew(scores: Sequence[float], patience: int) -> tuple[int, int]:
    best, waited = 1, 0
    for epoch in range(2, len(scores) + 1):
        if scores[epoch - 1] > scores[best - 1]:
            best = epoch
        else:
            waited += 1
        if waited == patience:
            return best, epoch
    return best, len(scores)


TASKS = (
    Task(
        id="8.1",
        name="precise_penalty",
        title="A sum in half precision",
        difficulty=2,
        minutes=10,
        equation="equation 14",
        after="What bf16 loses",
        reference=precise_penalty,
        cases=_half_maps,
        observe=_with_kind,
        mistakes={
            "the sums are in bf16, which keeps 8 bits: make float32 of the maps first": lambda alphas: (
                (1 - alphas.sum(1)).square().sum(1)
            ),
            "float32 comes after the sum over the words: what was rounded away does not come back": lambda alphas: (
                (1 - alphas.sum(1)).float().square().sum(1)
            ),
            "the running sum over the words is in bf16: make float32 of the maps before": lambda alphas: (
                (1 - sum(alphas.unbind(1)).float()).square().sum(1)
            ),
            "float32 comes last: what was rounded away does not come back": lambda alphas: (
                (1 - alphas.sum(1)).square().sum(1).float()
            ),
            "the result is bf16 again: keep it in float32": lambda alphas: precise_penalty(alphas).bfloat16(),
            "float16 keeps 11 bits: float32 is wanted": lambda alphas: (1 - alphas.half().sum(1)).square().sum(1),
        },
        says="maps of 49 and 196 places in bf16, even ones among them, the penalty in float32",
        others=(
            lambda alphas: (1 - alphas.to(torch.float32).sum(1)).pow(2).sum(1),
            lambda alphas: (1 - alphas.double().sum(1)).square().sum(1),
            lambda alphas: (1 - alphas.sum(1, dtype=torch.float32)).square().sum(1),
        ),
    ),
    Task(
        id="8.2",
        name="rows_of",
        title="Who takes which rows?",
        difficulty=2,
        minutes=10,
        equation="notebook 08, several processes",
        after="Several processes, one training",
        reference=rows_of,
        cases=lambda: [(8, 2), (10, 4), (7, 3), (5, 1), (2, 4)],
        observe=_deal,
        mistakes={
            "every process takes every row: that is the same work `size` times": lambda rows, rank, size: list(
                range(rows)
            ),
            "the rows that are left over are lost: deal them out too": lambda rows, rank, size: list(
                range(rank * (rows // size), (rank + 1) * (rows // size))
            ),
            "the last process takes all that is left over: the others wait for it": lambda rows, rank, size: list(
                range(rank * (rows // size), rows if rank == size - 1 else (rank + 1) * (rows // size))
            ),
            "ranks are counted from 0: the first row belongs to rank 0": lambda rows, rank, size: list(
                range(rank + 1, rows, size)
            ),
            "rounded up, the shares run over the end of the batch": lambda rows, rank, size: list(
                range(rank * -(-rows // size), (rank + 1) * -(-rows // size))
            ),
            "the rank has no part in it: all processes take the same rows": lambda rows, rank, size: list(
                range(0, rows, size)
            ),
        },
        says="every row dealt once, fairly, to 1, 2, 3 and 4 processes",
        others=(_blocks, lambda rows, rank, size: [row for row in range(rows) if row % size == rank]),
    ),
    Task(
        id="8.3",
        name="whole_gradient",
        title="The gradients come together",
        difficulty=2,
        minutes=10,
        equation="notebook 08, several processes",
        after="Several processes, one training",
        reference=whole_gradient,
        cases=lambda: [
            (numbers(3, 4), torch.tensor([4, 4, 2])),
            (numbers(2, 2, seed=1), torch.tensor([1, 3])),
            (numbers(4, 3, seed=2), torch.tensor([2, 2, 1, 0])),
        ],
        mistakes={
            "the plain mean of the ranks: a rank with fewer rows counts for less": lambda g, rows: g.mean(0),
            "the sum of the ranks: the learning rate would grow with their number": lambda g, rows: g.sum(0),
            "weighed by rows, and not divided by all of them": lambda g, rows: (g * rows[:, None]).sum(0),
            "divided by the number of ranks: divide by the number of rows": lambda g, rows: (g * rows[:, None]).mean(0),
            "this is the gradient of the largest rank alone": lambda g, rows: g[rows.argmax()],
            "divided by the rows: a rank with fewer rows would count for more": lambda g, rows: (
                (g / rows.clamp(min=1)[:, None]).sum(0) / (1 / rows.clamp(min=1)).sum()
            ),
        },
        says="ranks with 0 to 4 rows each",
        others=(
            lambda g, rows: torch.einsum("rw,r->w", g.double(), rows.double() / rows.sum()),
            lambda g, rows: sum(n / rows.sum() * each for n, each in zip(rows, g, strict=True)),
        ),
    ),
    Task(
        id="8.4",
        name="clipped",
        title="A step that is not too long",
        difficulty=2,
        minutes=10,
        equation="Pascanu et al., section 3.2",
        after="Accumulation and clipping",
        reference=clipped,
        cases=lambda: [
            ([numbers(3, 2), numbers(4, seed=1, scale=3.0)], 1.0),
            ([numbers(2, seed=2, scale=0.01), numbers(2, 2, seed=3, scale=0.02)], 5.0),
            ([numbers(6, seed=4, scale=10.0)], 5.0),
        ],
        mistakes={
            "each gradient is clipped by its own norm: one norm of all of them, so that the direction stays": lambda gs, most: [
                each * min(1.0, most / each.norm().item()) for each in gs
            ],
            "each number is clipped: that changes the direction; scale all of them": lambda gs, most: [
                each.clamp(-most, most) for each in gs
            ],
            "short gradients are made longer: only those above the limit change": lambda gs, most: [
                each * most / _norm(gs) for each in gs
            ],
            "the norms are added: the norm of all is the root of the sum of squares": lambda gs, most: [
                each * min(1.0, most / sum(one.norm().item() for one in gs)) for each in gs
            ],
            "the root is missing in the norm": lambda gs, most: [
                each * min(1.0, most / _norm(gs).item() ** 2) for each in gs
            ],
            "divided by the norm, and not multiplied by the limit": lambda gs, most: [
                each / max(1.0, _norm(gs).item()) if _norm(gs) > most else each for each in gs
            ],
        },
        says="long and short gradients, of one and of two weights, against torch's",
        others=(
            _clipped,
            lambda gs, most: tuple(each / max(1.0, _norm([one.double() for one in gs]).item() / most) for each in gs),
        ),
    ),
    Task(
        id="8.5",
        name="best_and_last",
        title="When to stop",
        difficulty=2,
        minutes=10,
        equation="section 4.3",
        after="Stopped and resumed",
        reference=best_and_last,
        cases=lambda: [
            ([10.0, 12.0, 14.0, 13.0, 13.5, 13.9, 15.0], 3),
            ([10.0, 12.0, 14.0, 13.0, 13.5, 15.0, 14.0], 3),
            ([5.0, 5.0, 5.0, 5.0], 2),
            ([1.0, 2.0, 3.0], 5),
            ([9.0], 1),
            ([1.0, 2.0, 1.0, 1.0, 1.0, 3.0], 2),
            ([3.0, 2.0, 4.0, 3.0, 5.0, 1.0, 6.0], 2),  # two epochs without a better score, not in a row
        ],
        mistakes={
            "BLEU is better when it is higher: this takes the lowest": lambda scores, patience: _stop(
                scores, patience, lambda new, old: new < old
            ),
            "as good is not better: the first of equal epochs stays the best": lambda scores, patience: _stop(
                scores, patience, lambda new, old: new >= old
            ),
            "stops one epoch too late: after `patience` epochs without a better one": lambda scores, patience: _stop(
                scores, patience + 1
            ),
            "stops one epoch too early": lambda scores, patience: _stop(scores, max(1, patience - 1)),
            "the waiting begins anew with each better epoch: `patience` of them in a row": lambda scores, patience: (
                _never_anew(scores, patience)
            ),
            "the last epoch is not the best: keep the model of the best one": lambda scores, patience: (
                best_and_last(scores, patience)[1],
                best_and_last(scores, patience)[1],
            ),
            "epochs are counted from 1": lambda scores, patience: tuple(
                epoch - 1 for epoch in best_and_last(scores, patience)
            ),
            "it never stops: this is the best of all epochs": lambda scores, patience: _stop(scores, 10_000),
        },
        says="trainings that stop, that recover in time, and that end before",
        others=(_stop, lambda scores, patience: list(_stop(scores, patience))),
    ),
)
