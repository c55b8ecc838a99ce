"""One source, three editions: from notebooks/NN_name.py the notebook to read, the workbook, and the workbook with its answers.

A code cell with the tag `task:4.1` holds a task of satcourse.checks. What stands in it between `# BEGIN SOLUTION` and
`# END SOLUTION` is a blank in the workbook; markdown cells with the tags "hint" and "pseudocode" may follow. A section whose heading has
the tag "workbook" is in the workbook alone. A cell with the tag "claims", the folded assertions that check the numbers of the prose, is in
the notebook to read alone. Markdown with the tag "answer", which tells what a sealed cell shows, is folded everywhere.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import jupytext
from install_cell import opening
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from satcourse.checks.engine import task
from satcourse.checks.task import Task

READ, WORK, SOLVED = "notebooks", "exercises", "solutions"  # an edition is named by its folder
FOLDS = {"hint", "pseudocode"}
FOLDED = "<details><summary>{}</summary>\n\n{}\n\n</details>"
SOLUTION = re.compile(r"^( *)# BEGIN SOLUTION\n(.*?)^ *# END SOLUTION\n?", re.MULTILINE | re.DOTALL)
TO_READ = """\
*This edition is to be read. In [the workbook](../exercises/{name}.ipynb) you write the functions yourself, and checks look at them.*"""
TO_WRITE = """\
*This is the workbook of [this notebook](../notebooks/{name}.ipynb): the same text with blanks. Where a cell says `your code here`, \
write, run the cell, and run the check below it; a hint and the solution are folded under the check. What passes its check is what \
later cells use. Until then they use satlib's own, so Run All works at any time.*"""


def cells(source: Path, edition: str) -> list[NotebookNode]:
    """The cells of an edition, `READ`, `WORK` or `SOLVED`, of notebooks/NN_name.py."""
    first, *rest = [part for cell in jupytext.read(source).cells for part in parted(cell)]
    first.source += "\n\n" + (TO_READ if edition == READ else TO_WRITE).format(name=source.stem)
    result = [first, *opening(f"{edition}/{source.stem}.ipynb")]
    if edition == READ:
        result += _to_read(rest)
    else:
        result.append(new_code_cell("from satcourse.checks import carry_on, check, progress"))
        result += _to_write(rest, edition)
        result.append(
            new_markdown_cell(
                "## How far you are\n\nRun this at any time: it counts the checks of this session."
            )
        )
        result.append(new_code_cell(f"progress({int(source.stem[:2])})"))
    for number, cell in enumerate(result):
        if (
            edition != READ and cell.cell_type == "markdown"
        ):  # a link between notebooks, or to the index
            cell.source = re.sub(r"\]\((?=\d\d_\w+\.ipynb|INDEX)", "](../notebooks/", cell.source)
        cell.id = f"{'' if edition == READ else edition[0]}{source.stem[:2]}-{number:03}"  # the same each time
    return result


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
    """The cells, each task among them with its card before it, and its check and what there is to unfold after it.

    Where a later cell calls the task's function, a cell catches up: it puts satlib's own in until the learner's has passed.
    """
    for place, cell in enumerate(cells):
        id = next(
            (tag.removeprefix("task:") for tag in _tags(cell) if tag.startswith("task:")), None
        )
        if id is None:
            if not _tags(cell) & (FOLDS | {"claims"}):
                cell.metadata.pop(
                    "tags", None
                )  # pictures for docs/ are taken from the notebook to read
                yield cell
            continue
        exercise, later = task(id), cells[place + 1 :]
        yield new_markdown_cell(f"### {id} {exercise.title}\n\n{card(exercise)}")
        yield _of_task(
            solved(cell.source) if edition == SOLVED else stub(cell.source, id), id, "answer"
        )
        yield _of_task(f'check("{id}", {exercise.name})', id, "check")
        folds = [
            ((_tags(each) & FOLDS).pop(), each.source)
            for each in takewhile(lambda each: _tags(each) & FOLDS, later)
        ]
        folds.append(("solution", f"```python\n{solved(cell.source)}\n```"))
        yield new_markdown_cell(
            "\n".join(FOLDED.format(name.capitalize(), text.strip()) for name, text in folds)
        )
        # Called, that is: a parameter or a variable of the same name needs nothing.
        if any(
            each.cell_type == "code" and re.search(rf"(?<!def )\b{exercise.name}\(", each.source)
            for each in later
        ):
            comment = "  # yours, once it has passed its check; satlib's own until then"
            yield _of_task(f'{exercise.name} = carry_on("{id}"){comment}', id, "catch-up")


def card(task: Task) -> str:
    """What to expect of a task: difficulty out of three, minutes, and where it is in the paper."""
    stars = "●" * task.difficulty + "○" * (3 - task.difficulty)
    minutes = f"{task.minutes} minutes" if task.minutes > 1 else "1 minute"
    return " · ".join(filter(None, [stars, minutes, task.equation]))


def stub(code: str, id: str) -> str:
    """A task's cell with the solution cut out: still valid Python that does nothing."""
    return SOLUTION.sub(rf"\1...  # {id}: your code here\n", code).rstrip("\n")


def solved(code: str) -> str:
    """A task's cell without its marks."""
    return SOLUTION.sub(lambda match: match[2], code).rstrip("\n")


def parted(cell: NotebookNode) -> list[NotebookNode]:
    """A markdown cell parted before each heading, so that a link to a heading is a link to a cell; an answer folded."""
    if "answer" in _tags(cell):
        cell.source = FOLDED.format("The answer", cell.source)
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


def _of_task(text: str, id: str, role: str) -> NotebookNode:
    """A code cell that `satlib check` knows as a task's: its "answer", "check" or "catch-up"."""
    return new_code_cell(text, metadata={"satlib": {"exercise": id, "role": role}})


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))
