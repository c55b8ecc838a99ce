"""The course as a reader has it: JupyterLab in a browser opens a notebook, runs it, and its widgets follow a hand.

Needs Chromium (apt install chromium) and Playwright (of the dev extra); skipped where one of them is missing.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
import requests
from tools_path import SMALL, editions, exercises

from satcourse.exercises.engine import chapter

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).resolve().parent.parent
SCRUBBER = (
    "import satlib\nfrom satcourse.widgets.scrubber import Scrubber\nfrom satlib.data import scenes",
    'Scrubber(satlib.load("scenes-soft", "cpu"), {"a drawn scene": scenes.scene("test-000003").photo()})',
)
TOKEN = "let-me-in"
# What the page itself knows of the notebook in front: cells beyond the window are not in the page.
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets.map(cell => {
    const outputs = cell.model.type === 'code' ? cell.model.sharedModel.getOutputs() : [];
    return {kind: cell.model.type, text: cell.model.sharedModel.getSource(), count: cell.model.executionCount ?? null,
        kinds: outputs.map(output => output.output_type),
        out: outputs.map(output => [output.text ?? output.evalue ?? ''].flat().join('')).join('')}})"""
FILL = """([id, text]) => jupyterapp.shell.currentWidget.content.widgets.filter(cell => cell.model.type === 'code'
    && cell.model.sharedModel.getMetadata('satlib')?.exercise === id && cell.model.sharedModel.getMetadata('satlib')?.role === 'answer'
    ).map(cell => cell.model.sharedModel.setSource(text)).length"""
IDLE = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
BYTES = """async image => {
    const bytes = new Uint8Array(await (await fetch(image.src)).arrayBuffer());
    return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ''));
}"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course, so that nothing saves into the checkout, and notebooks with one widget alone."""
    course = tmp_path_factory.mktemp("lab") / "course"
    (course / "tools").mkdir(parents=True)
    (course / ".venv").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/install.sh"):
        shutil.copy(ROOT / name, course / name)
    shutil.copytree(ROOT / "tools" / "jupyter", course / "tools" / "jupyter")
    shutil.copytree(ROOT / "notebooks", course / "notebooks", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (course / ".venv" / ".installed").touch()  # newer than what it is made from: nothing is installed
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in SCRUBBER]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), course / "notebooks" / "scrubber.ipynb")
    return course


