"""Every exercise: blank, right (in several ways of writing), wrong (each known mistake by its own name); and as notebooks."""

import contextlib
import functools
import io
import re

import matplotlib
import nbformat
import numpy as np
import pytest
import torch
from right_answers import RIGHT
from tools_path import editions, exercises

import notebooks
from satcourse.exercises import Wrong, carry_on, check, engine, ex07, progress, reference, reveal, task
from satcourse.exercises.engine import chapter, is_blank
from satcourse.exercises.task import KINDS

TASKS = [each for number in engine.CHAPTERS for each in chapter(number).values()]
SOURCES = exercises.sources()
PROJECT = task("10.6")


def verdict(id, answer):
    """What `check` says: the message of Wrong, or the line that it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            check(id, answer)
    except Wrong as wrong:
        return str(wrong)
    return printed.getvalue().strip()


@functools.cache
def generated(source):
    """The cells of a notebook of exercises."""
    return exercises.generate(source, editions.WORK).cells


def run(source, with_solutions):
    """Run a notebook's cells one after the other; what each cell of an exercise raised: (exercise, role) -> Wrong or None.

    Only its imports and tasks: `make notebooks` and `make exercises-check` run the rest, which trains.
    """
    found, names = {}, {"__name__": "notebook"}
    for cell in exercises.generate(source, editions.SOLVED if with_solutions else editions.WORK).cells:
        place = cell.metadata.get("satlib", {})
        if cell.cell_type != "code" or not (place or cell.source.startswith(("import ", "from "))):
            continue
        raised = None
        try:
            with contextlib.redirect_stdout(io.StringIO()), matplotlib.rc_context():
                exec(compile(cell.source, f"<{source.stem}>", "exec"), names)
        except Wrong as wrong:
            raised = wrong
        if place:
            found[place["exercise"], place["role"]] = raised
    return found


def test_there_are_enough():
    assert len(TASKS) >= 40
    assert all(len(chapter(number)) >= 4 for number in engine.CHAPTERS)
    assert sum(each.minutes for each in TASKS) <= 600
    assert [source.stem[:2] for source in SOURCES] == [f"{number:02}" for number in engine.CHAPTERS]
    assert len({each.id for each in TASKS}) == len(TASKS)
    assert {each.difficulty for each in TASKS} == {1, 2, 3}
    assert {each.kind for each in TASKS} == set(KINDS)
    assert all((each.start is not None) == (each.kind == "bug") for each in TASKS)


def in_other_types(result):
    """A result in double precision, with lists for tuples and tuples for lists."""
    if isinstance(result, torch.Tensor):
        return result.double() if result.is_floating_point() else result
    return (
        {tuple: list, list: tuple}[type(result)](map(in_other_types, result))
        if isinstance(result, (tuple, list))
        else result
    )


def blank(*inputs):
    """Only a docstring."""


def test_the_card_of_each_task():
    """Described; blank as long as nothing is written or satlib's own function is there; at most five mistakes, told apart at once."""
    failures = []
    for each in TASKS:
        beginnings = {message.split(":")[0] for message in each.mistakes}
        for holds in (
            each.title and each.minutes > 0 and each.says and each.cases(),
            RIGHT[each.id],
            3 <= len(each.mistakes) <= 5,
            len(beginnings) == len(each.mistakes),
            max(map(len, each.mistakes)) < 160,
            verdict(each.id, blank) == f"{each.id} is blank: {each.todo}",
            verdict(each.id, each.reference).startswith(
                f"{each.id} is blank: {each.name} is satlib's own function now"
            ),
        ):
            failures += [] if holds else [each.id]
    assert failures == []


@pytest.mark.parametrize("number", engine.CHAPTERS)
class TestVerdicts:
    def test_right_answers(self, number):
        """The reference, also in other types, and others."""
        failures = []
        for each in chapter(number).values():
            right = f"{each.id} is right: {each.says}."
            answers = [lambda *inputs, task=each: task(*inputs), *RIGHT[each.id]]
            if each is not PROJECT:  # which is slow
                answers.append(lambda *inputs, task=each: in_other_types(task(*inputs)))
            failures += [said for answer in answers if right not in (said := verdict(each.id, answer))]
        assert failures == []

    @pytest.mark.slow
    def test_wrong_answers(self, number):
        """Each mistake by its own name; of something that is none, what was expected."""
        failures = []
        for each in chapter(number).values():
            for message, mistake in each.mistakes.items():
                said = verdict(each.id, mistake)
                failures += [] if said == f"{each.id} is wrong: {message}" else [f"{message} -> {said}"]
            said = verdict(each.id, lambda *inputs: object())
            # What a check looks at, a dict, is no affair of the learner's.
            if not re.match(rf"{each.id} is wrong: .*expected", said) or "a dict" in said or "\n" in said:
                failures.append(said)
        assert failures == []


