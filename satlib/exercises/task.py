"""The definition of an exercise: its function, a reference solution, and common mistakes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Answer = Callable[..., Any]
Observe = Callable[..., Any]
# A property of every right answer: from the inputs and the result, a sentence that says what is violated, or None.
Invariant = Callable[[Sequence[Any], Any], str | None]


def call(answer: Answer, *inputs: Any) -> Any:
    """The default of `Task.observe`: the function's result."""
    return answer(*inputs)


@dataclass(frozen=True)
class Task:
    """One exercise.

    Attributes:
        id: the numbers of the notebook and the task, as "4.2".
        name: the name of the function that the learner writes.
        title: a title of a few words.
        difficulty: 1 to 3.
        minutes: the time it takes.
        equation: its source: "equation 5", "section 5.4", "Bahdanau et al., section 3.1".
        reference: a right function; satlib's own if it has one.
        cases: creates the inputs, a tuple for each call.
        mistakes: message -> a function that makes that mistake.
        says: what a right answer was checked against, for the message of success.
        others: other right functions, to test the check.
        invariants: properties of every right answer.
        observe: called with a function and a case's inputs; returns what is compared between learner and reference.
        tolerance: relative to the largest value.
        seconds: the time limit of one call.
        given: describes a case's inputs in words, for the message; by default short inputs are shown as they are.
        parts: the names of a result's elements, for the messages: ("h", "c").
        picture: whether to draw a wrong result next to the right one.
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
    seconds: float = 10.0  # at the first call of some functions torch loads further modules
    given: Callable[..., str] | None = None
    parts: Sequence[str] = ()
    picture: bool = False


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """A tensor of normally distributed numbers, the same for the same seed."""
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distribution(*shape: int, seed: int = 0, sharp: float = 1.0) -> Tensor:
    """A tensor of weights that sum to 1 over the last axis."""
    return torch.softmax(numbers(*shape, seed=seed, scale=sharp), -1)


def sums_to_one(dim: int, what: str = "the weights", over: str = "the places") -> Invariant:
    """The invariant that values are non-negative and sum to 1 over an axis."""

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
    """The invariant that all values lie in a range."""

    def broken(inputs: Sequence[Any], result: Any) -> str | None:
        values = torch.as_tensor(result, dtype=torch.float64)
        for value in (values.min().item(), values.max().item()):
            if not low - 1e-6 <= value <= high + 1e-6:
                return f"{what} must lie between {low:g} and {high:g}: there is {value:.4g}"
        return None

    return broken
