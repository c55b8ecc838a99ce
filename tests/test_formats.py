"""What `satlib check --format` prints, against the rules of the platforms that read it; and the autograder's archive."""

import csv
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from tools_path import SMALL, autograder, exercises

from satcourse.exercises import formats, grading, task
from satcourse.exercises.engine import chapter
from satcourse.exercises.grading import ExerciseResult
from satlib import cli
from satlib.errors import SatlibError

ROWS = [
    ExerciseResult("a.ipynb", "4.1", "done", "", 1.2),
    ExerciseResult("a.ipynb", "4.2", "wrong", 'softmax over the "batch" axis', 2.0),
    ExerciseResult("a.ipynb", "4.3", "missing", "its check is not in the notebook", 0.0),
    ExerciseResult("copy.ipynb", "4.1", "blank", "write energies()", 0.1),
]
ENVIRONMENT = {
    "CLASSROOM": "cs",
    "ASSIGNMENT": "soft",
    "OWNER": "ada",
    "SUBMISSION_TAG": "submit/2026-10-01T10-00-00Z-abc1234",
    "COMMIT_URL": "https://example.org/commit/abc1234",
    "RELEASE_URL": "https://example.org/release",
}


def test_gradescope():
    results = json.loads(formats.gradescope(ROWS, ["a.ipynb, cell 3: NameError"]))
    assert set(results) <= {
        "score",
        "execution_time",
        "output",
        "visibility",
        "stdout_visibility",
        "extra_data",
        "tests",
    }
    assert results["output"] == "a.ipynb, cell 3: NameError"
    assert [test["number"] for test in results["tests"]] == ["4.1", "4.2", "4.3"]  # the copy earns nothing twice
    for test in results["tests"]:
        assert set(test) == {"score", "max_score", "name", "number", "output"}
        assert test["max_score"] == task(test["number"]).difficulty
        assert test["name"] == task(test["number"]).title
    assert [test["score"] for test in results["tests"]] == [task("4.1").difficulty, 0, 0]
    assert results["tests"][1]["output"] == 'wrong: softmax over the "batch" axis'


def test_gradescope_without_a_test_has_a_score():
    assert json.loads(formats.gradescope([], ["it is no notebook"])) == {"output": "it is no notebook", "score": 0}


def test_classroom50(monkeypatch):
    """By the required fields, patterns and sums of its schema and of its collector."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    result = json.loads(formats.classroom50(ROWS, []))
    texts = [
        "schema",
        "classroom",
        "assignment",
        "assignment_type",
        "owner",
        "submission",
        "commit",
        "release",
        "review",
        "datetime",
    ]
    assert set(result) == {*texts, "score", "max-score", "tests"}
    assert all(isinstance(result[name], str) and result[name] for name in texts)
    assert result["schema"] == "classroom50/result/v1"
    assert (result["owner"], result["assignment_type"]) == ("ada", "individual")
    assert result["review"] == result["commit"]
    assert re.match(r"^\d{4}-\d{2}-\d{2}T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$", result["datetime"])
    for test in [result, *result["tests"]]:
        assert type(test["score"]) is type(test["max-score"]) is int
        assert 0 <= test["score"] <= test["max-score"]
    for name in ("score", "max-score"):
        assert result[name] == sum(test[name] for test in result["tests"])
    assert [test["passed"] for test in result["tests"]] == [True, False, False]
    assert [test["test-name"].split()[0] for test in result["tests"]] == ["4.1", "4.2", "4.3"]

    monkeypatch.delenv("OWNER")
    with pytest.raises(SatlibError, match=r"missing: OWNER$"):
        formats.classroom50(ROWS, [])


def imported(text):
    """What Canvas' importer makes of a file: points of each assignment, and points of each learner by login and by name."""
    header, possible, *rows = csv.reader(text.splitlines())
    assert "Student" in header[0]
    assert "ID" in header[1]
    assert re.search(r"SIS\s+User\s+ID", header[2])
    assert re.search(r"SIS\s+Login\s+ID", header[3])
    assert "Section" in header[4]
    assert "Points Possible" in possible[0]
    assert all(len(row) == len(header) for row in (possible, *rows))
    of = {row[3]: dict(zip(header[5:], map(float, row[5:]), strict=True)) for row in rows}
    assert [row[0] for row in rows] == list(of)
    assert not any(row[1] or row[2] or row[4] for row in rows)
    return dict(zip(header[5:], map(float, possible[5:]), strict=True)), of


def test_canvas():
    results = {"Lovelace, Ada": grading.best(ROWS), "bo": {}}
    possible, of = imported(formats.canvas(results, ["4.1", "4.2", "5.1"]))
    assert possible == {
        "satlib 04": task("4.1").difficulty + task("4.2").difficulty,
        "satlib 05": task("5.1").difficulty,
    }
    assert of["Lovelace, Ada"] == {"satlib 04": task("4.1").difficulty, "satlib 05": 0}
    assert of["bo"] == {"satlib 04": 0, "satlib 05": 0}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "canvas"], "--format canvas needs --class FOLDER"),
        (["--class", ".", "--format", "gradescope"], "with --class take --format canvas"),
        (["--format", "gradescope", "--json"], "give one of them"),
        (["x.ipynb", "--learner"], "--learner without a name needs --class FOLDER"),
        (["--class", ".", "--learner", "ada"], "--learner without a name"),
        (["--only", "4.99"], "4.99"),
    ],
)
def test_what_does_not_go_together(options, says, capsys):
    assert cli.main(["check", *options]) == 2
    assert says in capsys.readouterr().err


