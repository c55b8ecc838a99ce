"""A class of four made-up learners: the matrix, points, and what is due."""

import json

import nbformat
import pytest
from tools_path import SMALL, exercises

from satcourse.exercises import class_seed, grading, reference, task
from satcourse.exercises.engine import chapter
from satcourse.exercises.grading import ExerciseResult
from satlib import cli

COUNT = len(chapter(5))


def hand_in(folder, solved=False, changes=None):
    """Notebook 05, as generated or solved, with some answers replaced."""
    notebook = exercises.generate(SMALL, with_solutions=solved)
    for cell in notebook.cells:
        place = cell.metadata.get("satlib", {})
        if place.get("role") == "answer" and place["exercise"] in (changes or {}):
            cell.source = changes[place["exercise"]]
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / f"{SMALL.stem}.ipynb")


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """All right, nothing, one wrong, and a part of it in a folder below."""
    root = tmp_path_factory.mktemp("class")
    hand_in(root / "Ada", solved=True)
    hand_in(root / "Bo")
    hand_in(root / "Cy", solved=True, changes={"5.1": "def least_penalty(C, L):\n    return 0.0"})
    hand_in(root / "Eve" / "work", changes={"5.1": "def least_penalty(C, L):\n    return (L - C) ** 2 / L"})
    (root / "Eve" / ".ipynb_checkpoints").mkdir()
    (root / "Eve" / ".ipynb_checkpoints" / "old.ipynb").write_text("{}")
    (root / "empty").mkdir()
    (root / "list.txt").write_text("Ada, Bo")
    return root


def test_four_learners(handed_in, tmp_path, capsys):
    file = tmp_path / "class.json"
    assert (
        cli.main(["check", "--class", str(handed_in), "--due", "5.3", "--json", str(file)]) == 1
    )  # Bo and Eve have not
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[0]: line.split()[1 : COUNT + 1] for line in lines[1:5]}
    assert states == {
        "Ada": ["✓"] * COUNT,
        "Bo": ["·"] * COUNT,
        "Cy": ["✗", *["✓"] * (COUNT - 1)],
        "Eve": ["✓", *["·"] * (COUNT - 1)],
    }
    every = sum(task(f"5.{n}").difficulty for n in range(1, COUNT + 1))
    assert lines[1].endswith(f"{every} of {every}")
    assert lines[4].endswith(f"  {task('5.1').difficulty} of {every}")

    people = json.loads(file.read_text())["learners"]
    assert [row["reason"] for row in people["Bo"] if row["exercise"] == "5.1"] == ["write least_penalty()"]


def test_a_class_seed_finds_numbers_by_heart(tmp_path, capsys):
    """A notebook that was handed out with seed 7, whose answer is the numbers of that seed, is checked with seed 8."""
    class_seed(7)
    known = [reference("5.2")(*case).tolist() for case in task("5.2").cases()]
    class_seed(0)
    by_heart = f"def penalty(alphas):\n    return torch.tensor(next(x for x in {known} if len(x) == len(alphas)))"
    notebook = exercises.generate(SMALL, with_solutions=True, for_class=True, seed=7)
    for cell in notebook.cells:
        if cell.metadata.get("satlib") == {"exercise": "5.2", "role": "answer"}:
            cell.source = by_heart
    nbformat.write(notebook, tmp_path / "05.ipynb")
    assert cli.main(["check", str(tmp_path / "05.ipynb"), "--seed", "8"]) == 1
    said = capsys.readouterr().out
    assert "1 wrong" in said
    assert "wrong value" in said


class TestMatrix:
    @staticmethod
    def result(exercise, state, notebook="a.ipynb", reason=""):
        return ExerciseResult(notebook, exercise, state, reason, 1.0)

    def test_of_two_notebooks_the_one_in_which_it_is_done_counts(self):
        rows = [
            self.result("4.1", "missing"),
            self.result("4.1", "wrong", "b.ipynb"),
            self.result("4.1", "done", "c.ipynb"),
        ]
        assert grading.best(rows)["4.1"].state == "done"
        assert grading.best(rows[:2])["4.1"].state == "wrong"
        assert grading.best(rows[::-1])["4.1"].state == "done"


def test_what_is_no_class(tmp_path, capsys):
    assert cli.main(["check", "--class", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder; a class is a folder with one folder for each learner" in capsys.readouterr().err
    assert cli.main(["check", "--class", str(tmp_path)]) == 2
    assert f"no folder in {tmp_path} has a notebook" in capsys.readouterr().err
    assert cli.main(["check", "--due", "4.1"]) == 2
    assert "--due needs --class FOLDER" in capsys.readouterr().err
    assert cli.main(["check", "--class", str(tmp_path), "--only", "4.1"]) == 2
    assert "--due in place of --only" in capsys.readouterr().err
