"""`check("4.2", weights)`: test a learner's function, and if it is wrong, say why in one or two lines."""

import contextlib
import dis
import importlib
import io
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satcourse.exercises import calls, compare, relations
from satcourse.exercises.task import Task
from satlib.errors import SatlibError
from satlib.training import plugged

CHAPTERS = range(1, 11)  # the notebooks with tasks
RED, GREEN, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_VERDICTS: dict[str, str] = {}  # of the exercises checked in this process, the latest of each
_PASSED: dict[str, Callable[..., Any]] = {}  # the functions that have passed their checks in this process


class Wrong(Exception):  # noqa: N818  (its name is what a notebook shows)
    """An exercise is blank or wrong; a notebook shows only the message, without a traceback.

    Attributes:
        task: the exercise's id, as "4.2".
        blank: whether nothing has been written yet.
    """

    def __init__(self, task: str, message: str, blank: bool = False) -> None:
        super().__init__(f"{task} is {'blank' if blank else 'wrong'}: {message}")
        self.task, self.blank = task, blank

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{RED}{line}{PLAIN}" for line in str(self).splitlines()]


@cache
def chapter(number: int) -> dict[str, Task]:
    """The tasks of a notebook by their ids, in order.

    Raises:
        SatlibError: the notebook has no exercises.
    """
    if number not in CHAPTERS:
        raise SatlibError(f"notebook {number} has no exercises; there are exercises {CHAPTERS[0]} to {CHAPTERS[-1]}")
    module = importlib.import_module(f"satcourse.exercises.ex{number:02}")
    return {each.id: each for each in vars(module).values() if isinstance(each, Task)}


def task(id: str) -> Task:
    """An exercise by its id.

    Raises:
        SatlibError: there is no exercise with that id.
    """
    tasks = chapter(int(id.split(".")[0])) if re.fullmatch(r"\d+\.\d+", id) else {}
    if id not in tasks:
        raise SatlibError(f"there is no exercise {id!r}" + (f"; there are {', '.join(tasks)}" if tasks else ""))
    return tasks[id]


def reference(id: str) -> Callable[..., Any]:
    """The reference solution of an exercise: satlib's own function where it has one."""
    return task(id).reference


def carry_on(id: str) -> Callable[..., Any]:
    """What later cells use: the learner's function if it has passed its check in this session; else satlib's, and a line says so."""
    exercise = task(id)
    if id not in _PASSED:
        print(f"{exercise.name}() is satlib's own from here on, until yours passes check {id}")
    return _PASSED.get(id, exercise.reference)


def bring(id: str) -> Callable[..., Any]:
    """The learner's function out of another workbook, if it passes its check; else satlib's own. A line says which.

    The workbook is looked for in the running notebook's folder, then in ../exercises; see `plugged.function` for what of it is run.
    """
    exercise, number = task(id), int(id.split(".")[0])
    books = [path for folder in (Path(), Path("../exercises")) for path in sorted(folder.glob(f"{number:02}_*.ipynb"))]
    try:
        with calls.fresh(), contextlib.redirect_stdout(io.StringIO()):  # what it prints as it is loaded and checked
            answer = plugged.function(f"{books[0]}:{exercise.name}")
            _judge(exercise, answer)
    except IndexError:
        reason = f"there is no notebook {number:02} beside this one"
    except (SatlibError, Wrong) as error:
        reason = str(error)
    else:
        print(f"{exercise.name}() is that of {books[0].name}")
        return answer
    print(f"{exercise.name}() is satlib's own: {reason}")
    return exercise.reference


def check(id: str, answer: Callable[..., Any]) -> None:
    """Test a learner's function on small inputs; if it is right, print in one green line what it was checked against.

    The test has the default dtype, gradient mode, device and seeds of a fresh notebook; afterwards they are the learner's own.

    In a notebook, a function that is blank or wrong is shown as an error of the cell, in red, and the next cell runs all the same.

    Raises:
        Wrong: the function is blank or wrong, and this is no notebook; the message says which, and why.
    """
    exercise = task(id)
    try:
        with calls.fresh():
            _judge(exercise, answer)
    except Wrong as wrong:
        _PASSED.pop(id, None)
        _VERDICTS[id] = "blank" if wrong.blank else "wrong"
        shell = _notebook()
        if shell is None:
            raise
        shell.showtraceback((Wrong, wrong, None))
    else:
        _VERDICTS[id], _PASSED[id] = "done", answer
        print(f"{GREEN}{id} is right: {exercise.says}.{PLAIN}")


