"""`check("4.2", weights)`: test a learner's function, and if it is wrong, say why in a line or two.

A check goes through these stages:

1. `_judge` has `_require_function` refuse what is blank or no function.
2. `_trials` calls the reference and the learner's function on each case (`_try`), and compares.
3. `_explain` writes the message about wrong results: a known mistake, the task's advice, or what
   differs and why. `_failure` writes the one about a call that failed.
"""

import copy
import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from numbers import Number
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satcourse.checks import calls, compare, diagnosis
from satcourse.checks.calls import Blank, Failed
from satcourse.checks.correction import first_change
from satcourse.checks.task import Answer, Case, CutOff, Task
from satlib.errors import SatlibError

CHAPTERS = range(13)  # the notebooks, each of which has exercises
RED, GREEN, GREY, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[90m", "\x1b[0m"
# The latest verdict on each exercise that was checked in this process: "done", "wrong" or "blank".
_VERDICTS: dict[str, str] = {}
# The functions that passed their latest check in this process.
_PASSED: dict[str, Answer] = {}


class Wrong(Exception):  # noqa: N818  (grading.py reads this name in a notebook's outputs)
    """An exercise is blank or wrong; a notebook shows only the message, without a traceback."""

    def __init__(self, task: str, message: str, blank: bool = False) -> None:
        super().__init__(f"{task} is {'blank' if blank else 'wrong'}: {message}")
        self.blank = blank

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        colour = GREY if self.blank else RED
        return [f"{colour}{line}{PLAIN}" for line in str(self).splitlines()]


# The exercises by their ids.


@cache
def chapter(number: int) -> dict[str, Task]:
    """The tasks of a notebook by their ids, in order."""
    if number not in CHAPTERS:
        last = CHAPTERS[-1]
        raise SatlibError(f"there is no notebook {number}; there are notebooks 0 to {last}")
    module = importlib.import_module(f"satcourse.checks.ex{number:02}")
    return {task.id: task for task in vars(module).values() if isinstance(task, Task)}


def task(id: str) -> Task:
    """An exercise by its id."""
    tasks = {}
    if re.fullmatch(r"\d+\.\d+", id):
        tasks = chapter(int(id.split(".")[0]))
    if id not in tasks:
        there = f"; there are {', '.join(tasks)}" if tasks else ""
        raise SatlibError(f"there is no exercise {id!r}{there}")
    return tasks[id]


def reference(id: str) -> Answer:
    """The reference solution of an exercise."""
    return task(id).reference


def carry_on(id: str) -> Answer:
    """The learner's function if it has passed its check in this session; else the reference.

    A line says so where it is the reference.
    """
    exercise = task(id)
    if id not in _PASSED:
        print(f"{exercise.name}() is satlib's own from here on, until yours passes check {id}")
    return _PASSED.get(id, exercise.reference)


# A check, and what it leaves behind.


def check(id: str, answer: Callable[..., Any]) -> None:
    """Test a learner's function on small inputs; if it is right, print what it was checked against.

    If it is blank or wrong, raise Wrong; in a notebook, show it, grey or red, and let the next
    cell run.
    """
    exercise = task(id)
    try:
        with calls.fresh():
            _judge(exercise, answer)
    except Wrong as wrong:
        # What passed before is forgotten, so that later cells do not use what is no longer there.
        _PASSED.pop(id, None)
        _VERDICTS[id] = "blank" if wrong.blank else "wrong"
        _show(wrong)
    else:
        _VERDICTS[id] = "done"
        _PASSED[id] = answer
        print(f"{GREEN}{id} is right: {exercise.says}.{PLAIN}")


def _show(wrong: Wrong) -> None:
    """Show a message in a notebook, as an error that stops nothing; elsewhere, raise it."""
    # Not imported: whoever is not in a notebook need not wait for IPython.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    # A terminal's IPython has no kernel, and no next cell.
    if shell is None or not hasattr(shell, "kernel"):
        raise wrong
    shell.showtraceback((Wrong, wrong, None))


def progress(number: int) -> None:
    """Print which exercises of a notebook are done, wrong and blank, and which to try next.

    What counts is the latest check of each in this session.
    """
    tasks = chapter(number)
    done = [id for id in tasks if _VERDICTS.get(id) == "done"]
    print(f"{len(done)} of {len(tasks)} done" + (f": {', '.join(done)}" if done else ""))
    for state, title in (("wrong", "not right yet"), ("blank", "blank")):
        those = [id for id in tasks if _VERDICTS.get(id) == state]
        if those:
            print(f"{title}: {', '.join(those)}")

    left = sum(task.minutes for id, task in tasks.items() if id not in done)
    if left:
        print(f"next: {following(tasks, done)}; about {left} minutes are left in this notebook")


def following(tasks: Mapping[str, Task], done: Collection[str]) -> str:
    """The first exercise that is not done, as "5.2 The penalty (10 minutes)"; "" if all are."""
    for id, task in tasks.items():
        if id not in done:
            return f"{task.id} {task.title} ({task.minutes} minutes)"
    return ""


# The verdict.


class _Trial(NamedTuple):
    """One call of the learner's function on the inputs of a case."""

    case: Case
    expected: Any
    got: Any
    problem: str | None  # what is wrong with the result; None: nothing


def _judge(task: Task, answer: Any) -> None:
    """Raise Wrong if an answer is blank or wrong."""
    try:
        _require_function(task, answer)
        trials = _trials(task, answer)
    except Blank:
        raise Wrong(task.id, task.todo, blank=True) from None
    except Failed as failed:
        raise Wrong(task.id, str(failed)) from None

    if any(trial.problem for trial in trials):
        raise Wrong(task.id, _explain(task, answer, trials))


def _require_function(task: Task, answer: Any) -> None:
    """Refuse what is no function of the learner's.

    Raises Wrong if it is the reference, Blank if nothing is written, and Failed if it is no
    function.
    """
    # The cells that carry on put it there; a right verdict on it would say nothing of the learner.
    if answer is task.reference:
        raise Wrong(
            task.id,
            f"{task.name} is satlib's own function now; write yours, run its cell, and check again",
            blank=True,
        )
    if answer is None or answer is Ellipsis or is_blank(answer):
        raise Blank
    if not callable(answer):
        raise Failed(f"{task.name} is {compare.kind(answer)}, not a function")


def _trials(task: Task, answer: Answer) -> list[_Trial]:
    """The calls of the learner's function on the cases of its task, up to one that fails.

    A failed call only ends the list if a result before it was wrong, since that explains more.
    Otherwise Failed is raised, with the whole message. Raises Blank where a line is missing.
    """
    trials: list[_Trial] = []
    for case in task.cases():
        try:
            trials.append(_try(task, answer, case))
        except Failed as failed:
            if any(trial.problem for trial in trials):
                return trials
            raise Failed(_failure(task, case, failed)) from None
    return trials


def _try(task: Task, answer: Answer, case: Case) -> _Trial:
    """Call the reference and the learner's function on one case, and compare the results.

    Raises Blank and Failed.
    """
    # Copies: a function that changes its inputs must not change anybody else's.
    expected = task.observe(task.reference, *copy.deepcopy(case))
    inputs = copy.deepcopy(case)
    code = getattr(answer, "__code__", None)
    try:
        got = calls.run(lambda: _listed(task.observe(answer, *inputs)), task.seconds, code)
    except CutOff as cut:
        # A wrong value is said before a missing graph, which integers, such as words, never have.
        # There are no gradients to be compared.
        got = cut.values
        expected = {name: expected[name] for name in got}
        if _equal(task, expected, got):
            raise

    results = got if isinstance(got, (tuple, list)) else [got]
    if any(result is Ellipsis for result in results):
        raise Blank

    _require_inputs_kept(task, case, inputs, got)
    expected = _comparable(task, case, expected, got)
    problem = compare.difference(expected, got, task.tolerance, task.parts)
    return _Trial(case, expected, got, problem)


def _require_inputs_kept(task: Task, case: Case, inputs: Case, got: Any) -> None:
    """Refuse a call that changed one of its inputs, which were copies of a case, or returned it.

    Raises Failed.
    """
    names = inspect.signature(task.reference).parameters
    # Not strict: a case may be sizes, from which `observe` makes the inputs.
    for name, before, after in zip(names, case, inputs, strict=False):
        if compare.difference(before, after, 0.0):
            raise Failed(f"it changes its input {name}: work on a copy (`x -= 1` changes x itself)")
        # A small number or a string may well be the result, too.
        if got is after and isinstance(after, (Tensor, list, dict)):
            raise Failed(f"it returns its input {name} unchanged")


def _comparable(task: Task, case: Case, expected: Any, got: Any) -> Any:
    """The expected result in the form of the learner's.

    `observe` may give a dict: the values and their gradients. It gives a result of the wrong kind
    as it is; then the solution's own result is what it has to be compared with, since no learner
    knows of a check's dict.
    """
    if not isinstance(expected, Mapping) or isinstance(got, Mapping):
        return expected
    return task.reference(*copy.deepcopy(case))


def _equal(task: Task, one: Any, other: Any) -> bool:
    """Whether the check of a task takes two results for equal."""
    return not compare.difference(one, other, task.tolerance)


def _listed(result: Any) -> Any:
    """A result; what a generator yields, in a list."""
    return [*result] if isinstance(result, Iterator) else result


def _stub() -> None: ...


def _documented() -> None:
    """Nothing but a docstring."""


def is_blank(answer: Any) -> bool:
    """Whether a function's body is only a docstring, `pass`, `...` or `return None`."""
    code = getattr(answer, "__code__", None)
    # By the bytecode: a function from a notebook need not have a source that one could read.
    if code is None or code.co_code not in (_stub.__code__.co_code, _documented.__code__.co_code):
        return False
    # `return 0` has the same bytecode as `return None`: the constants tell them apart.
    return set(code.co_consts) <= {None, ..., answer.__doc__}


# The message about a wrong answer.


def _failure(task: Task, case: Case, failed: Failed) -> str:
    """What to say of a call that failed: a known mistake that fails alike, or what is asked."""
    message = str(failed)
    # The other failures' own words say what to do.
    if not isinstance(failed, calls.Raised):
        return message

    for known, mistake in task.mistakes.items():
        try:
            calls.run(partial(task.observe, mistake, *copy.deepcopy(case)), task.seconds)
        except Failed as alike:
            # After it comes the learner's line.
            if message.startswith(str(alike)):
                return known

    # torch says which sizes do not fit, but not whose they are.
    shapes = _shapes(task, case) if "shape" in message or "size" in message else ""
    text = _joined(message, diagnosis.exception(message), shapes)
    return f"{text}. {_asked(task)}"


def _explain(task: Task, answer: Answer, trials: Sequence[_Trial]) -> str:
    """What to say of wrong results: the first that there is of

    1. a known mistake that gives all results,
    2. a known mistake that gives the first wrong part of all results,
    3. the task's own advice,
    4. a change of the solution that gives all results,
    5. a relation of the wrong results to the right ones, or an input that plays no part,
    6. of tensors and dicts, a known mistake that gives the first wrong result, if each wrong result
       has one,
    7. the first difference as it is, and what is asked.
    """
    mistake = _mistake(task, trials)
    if mistake:
        return mistake

    wrong = [trial for trial in trials if trial.problem]
    first = wrong[0]
    parts = compare.named(first.expected, first.got, task.parts)
    wrong_parts = [name for name, pair in parts.items() if not _equal(task, *pair)]
    mistake = _mistake(task, trials, wrong_parts[0]) if wrong_parts else None
    if mistake:
        return mistake

    given = _given(task, first.case)
    advice = _advice(task, first)
    if advice:
        return _joined(advice, given if task.given else "")

    difference = _joined(first.problem, given)
    correction = _correction(task, trials)
    if correction:
        return f"{correction} ({difference})"

    cause = _cause(task, answer, trials)
    if cause:
        return f"{cause} ({difference}). {_asked(task)}"

    # Several mistakes, each behind some cases. Of a truth or a number one case says little.
    if isinstance(first.expected, (Tensor, Mapping)):
        mistakes = [_mistake(task, [trial]) for trial in wrong]
        if mistakes[0] and all(mistakes):
            return f"{mistakes[0]} ({difference})"
    return f"{difference}. {_asked(task)}"


def _joined(*clauses: str | None) -> str:
    """Clauses in one line; those that say nothing are left out."""
    return "; ".join(clause for clause in clauses if clause)


def _mistake(task: Task, trials: Sequence[_Trial], part: str | None = None) -> str | None:
    """The first known mistake that gives the learner's results, or one part of them."""
    for message, mistake in task.mistakes.items():
        if _agrees(task, mistake, trials, part=part):
            return message
    return None


def _agrees(
    task: Task,
    function: Answer,
    trials: Sequence[_Trial],
    seconds: float | None = None,
    part: str | None = None,
) -> bool:
    """Whether a known mistake, or a changed solution, gives the learner's results in all cases.

    With `part`, only the part of that name is compared. A call that fails, or takes more than
    `seconds` (None: the task's own limit), does not give them.
    """
    for trial in trials:
        inputs = copy.deepcopy(trial.case)
        try:
            result = calls.run(partial(task.observe, function, *inputs), seconds or task.seconds)
        except (Failed, Blank):
            return False
        pair = (result, trial.got)
        if part is not None:
            # None: the function's result has no such part.
            pair = compare.named(result, trial.got, task.parts).get(part)
        if pair is None or not _equal(task, *pair):
            return False
    return True


def _correction(task: Task, trials: Sequence[_Trial]) -> str | None:
    """The first change of the solution that gives the learner's results, if one is found."""
    expected = trials[0].expected
    first = expected[0] if isinstance(expected, (list, tuple)) and expected else expected
    # Words are no numbers, and a few truths are explained by chance.
    if isinstance(first, bool) or not isinstance(first, (Tensor, Number, Mapping)):
        return None

    with warnings.catch_warnings():
        # What a changed solution divides by is no affair of the learner's.
        warnings.simplefilter("ignore")
        try:
            return first_change(task, partial(_agrees, task, trials=trials, seconds=0.2))
        except (OSError, SyntaxError):  # the source is not there, or by now another version's
            return None


def _advice(task: Task, trial: _Trial) -> str | None:
    """What the task itself says of a wrong result, if anything."""
    if task.advise is None:
        return None
    try:
        return task.advise(trial.expected, trial.got)
    except Exception:  # it expects a result of the right kind
        return None


def _cause(task: Task, answer: Answer, trials: Sequence[_Trial]) -> str | None:
    """What is behind the wrong results, in a true sentence; None if nothing is known."""
    wrong = [trial for trial in trials if trial.problem]
    try:
        cause = _common_relation(task, wrong)
    except Exception:  # a learner's result may raise anything when one looks into it
        return None

    # An input that plays no part explains more than gradients that are wrong in some way.
    if cause in (None, diagnosis.WEAK) and "wrong value" in str(wrong[0].problem):
        return _unused(task, answer, trials) or cause
    return cause


def _common_relation(task: Task, wrong: Sequence[_Trial]) -> str | None:
    """How the first wrong result is related to the right one, in a sentence.

    None if no relation is known, or if another case would have to show it, too, and does not.
    """
    equal = partial(_equal, task)
    sentence, *others = [diagnosis.relation(trial.expected, trial.got, equal) for trial in wrong]
    if sentence is None:
        return None

    # Two numbers are related in many ways by chance, and so are lists where several are wrong:
    # another case has to show the same.
    expected = wrong[0].expected
    needs_a_second = isinstance(expected, Number) or (others and isinstance(expected, list))
    if needs_a_second and sentence not in others:
        return None

    # Where the function has a kink, a right answer may have no gradient, either.
    if sentence.startswith("no gradient") and any(other != sentence for other in others):
        return None
    return sentence


def _unused(task: Task, answer: Answer, trials: Sequence[_Trial]) -> str | None:
    """The input that changes the reference's results, but never the learner's, in a sentence.

    None if there is no such input. One whose change makes a function fail is passed over.
    """
    parameters = inspect.signature(task.reference).parameters.values()
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    # A case of another length may be sizes, from which `observe` makes the inputs. And True may
    # stay True although the input plays a part in it.
    first = trials[0]
    if len(first.case) != len(required) or isinstance(first.expected, bool):
        return None

    for place, parameter in enumerate(parameters):
        try:
            changes = _changes(task, answer, trials, place)
        except Exception:  # a changed input may be one that nobody has to accept
            continue
        if changes and not any(changes):
            return f"{parameter.name} plays no part in it"
    return None


def _changes(task: Task, answer: Answer, trials: Sequence[_Trial], place: int) -> list[str | None]:
    """How the learner's results change when the input at one place is another.

    Only for the cases in which the reference's results change.
    """
    changes = []
    for trial in trials:
        if place >= len(trial.case):
            continue
        case = [*trial.case]
        case[place] = _another(case[place])
        expected = task.observe(task.reference, *copy.deepcopy(case))
        if compare.difference(trial.expected, expected):
            got = calls.run(partial(task.observe, answer, *copy.deepcopy(case)), task.seconds)
            changes.append(compare.difference(trial.got, got))
    return changes


def _another(value: Any) -> Any:
    """Another value of the same kind, where there is one to be had: not of indices and sizes."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return ~value
    if isinstance(value, Tensor) and value.dtype != torch.int64:
        return 1.25 * value.roll(1)
    if isinstance(value, float):
        return 1.25 * value
    return value


def _shapes(task: Task, case: Case) -> str:
    """The shapes of the inputs, as "with a (5, 5, 4), h (5, 3)"; "" if none is a tensor."""
    names = inspect.signature(task.reference).parameters
    shapes = []
    for name, value in zip(names, case, strict=False):
        if isinstance(value, Tensor):
            shapes.append(f"{name} {tuple(value.shape)}")
    return f"with {', '.join(shapes)}" if shapes else ""


def _given(task: Task, case: Case) -> str:
    """The inputs of a case, as "given i = 7, size = 100"; "" if they are long, or hold tensors.

    They are in the task's own words if it has any.
    """
    if task.given is not None:
        return f"given {task.given(*case)}"
    names = inspect.signature(task.reference).parameters
    text = ", ".join(f"{name} = {value!r}" for name, value in zip(names, case, strict=False))
    # The repr of a tensor is numbers without end, and that of a function or object its address.
    if not text or len(text) > 100 or re.search(r"tensor\(|<", text):
        return ""
    return f"given {text}"


def _asked(task: Task) -> str:
    """What is asked, in a sentence without its stop: the first paragraph of the docstring."""
    docstring = inspect.getdoc(task.reference) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return f"The task: {paragraph}".rstrip(".")
