"""The course as it is committed: notebooks are what their sources give, and every link of the index leads somewhere."""

import ast
import importlib
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import install_cell  # noqa: E402

import notebooks  # noqa: E402

SOURCES = notebooks.sources()
MARKS = notebooks.marks()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_source_gives_run_once_from_top_to_bottom(source):
    assert notebooks.problems(source) == []


@pytest.mark.parametrize(
    "path", [p for f in ("notebooks", "exercises", "solutions") for p in sorted((ROOT / f).glob("*.ipynb"))]
)
def test_a_quoted_formula_is_on_one_line(path):
    """JupyterLab takes formulas out of the text first, so the mark of a quotation inside one would be shown as "greater than"."""
    formulas = [
        found[0]
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "markdown"
        for found in re.finditer(r"\$\$.*?\$\$", cell.source, re.DOTALL)
    ]
    assert [formula for formula in formulas if re.search(r"\n\s*>", formula)] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_has_its_form(source):
    """A title with its number, what one will be able to do, the budget, how satlib is installed, and the closing sections."""
    notebook = nbformat.read(source.with_suffix(".ipynb"), 4)
    first, *rest = notebook.cells
    assert first.source.startswith(f"# {int(source.stem[:2])}. ")
    assert "**You will be able to**" in first.source
    budget = r"\*\*Minutes\*\*: \d+ to read, \d+(\.\d+)? to run on two CPU cores\. \*\*Memory\*\*: \d+\.\d GB\. \*\*Needs\*\*: "
    assert re.search(budget, first.source)
    stated = int(re.search(r"\*\*Minutes\*\*: (\d+) to read", first.source)[1])
    assert abs(stated - notebooks.minutes_to_read(notebook)) <= 5
    opening = install_cell.opening(f"notebooks/{source.stem}.ipynb")
    assert [cell.source for cell in rest[: len(opening)]] == [cell.source for cell in opening]
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for heading in ("Try it", "What to remember", "References"):
        assert re.search(rf"^## {heading}", text, re.MULTILINE), heading
    assert not any(output.output_type == "error" for cell in notebook.cells for output in cell.get("outputs", ()))
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_asserts_what_it_claims(source):
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))) >= 3


def test_no_function_or_class_is_defined_in_two_notebooks():
    """One idea, one place: what two notebooks need is in satlib."""
    found = {}
    for source in SOURCES:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(ast.unparse(ast.Module(node.body, [])), set()).add((source.stem, node.name))
    assert {text: names for text, names in found.items() if len(names) > 1} == {}


def test_the_address_of_the_repository_stands_in_one_place():
    """pyproject.toml may have it, and the templates take it from there; a copy of it would be wrong some day."""
    sources = [*SOURCES, *(ROOT / "solutions").glob("*.py"), *(ROOT / "tools").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert install_cell.address() is None or install_cell.address() not in text
    assert not re.search(r"(github|gitlab)\.com/\w+/satlib", text)


def test_every_equation_and_section_of_the_method_has_its_place():
    keys = {mark.key for mark in MARKS}
    assert {f"equation {number}" for number in range(1, 15)} <= keys
    assert {
        f"section {number}" for number in ("3.1", "3.1.1", "3.1.2", "4.1", "4.2", "4.2.1", "4.3", "5.1", "5.3", "5.4")
    } <= keys
    assert {mark.notebook for mark in MARKS} == {source.stem for source in SOURCES}


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.notebook[:2]}-{mark.key}"[:60])
def test_an_index_mark_leads_to_a_function_and_a_test(mark):
    module, *names = _importable(mark.object)
    thing = module
    for name in names:
        thing = getattr(thing, name)
    path, *names = mark.test.split("::")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        (node,) = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
        body = node.body


def _importable(dotted):
    """The longest module in a dotted name, and the names that are left."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        if (ROOT / Path(*parts[:length])).is_dir() or (ROOT / Path(*parts[:length])).with_suffix(".py").is_file():
            return importlib.import_module(".".join(parts[:length])), *parts[length:]
    raise AssertionError(f"{dotted} is in no module")


def test_the_index_is_what_the_marks_give():
    assert (ROOT / "notebooks" / "INDEX.md").read_text(encoding="utf-8") == notebooks.index()


def test_links_of_the_index_and_between_notebooks_lead_somewhere():
    pages = {ROOT / "notebooks" / "INDEX.md": (ROOT / "notebooks" / "INDEX.md").read_text(encoding="utf-8")}
    ids = {}
    for path in [*(ROOT / "exercises").glob("[0-9]*.ipynb"), *(ROOT / "notebooks").glob("[0-9]*.ipynb")]:
        cells = nbformat.read(path, 4).cells
        pages[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        ids[path] = {f"cell-id={cell.id}": cell.source for cell in cells}
    broken = []
    for page, text in pages.items():
        for target in LINK.findall(text):
            file, _, anchor = unquote(target).partition("#")
            if "://" in target:
                continue
            path = (page.parent / (file or page.name)).resolve()
            if not path.exists() or (anchor and not ids.get(path, {}).get(anchor, "").startswith("#")):
                broken.append(f"{page.name}: {target}")
    assert broken == []
