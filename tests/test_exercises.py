"""Every exercise: blank, right (in several ways), wrong (each known mistake by its own name); and
as notebooks.
"""

import contextlib
import io
import re
from functools import partial

import matplotlib
import numpy as np
import pytest
import torch
from right_answers import RIGHT
from tools_path import editions, exercises, notebooks

from satcourse.checks import (
    Wrong,
    carry_on,
    check,
    compare,
    diagnosis,
    engine,
    progress,
    reference,
)
from satcourse.checks.engine import chapter
from satcourse.checks.task import Task


def verdict(id, answer):
    """What `check` says: the message of Wrong, or the line that it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            check(id, answer)
    except Wrong as wrong:
        return str(wrong)
    return printed.getvalue().strip()


# A blank is known by its bytecode, whatever its name and its arguments are.
def blank(*inputs):
    """Only a docstring."""


@pytest.mark.parametrize("number", engine.CHAPTERS)
class TestVerdicts:
    def test_blank_as_long_as_nothing_is_written_or_satlibs_own_is_there(self, number):
        for asked in chapter(number).values():
            assert verdict(asked.id, blank) == f"{asked.id} is blank: {asked.todo}"
            own = f"{asked.id} is blank: {asked.name} is satlib's own function now"
            assert verdict(asked.id, asked.reference).startswith(own)

    def test_right_answers(self, number):
        """The reference, and others, written independently of it.

        `satlib check` runs one more, the solution.
        """
        for asked in chapter(number).values():
            # In a function of its own: the reference itself would be satlib's own, and blank.
            answers = [lambda *inputs, asked=asked: asked(*inputs), *RIGHT[asked.id]]
            for answer in answers:
                assert f"{asked.id} is right: {asked.says}." in verdict(asked.id, answer)

    def test_wrong_answers(self, number):
        """Each mistake by its own name; of something that is none, what was expected."""
        # All of a notebook's in one list, so that one run shows all that is to be done.
        failures = []
        for asked in chapter(number).values():
            for message, mistake in asked.mistakes.items():
                text = verdict(asked.id, mistake)
                if text != f"{asked.id} is wrong: {message}":
                    failures.append(f"{message} -> {text}")

            text = verdict(asked.id, lambda *inputs: object())
            expected = re.match(rf"{asked.id} is wrong: .*expected", text)
            # A check's dict is no affair of the learner's.
            if not expected or "a dict" in text or "\n" in text:
                failures.append(text)
        assert failures == []


def test_progress(monkeypatch, capsys):
    """What is done, wrong, blank and next, by the latest check of each; a wrong one after a right
    one counts.
    """
    monkeypatch.setattr(engine, "_VERDICTS", {})
    verdict("5.1", lambda C, L: reference("5.1")(C, L))
    verdict("5.2", lambda alphas: 0)
    verdict("5.3", None)

    progress(5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["1 of 8 done: 5.1", "not right yet: 5.2", "blank: 5.3"]
    # All but the first are left.
    tasks = list(chapter(5).values())
    minutes = sum(task.minutes for task in tasks[1:])
    assert lines[3:] == [
        f"next: 5.2 The penalty (4 minutes); about {minutes} minutes are left in this notebook"
    ]

    verdict("5.1", lambda C, L: 0)
    progress(5)
    assert capsys.readouterr().out.startswith("0 of 8 done\nnot right yet: 5.1, 5.2\n")


def test_what_passed_its_check_is_what_later_cells_use(monkeypatch, capsys):
    monkeypatch.setattr(engine, "_PASSED", {})

    def mine(alphas):
        return reference("5.2")(alphas)

    assert carry_on("5.2") is reference("5.2")
    line = "penalty() is satlib's own from here on, until yours passes check 5.2\n"
    assert capsys.readouterr().out == line

    verdict("5.2", mine)
    assert carry_on("5.2") is mine

    # Changed for the worse.
    verdict("5.2", lambda alphas: 0)
    assert carry_on("5.2") is reference("5.2")


# (exercise, answer, what is said of it); an answer with f is given the reference.
ANSWERS = (
    (
        "5.1",
        lambda *_: np.zeros(2),
        "expected a number, got a numpy array of shape (2,); given C = 14, L = 49",
    ),
    (
        "4.3",
        lambda f, e, a: a[:, 0],
        "expected a tuple of 2, got a tensor of shape (4, 4)",
    ),
    (
        "6.3",
        lambda f, log_p, reward, b: log_p * reward,
        "wrong shape: expected (), got (4,)",
    ),
    (
        "11.3",
        lambda f, p, w: (p + w) * [0],
        "wrong shape: expected (4, 4), got (4,); given",
    ),
    (
        "6.4",
        lambda f, p, *x: f(p * 0 + 1 / len(p), *x),
        "p plays no part in it (the bias",
    ),
    (
        "4.4",
        lambda f, *x: f(*x)[::-1],
        "These are the numbers with h and c exchanged (h: wrong value",
    ),
    (
        "3.2",
        lambda f, words, size: f(words, size + 1),
        "1 too many at the end (expected ['a', ",
    ),
    (
        "3.5",
        lambda f, *x: 8 * f(*x),
        "8 times what is asked for (the mean: wrong value",
    ),
    (
        "5.3",
        lambda f, *x: f(*x).requires_grad_(),
        "a result holds its graph",
    ),
    (
        "11.1",
        lambda f, q, k, h, *_: f(q, k, h),
        "These are the numbers without the masked_fill of visible (",
    ),
    (
        "11.7",
        lambda f, k, h: [h * x for x in f(k, h)],
        "the mean over the sizes is missing",
    ),
    # Kind and shape before values, and values before gradients.
    ("1.1", lambda f, *x: [w.argmax() for w in f(*x)], "axis 0 is gone: a sum, an argmax"),
    ("6.1", lambda f, *x: f(*x).float(), "expected a tensor of torch.int64, got"),
    (
        "4.6",
        lambda f, *x: [torch.stack(p.unbind(1)[1:], 1) for p in f(*x)],
        "1 missing at the beginning of axis 1 (logits: wrong shape",
    ),
    ("1.8", lambda f, *x: [*zip(*f(*x))], "the results go together place by place"),  # noqa: B905
    ("3.1", lambda f, text: text.lower().split(), "'runs.' is no word: "),
    (
        "3.1",
        lambda f, text: [w for x in f(text) for w in x.split("-")],
        "'t-shirt' is one word: '-'",
    ),
    ("3.4", lambda f, *x: [[i for i in b if i] for b in f(*x)], "caption 0 is in no batch"),
    ("3.4", lambda f, *x: 2 * f(*x), "caption 0 comes 2 times"),
    ("4.6", lambda f, *x: [p[:, :-1] for p in f(*x)], "1 missing at the end of axis 1 ("),
    (
        "5.2",
        lambda f, x: f(x).sum() / 3,
        "axis 0 is gone: a sum, an argmax or an index too many? (",
    ),
    ("5.5", lambda f, x: f(x) + x.log().sum((1, 2), keepdim=True)[0] * 0, "not a number"),
    # A known mistake in one part, and another in the next; one in the first wrong case alone.
    (
        "5.7",
        lambda f, alpha, n: (torch.einsum("bl,blk->bk", alpha, n.softmax(2)), f(alpha, n)[1] * 0),
        "a mean of probabilities is the marginal",
    ),
    (
        "6.1",
        lambda f, alpha, darts: (darts[:, None] > alpha.cumsum(1)).sum(1),
        "a dart on an edge hits the place that begins there (",
    ),
    # What explains one case, and not the others, is not said.
    (
        "6.1",
        lambda f, alpha, darts: (
            (darts[:, None] > alpha.cumsum(1)).sum(1) if len(darts) > 1 else torch.ones(1).long()
        ),
        "wrong value at",
    ),
    # Another alpha would have a row of zeros, which multinomial refuses.
    ("6.1", lambda f, alpha, darts: alpha.multinomial(1)[:, 0], "darts plays no part in it ("),
    ("6.2", lambda f, p, q, *x: (p(()), 0), "path[:0] is empty"),
    ("7.1", lambda f, p, a, *x: f(p, a, *x) + (a * a.log()).sum() * 0, "not a number"),
    ("4.8", lambda f, *x: (f(*x), x[1]), "expected logits and nothing else, each a tensor"),
    ("5.8", lambda f, nll, t: f(nll.flip(0), t), "a cost is what the penalty adds"),
    ("5.1", lambda f, C, L: max(0, L - C), "expected less: share out"),
    ("5.1", lambda f, C, L: f(C, L) / 2, "expected more: C words"),
    ("12.1", lambda f, x, *y: x.copy_(f(x, *y)), "it changes its input x"),
    ("5.2", lambda f, x: f(x).detach().numpy(), "keep to tensors"),
    # A tie, a zero, a silent caption, a capital, a list for a prefix.
    ("0.1", lambda f, p, q: f(p + 1e-6, q), "as likely as the quantile is not likelier"),
    (
        "2.4",
        lambda f, signal, modules, pooled: f(signal, modules, pooled[1:]),
        "it raises IndexError: pop from empty list; more is taken off the list than is in it",
    ),
    ("8.4", lambda f, *x: 1 / (1 / f(*x)), "it raises ZeroDivisionError"),
    (
        "8.7",
        lambda f, x, y: f(*zip(*filter(all, zip(x, y, strict=True)), strict=True)),
        "captions that say nothing are left out",
    ),
    ("8.8", lambda f, x: f(x).title(), "the lie is not in small letters"),
    ("8.1", lambda f, words, *x: words(["a"]), "next_words wants a tuple"),
    ("8.9", lambda f, *x: 100 * f(*x), "100 times what is asked for: percent, and not a share?"),
    ("0.1", lambda f, *x: f(*x).nonzero()[:, 0], "these are the places of True"),
    ("11.3", lambda f, *x: f(*x).float(), "True or False is asked for, not numbers"),
    ("11.4", lambda f, *x: [f(*x)[0], *f(*x)[1]], "all are there, but some of them belong"),
)


class TestWhatIsSaid:
    """Answers of learners that no mistake of a task's foresees."""

    def test_what_cannot_be_looked_into_is_compared_with_the_reference(self):
        for id, answer, beginning in ANSWERS:
            text = verdict(id, partial(answer, reference(id)))
            assert text.startswith(f"{id} is wrong: {beginning}"), text

    def test_another_form_of_the_right_numbers_is_right(self):
        for id, form in (
            ("0.1", torch.Tensor.numpy),
            ("1.3", lambda parts: [part.numpy() for part in parts]),
            ("1.1", iter),
            ("1.7", torch.stack),
            ("2.5", list),
        ):
            text = verdict(id, lambda *x, id=id, form=form: form(reference(id)(*x)))
            assert f"{id} is right" in text, text

    def test_a_loss_that_is_cut_off(self):
        for id in ("6.3", "7.1"):
            for cut in (torch.Tensor.detach, torch.Tensor.item):
                text = verdict(id, lambda *x, id=id, cut=cut: cut(reference(id)(*x)))
                assert text.startswith(f"{id} is wrong: nothing is left to learn from: ")