def test_progress(monkeypatch):
    """What is done, wrong, blank and next, by the latest check of each; a wrong one after a right one counts."""
    monkeypatch.setattr(engine, "_VERDICTS", {})
    for id, answer in (("5.1", reference("5.1")), ("5.2", lambda alphas: 0), ("5.3", None)):
        verdict(id, answer if id != "5.1" else lambda C, L: reference("5.1")(C, L))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        progress(5)
    assert out.getvalue().splitlines() == [
        "1 of 7 done: 5.1",
        "not right yet: 5.2",
        "blank: 5.3",
        f"next: 5.2 The penalty (4 minutes); about {sum(each.minutes for each in list(chapter(5).values())[1:])} minutes are left in this notebook",
    ]
    verdict("5.1", lambda C, L: 0)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        progress(5)
    assert out.getvalue().startswith("0 of 7 done\nnot right yet: 5.1, 5.2\n")


def test_what_passed_its_check_is_what_later_cells_use(monkeypatch, capsys):
    monkeypatch.setattr(engine, "_PASSED", {})

    def mine(alphas):
        return reference("5.2")(alphas)

    assert carry_on("5.2") is reference("5.2")
    assert capsys.readouterr().out == "penalty() is satlib's own from here on, until yours passes check 5.2\n"
    verdict("5.2", mine)
    assert carry_on("5.2") is mine
    assert capsys.readouterr().out == ""
    verdict("5.2", lambda alphas: 0)
    assert carry_on("5.2") is reference("5.2")


def test_a_guess_stands_beside_the_truth(capsys):
    reveal("objects named right", ..., 187)
    reveal("nats", 0.5, 0.98765)
    assert capsys.readouterr().out == "objects named right: 187\nnats: 0.988 (you guessed 0.5)\n"


class TestKinds:
    def test_a_bug_is_wrong_and_not_what_is_right(self):
        """What the learner is given differs from the reference in every task of this kind, and is named as still there."""
        for asked in TASKS:
            if asked.kind == "bug":
                given = functools.wraps(asked.reference)(lambda *inputs, start=asked.start: start(*inputs))
                assert verdict(asked.id, given) == f"{asked.id} is blank: the bug is still there"

    def test_each_letter_has_an_answer_of_its_own(self):
        texts = {source.stem[:2]: generated(source) for source in SOURCES}
        for asked in (each for each in TASKS if each.kind == "explain"):
            letters = [mistake() for mistake in asked.mistakes.values()]
            assert sorted([*letters, asked.reference()]) == ["a", "b", "c", "d"]
            cells = texts[f"{int(asked.id.split('.')[0]):02}"]
            said = next(cell.source for cell in cells if cell.source.startswith(f"## {asked.id} "))
            assert re.findall(r"^- \*\*([a-d])\.\*\* ", said, re.MULTILINE) == ["a", "b", "c", "d"]
            assert "expected one of the letters a, b, c, d, got 'e'" in verdict(asked.id, lambda: "e")

    def test_a_prediction_that_is_off_learns_the_direction_and_not_the_number(self):
        for asked in (each for each in TASKS if each.kind == "predict"):
            truth = float(asked.reference())
            for factor, word in ((3.1, "smaller"), (0.21, "larger")):
                said = verdict(asked.id, lambda number=factor * truth: number)
                assert f"expected a {word} number than" in said
                assert not re.search(rf"(?<![\d.]){re.escape(f'{truth:.4g}')}(?!\.?\d)", said)


