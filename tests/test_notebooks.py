"""The course as it is committed: notebooks are what their sources give, and every link of the index leads somewhere."""

import ast
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import editions  # noqa: E402
import install_cell  # noqa: E402

import notebooks  # noqa: E402
from satcourse.exercises.engine import chapter  # noqa: E402

SOURCES = notebooks.sources()
MARKS: list = []
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module", autouse=True)
def _generated_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebooks, "generate", cache(notebooks.generate))
        MARKS[:] = notebooks.marks()
        yield


def test_notebooks_are_what_their_sources_give_run_once_from_top_to_bottom():
    assert [problem for source in SOURCES for problem in notebooks.problems(source)] == []


def test_a_quoted_formula_is_on_one_line():
    """JupyterLab takes formulas out of the text first, so the mark of a quotation inside one would be shown as "greater than"."""
    paths = [path for name in ("notebooks", "exercises", "solutions") for path in (ROOT / name).glob("*.ipynb")]
    formulas = [
        (path.name, formula[0])
        for path in paths
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "markdown"
        for formula in re.finditer(r"\$\$.*?\$\$", cell.source, re.DOTALL)
    ]
    assert len(formulas) > 20
    assert [formula for formula in formulas if re.search(r"\n\s*>", formula[1])] == []


BUDGET = (
    r"\*\*Minutes\*\*: \d+ to read, \d+(\.\d+)? to run on two CPU cores\. \*\*Memory\*\*: \d+\.\d GB\. \*\*Needs\*\*: "
)
TIME = r"\*\*Time\*\*: (\d+) minutes to read, (\d+) more to write, \d+ seconds to run on two CPU cores\.\s\*\*Memory\*\*: \d+\.\d GB\. "


def form(source):
    """What a notebook lacks: title, goals, budget, how satlib is installed, closing sections, pictures, assertions."""
    notebook = nbformat.read(source.with_suffix(".ipynb"), 4)
    first, *rest = notebook.cells
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    opening = [cell.source for cell in install_cell.opening(f"notebooks/{source.stem}.ipynb")]
    tree = ast.parse(source.read_text(encoding="utf-8"))
    if editions.has_workbook(source):
        budget, closing = re.search(TIME, first.source), ("What to remember", "References")
        stated = budget and abs(int(budget[1]) - notebooks.minutes_to_read(notebook, seconds_a_line=5)) <= 5
        stated = stated and int(budget[2]) == sum(task.minutes for task in chapter(int(source.stem[:2])).values())
    else:
        budget, closing = re.search(BUDGET, first.source), ("Try it", "What to remember", "References")
        stated = re.search(r"\*\*Minutes\*\*: (\d+) to read", first.source)
        stated = stated and abs(int(stated[1]) - notebooks.minutes_to_read(notebook)) <= 5
    conditions = {
        "title with its number": first.source.startswith(f"# {int(source.stem[:2])}. "),
        "goals": "**You will be able to**" in first.source,
        "budget": budget,
        "minutes": stated,
        "installing cell": [cell.source for cell in rest[: len(opening)]] == opening,
        **{name: re.search(rf"^## {name}", text, re.M) for name in closing},
        "no error": not any(output.output_type == "error" for output in outputs),
        "picture": any(map(notebooks.shows_picture, outputs)),
        "three assertions": sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= 3,
    }
    return [f"{source.stem}: {name}" for name, holds in conditions.items() if not holds]


def test_notebooks_have_their_form():
    assert [lack for source in SOURCES for lack in form(source)] == []


def test_no_function_or_class_is_defined_in_two_notebooks():
    """One idea, one place: what two notebooks need is in satlib."""
    found = {}
    for source in SOURCES:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(ast.unparse(ast.Module(node.body, [])), set()).add((source.stem, node.name))
    assert {text: names for text, names in found.items() if len(names) > 1} == {}


def test_every_equation_and_section_of_the_method_has_its_place():
    keys = {mark.key for mark in MARKS}
    assert {f"equation {number}" for number in range(1, 15)} <= keys
    assert {
        f"section {number}" for number in ("3.1", "3.1.1", "3.1.2", "4.1", "4.2", "4.2.1", "4.3", "5.1", "5.3", "5.4")
    } <= keys
    assert {mark.notebook for mark in MARKS} == {source.stem for source in SOURCES}


def test_index_marks_lead_to_a_function_and_a_test():
    wrong = []
    for mark in MARKS:
        path, *names = mark.test.split("::")
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body if (ROOT / path).is_file() else []
        for name in names:
            body = [part for node in body if getattr(node, "name", "") == name for part in node.body]
        try:
            pkgutil.resolve_name(mark.object)
        except (ImportError, AttributeError) as error:
            wrong.append(f"{mark.notebook}, {mark.key}: {error}")
        wrong += [] if body else [f"{mark.notebook}, {mark.key}: there is no test {mark.test}"]
    assert wrong == []


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
            # A file: JupyterLab opens no folder.
            if not path.is_file() or (anchor and not ids.get(path, {}).get(anchor, "").startswith("#")):
                broken.append(f"{page.name}: {target}")
    assert broken == []
