"""Exercises of notebook 08: training for real: when to stop, parts of a batch, clipping, resuming, half precision."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Answer, distribution, exercise, numbers
from satlib.model import objective

Gradients = list[Tensor]
Problem = tuple[int, Tensor, Tensor]  # a seed for the weights, inputs (B, 4), and targets (B, 1)


@exercise("8.1", "When to stop", difficulty=2, minutes=8, equation="section 4.3")
def best_and_last(scores: list[float], patience: int) -> tuple[int, int]:
    """The best epoch, and the epoch after which training stops: `patience` epochs without a better score, or the end; from 1."""
    best = 0
    for epoch, score in enumerate(scores):
        if score > scores[best]:
            best = epoch
        if epoch - best >= patience:
            return best + 1, epoch + 1
    return best + 1, len(scores)


best_and_last.says = "trainings that stop, that recover in time, and that end before"
best_and_last.cases = lambda: [
    ([10.0, 12.0, 14.0, 13.0, 13.5, 13.9, 15.0], 3),
    ([10.0, 12.0, 14.0, 13.0, 13.5, 15.0, 14.0], 3),
    ([5.0, 5.0, 5.0, 5.0], 2),
    ([1.0, 2.0, 3.0], 5),
    ([5.0, 3.0, 4.0, 2.0, 1.0], 2),
]
best_and_last.parts = ("the best epoch", "the last epoch")
best_and_last.mistakes = {
    "stops one epoch too late: after `patience` epochs without a better one": lambda *x: best_and_last(x[0], x[1] + 1),
    "epochs are counted from 1": lambda *x: tuple(epoch - 1 for epoch in best_and_last(*x)),
}


@exercise("8.2", "Means of unequal parts", difficulty=2, minutes=6)
def shares(sizes: list[int]) -> list[float]:
    """What each part's mean is multiplied with, so that they add up to the mean of all rows."""
    return [size / sum(sizes) for size in sizes]


shares.says = "two, three and four parts, equal ones, unequal ones and an empty one"
shares.cases = lambda: [([24, 24, 16],), ([4, 3],), ([16, 16, 16, 16],), ([5, 0, 2, 1],)]
shares.mistakes = {
    "the parts count alike: one with fewer rows must count for less": lambda sizes: [1 / len(sizes)] * len(sizes),
    "nothing is divided: the sum is as many times too large as there are parts": lambda sizes: [1.0] * len(sizes),
}


def _all(gradients: Gradients) -> Tensor:
    return torch.cat([each.flatten() for each in gradients])


@exercise("8.3", "Limit the step", difficulty=2, minutes=8, equation="Pascanu et al., section 3.2")
def clipped(gradients: Gradients, most: float) -> Gradients:
    """Clipped by the norm of all gradients together."""
    norm = _all(gradients).norm().item()
    return [each * (most / norm) if norm > most else each for each in gradients]


clipped.says = "long and short gradients, and gradients of 0, against torch's"
clipped.cases = lambda: [
    ([numbers(3, 2), numbers(4, seed=1, scale=3.0)], 1.0),
    ([numbers(2, seed=2, scale=0.01), numbers(2, 2, seed=3, scale=0.02)], 5.0),
    ([torch.zeros(3), torch.zeros(2)], 1.0),
]
clipped.mistakes = {
    "each gradient is clipped by its own norm": lambda gs, most: [clipped([each], most)[0] for each in gs],
    "short gradients are made longer": lambda gs, most: [each * most / _all(gs).norm() for each in gs],
}


def _problem(seed: int) -> Problem:
    return seed, numbers(16, 4, seed=seed), numbers(16, 1, seed=seed + 1)


def _begin(problem: Problem) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(problem[0])
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), 0.05)


def _steps(model: torch.nn.Module, optimiser: torch.optim.Optimizer, problem: Problem, count: int) -> list[float]:
    _, x, y = problem
    losses = []
    for _ in range(count):
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@exercise("8.4", "Resumed, but not the same run", difficulty=2, minutes=5, kind="bug")
def in_two_parts(problem: Problem, first: int, second: int, *, keeps: str = "model and optimiser") -> list[float]:
    """The losses of `first` steps, a stop, and `second` steps from what was kept: those of a training without a stop."""
    model, optimiser = _begin(problem)
    losses = _steps(model, optimiser, problem, first)
    kept = copy.deepcopy({"model": model.state_dict(), "optimiser": optimiser.state_dict()})
    model, optimiser = _begin(problem)
    if "model" in keeps:
        model.load_state_dict(kept["model"])
    if "optimiser" in keeps:
        optimiser.load_state_dict(kept["optimiser"])
    return losses + _steps(model, optimiser, problem, second)


in_two_parts.start = partial(in_two_parts, keeps="model")
in_two_parts.says = "the losses of two trainings that were stopped, equal to those of trainings that were not"
in_two_parts.cases = lambda: [(_problem(0), 6, 6), (_problem(3), 3, 8)]
in_two_parts.tolerance = 1e-5
in_two_parts.mistakes = {
    "the optimiser's state is kept and the weights are not: the second part begins with new ones": (
        partial(in_two_parts, keeps="optimiser")
    ),
}


def _with_kind(answer: Answer, alphas: Tensor) -> Any:
    result = answer(alphas)
    if not isinstance(result, Tensor):
        return result
    # More precision than asked for is no mistake.
    return {"the values": result, "at least float32": result.dtype in (torch.float32, torch.float64)}


@exercise("8.5", "A sum in half precision", difficulty=2, minutes=8, equation="equation 14")
def precise_penalty(alphas: Tensor) -> Tensor:
    """satlib's penalty of maps in bf16: sums in float32."""
    return objective.doubly_stochastic_penalty(alphas)


precise_penalty.says = "maps of 49 and 196 places in bf16, even ones among them, the penalty in float32"
precise_penalty.cases = lambda: [
    (distribution(2, 12, 49).bfloat16(),),
    (distribution(3, 9, 196, seed=1).bfloat16(),),
    # Each place gets about 1: the penalty is made of small differences.
    (distribution(2, 49, 49, seed=2, sharp=0.3).bfloat16(),),
]
precise_penalty.observe = _with_kind
precise_penalty.mistakes = {
    "the sums are in bf16: make float32 of the maps first": lambda alphas: (1 - alphas.sum(1)).square().sum(1),
    "float32 comes after the sum over the words": lambda alphas: (1 - alphas.sum(1).float()).square().sum(1),
}
