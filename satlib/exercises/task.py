"""What an exercise is: who answers what, the right answer, and the wrong ones that people give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
Observe = Callable[..., Any]
# What is true of every right answer: from the inputs and what came out of them, a sentence on what is broken, or None.
Invariant = Callable[[Sequence[Any], Any], str | None]


def call(answer: Answer, *inputs: Any) -> Any:
    """What is looked at unless a task says otherwise: what the function gives."""
    return answer(*inputs)


@dataclass(frozen=True)
class Task:
    """One exercise.

    Attributes:
        id: "4.2": the notebook's number and the task's.
        name: of the function that the learner writes.
        title: a few words.
        difficulty: 1 to 3.
        minutes: that it takes.
        equation: where it comes from: "equation 5", "section 5.4", "Bahdanau et al., section 3.1".
        reference: a right function; satlib's own wherever there is one.
        cases: makes inputs, a tuple for each call.
        mistakes: what to say -> a function that makes that mistake.
        says: what a right answer has been held against, for the line that says so.
        others: right functions written otherwise, for the tests of the checks.
        invariants: what is true of every right answer.
        observe: called with the function and a case's inputs; gives what is compared with what the reference gives.
        tolerance: relative to the largest value.
        seconds: one call may take.
        picture: whether a wrong result is drawn beside the right one.
    """

    id: str
    name: str
    title: str
    difficulty: int
    minutes: int
    equation: str
    reference: Answer
    cases: Callable[[], Sequence[tuple[Any, ...]]]
    mistakes: Mapping[str, Answer]
    says: str
    others: Sequence[Answer] = ()
    invariants: Sequence[Invariant] = field(default=())
    observe: Observe = call
    tolerance: float = 1e-4
    seconds: float = 10.0  # the first call of some functions makes torch load half of itself
    picture: bool = False


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normally distributed numbers, the same each time: small tensors that are like no others."""
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distribution(*shape: int, seed: int = 0, sharp: float = 1.0) -> Tensor:
    """Rows of weights that sum to 1 over the last axis."""
    return torch.softmax(numbers(*shape, seed=seed, scale=sharp), -1)


def sums_to_one(dim: int, what: str = "the weights", over: str = "the places") -> Invariant:
    """Non-negative, and 1 in all over an axis."""

    def broken(inputs: Sequence[Any], result: Any) -> str | None:
        sums = result.sum(dim)
        worst = sums.flatten()[(sums - 1).abs().argmax()].item()
        if abs(worst - 1) > 1e-3:
            return f"{what} do not sum to one over {over}: a sum is {worst:.4g}"
        if result.min() < -1e-6:
            return f"{what} must not be negative: there is {result.min().item():.4g}"
        return None

    return broken


def between(low: float, high: float, what: str) -> Invariant:
    """No value outside of a range."""

    def broken(inputs: Sequence[Any], result: Any) -> str | None:
        values = torch.as_tensor(result, dtype=torch.float64)
        for value in (values.min().item(), values.max().item()):
            if not low - 1e-6 <= value <= high + 1e-6:
                return f"{what} must lie between {low:g} and {high:g}: there is {value:.4g}"
        return None

    return broken
