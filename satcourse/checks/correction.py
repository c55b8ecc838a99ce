"""Name a mistake by the smallest change of the solution that makes it.

A wrong answer is often the right one with one thing different. So the solution is changed in one
place after the other, and run on the check's inputs, until it gives the learner's results. The idea
is that of Singh, Gulwani and Solar-Lezama (2013), who look for the smallest correction of the
learner's program; here nobody reads that program, and what is said is about its numbers.
"""

import ast
import inspect
import time
import types
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from satcourse.checks.changes import changes, nodes, parsed
from satcourse.checks.task import Answer, Task

SECONDS = 3.0  # of processor time, for all changes of a solution
SLOWEST = 0.05  # of one run of a solution: changes of slower ones would take too long
DEEPEST = 2  # calls


def smallest_change(task: Task, agrees: Callable[[Answer], bool]) -> str | None:
    """What is different in a learner's results, in a sentence; None if no one change explains them.

    `agrees` says whether a function gives the learner's results in all cases.
    """
    text = inspect.getsource(task.reference)
    begin = time.process_time()
    agrees(task.reference)
    # A changed `while` may run for ever, and a changed path may lead anywhere.
    if time.process_time() - begin > SLOWEST or "while " in text or "Path" in text:
        return None

    for sentence, variant in _variants(task, task.reference, DEEPEST):
        if time.process_time() - begin > SECONDS:
            return None
        if agrees(variant):
            return sentence
    return None


def _variants(task: Task, function: Any, deep: int) -> Iterator[tuple[str, Answer]]:
    """A function with each change, and then with each change of a function that it calls."""
    for words, changed in changes(task, function):
        yield f"These are the numbers {words}", _compiled(changed, function.__globals__)

    tree = parsed(function)
    for name in sorted({name.id for name in nodes(tree, ast.Name)}):
        helper = function.__globals__.get(name)
        mistakes: Iterable[tuple[str, Answer]] = ()
        if isinstance(helper, Task):
            own = helper.mistakes.items()
            mistakes = [(f"as in {helper.id}: {words}", mistake) for words, mistake in own]
            helper = helper.reference
        is_ours = isinstance(helper, types.FunctionType) and helper.__module__.startswith("sat")
        if is_ours and deep:
            mistakes = chain(mistakes, _variants(task, helper, deep - 1))
        for words, mistake in mistakes:
            yield words, _compiled(tree, {**function.__globals__, name: mistake})


def _compiled(tree: ast.FunctionDef, names: dict[str, Any]) -> Answer:
    """A function of its syntax tree, in which these names are known."""
    names = dict(names)
    exec(compile(ast.Module([tree], []), "<changed>", "exec"), names)
    return names[tree.name]
