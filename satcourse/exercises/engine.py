"""`check("4.2", weights)`: test a learner's function, and if it is wrong, say why in one or two lines."""

import dis
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satcourse.exercises import compare, guard, relations, settings, watch
from satcourse.exercises.task import Exploration, Task
from satlib.errors import SatlibError

CHAPTERS = range(1, 11)  # of the notebooks 01 to 09, and the project
RED, GREEN, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_VERDICTS: dict[str, str] = {}  # of the exercises checked in this process, the latest of each


class Wrong(Exception):  # noqa: N818  (its name is what a notebook shows)
    """An exercise is blank or wrong; a notebook shows only the message, without a traceback.

    Attributes:
        task: the exercise's id, as "4.2".
        blank: whether nothing has been written yet.
    """

    def __init__(self, task: str, message: str, blank: bool = False) -> None:
        super().__init__(message)
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
    name = f"ex{number:02}"
    if name not in {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])}:
        raise SatlibError(f"notebook {number} has no exercises; there are exercises {CHAPTERS[0]} to {CHAPTERS[-1]}")
    return {task.id: task for task in importlib.import_module(f"satcourse.exercises.{name}").TASKS}


def explorations(number: int) -> tuple[Exploration, ...]:
    """The open tasks of a notebook, which have no check."""
    return getattr(importlib.import_module(f"satcourse.exercises.ex{number:02}"), "EXPLORATIONS", ())


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


def check(id: str, answer: Callable[..., Any]) -> None:
    """Test a learner's function on small inputs; if it is right, print in one green line what it was checked against.

    Functions of torch, numpy or Python that the notebook has replaced are restored before the test and after it. Global settings,
    such as torch's default dtype, are those of a fresh notebook during the test, and the learner's own after it.

    In a notebook, a function that is blank or wrong is shown as an error of the cell, in red, and the next cell runs all the same.

    Raises:
        Wrong: the function is blank or wrong, and this is no notebook; the message says which, and why.
    """
    try:
        with settings.neutral():
            _check(task(id), answer)
        _VERDICTS[id] = "done"
    except Wrong as wrong:
        _VERDICTS[id] = "blank" if wrong.blank else "wrong"
        shell = _notebook()
        if shell is None:
            raise
        shell.showtraceback((Wrong, wrong, None))


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


def _check(asked: Task, answer: Any) -> None:
    """The test of `check`, with whatever settings there are.

    Raises:
        Wrong: the function is blank or wrong.
    """
    id = asked.id
    if answer is asked.reference:
        raise Wrong(
            id,
            f"{id} is blank: {asked.name} is satlib's own function now; write yours, run its cell, and check again",
            blank=True,
        )
    patched = watch.put_back()
    if patched:
        raise Wrong(
            id, f"{id} is wrong: {_several(patched)} had been replaced globally and is restored now; check again"
        )
    printed: list[guard.Printed] = []
    try:
        message = _verdict(asked, answer, printed)
    except guard.Blank:
        raise Wrong(id, f"{id} is blank: {asked.todo}", blank=True) from None
    except guard.Failed as failed:
        message = str(failed)
    finally:
        watch.put_back()
        if printed and printed[0].total:
            print(f"{asked.name}() printed: {printed[0]}")
    if message:
        raise Wrong(id, f"{id} is wrong: {message}") from None
    print(f"{GREEN}{id} is right: {asked.says}.{PLAIN}")


def _several(names: list[str]) -> str:
    """At most three of the names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass
class _Trial:
    """One call of the learner's function on the inputs of a case, and what is wrong with its result (None: nothing)."""

    case: tuple[Any, ...]
    expected: Any
    got: Any
    returned_input: str | None  # the name of the input that it returned unchanged
    problem: str | None


def _verdict(asked: Task, answer: Any, printed: list[guard.Printed]) -> str | None:
    """The message on what is wrong, or None.

    Raises:
        guard.Blank: nothing is written.
        guard.Failed: a call went wrong.
    """
    if answer is None or answer is Ellipsis:
        raise guard.Blank
    if not callable(answer):
        return f"{asked.name} is {compare.kind(answer)}, not a function"
    if is_blank(answer):
        raise guard.Blank
    trials = [_try(asked, answer, case, printed) for case in asked.cases()]
    if asked.start is not None and _all_equal(asked, asked.start, trials):
        raise guard.Blank
    failing = next((trial for trial in trials if trial.problem), None)
    return None if failing is None else _explain(asked, trials, failing)


