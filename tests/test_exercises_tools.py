"""Workbooks from their sources, and what `satlib check` and Run All say of them."""

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from tools_path import editions, exercises, notebooks

from satcourse.checks import grading
from satcourse.checks.engine import task
from satlib import cli

PRICE = """\
def price(nll, t):
    d = nll[1] - nll[0]
    half = t * d.std(0) / len(d) ** 0.5
    return torch.stack([d.mean(0) - half, d.mean(0), d.mean(0) + half])"""
ANSWERS = {
    "5.1": "def least_penalty(C, L):\n    return (L - C) ** 2 / L",
    # The wrong way round.
    "5.4": "def equivalent_lambda(weight, C, L):\n    return weight * L / C",
    # No Python at all.
    "5.5": "def describe(alphas):\n    return alphas +",
    "5.8": PRICE,
}


def workbook(*without):
    """The imports and exercises of workbook 05, with some answers written into them, and some
    exercises left out.
    """
    notebook = exercises.generate(*notebooks.sources(["05"]), editions.WORK)
    kept = []
    for cell in notebook.cells:
        place = cell.metadata.get("satlib", {})
        exercise = place.get("exercise")
        if place.get("role") == "answer":
            cell.source = ANSWERS.get(exercise, cell.source)
        of_an_exercise = exercise is not None and exercise not in without
        if of_an_exercise or cell.source.startswith(("import ", "from ")):
            kept.append(cell)
    notebook.cells = kept
    return notebook


def test_a_workbook_is_written_again_only_if_nobody_has_worked_in_it():
    notebook = exercises.generate(*notebooks.sources(["05"]), editions.WORK)
    # A run of it is no work.
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 1
            cell.outputs = [new_output("stream", text="out")]
    assert not exercises.edited(notebook)

    for cell in (new_code_cell("1 + 1"), new_markdown_cell("my note")):
        cells = [*notebook.cells, cell]
        assert exercises.edited(new_notebook(cells=cells, metadata=notebook.metadata))


def test_check(tmp_path, capsys):
    """One notebook: done, blank, wrong, a cell that does not even run, and an exercise that is not
    there.
    """
    nbformat.write(workbook("5.6", "5.7"), tmp_path / "mine.ipynb")
    assert cli.main(["check", str(tmp_path / "mine.ipynb")]) == 1

    out = capsys.readouterr().out
    lines = out.splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line.startswith("  5.")]
    assert [row[:2] for row in rows] == [
        ["5.1", "done"],
        ["5.2", "blank"],
        ["5.3", "blank"],
        ["5.4", "wrong"],
        ["5.5", "wrong"],
        ["5.6", "missing"],
        ["5.7", "missing"],
        ["5.8", "done"],
    ], out

    reasons = ["write penalty()", "write go_downhill()", "the wrong way round", "SyntaxError"]
    for row, reason in zip(rows[1:5], reasons, strict=True):
        assert row[2].startswith(reason)
    assert "2 of 8 done, 2 blank, 2 wrong, 2 missing; next: 5.2 The penalty (4 minutes)" in lines


def test_cells_that_hang_that_end_their_kernel_and_that_are_no_exercise(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(grading, "CELL_SECONDS", 2)
    no_exercise = new_code_cell("1 / 0")
    hangs = new_code_cell("while True: pass")
    hangs.metadata["satlib"] = {"exercise": "5.5", "role": "answer"}
    ends = new_code_cell("import os; os._exit(1)")
    ends.metadata["satlib"] = {"exercise": "5.7", "role": "answer"}
    notebook = new_notebook(cells=[no_exercise, hangs, ends])
    nbformat.write(notebook, tmp_path / "mine.ipynb")

    results, troubles = grading.judge(grading.run(tmp_path / "mine.ipynb"))
    # The fifth and the seventh exercise.
    assert results[4].reason.startswith("the cell did not end")
    assert results[6] == grading.Result("5.7", "wrong", grading.DIED)
    assert troubles == ["cell 1: ZeroDivisionError: division by zero"]

    assert cli.main(["check", str(tmp_path / "none.ipynb")]) == 2
    assert "there is no notebook at" in capsys.readouterr().err


def test_a_damaged_notebook_does_not_end_the_checking_of_a_class(tmp_path, capsys):
    whole = nbformat.writes(new_notebook())
    (tmp_path / "a-cut.ipynb").write_text(whole[:-9])
    (tmp_path / "b-table.ipynb").write_text("[1]")
    (tmp_path / "c-whole.ipynb").write_text(whole, encoding="utf-8-sig")
    assert cli.main(["check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.count("this is no notebook") == 2
    assert out.count("there are no exercises") == 1


def test_run_all_runs_all(tmp_path):
    """A blank exercise is no error for whoever runs all cells, but its cell shows one."""
    notebook = workbook("5.5")
    # This stops at an error.
    NotebookClient(notebook, timeout=120).execute(cwd=tmp_path)

    for cell in notebook.cells:
        place = cell.metadata.get("satlib", {})
        if place.get("role") != "check":
            continue
        id = place["exercise"]
        (output,) = cell.outputs
        if id in ("5.1", "5.8"):
            assert f"{id} is right: " in output.text
        elif id != "5.4":
            # In grey, and nothing but the message.
            assert output.traceback == [f"\x1b[90m{id} is blank: {task(id).todo}\x1b[0m"]
