"""`check("4.2", weights)`: test a learner's function, and if it is wrong, say why in one or two lines."""

import contextlib
import copy
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from numbers import Number
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satcourse.checks import calls, compare, diagnosis
from satcourse.checks.task import Task
from satlib.errors import SatlibError

CHAPTERS = range(11)  # the notebooks
RED, GREEN, GREY, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[90m", "\x1b[0m"
_VERDICTS: dict[str, str] = {}  # of the exercises checked in this process, the latest of each
_PASSED: dict[
    str, Callable[..., Any]
] = {}  # the functions that have passed their checks in this process


class Wrong(Exception):  # noqa: N818  (its name is what a notebook shows)
    """An exercise is blank or wrong; a notebook shows only the message, without a traceback."""

    def __init__(self, task: str, message: str, blank: bool = False) -> None:
        super().__init__(f"{task} is {'blank' if blank else 'wrong'}: {message}")
        self.blank = blank

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{GREY if self.blank else RED}{line}{PLAIN}" for line in str(self).splitlines()]


@cache
def chapter(number: int) -> dict[str, Task]:
    """The tasks of a notebook by their ids, in order."""
    if number not in CHAPTERS:
        raise SatlibError(
            f"notebook {number} has no exercises; there are exercises {CHAPTERS[0]} to {CHAPTERS[-1]}"
        )
    module = importlib.import_module(f"satcourse.checks.ex{number:02}")
    return {task.id: task for task in vars(module).values() if isinstance(task, Task)}


def task(id: str) -> Task:
    """An exercise by its id."""
    tasks = chapter(int(id.split(".")[0])) if re.fullmatch(r"\d+\.\d+", id) else {}
    if id not in tasks:
        raise SatlibError(
            f"there is no exercise {id!r}" + (f"; there are {', '.join(tasks)}" if tasks else "")
        )
    return tasks[id]


def reference(id: str) -> Callable[..., Any]:
    """The reference solution of an exercise: satlib's own function where it has one."""
    return task(id).reference


def carry_on(id: str) -> Callable[..., Any]:
    """The learner's function if it has passed its check in this session; else satlib's, and a line says so."""
    exercise = task(id)
    if id not in _PASSED:
        print(f"{exercise.name}() is satlib's own from here on, until yours passes check {id}")
    return _PASSED.get(id, exercise.reference)


def check(id: str, answer: Callable[..., Any]) -> None:
    """Test a learner's function on small inputs; if it is right, print what it was checked against, in a green line.

    If it is blank or wrong, raise Wrong; in a notebook, show it, grey or red, and let the next cell run.
    """
    exercise = task(id)
    try:
        with calls.fresh():
            _judge(exercise, answer)
    except Wrong as wrong:
        _PASSED.pop(id, None)
        _VERDICTS[id] = "blank" if wrong.blank else "wrong"
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if shell is None or not hasattr(shell, "kernel"):
            raise
        shell.showtraceback((Wrong, wrong, None))
    else:
        _VERDICTS[id], _PASSED[id] = "done", answer
        print(f"{GREEN}{id} is right: {exercise.says}.{PLAIN}")


def progress(number: int) -> None:
    """Print which exercises of a notebook are done in this session, which are not, and which to try next."""
    tasks = chapter(number)
    done, *others = (
        [id for id in tasks if _VERDICTS.get(id) == state] for state in ("done", "wrong", "blank")
    )
    print(f"{len(done)} of {len(tasks)} done" + (f": {', '.join(done)}" if done else ""))
    for words, ids in zip(("not right yet", "blank"), others, strict=True):
        if ids:
            print(f"{words}: {', '.join(ids)}")
    left = sum(task.minutes for id, task in tasks.items() if id not in done)
    if left:
        print(f"next: {following(tasks, done)}; about {left} minutes are left in this notebook")


def following(tasks: Mapping[str, Task], done: Collection[str]) -> str:
    """The first exercise that is not done, in words: "5.2 The penalty (10 minutes)"; "" if all are."""
    left = next((task for id, task in tasks.items() if id not in done), None)
    return "" if left is None else f"{left.id} {left.title} ({left.minutes} minutes)"


class _Trial(NamedTuple):
    """One call of the learner's function on the inputs of a case, and what is wrong with its result (None: nothing)."""

    case: tuple[Any, ...]
    expected: Any
    got: Any
    problem: str | None


def _judge(task: Task, answer: Any) -> None:
    """Raise Wrong if an answer is blank or wrong."""
    if answer is task.reference:
        message = (
            f"{task.name} is satlib's own function now; write yours, run its cell, and check again"
        )
        raise Wrong(task.id, message, blank=True)
    try:
        if answer is None or answer is Ellipsis or is_blank(answer):
            raise calls.Blank
        if not callable(answer):
            raise calls.Failed(f"{task.name} is {compare.kind(answer)}, not a function")
        trials = [_try(task, answer, case) for case in task.cases()]
    except calls.Blank:
        raise Wrong(task.id, task.todo, blank=True) from None
    except calls.Failed as failed:
        raise Wrong(
            task.id, f"{failed}{_asked(task) * str(failed).startswith('it raises')}"
        ) from None
    if any(trial.problem for trial in trials):
        raise Wrong(task.id, _explain(task, answer, trials))


def _try(task: Task, answer: Callable[..., Any], case: tuple[Any, ...]) -> _Trial:
    """Call the reference and the learner's function on copies of one case's inputs, and compare the results."""
    expected = task.observe(task.reference, *copy.deepcopy(case))
    inputs = copy.deepcopy(case)
    got = calls.run(
        lambda: task.observe(answer, *inputs), task.seconds, getattr(answer, "__code__", None)
    )
    if got is Ellipsis or (
        isinstance(got, (tuple, list)) and any(value is Ellipsis for value in got)
    ):
        raise calls.Blank
    for name, before, after in zip(
        inspect.signature(task.reference).parameters, case, inputs, strict=False
    ):
        if compare.difference(before, after, 0.0):
            raise calls.Failed(
                f"it changes its input {name}: work on a copy (`x -= 1` changes x itself)"
            )
        if got is after and isinstance(after, (Tensor, list, dict)):
            raise calls.Failed(f"it returns its input {name} unchanged")
    if isinstance(expected, Mapping) and not isinstance(
        got, Mapping
    ):  # `observe` could not look into it
        with contextlib.suppress(TypeError):  # a case of sizes
            expected = task.reference(*copy.deepcopy(case))
    problem = compare.difference(expected, got, task.tolerance, task.parts)
    return _Trial(case, expected, got, problem)


def _explain(task: Task, answer: Callable[..., Any], trials: Sequence[_Trial]) -> str:
    """A known mistake, the task's advice, or what is behind the first difference, this, and what is asked."""
    for message, mistake in task.mistakes.items():
        if _agrees(task, mistake, trials):
            return message
    first, *others = (trial for trial in trials if trial.problem)
    behind = None
    with contextlib.suppress(Exception):  # the advice cannot look into any result
        if task.advise and (advice := task.advise(first.expected, first.got)):
            return advice
    with contextlib.suppress(Exception):
        behind, *same = (diagnosis.relation(each.expected, each.got) for each in (first, *others))
        if behind not in same and (
            isinstance(first.expected, Number) or (same and isinstance(first.expected, list))
        ):
            behind = None  # two numbers have many relations by chance
        if behind and behind.startswith("no gradient") and {*same} - {behind}:
            behind = None  # a kink has none, either
        if behind in (None, diagnosis.WEAK) and "wrong value" in str(first.problem):
            behind = _unused(task, answer, trials) or behind
    what = f"{first.problem}{_given(task, first.case)}"
    return (f"{behind} ({what})" if behind else what) + _asked(task)


def _asked(task: Task) -> str:
    """What is asked, in a sentence: the first paragraph of the reference's docstring."""
    return ". The task: " + " ".join(
        (inspect.getdoc(task.reference) or "").partition("\n\n")[0].split()
    ).rstrip(".")


def _unused(task: Task, answer: Callable[..., Any], trials: Sequence[_Trial]) -> str | None:
    """An input whose numbers change the reference's results, but never the learner's, in words; None if there is none."""
    parameters = inspect.signature(task.reference).parameters.values()
    least = sum(each.default is each.empty for each in parameters)
    for i, each in enumerate(
        parameters if len(trials[0].case) == least else ()
    ):  # a case may be something else
        moved = []
        for trial in (trial for trial in trials if i < len(trial.case)):
            value = trial.case[i]
            if isinstance(value, Tensor) and value.dtype != torch.int64:
                value = ~value if value.dtype == torch.bool else 1.25 * value.roll(1)
            elif isinstance(value, float):
                value = 1.25 * value
            case = (*trial.case[:i], value, *trial.case[i + 1 :])
            if compare.difference(
                trial.expected, task.observe(task.reference, *copy.deepcopy(case))
            ):
                got = calls.run(partial(task.observe, answer, *copy.deepcopy(case)), task.seconds)
                moved.append(compare.difference(trial.got, got))
        if moved and not any(moved):
            return f"{each.name} plays no part in it"
    return None


def _agrees(task: Task, function: Callable[..., Any], trials: Sequence[_Trial]) -> bool:
    """Whether a function gives the learner's results in all cases."""
    for trial in trials:
        inputs = copy.deepcopy(trial.case)
        try:
            result = calls.run(lambda inputs=inputs: task.observe(function, *inputs), task.seconds)
        except (calls.Failed, calls.Blank):
            return False
        if compare.difference(result, trial.got, task.tolerance):
            return False
    return True


def _given(task: Task, case: tuple[Any, ...]) -> str:
    """The inputs of a case in the task's words, or if they are short: "; given i = 7, size = 100"; otherwise ""."""
    if task.given is not None:
        return f"; given {task.given(*case)}"
    names = inspect.signature(task.reference).parameters
    text = ", ".join(f"{name} = {value!r}" for name, value in zip(names, case, strict=False))
    return (
        f"; given {text}"
        if text and len(text) <= 100 and not re.search(r"tensor\(|<", text)
        else ""
    )


def _stub() -> None: ...


def _documented() -> None:
    """Nothing but a docstring."""


def is_blank(answer: Any) -> bool:
    """Whether a function's body is only a docstring, `pass`, `...` or `return None`."""
    code = getattr(answer, "__code__", None)
    if code is None or code.co_code not in (_stub.__code__.co_code, _documented.__code__.co_code):
        return False
    return set(code.co_consts) <= {None, ..., answer.__doc__}
