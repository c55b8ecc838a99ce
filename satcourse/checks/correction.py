"""Name a mistake by the smallest change of the solution that makes it.

A wrong answer is often the right one with one thing different. So the solution is changed in one
place after the other, and run on the check's inputs, until it gives the learner's results. The idea
is that of Singh, Gulwani and Solar-Lezama (2013), who correct the learner's program so; here nobody
reads the learner's program, and what is said is about its numbers.
"""

import ast
import inspect
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from satcourse.checks.changes import changes, parsed, replaced
from satcourse.checks.task import Answer, Task

SECONDS = 3.0  # of processor time, for all changes of a solution
SLOWEST = 0.05  # of one run of a solution; changes of slower ones would take too long
DEEPEST = 2  # functions that functions of the solution call


def correction(task: Task, agrees: Callable[[Answer], bool]) -> str | None:
    """What is different in a learner's results, in words; None if no single change explains them.

    `agrees` says whether a function gives the learner's results in all cases.
    """
    begin = time.process_time()
    agrees(task.reference)
    if time.process_time() - begin > SLOWEST or not _harmless(task.reference):
        return None

    # What a changed solution divides by is no affair of the learner's.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for words, variant in _variants(task, task.reference, DEEPEST):
            if time.process_time() - begin > SECONDS:
                return None
            if agrees(variant):
                return words
    return None


def _harmless(solution: Answer) -> bool:
    """Whether a changed solution can neither run for ever nor write to a file."""
    text = inspect.getsource(solution)
    return "while " not in text and "Path" not in text


def _variants(task: Task, function: Any, deep: int) -> Iterator[tuple[str, Answer]]:
    """A function with each change, and with each change of a function that it calls."""
    tree = parsed(function)
    for words, changed in changes(task, function):
        yield f"These are the numbers {words}", _compiled(changed, function, {})

    for name, callee in _helpers(tree, function.__globals__):
        calls = [each for each in ast.walk(tree) if _dotted(each) == name]
        stand_in = ast.Name("_helper", ast.Load())
        caller = replaced(tree, {id(each): stand_in for each in calls})
        mistakes: list[tuple[str, Answer]] = []
        if isinstance(callee, Task):
            mistakes += [(f"as in {callee.id}: {words}", m) for words, m in callee.mistakes.items()]
            callee = callee.reference
        if deep:
            mistakes += _variants(task, callee, deep - 1)
        for words, mistake in mistakes:
            yield words, _compiled(caller, function, {"_helper": mistake})


def _helpers(tree: ast.FunctionDef, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The functions of this package that are called by a name, as "losses.penalty"."""
    for name in dict.fromkeys(_dotted(each) for each in ast.walk(tree)):
        first, _, last = name.partition(".")
        callee = names.get(first)
        if isinstance(callee, types.ModuleType):
            callee = getattr(callee, last, None)
        of = getattr(callee, "__module__", None) or ""
        if isinstance(callee, Task) or (
            isinstance(callee, types.FunctionType) and of.startswith(("satlib", "satcourse"))
        ):
            yield name, callee


def _dotted(node: ast.AST) -> str:
    """The name of a function or of a module's function; "" of anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
    return ""


def _compiled(tree: ast.FunctionDef, function: Any, more: dict[str, Any]) -> Answer:
    names = {**function.__globals__, **more}
    exec(compile(ast.Module([tree], []), "<changed>", "exec"), names)
    return names[tree.name]