@pytest.fixture(scope="module")
def lab(chromium, course):
    """The address of a JupyterLab that `make lab` started in the course."""
    tmp_path = course.parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        f"JUPYTER{name}": str(tmp_path / name.strip("_").lower())
        for name in ("_CONFIG_DIR", "_DATA_DIR", "_RUNTIME_DIR", "LAB_WORKSPACES_DIR", "LAB_SETTINGS_DIR")
    }
    # The page's own objects are shown to the test; everything else is as a reader has it.
    arguments = (
        f"--no-browser --allow-root --ip=127.0.0.1 --port={port} --ServerApp.port_retries=0 "
        f"--IdentityProvider.token={TOKEN} --LabApp.expose_app_in_browser=True"
    )
    log = tmp_path / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            ["make", "lab", f"BIN={Path(sys.executable).parent}", f"ARGS={arguments}"],
            cwd=course,
            env={**os.environ, **own, "IPYTHONDIR": str(tmp_path / "ipython"), "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(480):
            assert server.poll() is None, log.read_text()
            with contextlib.suppress(requests.RequestException):
                requests.get(f"{address}/api/status?token={TOKEN}", timeout=5)
                break
            time.sleep(0.5)
        else:
            pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")
        yield address
    finally:
        _end(server)


def _end(server):
    """Ask JupyterLab to end, which ends its kernels; whatever is left after that is killed."""
    family = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("jupyter-lab" in part for part in process.cmdline()):
                process.terminate()
    for process in psutil.wait_procs(family, timeout=20)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    server.kill()
    server.wait()


@pytest.fixture
def page(browser, lab):
    """An empty page; the kernels that it starts end with it."""
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    page.set_default_timeout(240_000)
    yield page
    page.close()
    for kernel in requests.get(f"{lab}/api/kernels?token={TOKEN}").json():
        requests.delete(f"{lab}/api/kernels/{kernel['id']}?token={TOKEN}")


def _open(page, lab, path):
    """A notebook in JupyterLab, its kernel ready."""
    page.goto(f"{lab}/lab/tree/{path}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    page.wait_for_function("() => jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'")


def test_a_source_is_opened_as_a_notebook(page, lab):
    _open(page, lab, "notebooks/09_reading_the_model.py")
    cells = page.evaluate(CELLS)
    assert cells[0]["text"].startswith("# 9. ")
    assert {cell["kind"] for cell in cells} == {"markdown", "code"}


def test_a_link_of_the_index_opens_a_notebook_at_its_heading(page, lab):
    page.goto(f"{lab}/lab/tree/notebooks/INDEX.md?token={TOKEN}&reset")
    link = page.locator(".jp-RenderedMarkdown a", has_text="04, ").first  # rendered: a preview, not an editor
    heading = link.text_content().removeprefix("04, ")
    link.click()
    found = page.locator(".jp-NotebookPanel h2, .jp-NotebookPanel h3", has_text=heading).first
    found.wait_for()
    for _ in range(60):
        box = found.bounding_box()
        if box and 0 < box["y"] < 900:
            break
        page.wait_for_timeout(500)
    else:
        pytest.fail(f"{heading} is at {box}")


def _run_all(page, nth=1, errors=False):
    """Run every cell of the notebook in front, wait until each has run, and give the cells of code; without an error in any, or with.

    nth: how often this kernel has then run them all; what is committed has numbers of an earlier kernel.
    """
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    deadline = time.monotonic() + 600
    while True:
        cells = [cell for cell in page.evaluate(CELLS) if cell["kind"] == "code" and cell["text"].strip()]
        wrong = [cell["text"] for cell in cells if "error" in cell["kinds"]]
        assert errors or not wrong, wrong
        numbers = list(range((nth - 1) * len(cells) + 1, nth * len(cells) + 1))
        if [cell["count"] for cell in cells] == numbers and page.evaluate(IDLE):
            return cells
        assert time.monotonic() < deadline, f"{sum(bool(cell['count']) for cell in cells)} of {len(cells)} cells ran"
        page.wait_for_timeout(1000)


def test_the_scrubbers_light_follows_a_hand_and_a_click_changes_the_word(page, lab):
    _open(page, lab, "notebooks/scrubber.ipynb")
    _run_all(page)
    image, handle = page.locator("img.widget-image").first, page.locator(".noUi-handle").first
    marked, words = page.locator("span[style*='background']").first, page.locator(".widget-html").first.locator("span")
    image.wait_for()
    assert marked.inner_text() == "a"  # it starts at the first word
    before = image.evaluate(BYTES)

    handle.hover()  # drag it along the sentence
    page.mouse.down()
    target, own = words.nth(4).bounding_box(), handle.bounding_box()
    page.mouse.move(target["x"] + target["width"] / 2, own["y"] + own["height"] / 2, steps=8)
    page.mouse.up()
    page.wait_for_function("() => document.querySelector(`span[style*='background']`).innerText === 'circle'")
    assert image.evaluate(BYTES) != before

    box = image.bounding_box()
    page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 0.75 * box["height"])  # the star
    page.wait_for_function("() => document.querySelector(`span[style*='background']`).innerText === 'star'")
    assert words.nth(10).inner_text() == "star"

    page.get_by_title("look at row 11, column 4").first.focus()  # and back to the circle, by the keyboard
    page.keyboard.press("Space")
    page.wait_for_function("() => document.querySelector(`span[style*='background']`).innerText === 'circle'")
    handle.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector(`span[style*='background']`).innerText === 'blue'")

    page.get_by_role("button", name="green", exact=True).click()  # another word, and the caption goes on from it
    page.wait_for_function("() => document.querySelector(`span[style*='background']`).innerText === 'green'")


def verdicts(cells):
    """What each check says, by its exercise; and what the last cell says of the progress."""
    checks = {cell["text"].split('"')[1]: cell["out"] for cell in cells if cell["text"].startswith("check(")}
    return checks, cells[-1]["out"]


def test_exercises_from_blank_to_done_with_a_mistake_on_the_way(page, lab, course):
    """Run All as it is, then with a mistake, then with it mended: each time every cell runs, and the checks say what is so."""
    source = SMALL
    folder = course / "exercises"
    folder.mkdir()
    nbformat.write(exercises.generate(source, editions.WORK), folder / f"{source.stem}.ipynb")
    _open(page, lab, f"exercises/{source.stem}.ipynb")
    answers = {
        cell.metadata["satlib"]["exercise"]: cell.source
        for cell in exercises.generate(source, editions.SOLVED).cells
        if cell.metadata.get("satlib", {}).get("role") == "answer"
    }
    tasks = chapter(5)
    assert list(answers) == list(tasks)

    checks, progress = verdicts(_run_all(page, 1, errors=True))
    assert checks == {id: f"{id} is blank: {asked.todo}" for id, asked in tasks.items()}
    assert progress.startswith(f"0 of {len(tasks)} done\nblank: {', '.join(tasks)}\nnext: 5.1 ")

    mistaken = "def penalty(alphas: Tensor) -> Tensor:\n    return (1 - alphas).square().sum((1, 2))"
    for id, text in (answers | {"5.2": mistaken}).items():
        assert page.evaluate(FILL, [id, text]) == 1
    checks, progress = verdicts(_run_all(page, 2, errors=True))
    assert checks.pop("5.2").removeprefix("5.2 is wrong: ") in tasks["5.2"].mistakes
    assert all(said.startswith(f"\x1b[32m{id} is right: ") for id, said in checks.items())
    assert f"{len(tasks) - 1} of {len(tasks)} done" in progress
    assert "not right yet: 5.2\nnext: 5.2 The penalty" in progress

    assert page.evaluate(FILL, ["5.2", answers["5.2"]]) == 1
    checks, progress = verdicts(_run_all(page, 3, errors=True))
    assert all(said.startswith(f"\x1b[32m{id} is right: ") for id, said in checks.items())
    assert progress.startswith(f"{len(tasks)} of {len(tasks)} done: 5.1, ")

    page.keyboard.press("Control+s")
    page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")
    path = folder / f"{source.stem}.ipynb"
    assert exercises.edited(nbformat.read(path, 4))  # `make exercises` leaves it alone
    assert answers["5.2"] in [cell.source for cell in nbformat.read(path, 4).cells]
