"""notebooks/INDEX.md: from an equation, a section or a claim of the paper to the notebook, the function and the test that treat it.

A line `<!-- index: key | text | object | test -->` in a notebook's source marks the section in which it stands.
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
    """One line of the index: an equation or a claim, the function and the test that treat it, and where."""

    key: str
    text: str
    object: str
    test: str
    notebook: str
    heading: str
    cell: str


def marks(notebooks: Mapping[str, NotebookNode]) -> list[Mark]:
    """Every mark of the notebooks (by name): equations first, then sections, then claims."""
    found = []
    for name, notebook in notebooks.items():
        heading = cell_id = ""
        for cell in notebook.cells:
            for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
                if re.match(r"#+ ", line):
                    heading, cell_id = line.lstrip("# ").strip(), cell.id
                if mark := MARK.fullmatch(line):
                    found.append(Mark(*mark.groups(), name, heading, cell_id))

    def order(mark: Mark) -> tuple[int, list[int], str]:
        kind = KINDS.index(mark.key.split()[0])
        return (
            kind,
            [] if kind == 2 else list(map(int, re.findall(r"\d+", mark.key))),
            mark.notebook,
        )

    return sorted(found, key=order)


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
    paths = ("/".join(parts[:length]) + ".py" for length in range(len(parts), 0, -1))
    return next(path for path in paths if (ROOT / path).is_file())
