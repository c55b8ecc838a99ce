"""Exercises from solutions: what is generated, what a learner's work is safe from, and what `satlib check` says of it."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tools_path import SMALL as SOURCE
from tools_path import editions, exercises

from satcourse.exercises import grading, running
from satcourse.exercises.engine import chapter, task
from satlib import cli

ROOT = Path(__file__).parent.parent
SIX = [f"5.{n}" for n in range(1, 7)]  # of its exercises


def only(notebook, *ids):
    """The same notebook with some of its exercises alone."""
    notebook.cells = [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.metadata.get("satlib", {}).get("exercise", ids[0]) in ids
    ]
    return notebook


def write_answer(notebook, id, code):
    for cell in notebook.cells:
        if cell.metadata.get("satlib") == {"exercise": id, "role": "answer"}:
            cell.source = code
    return notebook


class TestStub:
    def test_the_solution_is_cut_out(self):
        code = 'def f(x):\n    """Exercise 1.1: f."""\n    # BEGIN SOLUTION\n    y = x + 1\n    return y\n    # END SOLUTION\n'
        assert editions.stub(code, "1.1") == 'def f(x):\n    """Exercise 1.1: f."""\n    ...  # 1.1: your code here'
        assert editions.solved(code) == 'def f(x):\n    """Exercise 1.1: f."""\n    y = x + 1\n    return y'

    def test_one_line_of_it(self):
        code = "def f(x):\n    # BEGIN SOLUTION\n    y = x + 1\n    # END SOLUTION\n    # STUB y = ...\n    return y\n"
        assert editions.stub(code, "1.1") == "def f(x):\n    y = ...  # 1.1: your code here\n    return y"
        assert editions.solved(code) == "def f(x):\n    y = x + 1\n    return y"


def test_a_notebook_is_written_again_only_if_nobody_has_worked_in_it(tmp_path):
    path = tmp_path / f"{SOURCE.stem}.ipynb"
    assert exercises.make_exercise(SOURCE, tmp_path).endswith("written")
    before = path.read_bytes()
    assert exercises.make_exercise(SOURCE, tmp_path).endswith("as before")
    assert path.read_bytes() == before
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:  # a run of it is no work
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = 1, [nbformat.v4.new_output("stream", text="out")]
    assert not exercises.edited(notebook)
    for cell in (nbformat.v4.new_code_cell("1 + 1"), nbformat.v4.new_markdown_cell("my note")):
        assert exercises.edited(nbformat.v4.new_notebook(cells=[*notebook.cells, cell], metadata=notebook.metadata))
    nbformat.write(write_answer(notebook, "5.1", "def least_penalty(C, L):\n    return (L - C) ** 2 / L"), path)
    before = path.read_bytes()
    assert "has somebody's work in it" in exercises.make_exercise(SOURCE, tmp_path)
    assert path.read_bytes() == before


def test_compare(tmp_path, monkeypatch):
    for name in ("exercises", "solutions"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(exercises, name.upper(), tmp_path / name)
    source = Path(shutil.copy(SOURCE, tmp_path / "solutions"))
    exercises.make_exercise(source, tmp_path / "exercises")
    solution, notebook = source.with_suffix(".ipynb"), exercises.generate(source, with_solutions=True)
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number
    nbformat.write(notebook, solution)
    assert exercises.problems(source) == []
    notebook.cells[2].execution_count = None
    nbformat.write(notebook, solution)
    assert exercises.problems(source) == [f"solutions/{SOURCE.stem}.ipynb was not run once from top to bottom"]
    solution.unlink()
    source.write_text(
        source.read_text(encoding="utf-8").replace("Try two places", "Try three places"), encoding="utf-8"
    )
    assert exercises.problems(source) == [
        f"solutions/{SOURCE.stem}.ipynb is missing",
        f"exercises/{SOURCE.stem}.ipynb is not what {SOURCE.name} gives",
        f"exercises/{SOURCE.stem}.ipynb has somebody's work in it",
    ]


STATES = ["done", "blank", "wrong", "wrong", "wrong", "done"]


def test_check(tmp_path, capsys):
    """One notebook: done, blank, wrong, one whose cell does not even run, one that never ends, and one after that."""
    notebook = only(exercises.generate(SOURCE, with_solutions=False), *SIX)
    write_answer(notebook, "5.1", "def least_penalty(C, L):\n    return (L - C) ** 2 / L")
    off = "def equivalent_lambda(weight, C, L):\n    return weight * L / C"
    write_answer(notebook, "5.3", off)
    write_answer(notebook, "5.4", "def objective(log_p, alphas, weight):\n    return log_p +")
    write_answer(notebook, "5.5", "def marginal(alpha, n):\n    while True:\n        pass")
    right = "def nwgm(alpha, n):\n    return torch.softmax((alpha[:, None] @ n)[:, 0], 1)"
    write_answer(notebook, "5.6", right)
    path = tmp_path / "mine.ipynb"
    nbformat.write(notebook, path)
    status = cli.main(["check", str(path), "--only", ",".join(SIX), "--json", str(tmp_path / "table.json")])
    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    rows = [line.split(maxsplit=4) for line in lines if line.startswith("  5.")]
    assert [row[:2] for row in rows] == [[f"5.{n}", state] for n, state in enumerate(STATES, 1)], "\n".join(lines)
    assert rows[1][4] == "write penalty()"
    assert rows[2][4].startswith("the wrong way round")
    assert rows[3][4].startswith("SyntaxError")
    assert rows[4][4].startswith("it did not end within 10 s")
    assert lines[-1].startswith("2 of 6 done, 1 blank, 3 wrong; ")
    assert lines[-1].endswith("; next: 5.2 The penalty (4 minutes)")
    found = json.loads((tmp_path / "table.json").read_text())
    assert [row["state"] for row in found["exercises"]] == STATES
    assert found["troubles"] == []


def kernels():
    """The kernels that this process has started and that are alive: their process numbers."""
    if shutil.which("pgrep") is None:
        pytest.skip("no pgrep on the PATH (apt install procps)")
    command = ["pgrep", "-P", str(os.getpid()), "-f", "ipykernel_launcher"]
    return set(subprocess.run(command, capture_output=True, text=True).stdout.split())


def test_a_dead_kernel_and_an_endless_cell_cost_their_own_exercise_alone(tmp_path, capsys, monkeypatch):
    """Those after them are judged with what the learner has defined outside the exercises."""
    monkeypatch.setattr(running, "CELL_SECONDS", 20)
    notebook = only(exercises.generate(SOURCE, with_solutions=True), *SIX)
    notebook.cells.insert(2, nbformat.v4.new_code_cell("mine = 1"))
    write_answer(notebook, "5.2", "import os\n\n\ndef penalty(alphas):\n    os._exit(1)")
    write_answer(notebook, "5.4", "while True:\n    pass")
    uses = "def nwgm(alpha, n):\n    return torch.softmax(mine * (alpha[:, None] @ n)[:, 0], 1)"
    write_answer(notebook, "5.6", uses)
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    began, before = time.monotonic(), kernels()
    assert cli.main(["check", str(tmp_path / "mine.ipynb"), "--only", ",".join(SIX)]) == 1
    assert kernels() == before, "no kernel is left behind, not even the one in an endless loop"
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(maxsplit=4) for line in lines if line.startswith("  5.")]
    states = ["done", "wrong", "done", "wrong", "done", "done"]
    assert [row[1] for row in rows] == states, "\n".join(lines)
    assert rows[1][4] == running.DIED
    assert rows[3][4] == running.HUNG
    assert time.monotonic() - began < 240
    assert not any("outside" in line for line in lines)


def test_run_all_runs_all(tmp_path):
    """A kernel's answer to a blank exercise is no error for whoever runs all cells, but one for nbval, and its cell shows it."""
    notebook = exercises.generate(SOURCE, with_solutions=False)
    client = NotebookClient(notebook, timeout=120)  # stops at an error
    client.execute(cwd=tmp_path)
    checks = [cell for cell in notebook.cells if cell.metadata.get("satlib", {}).get("role") == "check"]
    assert len(checks) == len(chapter(5))
    for cell in checks:
        (output,) = cell.outputs
        assert (output.output_type, output.ename) == ("error", "Wrong")
        assert output.traceback == [f"\x1b[31m{output.evalue}\x1b[0m"]
        exercise = cell.metadata["satlib"]["exercise"]
        assert output.evalue == f"{exercise} is blank: {task(exercise).todo}"


