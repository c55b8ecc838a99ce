"""The site's sources: every link leads somewhere, and no solution is in them. `make site` builds the site; a warning is an error there."""

import json
import posixpath
import re
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


def markdown(path):
    """The text of a page in which links are links: without code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"^(`{3,}).*?^\1$|`[^`\n]+`(?!\])", "", text, flags=re.M | re.S)


def test_every_link_leads_somewhere(source):
    pages = [path for path in source.rglob("*.*") if path.suffix in (".md", ".ipynb") and "downloads" not in path.parts]
    links = [
        (page.relative_to(source).as_posix(), link)
        for page in pages
        for link in re.findall(r"\]\(([^)\s]+)\)", markdown(page))
    ]
    inner = [(page, link.partition("#")[0]) for page, link in links if "://" not in link and link[0] != "#"]
    assert len(inner) > 100
    lost = [(page, link) for page, link in inner if not (source / posixpath.dirname(page) / link).exists()]
    assert [
        (page, link) for page, link in lost if not link.startswith("mailto:") and link != "exercises/index.md"
    ] == []
    assert len(build_site.modules()) > 50


def test_no_solution_is_in_them(source):
    for path in sorted((ROOT / "exercises").glob("*.ipynb")):
        book = nbformat.read(path, 4)
        assert any("<summary>Solution</summary>" in cell.source for cell in book.cells)
        for copy in (source / "exercises" / path.name, source / "downloads" / "exercises" / path.name):
            text = "\n".join(cell.source for cell in nbformat.read(copy, 4).cells)
            folds = re.findall(r"<summary>Solution</summary>(.*?)</details>", text, re.S)
            assert not any("```python" in fold for fold in folds)
    assert not list(source.rglob("*satcourse.exercises*"))
