"""Tasks whose answer is not a program: to explain (choose the right sentence), and to predict what an experiment will show."""

from collections.abc import Callable, Mapping
from typing import Any

from satcourse.exercises.compare import short
from satcourse.exercises.task import Task

NEAR = "near"


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
        """NEAR, or the number with two digits: mistakes are told apart more finely than what counts as right."""
        got = answer()
        try:
            number = float(got)
        except (TypeError, ValueError):
            return got
        return NEAR if abs(number - truth()) <= tolerance * abs(truth()) else f"{number:.2g}"

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