@pytest.mark.parametrize("source", notebooks.sources(), ids=lambda source: source.stem)
def test_in_a_workbook_as_generated_exactly_the_checks_fail_and_say_blank(source):
    """Its imports and tasks are run; `make exercises-check` runs the solutions, whole."""
    failed = []
    names = {"__name__": "notebook"}
    cells = exercises.generate(source, editions.WORK).cells
    for cell in cells:
        place = cell.metadata.get("satlib", {})
        needed = place or cell.source.startswith(("import ", "from "))
        if cell.cell_type != "code" or not needed:
            continue

        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            # A notebook changes the settings of its own process only.
            stack.enter_context(matplotlib.rc_context())
            stack.enter_context(torch.enable_grad())
            try:
                exec(compile(cell.source, f"<{source.stem}>", "exec"), names)
            except Wrong as wrong:
                failed.append((place["role"], str(wrong)))

    tasks = chapter(int(source.stem[:2])).values()
    assert failed == [("check", f"{task.id} is blank: {task.todo}") for task in tasks]

    # What any cell calls is there while it is blank: the workbook runs to its end.
    code = [cell.source for cell in cells if "exercise" not in str(cell.metadata)]
    for task in tasks:
        if any(re.search(rf"\b{task.name}\(", text) for text in code):
            assert f'carry_on("{task.id}")' in str(cells)


def test_what_is_said_of_a_result_keeps_to_the_tolerance_of_the_task():
    """It is about what the check refuses: here b, and not a."""

    def pair(x):
        return x, x**3

    exercise = Task("0.0", "pair", "A pair", 1, 1, "", pair, tolerance=1e-2, parts=("a", "b"))
    exercise.cases = lambda: [(torch.linspace(-1, 2, 5),)]
    with pytest.raises(Wrong, match=r"wrong: 2 times what is asked for .b: wrong value"):
        engine._judge(exercise, lambda x: (1.005 * x, 2 * x**3))

    # A stricter task than most refuses what is nearly equal.
    x = torch.linspace(-1, 2, 5)
    for one, other in (({"a": x}, {"a": 1.00005 * x}), ([1.0, 2.0], [1.0, 2.0001])):
        assert (
            diagnosis.relation(one, other, lambda *two: not compare.difference(*two, 1e-6)) is None
        )
