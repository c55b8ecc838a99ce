"""One source, three editions: from notebooks/NN_name.py the notebook to read, the workbook, and the workbook with its answers.

A code cell with the tag `task:4.1` holds a task of satcourse.exercises. What stands in it between `# BEGIN SOLUTION` and
`# END SOLUTION` is a blank in the workbook, or what the `# STUB` lines after it say; markdown cells with the tags "hint" and
"pseudocode" may follow. A section whose heading has the tag "workbook" is in the workbook alone. A cell with the tag "claims", the
folded assertions that hold the numbers of the prose, is in the notebook to read alone.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
from install_cell import opening
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from satcourse.exercises import task
from satcourse.exercises.engine import CHAPTERS
from satcourse.exercises.task import KINDS, Task

READ, WORK, SOLVED = "notebooks", "exercises", "solutions"  # an edition is named by its folder
FOLDS = {"hint", "pseudocode"}
# The code between the marks, and in place of it either `...` or the lines that a `# STUB` after it says.
SOLUTION = re.compile(
    r"^( *)# BEGIN SOLUTION\n(.*?)^ *# END SOLUTION\n?((?: *# STUB [^\n]*\n?)*)", re.MULTILINE | re.DOTALL
)
TO_READ = """\
*This edition is to be read. In [the workbook](../exercises/{name}.ipynb), the same text with blanks, you write the functions \
yourself, and a check looks at each.*"""
TO_WRITE = """\
*This is the workbook of [this notebook](../notebooks/{name}.ipynb): the same text with blanks. Where a cell says `your code here`, \
write, run the cell, and run the check below it; a hint and the solution are folded under the check. What passes its check is what \
later cells use. Until then they use satlib's own, so Run All works at any time.*"""


def has_workbook(source: Path) -> bool:
    """Whether the notebook of a source has tasks, and so a workbook: all have but number 00."""
    return int(source.stem[:2]) in CHAPTERS


def cells(source: Path, edition: str) -> list[NotebookNode]:
    """The cells of an edition.

    Args:
        source: notebooks/NN_name.py.
        edition: `READ`, `WORK` or `SOLVED`.
    """
    first, *rest = [part for cell in jupytext.read(source).cells for part in parted(cell)]
    if has_workbook(source):
        first.source += "\n\n" + _introduction(source.stem, edition)
    result = [first, *opening(f"{edition}/{source.stem}.ipynb")]
    if edition == READ:
        result += _to_read(rest)
    else:
        result.append(new_code_cell("from satcourse.exercises import carry_on, check, progress"))
        result += _to_write(rest, edition)
        result.append(
            new_markdown_cell("## How far you are\n\nRun this at any time: it counts the checks of this session.")
        )
        result.append(new_code_cell(f"progress({int(source.stem[:2])})"))
        for cell in result:  # a link that leads from one notebook to another
            if cell.cell_type == "markdown":
                cell.source = re.sub(r"\]\((?=\d\d_\w+\.ipynb)", "](../notebooks/", cell.source)
    return numbered(result, ("" if edition == READ else edition[0]) + source.stem[:2])


def _introduction(name: str, edition: str) -> str:
    """What kind of edition this is, and where the other one is."""
    if edition == READ:
        return TO_READ.format(name=name)
    return TO_WRITE.format(name=name)


