"""notebooks/INDEX.md: from the paper to the course.

An equation, a section or a claim leads to the notebook, the function and the test that treat it. A
line `<!-- index: key | text | object | test -->` in a notebook's source marks the section in which
it stands.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- index: ([^|]+) \| (.+) \| ([\w.]+) \| (\S+) -->")
KINDS = ("equation", "section", "claim:")
HEAD = """\
# Index: from the paper to the course

Equations and sections are those of *Show, Attend and Tell*; claims are what the paper and introductions to attention say,
tried out. `make notebooks` writes this page from marks in the notebooks.

| | what | notebook | satlib | test |
| --- | --- | --- | --- | --- |
"""


class Mark(NamedTuple):
    """One line of the index."""

    key: str  # "equation 4", "section 4.2.1" or "claim: ..."
    text: str
    object: str  # dotted, the function or class that treats it
    test: str  # a file, or file::name

    # Where the mark stands.
    notebook: str
    heading: str
    cell: str  # the id of the heading's cell


def marks(notebooks: Mapping[str, NotebookNode]) -> list[Mark]:
    """Every mark of the notebooks (by name): equations first, then sections, then claims."""
    found = []
    for name, notebook in notebooks.items():
        heading = cell_id = ""
        for cell in notebook.cells:
            if cell.cell_type != "markdown":
                continue
            for line in cell.source.splitlines():
                if re.match(r"#+ ", line):
                    heading = line.lstrip("# ").strip()
                    cell_id = cell.id
                if mark := MARK.fullmatch(line):
                    found.append(Mark(*mark.groups(), name, heading, cell_id))

    return sorted(found, key=_order)


def _order(mark: Mark) -> tuple[int, list[int], str]:
    kind = mark.key.split()[0]
    # As numbers, so that section 4.2.1 comes after 4.2 and equation 10 after 9.
    numbers = [int(number) for number in re.findall(r"\d+", mark.key)]
    # A number in a claim is part of its words.
    return KINDS.index(kind), [] if kind == "claim:" else numbers, mark.notebook


def page(notebooks: Mapping[str, NotebookNode]) -> str:
    """The text of notebooks/INDEX.md; JupyterLab and nbconvert both know cells by their ids."""
    lines = []
    for mark in marks(notebooks):
        place = f"[{mark.notebook[:2]}, {mark.heading}]({mark.notebook}.ipynb#cell-id={mark.cell})"
        file = _file_of(mark.object)
        test, _, name = mark.test.partition("::")
        links = f"[`{mark.object}`](../{file}) | [`{name or test}`](../{test})"
        lines.append(f"| {mark.key} | {mark.text} | {place} | {links} |\n")
    return HEAD + "".join(lines)


def _file_of(dotted: str) -> str:
    """The file of an object: satlib.model.attention.SoftAttention -> satlib/model/attention.py."""
    parts = dotted.split(".")
    # Drop names from the end until a file is left: an object's, or a method's and its class's.
    while not (ROOT / f"{'/'.join(parts)}.py").is_file():
        parts.pop()
    return f"{'/'.join(parts)}.py"
