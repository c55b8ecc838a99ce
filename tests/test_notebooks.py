"""The course as it is committed.

Notebooks show what they should, every mark of the index leads somewhere, and every question that
is marked is on its page.
"""

import ast
import pkgutil

import nbformat
from tools_path import notebooks, paper_index

SOURCES = notebooks.sources()


def test_every_notebook_shows_pictures_no_error_and_no_widget_and_holds_its_prose_to_assertions():
    for source in SOURCES:
        cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
        outputs = []
        for cell in cells:
            outputs += cell.get("outputs", ())
        kinds = set()
        for output in outputs:
            kinds.update(output.get("data", ()))

        assert kinds & {"image/png", "image/jpeg"}, source.stem
        # A page without a kernel cannot show a widget.
        assert notebooks.WIDGET not in kinds
        assert not any(output.output_type == "error" for output in outputs)

        tree = ast.parse(source.read_text(encoding="utf-8"))
        assertions = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        assert len(assertions) >= 3, source.stem


def body_of(test):
    """The statements of FILE::CLASS::FUNCTION; an empty list if there is no such test."""
    path, *names = test.split("::")
    file = notebooks.ROOT / path
    if not file.is_file():
        return []

    body = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        inner = []
        for node in body:
            if getattr(node, "name", "") == name:
                inner += node.body
        body = inner
    return body


def test_every_equation_and_section_of_the_method_has_its_place_and_leads_to_a_function_and_a_test():
    marks = paper_index.marks({source.stem: notebooks.generate(source) for source in SOURCES})
    keys = {mark.key for mark in marks}
    assert {f"equation {number}" for number in range(1, 15)} <= keys
    # The paper's sections on the model, its training and its evaluation.
    sections = ("3.1", "3.1.1", "3.1.2", "4.1", "4.2", "4.2.1", "4.3", "5.1", "5.3", "5.4")
    assert {f"section {number}" for number in sections} <= keys
    assert {mark.notebook for mark in marks} == {source.stem for source in SOURCES}

    lost = []
    for mark in marks:
        try:
            pkgutil.resolve_name(mark.object)
        except (ImportError, AttributeError):
            lost.append(f"{mark.notebook}: {mark.object}")
        if not body_of(mark.test):
            lost.append(f"{mark.notebook}: {mark.test}")
    assert lost == []


def test_every_marked_question_is_well_formed_asked_once_and_on_the_page_with_its_answer():
    marked = []
    for source in SOURCES:
        for line in source.read_text(encoding="utf-8").splitlines():
            if "<!-- asked" in line:
                marked.append(line.removeprefix("# "))
    asked = [paper_index.ASKED.fullmatch(line) for line in marked]
    assert [line for line, match in zip(marked, asked, strict=True) if not match] == []
    assert len({match[1] for match in asked}) == len(asked) >= 80

    page = paper_index.questions({source.stem: notebooks.generate(source) for source in SOURCES})
    assert [match[0] for match in asked if f"| {match[1]} | {match[2]} | [" not in page] == []