def test_pytests_summary_names_the_exercise(tmp_path):
    """The conftest.py that lies beside the exercises, in a pytest of its own."""
    notebook = only(exercises.generate(SOURCE, with_solutions=False), "5.1")
    shutil.copy(ROOT / "exercises" / "conftest.py", tmp_path)
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    flags = ["-q", "--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *flags, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=290)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1
    assert failed[0].endswith("- exercise 5.1 is blank: write least_penalty()")


class TestUnchecked:
    """What cannot count as done, whatever happens in the notebook."""

    @staticmethod
    def of(tmp_path, change):
        notebook = exercises.generate(SOURCE, with_solutions=True)
        notebook.cells = [
            cell
            for cell in notebook.cells
            if cell.metadata.get("satlib", {}).get("role") != "check" or change(cell) is None
        ]
        nbformat.write(notebook, tmp_path / "mine.ipynb")
        return grading.unchecked(tmp_path / "mine.ipynb")

    def test_as_generated_and_with_a_note_all_count(self, tmp_path):
        def note(cell):
            cell.source = f"# done at last\n{cell.source}\n"

        assert self.of(tmp_path, lambda cell: None) == {}
        assert self.of(tmp_path, note) == {}

    def test_a_check_that_was_thrown_away_or_changed(self, tmp_path):
        found = self.of(tmp_path, lambda cell: "away" if cell.metadata.satlib.exercise == "5.2" else None)
        assert found == {"5.2": "its check is not in the notebook"}
        raises = '# NBVAL_RAISES_EXCEPTION\ncheck("5.2", penalty)'
        for change in ({"source": "pass"}, {"source": "check("}, {"source": raises}, {"tags": ["raises-exception"]}):

            def changed(cell, change=change):
                if cell.metadata.satlib.exercise == "5.2":
                    cell.source = change.get("source", cell.source)
                    cell.metadata.tags = change.get("tags", [])

            assert self.of(tmp_path, changed) == {"5.2": "its check has been changed"}


def test_only_part_of_a_notebook(tmp_path, capsys):
    """Exercises that are gone are missing, unless they are said not to count; what is no notebook of exercises is said and not run."""
    notebook = only(exercises.generate(SOURCE, with_solutions=False), "5.1", "5.2")
    write_answer(notebook, "5.1", "def least_penalty(C, L):\n    return (L - C) ** 2 / L")
    for cell in notebook.cells:
        if cell.metadata.get("satlib") == {"exercise": "5.2", "role": "check"}:
            cell.source = "pass"
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    assert cli.main(["check", str(tmp_path / "mine.ipynb")]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(maxsplit=4) for line in lines if line.startswith("  5.")]
    left = len(chapter(5)) - 2
    assert [row[1] for row in rows] == ["done", "wrong", *["missing"] * left]
    assert rows[1][4] == "its check has been changed"
    assert rows[2][4] == "its check is not in the notebook"
    assert lines[-1].startswith(f"1 of {left + 2} done, 0 blank, 1 wrong, {left} missing; ")
    assert cli.main(["check", str(tmp_path / "mine.ipynb"), "--only", "5.1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 done, 0 blank, 0 wrong"


def test_what_is_no_notebook_of_exercises(tmp_path, capsys):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), tmp_path / "other.ipynb")
    (tmp_path / "torn.ipynb").write_text("{ not json")
    assert cli.main(["check", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"  outside the exercises: {tmp_path / 'other.ipynb'} has no exercises: ")
    assert lines[1].startswith(f"  outside the exercises: {tmp_path / 'torn.ipynb'} is not a notebook: ")
    assert lines[-1].startswith("0 of 0 done")


class TestJudge:
    """What is made of the cells' outcomes."""

    @staticmethod
    def rows(*cells):
        outcomes = [
            running.CellOutcome(exercise, role, number, error, said, 0.5)
            for number, (exercise, role, error, said) in enumerate(cells, 1)
        ]
        rows, troubles = grading.judge("mine.ipynb", outcomes)
        return {row.exercise: (row.state, row.reason) for row in rows}, troubles

    def test_an_exercise_is_done_only_if_its_check_has_said_so(self):
        assert self.rows(
            ("4.1", "answer", "", ""),
            ("4.1", "check", "", "4.1 is right: values.\n"),
            ("4.2", "answer", "", ""),
            ("4.2", "check", "", ""),
            ("4.3", "check", "4.3 is blank: write context()", ""),
            ("4.3", "catch-up", "", ""),
            ("", "", "ZeroDivisionError: division by zero", ""),
        ) == (
            {
                "4.1": ("done", ""),
                "4.2": ("wrong", "its check said nothing; is `check` still satlib's?"),
                "4.3": ("blank", "write context()"),
            },
            ["mine.ipynb, cell 7: ZeroDivisionError: division by zero"],
        )
