"""A notebook in JupyterLab, as a reader has it: a word is pressed, and a click on the picture
changes it; copies stay the reader's.

Needs Chromium (apt install chromium) and Playwright (of the dev extra); skipped where one of them
is missing.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

CELL = """\
import satlib
from satcourse.widgets.scrubber import Scrubber
from satlib.data import scenes

photographs = {"a drawn scene": scenes.scene("test-000003").photo()}
Scrubber(satlib.load("scenes-soft", "cpu"), photographs)"""
LAB = Path(__file__).resolve().parent.parent / "tools" / "lab.sh"
PORT = 8917
TOKEN = "let-me-in"
# The button of the chosen word is blue.
MARKED = "document.querySelector(`button[style*='rgb(0, 114, 178)']`)?.innerText"


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """The address of a notebook with the scrubber alone, in a JupyterLab that starts while the
    browser does.
    """
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata=kernel)
    nbformat.write(notebook, folder / "scrubber.ipynb")
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={PORT}",
        f"--IdentityProvider.token={TOKEN}",
    ]
    # Apart from the settings of whoever runs the tests.
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder),
        "JUPYTER_DATA_DIR": str(folder / "data"),
    }
    command = [sys.executable, "-m", "jupyter", "lab", *options]
    with subprocess.Popen(command, cwd=folder, env=environment) as server:
        yield f"http://127.0.0.1:{PORT}/lab/tree/scrubber.ipynb?token={TOKEN}"
        server.terminate()


def test_a_word_is_pressed_and_a_click_on_the_picture_changes_it(lab, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    page.set_default_timeout(240_000)
    for _ in range(600):
        # As long as the server is not there yet, going to it fails.
        with contextlib.suppress(Exception):
            page.goto(lab)
            break
        time.sleep(0.2)

    # What is run before the kernel is there is lost.
    page.get_by_text("| Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    # It starts at the first word.
    page.wait_for_function(f"() => {MARKED} === 'a'")

    page.locator(".widget-button", has_text="circle").first.click()
    page.wait_for_function(f"() => {MARKED} === 'circle'")

    # There the star is.
    box = page.locator("img.widget-image").first.bounding_box()
    x = box["x"] + 0.68 * box["width"]
    y = box["y"] + 0.75 * box["height"]
    page.mouse.click(x, y)
    page.wait_for_function(f"() => {MARKED} === 'star'")


def test_what_a_learner_has_saved_stays_and_the_rest_is_renewed(tmp_path):
    mine = tmp_path / "work" / "notebooks" / "00.ipynb"
    other = tmp_path / "work" / "exercises" / "00.ipynb"
    # In place of JupyterLab, a program that does nothing.
    (tmp_path / "jupyter").touch(0o755)

    def lab(text):
        for name in (
            "notebooks/00.ipynb",
            "notebooks/INDEX.md",
            "exercises/00.ipynb",
            "exercises/AGENTS.md",
        ):
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        environment = os.environ | {"BIN": str(tmp_path)}
        subprocess.run(["sh", LAB], cwd=tmp_path, env=environment, check=True)

    lab("one [a](../docs/a.md) [b](../exercises/00.ipynb)")
    # The copies are a folder deeper; a link from copy to copy stays.
    copied = "one [a](../../docs/a.md) [b](../exercises/00.ipynb)"
    assert mine.read_text() == copied
    assert other.read_text() == copied

    mine.write_text("my work")
    lab("two")
    assert mine.read_text() == "my work"
    assert other.read_text() == "two"
