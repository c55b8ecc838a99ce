"""notebooks/INDEX.md, from the paper to the course, and QUESTIONS.md, from what people ask.

An equation, a section or a claim leads to the notebook, the function and the test that treat it. A
line `<!-- index: key | text | object | test -->` in a notebook's source marks the section in which
it stands. A line `<!-- asked: question | answer -->` says what that section answers, in the words
in which people ask.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- index: ([^|]+) \| (.+) \| ([\w.]+) \| (\S+) -->")
# An angle bracket would end the comment for some readers of HTML, and a bar would end a table's cell.
ASKED = re.compile(r"<!-- asked: ([^|<>]+\?) \| ([^|<>]+\.) -->")
KINDS = ("equation", "section", "claim:")
HEAD = """\
# Index: from the paper to the course

Equations and sections are those of *Show, Attend and Tell*; claims are what the paper and introductions to attention say,
tried out. `make notebooks` writes this page from marks in the notebooks.

| | what | notebook | satlib | test |
| --- | --- | --- | --- | --- |
"""
QUESTIONS_HEAD = """\
# Questions: you ask, the course answers

In the words in which people ask. Each answer is a line; the section beside it computes it, and often says more. `make notebooks`
writes this page from marks in the notebooks.

What people ask of satlib itself is in the documentation: [METEOR crashes (Java)](../docs/start.md#install);
[my own photographs, another language](../docs/data.md); [a folder of photographs](../docs/caption.md); [scores, and what to do when
training disappoints](../docs/training.md#when-training-disappoints); [scores that we could not
reproduce](../docs/results.md#what-we-could-not-reproduce).
"""
QUESTIONS_TABLE = """
## {title}

| you ask | the answer in a line | where it is shown |
| --- | --- | --- |
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


def lines(notebook: NotebookNode) -> Iterator[tuple[str, str, str]]:
    """Each line of a notebook's Markdown, with its heading and the id of the heading's cell."""
    heading = cell_id = ""
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        for line in cell.source.splitlines():
            if re.match(r"#+ ", line):
                heading = line.lstrip("# ").strip()
                cell_id = cell.id
            yield line, heading, cell_id


def marks(notebooks: Mapping[str, NotebookNode]) -> list[Mark]:
    """Every mark of the index in the notebooks (by name): equations first, then sections, then claims."""
    found = []
    for name, notebook in notebooks.items():
        for line, heading, cell in lines(notebook):
            if mark := MARK.fullmatch(line):
                found.append(Mark(*mark.groups(), name, heading, cell))

    return sorted(found, key=_order)


def _order(mark: Mark) -> tuple[int, list[int], str]:
    kind = mark.key.split()[0]
    # As numbers, so that section 4.2.1 comes after 4.2 and equation 10 after 9.
    numbers = [int(number) for number in re.findall(r"\d+", mark.key)]
    # A number in a claim is part of its words.
    return KINDS.index(kind), [] if kind == "claim:" else numbers, mark.notebook


def page(notebooks: Mapping[str, NotebookNode]) -> str:
    """The text of notebooks/INDEX.md."""
    rows = []
    for mark in marks(notebooks):
        place = _link(f"{mark.notebook[:2]}, {mark.heading}", mark.notebook, mark.cell)
        file = _file_of(mark.object)
        test, _, name = mark.test.partition("::")
        links = f"[`{mark.object}`](../{file}) | [`{name or test}`](../{test})"
        rows.append(f"| {mark.key} | {mark.text} | {place} | {links} |\n")
    return HEAD + "".join(rows)


def questions(notebooks: Mapping[str, NotebookNode]) -> str:
    """The text of notebooks/QUESTIONS.md: a table for each notebook, in the notebook's order."""
    text = QUESTIONS_HEAD
    for name, notebook in notebooks.items():
        title = notebook.cells[0].source.partition("\n")[0].lstrip("# ")
        text += QUESTIONS_TABLE.format(title=title)
        for line, heading, cell in lines(notebook):
            if asked := ASKED.fullmatch(line):
                text += f"| {asked[1]} | {asked[2]} | {_link(heading, name, cell)} |\n"
    return text


def _link(text: str, notebook: str, cell: str) -> str:
    """A link to a cell; JupyterLab and nbconvert both know cells by their ids."""
    return f"[{text}]({notebook}.ipynb#cell-id={cell})"


def _file_of(dotted: str) -> str:
    """The file of an object: satlib.model.attention.SoftAttention -> satlib/model/attention.py."""
    parts = dotted.split(".")
    # Drop names from the end until a file is left: an object's, or a method's and its class's.
    while not (ROOT / f"{'/'.join(parts)}.py").is_file():
        parts.pop()
    return f"{'/'.join(parts)}.py"