def _to_read(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells without the workbook's sections and what belongs to tasks."""
    skipped = False
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            skipped = "workbook" in _tags(cell)
        if not skipped and not _tags(cell) & FOLDS:
            cell.source = solved(cell.source)
            yield cell


def _to_write(cells: list[NotebookNode], edition: str) -> Iterator[NotebookNode]:
    """The cells, each task among them with its card before it, and its check and what there is to unfold after it."""
    for place, cell in enumerate(cells):
        exercise, later = _task(cell), cells[place + 1 :]
        if exercise is None:
            if not _tags(cell) & (FOLDS | {"claims"}):
                cell.metadata.pop("tags", None)  # pictures for docs/ are taken from the notebook to read
                yield cell
            continue
        yield new_markdown_cell(f"### {exercise.id} {exercise.title}\n\n{card(exercise)}")
        text = solved(cell.source) if edition == SOLVED else stub(cell.source, exercise.id)
        yield of_task(text, exercise.id, "answer")
        yield from closing(exercise, cell.source, _folds(later), later)


def _folds(later: list[NotebookNode]) -> dict[str, str]:
    """The hint and the pseudocode that follow a task."""
    folds = {}
    for cell in later:
        if not _tags(cell) & FOLDS:
            break
        folds[(_tags(cell) & FOLDS).pop()] = cell.source
    return folds


def closing(exercise: Task, code: str, folds: dict[str, str], later: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells that end a task: its check, what there is to unfold, and where a `later` cell calls the function, the catch-up.

    Raises:
        SystemExit: the function is not defined in `code`.
    """
    name = exercise.name
    if f"def {name}(" not in code:
        raise SystemExit(f"exercise {exercise.id} lacks def {name}")
    yield of_task(f'check("{exercise.id}", {name})', exercise.id, "check")
    parts = [folded(fold.capitalize(), text) for fold, text in folds.items()]
    parts.append(folded("Solution", f"```python\n{solved(code)}\n```"))
    yield new_markdown_cell("\n".join(parts))
    # Called, that is: a parameter or a variable of the same name needs nothing.
    if any(cell.cell_type == "code" and re.search(rf"(?<!def )\b{name}\(", cell.source) for cell in later):
        said = "  # yours, once it has passed its check; satlib's own until then"
        yield of_task(f'{name} = carry_on("{exercise.id}"){said}', exercise.id, "catch-up")


def folded(title: str, text: str) -> str:
    """Markdown that is unfolded by a click."""
    return f"<details><summary>{title}</summary>\n\n{text.strip()}\n\n</details>"


def card(task: Task) -> str:
    """What to expect of a task: difficulty out of three, minutes, kind, and where it is in the paper."""
    stars = "●" * task.difficulty + "○" * (3 - task.difficulty)
    minutes = f"{task.minutes} minutes" if task.minutes > 1 else "1 minute"
    return " · ".join(filter(None, [stars, minutes, KINDS[task.kind], task.equation]))


def stub(code: str, id: str) -> str:
    """A task's cell with the solution cut out: still valid Python that does nothing."""

    def cut(match: re.Match) -> str:
        indent, given = match[1], [line.split("# STUB ", 1)[1] for line in match[3].splitlines()]
        lines = given or ["..."]
        return "".join(
            f"{indent}{line}  # {id}: your code here\n" if "..." in line else f"{indent}{line}\n" for line in lines
        )

    return SOLUTION.sub(cut, code).rstrip("\n")


def solved(code: str) -> str:
    """A task's cell without its marks."""
    return SOLUTION.sub(lambda match: match[2], code).rstrip("\n")


def parted(cell: NotebookNode) -> list[NotebookNode]:
    """A markdown cell parted before each heading, so that a link to a heading is a link to a cell."""
    if cell.cell_type != "markdown":
        return [cell]
    parts: list[list[str]] = [[]]
    fenced = False
    for line in cell.source.splitlines():
        fenced ^= line.startswith("```")
        if parts[-1] and not fenced and re.match(r"#{1,4} ", line):
            parts.append([])
        parts[-1].append(line)
    return [new_markdown_cell("\n".join(part).strip(), metadata=cell.metadata) for part in parts]


def numbered(cells: list[NotebookNode], prefix: str) -> list[NotebookNode]:
    """The cells, with ids that are the same each time, so that a difference is a difference."""
    for number, cell in enumerate(cells):
        cell.id = f"{prefix}-{number:03}"
    return cells


def of_task(text: str, id: str, role: str) -> NotebookNode:
    """A code cell that `satlib check` knows as a task's: its "answer", "check" or "catch-up"."""
    return new_code_cell(text, metadata={"satlib": {"exercise": id, "role": role}})


def _task(cell: NotebookNode) -> Task | None:
    return next((task(tag.removeprefix("task:")) for tag in _tags(cell) if tag.startswith("task:")), None)


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))
