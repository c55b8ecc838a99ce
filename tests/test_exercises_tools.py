"""Workbooks from their sources, and what `satlib check` and Run All say of them."""

import nbformat
import pytest
from nbclient import NotebookClient
from tools_path import SMALL, editions, exercises

from satcourse.exercises import grading
from satcourse.exercises.engine import chapter, task
from satlib import cli


def workbook(edition, answers, *ids):
    """The small workbook with some of its exercises alone, and answers written into it."""
    notebook = exercises.generate(SMALL, edition)
    kept = []
    for cell in notebook.cells:
        place = cell.metadata.get("satlib", {})
        if cell.cell_type == "code" and place.get("exercise", ids[0]) in ids:
            if place.get("role") == "answer" and place["exercise"] in answers:
                cell.source = answers[place["exercise"]]
            kept.append(cell)
    notebook.cells = kept
    return notebook


def test_a_workbook_is_written_again_only_if_nobody_has_worked_in_it():
    notebook = exercises.generate(SMALL, editions.WORK)
    for cell in notebook.cells:  # a run of it is no work
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = 1, [nbformat.v4.new_output("stream", text="out")]
    assert not exercises.edited(notebook)
    for cell in (nbformat.v4.new_code_cell("1 + 1"), nbformat.v4.new_markdown_cell("my note")):
        assert exercises.edited(nbformat.v4.new_notebook(cells=[*notebook.cells, cell], metadata=notebook.metadata))


def test_check(tmp_path, capsys, monkeypatch):
    """One notebook: done, blank, wrong, a cell that does not even run, one that never ends, and done after these."""
    monkeypatch.setattr(grading, "CELL_SECONDS", 20)
    answers = {
        "5.1": "def least_penalty(C, L):\n    return (L - C) ** 2 / L",
        "5.3": "def equivalent_lambda(weight, C, L):\n    return weight * L / C",
        "5.4": "def objective(log_p, alphas, weight):\n    return log_p +",
        "5.5": "while True:\n    pass",
        "5.6": "def nwgm(alpha, n):\n    return torch.softmax((alpha[:, None] @ n)[:, 0], 1)",
        "5.7": "import os\n\nos._exit(1)",
    }
    nbformat.write(workbook(editions.WORK, answers, *(f"5.{n}" for n in range(1, 7))), tmp_path / "mine.ipynb")
    assert cli.main(["check", str(tmp_path / "mine.ipynb")]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.startswith("  5.")]
    states = ["done", "blank", "wrong", "wrong", "wrong", "done", "missing"]
    assert [row[:2] for row in rows] == [[f"5.{n}", state] for n, state in enumerate(states, 1)], "\n".join(lines)
    reasons = ["write penalty()", "the wrong way round", "SyntaxError", "the cell did not end"]
    assert [row[2][: len(reason)] for row, reason in zip(rows[1:], reasons, strict=False)] == reasons
    assert "2 of 7 done, 1 blank, 3 wrong, 1 missing; next: 5.2 The penalty (4 minutes)" in lines

    nbformat.write(workbook(editions.WORK, answers, "5.1", "5.7"), tmp_path / "mine.ipynb")
    results, _ = grading.judge(grading.run(tmp_path / "mine.ipynb"))
    assert (results[0].state, results[6]) == ("done", grading.Result("5.7", "wrong", grading.DIED))


def test_what_is_no_notebook_of_exercises(tmp_path, capsys):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), tmp_path / "other.ipynb")
    assert cli.main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "outside the exercises: cell 1: ZeroDivisionError: division by zero" in out
    assert "there are no exercises" in out
    assert cli.main(["check", str(tmp_path / "none.ipynb")]) == 2
    assert "there is no notebook at" in capsys.readouterr().err


@pytest.mark.parametrize("edition", [editions.WORK, editions.SOLVED])
def test_run_all_runs_all(tmp_path, edition):
    """A blank exercise is no error for whoever runs all cells, but its cell shows one."""
    notebook = exercises.generate(SMALL, edition)
    NotebookClient(notebook, timeout=120).execute(cwd=tmp_path)  # stops at an error
    checks = [cell for cell in notebook.cells if cell.metadata.get("satlib", {}).get("role") == "check"]
    assert len(checks) == len(chapter(5))
    for cell in checks:
        (output,) = cell.outputs
        id = cell.metadata["satlib"]["exercise"]
        if edition == editions.SOLVED:
            assert f"{id} is right: " in output.text
        else:
            assert (output.output_type, output.ename) == ("error", "Wrong")
            assert output.traceback == [f"\x1b[31m{id} is blank: {task(id).todo}\x1b[0m"]