# No mistake of a task's foresees these; what the results have to do with the right ones explains them.
RELATED = {
    "1.3": {
        "padding has a weight of 0.5": lambda e, mask: torch.softmax(e, 1),
        "padding has a weight of 0.2": lambda e, mask: torch.softmax(e * mask, 1),
    },
    "2.1": {"axes are exchanged": lambda maps: maps.flatten(2)},
    "2.2": {"the values are right, in reverse order": lambda *x: reference("2.2")(*x)[::-1]},
    "2.3": {"every value is 1 too small": lambda layers: reference("2.3")(layers) - 1},
    "3.4": {
        "how often each caption comes": lambda *x: reference("3.4")(*x)[1:],
        "batches that are too large": lambda lengths, size: reference("3.4")(lengths, len(lengths)),
    },
    "3.6": {"only the first ones are missing along axis 1": lambda words, E: (E[words[:, :-1]], words[:, 1:])},
    "4.2": {
        "do not sum to one over the places: a sum is 0.4": lambda e: torch.softmax(e.flatten(), 0).view(e.shape),
        "do not sum to one over the places: a sum is 7": torch.exp,
    },
    "5.2": {"this is the sum of the expected values": lambda alphas: reference("5.2")(alphas).sum()},
    "5.4": {"the mean of its values along axis 0": lambda p, a, w: -p.sum(1) + w * reference("5.2")(a)},
    "5.5": {
        "do not sum to one over the words": lambda alpha, n: (alpha.unsqueeze(2) * n).sum(1),
        "the sum of its values along axis 1": lambda alpha, n: alpha.unsqueeze(2) * torch.softmax(n, 2),
    },
    "5.6": {"do not sum to one over the words": lambda alpha, n: (torch.softmax(n, 2) ** alpha.unsqueeze(2)).prod(1)},
    "6.1": {"every value is 1 too large": lambda *x: reference("6.1")(*x) + 1},
    "6.3": {"every value has the wrong sign": lambda *x: -reference("6.3")(*x)},
    "6.4": {"neither is detached": lambda b, log_p: (log_p - b, 0.9 * b + 0.1 * log_p.mean())},
    "6.6": {"every value has the wrong sign": lambda *x: -reference("6.6")(*x)},
    "7.1": {"the beginning is right, and then more follows": lambda table, longest: reference("7.1")(table, 50)},
    "7.3": {"do not sum to one over the words": lambda p, share: p * (reference("7.3")(p, share) > 0)},
    "7.6": {
        "every value is 0.01 times the expected one": lambda *x: tuple(share / 100 for share in reference("7.6")(*x)),
        "the values are right, in reverse order": lambda *x: reference("7.6")(*x)[::-1],
    },
    "8.5": {"this is the sum of the expected values": lambda alphas: reference("8.5")(alphas).sum()},
    "9.2": {"every value is 1 minus the expected one": lambda *x: 1 - reference("9.2")(*x)},
}


class TestWhatIsSaid:
    """Answers of learners that no mistake of a task's foresees."""

    def test_what_is_said_of_related_results(self):
        said = {(id, words): verdict(id, answer) for id, each in RELATED.items() for words, answer in each.items()}
        wrong = {place: words for place, words in said.items() if f"{place[0]} is wrong: " not in words}
        assert wrong == {}
        assert {place: words for place, words in said.items() if place[1] not in words} == {}

    def test_what_cannot_be_looked_into_is_held_against_the_reference(self):
        for id, answer, beginning in (
            ("2.2", lambda *_: np.zeros(2), "expected a tuple of 2, got a numpy array of shape (2,); given i = 0, "),
            ("4.3", lambda e, a: a[:, 0], "expected a tuple of 2, got a tensor of shape (2, 4)"),
            ("6.3", lambda log_p, reward, b: log_p * reward, "wrong shape: expected (), got (4,)"),
            ("6.6", lambda *x: x[0].sum(1), "wrong shape: expected (), got (3,)"),
            ("3.4", lambda lengths, size: 3, "expected a list of 5, got an int; given "),
            ("8.2", lambda sizes: len(sizes), "expected a list of 3, got an int"),
        ):
            assert verdict(id, answer).startswith(f"{id} is wrong: {beginning}")
        for id in ("6.3", "6.6"):  # a loss that is cut off
            for cut in (lambda loss: loss.detach(), lambda loss: loss.item()):
                said = verdict(id, lambda *x, id=id, cut=cut: cut(reference(id)(*x)))
                assert said.startswith(f"{id} is wrong: nothing is left to learn from: ")

    def test_by_chance_the_same_truth_value_or_whole_number_names_no_mistake(self):
        # Wrong in the last game alone, where some mistake gives False too.
        def no_edge(alpha, mask, tolerance):
            return reference("9.1")(alpha, mask, tolerance - 1e-3)

        assert verdict("9.1", no_edge) == (
            "9.1 is wrong: expected True, got False; given the peak at row 2, column 2, whose middle is at (17, 17), "
            "the object's nearest pixel at (17, 20), 3 away, tolerance = 3"
        )
        said = "2.3 is wrong: wrong value: expected 3, got 4; every value is 1 too large; given layers = [(3, 1)]"
        assert verdict("2.3", lambda layers: reference("2.3")(layers) + 1) == said

    def test_of_several_mistakes_the_likest_is_named(self):
        """Small letters are right here; in the caption that is wrong first, one that keeps capitals would give the same."""

        def words(caption):
            return [word for word in re.findall(r"[\w'-]*", caption.lower()) if word] + ([] if caption else [""])

        assert "not inside a word is kept" in verdict("3.1", words)

    def test_a_mistake_is_not_named_where_most_results_speak_against_it(self):
        """With the words the wrong way round one model's caption is as if only the last word counted; the others' are not."""

        def backwards(next_words, longest):
            words = []
            while len(words) < longest and "(end)" not in words:
                following = next_words(tuple(words[::-1]))
                words.append(max(following, key=following.get))
            return words

        assert verdict("7.1", backwards) == "7.1 is wrong: expected 4 elements, got 3: ['a', 'dog', '(end)']"

    def test_a_guess_is_not_told_the_answer(self):
        for guess in ((3, "red", "other"), (10, "star", "own"), (10, "square", "both")):
            said = verdict("9.4", lambda guess=guess: guess)
            assert "expected another, got " in said
            assert "square" not in said.removesuffix(f"got {guess[1]!r}")

    def test_a_model_of_words_takes_a_tuple_and_cannot_be_spoilt(self):
        def spoil(next_words, longest):
            words = []
            while len(words) < longest and "(end)" not in words:
                following = next_words(tuple(words))
                words.append(max(following, key=following.get))
                following.clear()
            return words

        verdict("7.1", spoil)
        assert ex07.STORY(()) == {"a": 0.6, "the": 0.4}
        assert "unhashable type: 'list'" in verdict("7.1", lambda next_words, longest: [next_words([])])

    def test_batches_need_not_be_full(self):
        """Five of a length, two at most in a batch: three batches, however they are filled; and an empty one is one too many."""
        right = reference("3.4")
        assert "3.4 is right" in verdict("3.4", lambda lengths, size: [np.array(each) for each in right(lengths, size)])
        said = verdict("3.4", lambda lengths, size: [*right(lengths, size), []])
        assert said == "3.4 is wrong: there is an empty batch: leave it out"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
