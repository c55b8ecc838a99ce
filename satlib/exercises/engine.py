"""`check("4.2", weights)`: is it right, and if not, what is the matter, in one or two lines?"""

import dis
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satlib.errors import SatlibError
from satlib.exercises import compare, guard, watch
from satlib.exercises.task import Task

RED, GREEN, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


class Wrong(Exception):  # noqa: N818  (its name is what a notebook shows)
    """An exercise that is not right (yet): what a learner reads is its message and nothing else.

    Attributes:
        task: "4.2".
        blank: nothing has been written yet.
    """

    def __init__(self, task: str, message: str, blank: bool = False) -> None:
        super().__init__(message)
        self.task, self.blank = task, blank

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback."""
        return [f"{RED}{line}{PLAIN}" for line in str(self).splitlines()]


@cache
def chapter(number: int) -> dict[str, Task]:
    """The tasks of a notebook by their ids, in their order.

    Raises:
        SatlibError: that notebook has no exercises.
    """
    name = f"ex{number:02}"
    if name not in {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])}:
        raise SatlibError(f"notebook {number} has no exercises; there are 1 to 9")
    return {task.id: task for task in importlib.import_module(f"satlib.exercises.{name}").TASKS}


def task(id: str) -> Task:
    """An exercise by its id.

    Raises:
        SatlibError: there is none of that id.
    """
    tasks = chapter(int(id.split(".")[0])) if re.fullmatch(r"\d+\.\d+", id) else {}
    if id not in tasks:
        raise SatlibError(f"there is no exercise {id!r}" + (f"; there are {', '.join(tasks)}" if tasks else ""))
    return tasks[id]


def reference(id: str) -> Callable[..., Any]:
    """The function that satlib itself has for an exercise."""
    return task(id).reference


def check(id: str, answer: Callable[..., Any]) -> None:
    """Try a learner's function on small inputs; say in one green line what it was held against.

    Raises:
        Wrong: it is blank, or not right; the message says which, and why.
    """
    asked = task(id)
    patched = watch.put_back()
    if patched:
        raise Wrong(
            id, f"{id} is wrong: {_several(patched)} had been replaced for everyone, and has been put back; check again"
        )
    printed: list[guard.Printed] = []
    try:
        message = _verdict(asked, answer, printed)
    except guard.Blank:
        raise Wrong(id, f"{id} is blank: write {asked.name}()", blank=True) from None
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
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _verdict(asked: Task, answer: Any, printed: list[guard.Printed]) -> str | None:
    """What is wrong, or None.

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
    code = getattr(answer, "__code__", None)
    inputs = guard.names(asked.reference)
    cases, expected, got, back = asked.cases(), [], [], []
    first: str | None = None
    for case in cases:
        right = guard.Spy(asked.reference, inputs)
        want = asked.observe(right, *map(guard.copied, case))
        spy, copies = guard.Spy(answer, inputs), [guard.copied(each) for each in case]
        result, out = guard.run(lambda spy=spy, copies=copies: asked.observe(spy, *copies), code, asked.seconds)
        patched = watch.put_back()
        if patched:
            raise guard.Failed(f"it replaces {_several(patched)} for everyone, which has been put back")
        printed.append(out)
        if result is Ellipsis or (isinstance(result, (tuple, list)) and any(each is Ellipsis for each in result)):
            raise guard.Blank
        expected.append(want)
        got.append(result)
        back.append(spy.gave_back)
        if spy.gave and result is spy.gave[0] and want is not right.gave[0]:  # nothing that could be looked into
            found = _compare(right.gave[0], result, asked.tolerance)
            found = found or f"expected {compare.kind(right.gave[0])}, got {compare.kind(result)}"
        else:
            found = _compare(want, result, asked.tolerance)
        if found and first is None:
            first = found
            failing = len(got) - 1
    if first is None:
        return None
    if back[failing]:
        return f"it gives its input {back[failing]} back as it is"
    named = _named(asked, cases, got, failing)
    if named:
        return named
    if "wrong value" in first:
        for broken in asked.invariants:
            try:
                message = broken(cases[failing], got[failing])
            except Exception:  # an invariant of a result that is something else altogether
                continue
            if message:
                return message
    if asked.picture:
        _draw(expected[failing], got[failing])
    return first + _given(inputs, cases[failing])


def _given(names: list[str], case: tuple[Any, ...]) -> str:
    """The inputs of a case where they are short enough to be said: "; given i = 7, size = 100"."""
    if not case or len(case) != len(names) or any(isinstance(each, Tensor) or callable(each) for each in case):
        return ""
    text = ", ".join(f"{name} = {each!r}" for name, each in zip(names, case, strict=True))
    return f"; given {text}" if len(text) <= 100 and "tensor(" not in text else ""


def _compare(expected: Any, got: Any, tolerance: float) -> str | None:
    try:
        return compare.difference(expected, got, tolerance)
    except Exception as error:  # a stranger's object may raise whatever it likes when it is looked at
        return f"{compare.kind(got)} that cannot be compared: {type(error).__name__}"


def _named(asked: Task, cases: Any, got: list[Any], failing: int) -> str | None:
    """The mistake whose results these are in all cases; else, where one result tells, the likeliest of those that give what is wrong first."""
    best, most = None, 0
    for message, mistake in asked.mistakes.items():
        same = [
            compare.same(_mistaken(asked, mistake, case), result, asked.tolerance)
            for case, result in zip(cases, got, strict=True)
        ]
        if all(same):
            return message
        if same[failing] and sum(same) > most and _tells(got[failing]):
            best, most = message, sum(same)
    return best


def _tells(value: Any) -> bool:
    """Whether one result is like no other; by chance two mistakes give the same truth value or the same whole numbers."""
    if isinstance(value, Mapping):
        return any(map(_tells, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_tells, value))
    if isinstance(value, (Tensor, float, np.floating)):
        numbers = torch.as_tensor(value)
        return bool((numbers != numbers.double().round()).any())
    return isinstance(value, str)


def _mistaken(asked: Task, mistake: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    """What a mistake gives; itself where it gives nothing (no result is equal to it)."""
    try:
        return guard.run(lambda: asked.observe(mistake, *map(guard.copied, case)), None, asked.seconds)[0]
    except (guard.Failed, guard.Blank):
        return mistake


def is_blank(answer: Any) -> bool:
    """Whether a function does nothing but give None or `...`: a docstring, `pass`, `...` or NotImplementedError is all there is."""
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
    """Target beside yours, in a notebook."""
    try:
        from IPython import get_ipython
        from IPython.display import display

        if get_ipython() is None or expected.dim() != 2 or got.dim() != 2:
            return
        from satlib.plots import NotebookFigure

        figure = NotebookFigure(figsize=(5.2, 2.6), layout="constrained")
        for axis, values, title in zip(figure.subplots(1, 2), (expected, got), ("target", "yours"), strict=True):
            axis.imshow(values.detach().double(), cmap="cividis")
            axis.set(title=title, xticks=[], yticks=[])
        display(figure)
    except Exception:  # a picture is a help and never a reason to fail
        return