def _try(asked: Task, answer: Callable[..., Any], case: tuple[Any, ...], printed: list[guard.Printed]) -> _Trial:
    """Call the reference and the learner's function on copies of one case's inputs, and compare the results.

    Raises:
        guard.Blank: the result is `...`, or has one in it.
        guard.Failed: the call went wrong.
    """
    inputs = guard.names(asked.reference)
    right, spy = guard.Spy(asked.reference, inputs), guard.Spy(answer, inputs)
    expected = asked.observe(right, *map(guard.copied, case))
    copies = [guard.copied(value) for value in case]
    got, output = guard.run(lambda: asked.observe(spy, *copies), getattr(answer, "__code__", None), asked.seconds)
    patched = watch.put_back()
    if patched:
        raise guard.Failed(f"it replaces {_several(patched)} globally; this has been undone")
    printed.append(output)
    if got is Ellipsis or (isinstance(got, (tuple, list)) and any(value is Ellipsis for value in got)):
        raise guard.Blank
    if spy.gave and got is spy.gave[0] and expected is not right.gave[0]:
        # `observe` passed on the learner's result as it was: it could not be inspected. Compare the raw results.
        problem = _compare(asked, right.gave[0], got)
        problem = problem or f"expected {compare.kind(right.gave[0])}, got {compare.kind(got)}"
    else:
        problem = _compare(asked, expected, got)
    return _Trial(case, expected, got, spy.gave_back, problem)


def _explain(asked: Task, trials: list[_Trial], failing: _Trial) -> str:
    """The most helpful message on a failing trial: a known mistake, a broken invariant, or the difference and what it is like."""
    if failing.returned_input:
        return f"it returns its input {failing.returned_input} unchanged"
    mistake = _known_mistake(asked, trials, failing)
    if mistake:
        return mistake
    if "wrong value" in failing.problem:
        for invariant in asked.invariants:
            try:
                message = invariant(failing.case, failing.got)
            except Exception:  # the result is something that the invariant cannot be asked of
                continue
            if message:
                return message
    if asked.advise is not None:
        return asked.advise(failing.got)
    if asked.picture:
        _draw(failing.expected, failing.got)
    related = relations.relation([(trial.expected, trial.got) for trial in trials], asked.tolerance)
    return failing.problem + (f"; {related}" if related else "") + _given(asked, failing.case)


def _given(asked: Task, case: tuple[Any, ...]) -> str:
    """The inputs of a case in the task's words, or if they are short: "; given i = 7, size = 100"; otherwise ""."""
    if asked.given is not None:
        return f"; given {asked.given(*case)}"
    names = guard.names(asked.reference)
    if not case or len(case) != len(names) or any(isinstance(value, Tensor) or callable(value) for value in case):
        return ""
    text = ", ".join(f"{name} = {value!r}" for name, value in zip(names, case, strict=True))
    return f"; given {text}" if len(text) <= 100 and "tensor(" not in text else ""


def _compare(asked: Task, expected: Any, got: Any) -> str | None:
    try:
        return compare.difference(expected, got, asked.tolerance, parts=asked.parts)
    except Exception as error:  # a learner's object may raise anything when it is inspected
        return f"{compare.kind(got)} that cannot be compared: {type(error).__name__}"


def _known_mistake(asked: Task, trials: list[_Trial], failing: _Trial) -> str | None:
    """The message of the known mistake that gives the learner's results.

    A mistake that gives the results of all cases is taken first. Otherwise, if the failing result is distinctive, the mistake
    that gives it and agrees with the largest share of the other results, of those where it or the learner is wrong: half at
    least, for who is right where a mistake goes wrong has hardly made it.
    """
    best, most = None, 0.0
    for message, mistake in asked.mistakes.items():
        results = [(trial, _mistaken(asked, mistake, trial.case)) for trial in trials]
        same = {id(trial): compare.same(result, trial.got, asked.tolerance) for trial, result in results}
        if all(same.values()):
            return message
        told = [agrees for trial, agrees in zip(trials, same.values(), strict=True) if trial.problem or not agrees]
        share = sum(told) / len(told)
        if same[id(failing)] and share >= 0.5 and share > most and _tells(failing.got):
            best, most = message, share
    return best


def _all_equal(asked: Task, function: Callable[..., Any], trials: list[_Trial]) -> bool:
    """Whether a function gives the learner's results of all cases."""
    return all(compare.same(_mistaken(asked, function, trial.case), trial.got, asked.tolerance) for trial in trials)


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


def _mistaken(asked: Task, mistake: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    """The result of a mistake; if it fails, the function itself, which equals no result."""
    try:
        return guard.run(lambda: asked.observe(mistake, *map(guard.copied, case)), None, asked.seconds)[0]
    except (guard.Failed, guard.Blank):
        return mistake


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


def _draw(expected: Any, got: Any) -> None:
    """Draw the expected and the learner's matrix side by side; outside a notebook, or for other shapes, do nothing."""
    try:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None or expected.dim() != 2 or got.dim() != 2:
            return
        from satlib.evaluation.plots import NotebookFigure

        figure = NotebookFigure(figsize=(5.2, 2.6), layout="constrained")
        for axis, values, title in zip(figure.subplots(1, 2), (expected, got), ("target", "yours"), strict=True):
            axis.imshow(values.detach().double(), cmap="cividis")
            axis.set(title=title, xticks=[], yticks=[])
        display(figure)
    except Exception:  # the figure is only a help: without it, the message remains
        return