class TestNotebook:
    def test_solutions_are_right(self, source):
        found = run(source, with_solutions=True)
        failed = {place for place, raised in found.items() if raised}
        assert failed <= {(PROJECT.id, "check")}  # it trains; `make exercises-check` runs it

    def test_as_generated_exactly_the_checks_fail_and_say_blank(self, source):
        found = run(source, with_solutions=False)
        failed = {exercise: raised for (exercise, role), raised in found.items() if raised}
        assert {role for (_, role), raised in found.items() if raised} == {"check"}
        assert list(failed) == list(chapter(int(source.stem[:2])))
        for exercise, raised in failed.items():
            assert raised.blank
            assert str(raised) == f"{exercise} is blank: {task(exercise).todo}"

    def test_answers_are_stubs_that_name_their_task_and_have_types(self, source):
        for cell in generated(source):
            if cell.metadata.get("satlib", {}).get("role") != "answer":
                continue
            exercise = cell.metadata["satlib"]["exercise"]
            assert "->" in cell.source
            assert "SOLUTION" not in cell.source
            if task(exercise).kind == "bug":  # it has code, the wrong one
                assert "your code here" not in cell.source
                continue
            assert f"# {exercise}: your code here" in cell.source
            names = {}
            exec("import torch\nfrom collections.abc import *\nfrom torch import Tensor, nn\n" + cell.source, names)
            assert is_blank(names[task(exercise).name])

    def test_folds(self, source):
        number, texts = int(source.stem[:2]), [cell.source for cell in generated(source)]
        folded = [text for text in texts if "<summary>Hint</summary>" in text]
        for text, each in zip(folded, chapter(number).values(), strict=True):  # in the order of the tasks
            assert text.count("<summary>Solution</summary>") == 1
            assert text.count("<summary>Pseudocode</summary>") <= (each.kind == "write")
            assert "SOLUTION" not in text

    def test_committed_notebooks_are_what_the_source_gives(self, source):
        notebook = nbformat.read(exercises.ROOT / "exercises" / f"{source.stem}.ipynb", 4)
        if exercises.edited(notebook):
            pytest.skip("somebody has worked in this notebook")
        assert notebooks.cells_of(notebook) == notebooks.cells_of(nbformat.v4.new_notebook(cells=generated(source)))
