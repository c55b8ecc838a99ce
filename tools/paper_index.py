"""notebooks/INDEX.md: from an equation, a section or a claim of the paper to the notebook, the function and the test that treat it.

A line `<!-- index: key | text | object | test -->` in a notebook's source marks the section in which it stands.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(
    r"^<!-- index: (?P<key>[^|]+) \| (?P<text>.+) \| (?P<object>[\w.]+) \| (?P<test>\S+) -->$", re.MULTILINE
)


@dataclass(frozen=True)
class Mark:
    """One line of the index: an equation or a claim, where it is treated, by what function, and what test holds it."""

    key: str
    text: str
    notebook: str
    heading: str
    cell: str
    object: str
    test: str

    @property
    def link(self) -> str:
        """Where the heading is, from the folder of the notebooks; JupyterLab and nbconvert both know cells by their ids."""
        return f"{self.notebook}.ipynb#cell-id={self.cell}"


def marks(notebooks: Mapping[str, NotebookNode]) -> list[Mark]:
    """Every mark of every notebook, equations first, then sections, then claims.

    Args:
        notebooks: by their names, without ".ipynb".

    Raises:
        SystemExit: a mark is written wrongly.
    """
    found = []
    for name, notebook in notebooks.items():
        heading, place = "", ""
        for cell in notebook.cells:
            if cell.cell_type != "markdown":
                continue
            for line in cell.source.splitlines():
                if re.match(r"#+ ", line):
                    heading, place = line.lstrip("# ").strip(), cell.id
                mark = MARK.match(line)
                if mark:
                    where = name, heading, place
                    found.append(Mark(mark["key"], mark["text"], *where, mark["object"], mark["test"]))
                elif line.startswith("<!-- index"):
                    raise SystemExit(f"{name}: {line!r} is not `<!-- index: key | text | object | test -->`")
    kinds = {"equation": 0, "section": 1, "claim:": 2}

    def order(mark: Mark) -> tuple[int, list[int], str]:
        kind = mark.key.split()[0]
        return kinds[kind], [int(n) for n in re.findall(r"\d+", mark.key)] if kind != "claim:" else [], mark.notebook

    return sorted(found, key=order)


def page(found: Sequence[Mark]) -> str:
    """The text of notebooks/INDEX.md."""
    lines = [
        "# Index: from the paper to the course",
        "",
        "Equations and sections are those of *Show, Attend and Tell*; claims are what the paper and introductions to attention say,",
        "tried out. `make notebooks` writes this page from marks in the notebooks.",
        "",
        "| | what | notebook | satlib | test |",
        "| --- | --- | --- | --- | --- |",
    ]
    for mark in found:
        module, test = mark.object, mark.test.split("::")[0]
        lines.append(
            f"| {mark.key} | {mark.text} | [{mark.notebook[:2]}, {mark.heading}]({mark.link}) "
            f"| [`{module}`](../{_file_of(module)}) | [`{'::'.join(mark.test.split('::')[1:]) or test}`](../{test}) |"
        )
    return "\n".join(lines) + "\n"


def _file_of(dotted: str) -> str:
    """The file that holds an object: satlib.model.attention.SoftAttention -> satlib/model/attention.py."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        path = Path(*parts[:length])
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if (ROOT / candidate).is_file():
                return candidate.as_posix()
    raise SystemExit(f"an index mark names {dotted}, which is in no file")
