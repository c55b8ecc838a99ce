"""A notebook in JupyterLab, as a reader has it: the scrubber's light follows a hand, and a click on the picture changes the word.

Needs Chromium (apt install chromium) and Playwright (of the dev extra); skipped where one of them is missing.
"""

import contextlib
import os
import subprocess
import sys
import time

import nbformat
import pytest

CELL = """\
import satlib
from satcourse.widgets.scrubber import Scrubber
from satlib.data import scenes

Scrubber(satlib.load("scenes-soft", "cpu"), {"a drawn scene": scenes.scene("test-000003").photo()})"""
PORT, TOKEN = 8917, "let-me-in"
MARKED = "document.querySelector(`span[style*='background']`)?.innerText"


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """The address of a notebook with the scrubber alone, in a JupyterLab that starts while the browser does."""
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata=kernel)
    nbformat.write(notebook, folder / "scrubber.ipynb")
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={PORT}", f"--IdentityProvider.token={TOKEN}"]
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(folder), "JUPYTER_DATA_DIR": str(folder / "data")}
    with subprocess.Popen([sys.executable, "-m", "jupyter", "lab", *options], cwd=folder, env=environment) as server:
        yield f"http://127.0.0.1:{PORT}/lab/tree/scrubber.ipynb?token={TOKEN}"
        server.terminate()


def test_the_scrubber_s_light_follows_a_hand_and_a_click_changes_the_word(lab, browser):
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
    words, handle = page.locator(".widget-html").first.locator("span"), page.locator(".noUi-handle").first
    handle.hover()  # drag it along the sentence
    page.mouse.down()
    target, own = words.nth(4).bounding_box(), handle.bounding_box()
    page.mouse.move(target["x"] + target["width"] / 2, own["y"] + own["height"] / 2, steps=8)
    page.mouse.up()
    page.wait_for_function(f"() => {MARKED} === 'circle'")
    box = page.locator("img.widget-image").first.bounding_box()
    page.mouse.click(box["x"] + 0.68 * box["width"], box["y"] + 0.75 * box["height"])  # the star
    page.wait_for_function(f"() => {MARKED} === 'star'")