def reveal(what: str, guess: Any, truth: float) -> None:
    """Print a number, and beside it what was guessed before the cell was run (`...`: nothing)."""
    print(f"{what}: {truth:.3g}" + ("" if guess is ... else f" (you guessed {guess})"))


def progress(number: int) -> None:
    """Print which exercises of a notebook are done in this session, which are not, and which to try next.

    Raises:
        SatlibError: the notebook has no exercises.
    """
    tasks = chapter(number)
    done = [id for id in tasks if _VERDICTS.get(id) == "done"]
    print(f"{len(done)} of {len(tasks)} done" + (f": {', '.join(done)}" if done else ""))
    for state, words in (("wrong", "not right yet"), ("blank", "blank")):
        ids = [id for id in tasks if _VERDICTS.get(id) == state]
        if ids:
            print(f"{words}: {', '.join(ids)}")
    left = sum(each.minutes for id, each in tasks.items() if id not in done)
    if left:
        print(f"next: {following(tasks, done)}; about {left} minutes are left in this notebook")


def following(tasks: Mapping[str, Task], done: Collection[str]) -> str:
    """The first exercise that is not done, in words: "5.2 The penalty (10 minutes)"; "" if all are."""
    left = next((each for id, each in tasks.items() if id not in done), None)
    return "" if left is None else f"{left.id} {left.title} ({left.minutes} minutes)"


def _notebook() -> Any:
    """IPython's shell of a kernel; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


@dataclass
class _Trial:
    """One call of the learner's function on the inputs of a case, and what is wrong with its result (None: nothing)."""

    case: tuple[Any, ...]
    expected: Any
    got: Any
    returned_input: str | None  # the name of the input that it returned unchanged
    problem: str | None


def _judge(task: Task, answer: Any) -> None:
    """Test an answer with whatever settings there are.

    Raises:
        Wrong: the function is blank or wrong.
    """
    if answer is task.reference:
        message = f"{task.name} is satlib's own function now; write yours, run its cell, and check again"
        raise Wrong(task.id, message, blank=True)
    try:
        if answer is None or answer is Ellipsis or is_blank(answer):
            raise calls.Blank
        if not callable(answer):
            raise calls.Failed(f"{task.name} is {compare.kind(answer)}, not a function")
        trials = [_try(task, answer, case, show=not i) for i, case in enumerate(task.cases())]
        if task.start is not None and all(_agrees(task, task.start, trial) for trial in trials):
            raise calls.Blank
    except calls.Blank:
        raise Wrong(task.id, task.todo, blank=True) from None
    except calls.Failed as failed:
        raise Wrong(task.id, str(failed)) from None
    failing = next((trial for trial in trials if trial.problem), None)
    if failing is not None:
        raise Wrong(task.id, _explain(task, trials, failing))


def _try(task: Task, answer: Callable[..., Any], case: tuple[Any, ...], show: bool) -> _Trial:
    """Call the reference and the learner's function on copies of one case's inputs, and compare the results.

    Raises:
        calls.Blank: the result is `...`, or has one in it.
        calls.Failed: the call went wrong.
    """
    inputs = calls.names(task.reference)
    right, spy = calls.Spy(task.reference, inputs), calls.Spy(answer, inputs)
    expected = task.observe(right, *map(calls.copied, case))
    copies = [calls.copied(value) for value in case]
    got, printed = calls.run(lambda: task.observe(spy, *copies), getattr(answer, "__code__", None), task.seconds)
    if printed and show:
        print(f"{task.name}() printed: {printed}")
    if got is Ellipsis or (isinstance(got, (tuple, list)) and any(value is Ellipsis for value in got)):
        raise calls.Blank
    if spy.results and got is spy.results[0] and expected is not right.results[0]:
        # `observe` passed on the learner's result as it was: it could not be inspected. Compare the raw results.
        problem = _compare(task, right.results[0], got)
        problem = problem or f"expected {compare.kind(right.results[0])}, got {compare.kind(got)}"
    else:
        problem = _compare(task, expected, got)
    return _Trial(case, expected, got, spy.returned_input, problem)


