"""The definition of an exercise: its function, a reference solution, and common mistakes; also of those that are no program."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.compare import short
from satlib.errors import SatlibError

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
        after: of a task that is not in its notebook, the heading of the section after which to do it; with the notebook's number if it is another's: "04: A word comes out".
        invariants: properties of every right answer.
        observe: called with a function and a case's inputs; returns what is compared between learner and reference.
        tolerance: relative to the largest value.
        seconds: the time limit of one call.
        given: describes a case's inputs in words, for the message; by default short inputs are shown as they are.
        parts: the names of a result's elements, for the messages: ("h", "c").
        picture: whether to draw a wrong result next to the right one.
        kind: "write", "bug" (find it), "predict" (then run) or "explain" (choose the right sentence).
        start: of a "bug", the function that the learner is given; an answer with all its results is still blank.
        advise: from a wrong result no mistake explains, what to say in place of the difference, which would give the answer away.
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
    after: str = ""
    invariants: Sequence[Invariant] = field(default=())
    observe: Observe = call
    tolerance: float = 1e-4
    seconds: float = 10.0  # at the first call of some functions torch loads further modules
    given: Callable[..., str] | None = None
    parts: Sequence[str] = ()
    picture: bool = False
    kind: str = "write"
    start: Answer | None = None
    advise: Callable[[Any], str] | None = None

    @property
    def todo(self) -> str:
        """What is left to do while it is blank."""
        return "the bug is still there" if self.kind == "bug" else f"write {self.name}()"


@dataclass(frozen=True)
class Exploration:
    """An open task without a check: its title, difficulty (1 to 3), minutes, and the section after which to do it."""

    title: str
    difficulty: int
    minutes: int
    after: str


KINDS = {"write": "", "bug": "find the bug", "predict": "predict, then run", "explain": "explain"}


CLASS_SEED = "SATLIB_CLASS_SEED"
_CHOSEN = {"class": 0}


def class_seed(number: int) -> None:
    """Vary the random inputs of all checks in this session, so that no answer is right by heart.

    The environment variable SATLIB_CLASS_SEED, which `satlib check --seed` sets, goes before it.

    Args:
        number: 0 or more; 0 gives the inputs that checks have by default.

    Raises:
        SatlibError: the number is no such whole number.
    """
    _CHOSEN["class"] = _whole(number)


def _whole(number: Any) -> int:
    try:
        whole = int(str(number))
    except ValueError:
        whole = -1
    if not 0 <= whole < 2**31:
        raise SatlibError(f"a class seed is a whole number from 0 to {2**31 - 1}, not {number!r}")
    return whole


def chosen_class_seed() -> int:
    """The class seed of this session."""
    return _whole(os.environ.get(CLASS_SEED) or _CHOSEN["class"])


def generator(seed: int) -> torch.Generator:
    """A random generator for a check's inputs, of this seed and the class's."""
    return torch.Generator().manual_seed(seed + 1_000_003 * chosen_class_seed())


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """A tensor of normally distributed numbers, the same for the same seed and class seed."""
    return scale * torch.randn(shape, generator=generator(seed))


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


def explain(id: str, name: str, right: str, wrong: Mapping[str, str], **card: Any) -> Task:
    """A task to choose the sentence that explains something.

    Args:
        id: as `Task.id`.
        name: as `Task.name`.
        right: the letter of the right sentence.
        wrong: each other letter -> why that sentence is wrong, as the check's message.
        card: the other attributes of `Task`: title, difficulty, minutes, equation, after, says.
    """
    letters = sorted([right, *wrong])

    def letter(answer: Callable[[], Any]) -> Any:
        chosen = answer()
        return chosen.strip(" .()").lower() if isinstance(chosen, str) else chosen

    return Task(
        id=id,
        name=name,
        kind="explain",
        reference=lambda: right,
        cases=lambda: [()],
        observe=letter,
        mistakes={reason: lambda wrong=wrong: wrong for wrong, reason in wrong.items()},
        others=(lambda: f" {right.upper()}", lambda: f"({right})."),
        advise=lambda got: f"expected one of the letters {', '.join(letters)}, got {short(got)}",
        **card,
    )


def predict(
    id: str,
    name: str,
    truth: Callable[[], float],
    wrong: Mapping[str, float | tuple[float, float]],
    tolerance: float,
    **card: Any,
) -> Task:
    """A task to predict a number before an experiment in the notebook shows it.

    Args:
        id: as `Task.id`.
        name: as `Task.name`.
        truth: runs the experiment; takes at most a few seconds.
        wrong: what is wrong with a line of thought -> the number that it leads to, or the smallest and the largest one.
        tolerance: how far a prediction may be off, as a fraction of the true number.
        card: the other attributes of `Task`: title, difficulty, minutes, equation, after, says.
    """

    ranges = {reason: number for reason, number in wrong.items() if isinstance(number, tuple)}
    numbers = {reason: sum(number) / 2 if reason in ranges else number for reason, number in wrong.items()}

    def rounded(answer: Callable[[], Any]) -> Any:
        """The number with two digits, or "near": mistakes are told apart more finely than what counts as right."""
        got = answer()
        try:
            number = float(got)
        except (TypeError, ValueError):
            return got
        return "near" if abs(number - truth()) <= tolerance * abs(truth()) else f"{number:.2g}"

    def advise(got: Any) -> str:
        if not isinstance(got, str):
            return f"expected a number, got {short(got)}"
        reasons = [reason for reason, (low, high) in ranges.items() if low <= float(got) <= high]
        reasons.append("think again, or run the experiment below and explain it to yourself")
        more = "a larger" if float(got) < truth() else "a smaller"
        return f"expected {more} number than {got}: {reasons[0]}"

    return Task(
        id=id,
        name=name,
        kind="predict",
        reference=lambda: truth(),
        cases=lambda: [()],
        observe=rounded,
        mistakes={reason: lambda number=number: number for reason, number in numbers.items()},
        others=(lambda: truth() * (1 + tolerance / 3), lambda: truth() * (1 - tolerance / 3)),
        advise=advise,
        **card,
    )
