"""Exercises as a learner has them: filled in, run in JupyterLab, all green; and `make exercises` leaves the saved notebook alone.

Needs what tests/test_lab.py needs, and is skipped where that is missing.
"""

import time

import nbformat
import pytest
from test_lab import IDLE, TOKEN, chromium, lab, page  # noqa: F401  (fixtures)
from tools_path import exercises

from satlib.exercises.engine import chapter

OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets.filter(cell => cell.model.type === 'code').map(cell => ({
    count: cell.model.executionCount ?? null, text: cell.model.sharedModel.getSource(),
    kinds: cell.model.sharedModel.getOutputs().map(output => output.output_type),
    out: cell.model.sharedModel.getOutputs().map(output => [output.text ?? output.evalue ?? ''].flat().join('')).join('')}))"""


@pytest.mark.timeout(600)
def test_answers_turn_green(page, lab, tmp_path):  # noqa: F811
    (source,) = exercises.sources(["05"])
    folder = tmp_path / "course" / "exercises"
    folder.mkdir()
    exercises.make_exercise(source, folder=folder)
    page.goto(f"{lab}/lab/tree/exercises/{source.stem}.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.wait_for_function("() => jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'")
    # What a person types, cell by cell: the answers of the solutions, the last one left blank.
    answers = {
        cell.metadata["satlib"]["exercise"]: cell.source
        for cell in exercises.cells(source, with_solutions=True)
        if cell.metadata.get("satlib", {}).get("role") == "answer"
    }
    last = list(chapter(5))[-1]
    del answers[last]
    for id, text in answers.items():
        filled = page.evaluate(
            """([id, text]) => jupyterapp.shell.currentWidget.content.widgets.filter(
                cell => cell.model.sharedModel.getSource().includes(`# ${id}: your code here`) && cell.model.type === 'code'
            ).map(cell => cell.model.sharedModel.setSource(text)).length""",
            [id, text],
        )
        assert filled == 1
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    deadline = time.monotonic() + 400
    while True:  # Run All stops at the blank exercise
        cells = page.evaluate(OUTPUTS)
        if any("error" in cell["kinds"] for cell in cells) and page.evaluate(IDLE):
            break
        assert time.monotonic() < deadline, cells
        page.wait_for_timeout(1000)
    said = {cell["text"].split('"')[1]: cell["out"] for cell in cells if cell["text"].startswith("check(")}
    assert list(said) == list(chapter(5))
    for id in answers:
        assert said[id].startswith(f"\x1b[32m{id} is right: ")
    assert said[last] == f"{last} is blank: write {chapter(5)[last].name}()"

    page.keyboard.press("Control+s")
    path = folder / f"{source.stem}.ipynb"
    for _ in range(480):
        page.wait_for_timeout(500)
        if any("is right" in str(cell.get("outputs")) for cell in nbformat.read(path, 4).cells):
            break
    before = path.read_bytes()
    assert "has somebody's work in it" in exercises.make_exercise(source, folder=folder)
    assert path.read_bytes() == before
    saved = {
        cell.metadata.get("satlib", {}).get("exercise"): cell.source
        for cell in nbformat.read(path, 4).cells
        if cell.metadata.get("satlib", {}).get("role") == "answer"
    }
    assert {id: saved[id] for id in answers} == answers
