"""Every exercise: blank, right (in several ways of writing), wrong (each known mistake by its own name); and as notebooks."""

import contextlib
import io
from collections import Counter

import nbformat
import pytest
from tools_path import exercises

from satlib.exercises import Wrong, check, reference, task
from satlib.exercises.engine import chapter, is_blank

CHAPTERS = range(1, 10)
TASKS = [each for number in CHAPTERS for each in chapter(number).values()]
SOURCES = exercises.sources()


def verdict(id, answer):
    """What `check` says: the message of Wrong, or the line that it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            check(id, answer)
    except Wrong as wrong:
        return str(wrong)
    return printed.getvalue().strip()


def ids(value):
    return getattr(value, "id", None)


def run(source, with_solutions):
    """Run a notebook's cells one after the other; what each cell of an exercise raised: (exercise, role) -> Wrong or None."""
    found, names = {}, {"__name__": "notebook"}
    for cell in exercises.generate(source, with_solutions).cells:
        if cell.cell_type != "code":
            continue
        place = cell.metadata.get("satlib", {})
        raised = None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(cell.source, f"<{source.stem}>", "exec"), names)
        except Wrong as wrong:
            raised = wrong
        if place:
            found[place["exercise"], place["role"]] = raised
    return found


def test_there_are_enough():
    assert len(TASKS) >= 40
    assert all(len(chapter(number)) >= 4 for number in CHAPTERS)
    assert [source.stem[:2] for source in SOURCES] == [f"{number:02}" for number in CHAPTERS]
    assert len({each.id for each in TASKS}) == len(TASKS)
    assert {each.difficulty for each in TASKS} == {1, 2, 3}


@pytest.mark.parametrize("asked", TASKS, ids=ids)
class TestTask:
    def test_is_described(self, asked):
        assert asked.title
        assert asked.equation
        assert asked.minutes > 0
        assert len(asked.cases()) >= 1

    def test_blank(self, asked):
        def answer(*inputs):
            """Only a docstring."""

        assert verdict(asked.id, answer) == f"{asked.id} is blank: write {asked.name}()"

    def test_reference(self, asked):
        assert f"{asked.id} is right: {asked.says}." in verdict(asked.id, reference(asked.id))
        assert reference(asked.id) is asked.reference

    def test_other_right_answers(self, asked):
        assert asked.others
        for other in asked.others:
            assert f"{asked.id} is right" in verdict(asked.id, other)

    def test_named_mistakes(self, asked):
        assert len(asked.mistakes) >= 3
        for message, mistake in asked.mistakes.items():
            assert verdict(asked.id, mistake) == f"{asked.id} is wrong: {message}"
            assert len(message) < 160

    def test_an_answer_of_zeros_is_wrong(self, asked):
        """Something that is no known mistake is wrong too, and the message says what was expected."""

        def answer(*inputs):
            return object()

        said = verdict(asked.id, answer)
        assert said.startswith(f"{asked.id} is wrong: ")
        assert len(said.splitlines()) <= 2
        assert "expected" in said


def test_messages_are_not_said_twice_in_a_task():
    for each in TASKS:
        beginnings = Counter(message.split(":")[0] for message in each.mistakes)
        assert max(beginnings.values()) == 1, each.id


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
class TestNotebook:
    def test_solutions_are_right(self, source):
        found = run(source, with_solutions=True)
        assert {place: raised for place, raised in found.items() if raised} == {}

    def test_as_generated_exactly_the_checks_fail_and_say_blank(self, source):
        found = run(source, with_solutions=False)
        failed = {exercise: raised for (exercise, role), raised in found.items() if raised}
        assert {role for (_, role), raised in found.items() if raised} == {"check"}
        assert list(failed) == list(chapter(int(source.stem[:2])))
        for exercise, raised in failed.items():
            assert raised.blank
            assert str(raised) == f"{exercise} is blank: write {task(exercise).name}()"

    def test_stubs_name_their_task_and_have_types_and_shapes(self, source):
        for cell in exercises.generate(source, with_solutions=False).cells:
            if cell.metadata.get("satlib", {}).get("role") != "answer":
                continue
            exercise = cell.metadata["satlib"]["exercise"]
            assert f'"""Exercise {exercise}: ' in cell.source
            assert f"# {exercise}: your code here" in cell.source
            assert "->" in cell.source
            assert "SOLUTION" not in cell.source
            names = {}
            exec("from collections.abc import *\nfrom torch import Tensor\n" + cell.source, names)
            assert is_blank(names[task(exercise).name])

    def test_each_has_its_three_folds_and_the_solution_only_there(self, source):
        cells = exercises.generate(source, with_solutions=False).cells
        folded = [cell.source for cell in cells if "<details>" in cell.source]
        assert len(folded) == len(chapter(int(source.stem[:2])))
        for text in folded:
            assert [text.count(f"<summary>{title}</summary>") for title in ("Hint", "Pseudocode", "Solution")] == [
                1,
                1,
                1,
            ]
            assert "SOLUTION" not in text

    def test_committed_notebooks_are_what_the_source_gives(self, source):
        path = exercises.EXERCISES / f"{source.stem}.ipynb"
        if exercises.edited(nbformat.read(path, 4)):
            pytest.skip("somebody has worked in this notebook")
        assert exercises.cells_of(nbformat.read(path, 4)) == exercises.cells_of(exercises.generate(source, False))
