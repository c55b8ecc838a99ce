"""The course as it is committed: notebooks show what they should, and every mark of the index leads somewhere."""

import ast
import pkgutil

import nbformat
from tools_path import notebooks, paper_index

SOURCES = notebooks.sources()


def test_every_notebook_shows_pictures_no_error_and_no_widget_and_holds_its_prose_to_assertions():
    for source in SOURCES:
        cells = nbformat.read(source.with_suffix(".ipynb"), 4).cells
        outputs = [output for cell in cells for output in cell.get("outputs", ())]
        kinds = {kind for output in outputs for kind in output.get("data", ())}
        assert kinds & {"image/png", "image/jpeg"}, source.stem
        assert notebooks.WIDGET not in kinds
        assert not any(output.output_type == "error" for output in outputs)
        tree = ast.parse(source.read_text(encoding="utf-8"))
        assert sum(isinstance(node, ast.Assert) for node in ast.walk(tree)) >= 3, source.stem


def test_every_equation_and_section_of_the_method_has_its_place_and_leads_to_a_function_and_a_test():
    marks = paper_index.marks({source.stem: notebooks.generate(source) for source in SOURCES})
    keys = {mark.key for mark in marks}
    assert {f"equation {number}" for number in range(1, 15)} <= keys
    sections = ("3.1", "3.1.1", "3.1.2", "4.1", "4.2", "4.2.1", "4.3", "5.1", "5.3", "5.4")
    assert {f"section {number}" for number in sections} <= keys
    assert {mark.notebook for mark in marks} == {source.stem for source in SOURCES}
    lost = []
    for mark in marks:
        path, *names = mark.test.split("::")
        body = (
            ast.parse((notebooks.ROOT / path).read_text(encoding="utf-8")).body
            if (notebooks.ROOT / path).is_file()
            else []
        )
        for name in names:
            body = [
                part for node in body if getattr(node, "name", "") == name for part in node.body
            ]
        try:
            pkgutil.resolve_name(mark.object)
        except (ImportError, AttributeError):
            lost.append(f"{mark.notebook}: {mark.object}")
        if not body:
            lost.append(f"{mark.notebook}: {mark.test}")
    assert lost == []