def solved(path):
    nbformat.write(exercises.generate(SMALL, with_solutions=True), path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What Gradescope has after setup.sh, with this Python in the place of its own."""
    monkeypatch.setattr(sys, "argv", ["autograder.py", str(tmp_path / "a.zip"), "--only", "5.1,5.2,4.1", "--seed", "7"])
    (tmp_path / "satlib-0.whl").write_text("")
    sys.argv += ["--wheel", str(tmp_path / "satlib-0.whl")]
    assert autograder.main() == 0
    root = tmp_path / "autograder"
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert {"setup.sh", "run_autograder", "satlib-0.whl"} <= set(archive.namelist())
        archive.extractall(root / "source")
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o100  # Gradescope runs it
    (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
    programs = root / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, command in {"satlib": f"{sys.executable} -m satlib", "python": sys.executable}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    (root / "submission" / "work").mkdir(parents=True)
    return root


def graded(root):
    subprocess.run(["bash", "run_autograder"], cwd=root, check=True, capture_output=True)
    return json.loads((root / "results" / "results.json").read_text())


@pytest.mark.skipif(os.name == "nt", reason="Gradescope runs Linux")
def test_gradescopes_folder(folder):
    """A submission with notebook 05 in a folder: of three exercises two are done, and that of notebook 04 is missing."""
    solved(folder / "submission" / "work" / "05 mine.ipynb")
    tests = {test["number"]: test for test in graded(folder)["tests"]}
    assert {id: test["score"] for id, test in tests.items()} == {
        "5.1": task("5.1").difficulty,
        "5.2": task("5.2").difficulty,
        "4.1": 0,
    }
    assert tests["4.1"]["output"] == "missing: no notebook has it"


@pytest.mark.skipif(os.name == "nt", reason="Gradescope runs Linux")
def test_a_submission_without_a_notebook(folder):
    results = graded(folder)
    assert results["score"] == 0
    assert "there is no notebook at submission" in results["output"]


def test_each_learner_has_a_seed(tmp_path, monkeypatch, capsys):
    """The handout's seed is that with which `satlib check --learner` checks; names differ in more than upper and lower case."""
    monkeypatch.setattr(
        sys, "argv", ["exercises.py", "class", str(tmp_path / "out"), "--seed", "3", "--learner", "Ada", "Bo"]
    )
    assert exercises.main() == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Ada", "Bo"]
    seeds = {}
    for name in ("Ada", "Bo"):
        text = (tmp_path / "out" / name / f"{SMALL.stem}.ipynb").read_text()
        seeds[name] = int(re.search(r"class_seed\((\d+)\)", text)[1])
    assert seeds["Ada"] != seeds["Bo"]

    checked = {}
    monkeypatch.setattr(grading, "run", lambda paths, processes, given: (checked.update(given), ([], []))[1])
    cli.main(["check", str(tmp_path / "out" / "Ada"), "--seed", "3", "--learner", " ada"])
    assert set(checked.values()) == {seeds["Ada"]}
    checked.clear()
    cli.main(["check", "--class", str(tmp_path / "out"), "--seed", "3", "--learner"])
    assert {path.parent.name: seed for path, seed in checked.items()} == seeds


def test_a_learners_name_is_that_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["exercises.py", "class", str(tmp_path / "out"), "--learner", "../Ada"])
    with pytest.raises(SystemExit, match="cannot be the name of a folder"):
        exercises.main()
    assert not Path(tmp_path / "out").exists()


def test_what_counts_and_is_not_there_is_missing(tmp_path, monkeypatch):
    """Whoever hands in one notebook of two does not get the points of half as the points of all."""
    path = tmp_path / "05.ipynb"
    solved(path)
    monkeypatch.setattr(
        grading, "run", lambda paths, *_: ([ExerciseResult(str(path), id, "done", "", 0) for id in chapter(5)], [])
    )
    said = []
    assert grading.main([path], only=["5", "4.1"], form=lambda rows, _: said.extend(rows) or "") == 1
    assert {row.exercise: row.state for row in said} == {**dict.fromkeys(chapter(5), "done"), "4.1": "missing"}


def test_the_plan_for_teachers_adds_up():
    """The minutes of a week are those that its notebooks state, up to five for each: they are estimates."""
    root = Path(__file__).parent.parent
    lines = (root / "docs" / "teachers.md").read_text(encoding="utf-8").splitlines()
    rows = [re.fullmatch(r"\| \d \| \d+ \| (\d\d(?:, \d\d)*) \| (\d+) \|.*", line) for line in lines]
    weeks = {row[1]: int(row[2]) for row in rows if row}
    assert ", ".join(weeks) == ", ".join(f"{number:02}" for number in range(11))
    for numbers, minutes in weeks.items():
        stated = []
        for number in numbers.split(", "):
            for path in (root / "notebooks").glob(f"{number}_*.py"):
                text = path.read_text(encoding="utf-8")
                found = re.search(r"(\d+) (?:minutes )?to read(?:, (\d+) more to write)?", text)
                stated += [int(found[1]), int(found[2] or 0)]
        if len(stated) == 2 * len(numbers.split(", ")):
            assert abs(minutes - sum(stated)) <= 5 * len(numbers.split(", ")), numbers
