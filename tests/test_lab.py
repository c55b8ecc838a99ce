"""A notebook in JupyterLab, as a reader has it: a word is pressed, and a click on the picture changes it; copies stay the reader's.

Needs Chromium (apt install chromium) and Playwright (of the dev extra); skipped where one of them is missing.
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

Scrubber(satlib.load("scenes-soft", "cpu"), {"a drawn scene": scenes.scene("test-000003").photo()})"""
LAB = Path(__file__).resolve().parent.parent / "tools" / "lab.sh"
PORT, TOKEN = 8917, "let-me-in"
MARKED = "document.querySelector(`button[style*='rgb(0, 114, 178)']`)?.innerText"


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """The address of a notebook with the scrubber alone, in a JupyterLab that starts while the browser does."""
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
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder),
        "JUPYTER_DATA_DIR": str(folder / "data"),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "jupyter", "lab", *options], cwd=folder, env=environment
    ) as server:
        yield f"http://127.0.0.1:{PORT}/lab/tree/scrubber.ipynb?token={TOKEN}"
        server.terminate()


def test_a_word_is_pressed_and_a_click_on_the_picture_changes_it(lab, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1100})
    page.set_default_timeout(240_000)
    for _ in range(600):
        with contextlib.suppress(Exception):  # the server is not there yet
            page.goto(lab)
            break
        time.sleep(0.2)
    page.get_by_text("| Idle").wait_for()  # the kernel is there; what is run earlier is lost
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(f"() => {MARKED} === 'a'")  # it starts at the first word
    page.locator(".widget-button", has_text="circle").first.click()
    page.wait_for_function(f"() => {MARKED} === 'circle'")
    box = page.locator("img.widget-image").first.bounding_box()
    page.mouse.click(box["x"] + 0.68 * box["width"], box["y"] + 0.75 * box["height"])  # the star
    page.wait_for_function(f"() => {MARKED} === 'star'")


def test_what_a_learner_has_saved_stays_and_the_rest_is_renewed(tmp_path):
    mine, other = (tmp_path / "work" / name / "00.ipynb" for name in ("notebooks", "exercises"))
    (tmp_path / "jupyter").touch(0o755)

    def lab(text):
        for name in (
            "notebooks/00.ipynb",
            "notebooks/INDEX.md",
            "exercises/00.ipynb",
            "exercises/AGENTS.md",
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        subprocess.run(
            ["sh", LAB], cwd=tmp_path, env=os.environ | {"BIN": str(tmp_path)}, check=True
        )

    lab("one [a](../docs/a.md) [b](../exercises/00.ipynb)")
    assert (
        mine.read_text()
        == other.read_text()
        == "one [a](../../docs/a.md) [b](../exercises/00.ipynb)"
    )
    mine.write_text("my work")
    lab("two")
    assert (mine.read_text(), other.read_text()) == ("my work", "two")
