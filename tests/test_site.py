"""The site's sources have no solution in them.

`make site` builds it; a warning, as of a lost link, is an error.
"""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from tools_path import build_site

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder that Sphinx reads, without what satlib's commands print."""
    folder = tmp_path_factory.mktemp("site") / "source"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_site, "satlib", lambda *arguments: "")
        build_site.write_source(folder, live=False)
    return folder


def test_no_solution_is_in_them(source):
    for path in sorted((ROOT / "exercises").glob("*.ipynb")):
        # The workbook itself has its solutions, folded.
        book = nbformat.read(path, 4)
        assert any("<summary>Solution</summary>" in cell.source for cell in book.cells)

        page = source / "exercises" / path.name
        download = source / "downloads" / "exercises" / path.name
        for copy in (page, download):
            cells = nbformat.read(copy, 4).cells
            text = "\n".join(cell.source for cell in cells)
            folds = re.findall(r"<summary>Solution</summary>(.*?)</details>", text, re.S)
            assert not any("```python" in fold for fold in folds)

    # The checks hold reference solutions.
    assert not list(source.rglob("*satcourse.checks*"))


def test_headings_are_one_below_another(source):
    """A page has one title, and no level is left out below it: Sphinx would fail."""
    for path in sorted(source.glob("*/[0-9][0-9]_*.ipynb")):
        cells = nbformat.read(path, 4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        marks = re.findall(r"^(#+) ", re.sub(r"(?ms)^```.*?^```", "", text), re.M)
        levels = [len(mark) for mark in marks]

        assert levels.count(1) == 1, path
        assert levels[0] == 1, path
        for level, below in pairwise(levels):
            assert below <= level + 1, path