def _explain(task: Task, trials: Sequence[_Trial], failing: _Trial) -> str:
    """The most helpful message on a failing trial: a known mistake, a broken invariant, or the difference and what it is like."""
    if failing.returned_input:
        return f"it returns its input {failing.returned_input} unchanged"
    mistake = _known_mistake(task, trials)
    if mistake:
        return mistake
    problem = failing.problem or ""
    if "wrong value" in problem:
        for invariant in task.invariants:
            with contextlib.suppress(Exception):  # the result is something that the invariant cannot be asked of
                message = invariant(failing.case, failing.got)
                if message:
                    return message
    advice = task.advise(failing.got) if task.advise else None
    if advice:
        return advice
    related = relations.relation([(trial.expected, trial.got) for trial in trials], task.tolerance)
    return problem + (f"; {related}" if related else "") + _given(task, failing.case)


def _given(task: Task, case: tuple[Any, ...]) -> str:
    """The inputs of a case in the task's words, or if they are short: "; given i = 7, size = 100"; otherwise ""."""
    if task.given is not None:
        return f"; given {task.given(*case)}"
    names = calls.names(task.reference)
    if not case or len(case) != len(names) or any(isinstance(value, Tensor) or callable(value) for value in case):
        return ""
    text = ", ".join(f"{name} = {value!r}" for name, value in zip(names, case, strict=True))
    return f"; given {text}" if len(text) <= 100 and "tensor(" not in text else ""


def _compare(task: Task, expected: Any, got: Any) -> str | None:
    try:
        return compare.difference(expected, got, task.tolerance, parts=task.parts)
    except Exception as error:  # a learner's object may raise anything when it is inspected
        return f"{compare.kind(got)} that cannot be compared: {type(error).__name__}"


def _known_mistake(task: Task, trials: Sequence[_Trial]) -> str | None:
    """The message of the known mistake that gives the learner's results.

    It has to give the first wrong result. A mistake that gives the results of all cases is taken before others. Of others, if
    that result is distinctive, the one that agrees with the largest share of the results where it or the learner is wrong: half
    at least, for who is right where a mistake goes wrong has hardly made it.
    """
    failing = next(trial for trial in trials if trial.problem)
    best, most = None, 0.0
    for message, mistake in task.mistakes.items():
        if not _agrees(task, mistake, failing):
            continue
        same = [trial is failing or _agrees(task, mistake, trial) for trial in trials]
        if all(same):
            return message
        counted = [agrees for trial, agrees in zip(trials, same, strict=True) if trial.problem or not agrees]
        share = sum(counted) / len(counted)
        if share >= 0.5 and share > most and _tells(failing.got):
            best, most = message, share
    return best


def _agrees(task: Task, function: Callable[..., Any], trial: _Trial) -> bool:
    """Whether a function gives the learner's result of a case."""
    inputs = [calls.copied(value) for value in trial.case]
    try:
        result, _ = calls.run(lambda: task.observe(function, *inputs), None, task.seconds)
    except (calls.Failed, calls.Blank):
        return False
    return compare.same(result, trial.got, task.tolerance)


def _tells(value: Any) -> bool:
    """Whether a result is distinctive: two mistakes may give the same truth value or integers by chance, but not fractions."""
    if isinstance(value, Mapping):
        return any(map(_tells, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_tells, value))
    if isinstance(value, (Tensor, float, np.floating)):
        numbers = torch.as_tensor(value)
        return bool((numbers != numbers.double().round()).any())
    return isinstance(value, str)


def is_blank(answer: Any) -> bool:
    """Whether a function's body is only a docstring, `pass`, `...`, `return None` or `raise NotImplementedError`."""
    code = getattr(answer, "__code__", None)
    if code is None:
        return False
    nothing = {"RESUME", "NOP", "RETURN_VALUE", "POP_TOP", "COPY_FREE_VARS", "MAKE_CELL", "CACHE", "NOT_TAKEN"}
    for step in dis.get_instructions(code):
        if step.opname in nothing:
            continue
        if step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval in (None, Ellipsis):
            continue
        return "NotImplementedError" in code.co_names and len(code.co_names) == 1
    return True
