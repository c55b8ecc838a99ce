"""Exercises as a learner has them: filled in, run in JupyterLab, all green; and `make exercises` leaves the saved notebook alone.

Needs what tests/test_lab.py needs, and is skipped where that is missing.
"""

import time

import nbformat
import pytest
from test_lab import IDLE, TOKEN, chromium, lab, page  # noqa: F401  (fixtures)
from tools_path import exercises

from satcourse.exercises.engine import chapter

OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets.filter(cell => cell.model.type === 'code').map(cell => ({
    count: cell.model.executionCount ?? null, text: cell.model.sharedModel.getSource(),
    kinds: cell.model.sharedModel.getOutputs().map(output => output.output_type),
    out: cell.model.sharedModel.getOutputs().map(output => [output.text ?? output.evalue ?? ''].flat().join('')).join('')}))"""


FILL = """([id, text]) => jupyterapp.shell.currentWidget.content.widgets.filter(cell => cell.model.type === 'code'
    && cell.model.sharedModel.getMetadata('satlib')?.exercise === id && cell.model.sharedModel.getMetadata('satlib')?.role === 'answer'
    ).map(cell => cell.model.sharedModel.setSource(text)).length"""


def run_all(page):  # noqa: F811
    """Choose "Run All Cells" in the menu, and give the cells once the kernel is idle."""
    counts = [cell["count"] or 0 for cell in page.evaluate(OUTPUTS)]
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    deadline = time.monotonic() + 400
    while True:
        cells = page.evaluate(OUTPUTS)
        if all((cell["count"] or 0) > max(counts) for cell in cells) and page.evaluate(IDLE):
            return cells
        assert time.monotonic() < deadline, cells
        page.wait_for_timeout(500)


def verdicts(cells):
    """What each check says, by its exercise; and what the last cell says of the progress."""
    checks = {cell["text"].split('"')[1]: cell["out"] for cell in cells if cell["text"].startswith("check(")}
    return checks, cells[-1]["out"]


@pytest.mark.timeout(900)
def test_from_blank_to_done_with_a_mistake_on_the_way(page, lab, tmp_path):  # noqa: F811
    """Run All as it is, then with a mistake, then with it mended: each time every cell runs, and the checks say what is so."""
    (source,) = exercises.sources(["05"])
    folder = tmp_path / "course" / "exercises"
    folder.mkdir()
    exercises.make_exercise(source, folder=folder)
    page.goto(f"{lab}/lab/tree/exercises/{source.stem}.ipynb?token={TOKEN}")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.wait_for_function("() => jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'")
    answers = {
        cell.metadata["satlib"]["exercise"]: cell.source
        for cell in exercises.cells(source, with_solutions=True)
        if cell.metadata.get("satlib", {}).get("role") == "answer"
    }
    tasks = chapter(5)
    assert list(answers) == list(tasks)

    checks, progress = verdicts(run_all(page))
    assert checks == {id: f"{id} is blank: {asked.todo}" for id, asked in tasks.items()}
    assert progress.startswith(f"0 of {len(tasks)} done\nblank: {', '.join(tasks)}\nnext: 5.1 ")

    mistaken = "def penalty(alphas: Tensor) -> Tensor:\n    return (1 - alphas).square().sum((1, 2))"
    for id, text in (answers | {"5.2": mistaken}).items():
        assert page.evaluate(FILL, [id, text]) == 1
    checks, progress = verdicts(run_all(page))
    assert checks.pop("5.2").removeprefix("5.2 is wrong: ") in tasks["5.2"].mistakes
    assert all(said.startswith(f"\x1b[32m{id} is right: ") for id, said in checks.items())
    assert f"{len(tasks) - 1} of {len(tasks)} done" in progress
    assert "not right yet: 5.2\nnext: 5.2 The penalty" in progress

    assert page.evaluate(FILL, ["5.2", answers["5.2"]]) == 1
    checks, progress = verdicts(run_all(page))
    assert all(said.startswith(f"\x1b[32m{id} is right: ") for id, said in checks.items())
    assert progress.startswith(f"{len(tasks)} of {len(tasks)} done: 5.1, ")

    page.keyboard.press("Control+s")
    page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    path = folder / f"{source.stem}.ipynb"
    before = path.read_bytes()
    assert "left alone" in exercises.make_exercise(source, folder=folder)  # somebody's work
    assert path.read_bytes() == before
    assert answers["5.2"] in [cell.source for cell in nbformat.read(path, 4).cells]
