"""Name a mistake by a change of the solution that makes it.

A wrong answer is often the right one with one thing different. So the solution, and what it calls,
is changed in one way after the other, and run on the check's inputs, until it gives the learner's
results. What is said is the first change that gives the results, not the smallest: in a function,
something is left out before anything is exchanged, and lines are changed before what is inside
them. The idea is that of Singh, Gulwani and Solar-Lezama (2013), who look for the smallest
correction of the learner's program; here nobody reads that program, and what is said is about its
numbers.
"""

import ast
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from satcourse.checks.changes import changes, nodes, parsed
from satcourse.checks.task import Answer, Task

SECONDS = 3.0  # of processor time, for all changes of a solution
SLOWEST = 0.05  # of a solution, up to the first case that differs: else all changes take too long
DEEPEST = 2  # calls
Variants = Iterator[tuple[str, Answer]]  # what is changed, in words, and the changed function


def first_change(task: Task, agrees: Callable[[Answer], bool]) -> str | None:
    """The first change of the solution that gives a learner's results, in a sentence.

    None if no one change does, if none was found in time (SECONDS), and where none is tried: of a
    slow solution, and of one whose own lines may do harm when they are changed. `agrees` says
    whether a function gives the learner's results in all cases. Raises OSError if the solution has
    no source.
    """
    # Only to time it: the answer is known.
    begin = time.process_time()
    agrees(task.reference)
    is_slow = time.process_time() - begin > SLOWEST
    if is_slow or _may_do_harm(parsed(task.reference)):
        return None

    for sentence, variant in _variants(task, task.reference, DEEPEST):
        if time.process_time() - begin > SECONDS:
            return None
        if agrees(variant):
            return sentence
    return None


def _may_do_harm(tree: ast.FunctionDef) -> bool:
    """Whether a change may let it run for ever (`while`), or write to another file (`Path`)."""
    variables = {name.id for name in nodes(tree, ast.Name)}
    return "Path" in variables or bool(nodes(tree, ast.While))


def _variants(task: Task, function: Any, deep: int) -> Variants:
    """A function with each change, then with each mistake and change of what it calls."""
    for words, changed in changes(task, function):
        yield f"These are the numbers {words}", _compiled(changed, function.__globals__)

    tree = parsed(function)
    for name in sorted({name.id for name in nodes(tree, ast.Name)}):
        helper = function.__globals__.get(name)
        for words, mistake in _variants_of_helper(task, helper, deep):
            yield words, _compiled(tree, {**function.__globals__, name: mistake})


def _variants_of_helper(task: Task, helper: Any, deep: int) -> Variants:
    """A helper with each of its known mistakes, if it is a task, and with each change if it is ours."""
    own = helper
    if isinstance(helper, Task):
        own = helper.reference
        for words, mistake in helper.mistakes.items():
            yield f"as in {helper.id}: {words}", mistake
    if deep and _is_ours(own):
        yield from _variants(task, own, deep - 1)


def _is_ours(helper: Any) -> bool:
    """Whether it is a function of satlib or satcourse."""
    if not isinstance(helper, types.FunctionType):
        return False
    return helper.__module__.partition(".")[0] in ("satlib", "satcourse")


def _compiled(tree: ast.FunctionDef, names: dict[str, Any]) -> Answer:
    """A function of its syntax tree, in which these names are known."""
    # A copy: exec adds the function to it, and the module must stay as it is.
    names = dict(names)
    exec(compile(ast.Module([tree], []), "<changed>", "exec"), names)
    return names[tree.name]
