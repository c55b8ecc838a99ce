"""One source, three editions: notebooks/NN_name.py gives the notebook to read and two workbooks.

The workbooks are one with blanks and one with its answers. Tags say what a cell is:

    task:4.1    code that holds a task of satcourse.checks; what stands between `# BEGIN SOLUTION`
                and `# END SOLUTION` is a blank in the workbook
    hint, pseudocode    Markdown that may follow a task, folded under its check
    workbook    a heading: its section is in the workbooks alone
    claims      folded assertions that check the numbers in the prose; in the notebook to read alone
    answer      Markdown that tells what a sealed cell shows; folded everywhere
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import takewhile
from pathlib import Path

import jupytext
from install_cell import opening
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from satcourse.checks.engine import task
from satcourse.checks.task import Task

# An edition is named after its folder.
READ = "notebooks"
WORK = "exercises"
SOLVED = "solutions"
FOLDS = {"hint", "pseudocode"}
FOLDED = "<details><summary>{}</summary>\n\n{}\n\n</details>"
SOLUTION = re.compile(r"^( *)# BEGIN SOLUTION\n(.*?)^ *# END SOLUTION\n?", re.MULTILINE | re.DOTALL)
TO_READ = (
    "*This edition is to be read. In [the workbook](../exercises/{name}.ipynb) you write the "
    "functions yourself, and checks look at them.*"
)
TO_WRITE = (
    "*This is the workbook of [this notebook](../notebooks/{name}.ipynb): the same text with "
    "blanks. Where a cell says `your code here`, write, run the cell, and run the check below it; "
    "a hint and the solution are folded under the check. What passes its check is what later cells "
    "use. Until then they use satlib's own, so Run All works at any time.*"
)
PROGRESS = "## How far you are\n\nRun this at any time: it counts the checks of this session."


def cells(source: Path, edition: str) -> list[NotebookNode]:
    """The cells of an edition, `READ`, `WORK` or `SOLVED`, of notebooks/NN_name.py."""
    first, *rest = [part for cell in jupytext.read(source).cells for part in parted(cell)]
    about = TO_READ if edition == READ else TO_WRITE
    first.source += "\n\n" + about.format(name=source.stem)
    result = [first, *opening(f"{edition}/{source.stem}.ipynb")]

    number = source.stem[:2]
    if edition == READ:
        prefix = number
        result += _to_read(rest)
    else:
        prefix = edition[0] + number
        result.append(new_code_cell("from satcourse.checks import carry_on, check, progress"))
        result += _to_write(rest, edition)
        result.append(new_markdown_cell(PROGRESS))
        result.append(new_code_cell(f"progress({int(number)})"))

        # Links to other notebooks, or to the index, lead to another folder from here.
        for cell in result:
            if cell.cell_type == "markdown":
                cell.source = re.sub(
                    r"\]\((?=\d\d_\w+\.ipynb|INDEX)", "](../notebooks/", cell.source
                )

    # nbformat makes up ids at random; ours are the same each time.
    for place, cell in enumerate(result):
        cell.id = f"{prefix}-{place:03}"
    return result


def _to_read(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells without the workbook's sections and what belongs to tasks."""
    skipped = False
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            skipped = "workbook" in tags(cell)
        if not skipped and not tags(cell) & FOLDS:
            whole = deepcopy(cell)
            whole.source = solved(cell.source)
            yield whole


def _to_write(cells: list[NotebookNode], edition: str) -> Iterator[NotebookNode]:
    """The cells, with each task's card before it, and its check and its folds after it.

    Where another cell calls the task's function, a cell catches up: it puts satlib's own in until
    the learner's has passed.
    """
    for place, cell in enumerate(cells):
        id = _task_of(cell)
        if id is not None:
            yield from _task_cells(cells, place, id, edition)
        elif not tags(cell) & (FOLDS | {"claims"}):
            # The tags are for pictures in docs/, which come from the notebook to read.
            untagged = deepcopy(cell)
            untagged.metadata.pop("tags", None)
            yield untagged


def _task_cells(
    cells: list[NotebookNode], place: int, id: str, edition: str
) -> Iterator[NotebookNode]:
    """A task's card, what to complete, its check, its folds, and a cell that catches up."""
    exercise = task(id)
    cell = cells[place]
    later = cells[place + 1 :]
    yield new_markdown_cell(f"### {id} {exercise.title}\n\n{card(exercise)}")

    answer = solved(cell.source) if edition == SOLVED else stub(cell.source, id)
    yield _of_task(answer, id, "answer")
    yield _of_task(f'check("{id}", {exercise.name})', id, "check")

    folds = []
    for fold in takewhile(lambda cell: tags(cell) & FOLDS, later):
        (name,) = tags(fold) & FOLDS
        folds.append(FOLDED.format(name.capitalize(), fold.source.strip()))
    folds.append(FOLDED.format("Solution", f"```python\n{solved(cell.source)}\n```"))
    yield new_markdown_cell("\n".join(folds))

    # Called, that is: a parameter or a variable of the same name needs nothing. Not only by later
    # cells: a class that stands earlier may call it, and is used later.
    call = re.compile(rf"(?<!def )\b{exercise.name}\(")
    others = cells[:place] + later
    if any(other.cell_type == "code" and call.search(other.source) for other in others):
        comment = "  # yours, once it has passed its check; satlib's own until then"
        yield _of_task(f'{exercise.name} = carry_on("{id}"){comment}', id, "catch-up")


def _task_of(cell: NotebookNode) -> str | None:
    """The task that a cell holds, such as "4.1"."""
    for tag in tags(cell):
        if tag.startswith("task:"):
            return tag.removeprefix("task:")
    return None


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
    """A cell in parts, its answer folded.

    Markdown is parted before each heading, so that a link to a heading is a link to a cell.
    """
    if "answer" in tags(cell):
        cell.source = FOLDED.format("The answer", cell.source)
    if cell.cell_type != "markdown":
        return [cell]

    parts: list[list[str]] = [[]]
    fenced = False
    for line in cell.source.splitlines():
        # In a block of code, # begins a comment.
        fenced ^= line.startswith("```")
        if parts[-1] and not fenced and re.match(r"#{1,4} ", line):
            parts.append([])
        parts[-1].append(line)

    return [new_markdown_cell("\n".join(part).strip(), metadata=cell.metadata) for part in parts]


def _of_task(text: str, id: str, role: str) -> NotebookNode:
    """A code cell that `satlib check` knows as a task's: its "answer", "check" or "catch-up"."""
    return new_code_cell(text, metadata={"satlib": {"exercise": id, "role": role}})


def tags(cell: NotebookNode) -> set[str]:
    """The tags of a cell."""
    return set(cell.metadata.get("tags", ()))
