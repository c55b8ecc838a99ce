"""Exercises and solutions from their sources: `python tools/exercises.py make [NN ...]` or `compare`.

`make` generates exercises/NN_name.ipynb, and solutions/NN_name.ipynb, which it executes. A notebook in which somebody has worked is
left alone. `compare` writes nothing and fails where what is committed differs from what would be generated.

Their source is that of the notebook itself, notebooks/NN_name.py (editions.py).
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import editions
import nbformat
from execution import execute
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

import notebooks
from notebooks import METADATA, ROOT, cells_of, write

SOLUTIONS, EXERCISES = ROOT / "solutions", ROOT / "exercises"


def sources(names: Sequence[str] = ()) -> list[Path]:
    """The sources of the workbooks in order; of some, by the beginnings of their names."""
    return list(filter(editions.has_workbook, notebooks.sources(names)))


def generate(source: Path, with_solutions: bool) -> NotebookNode:
    """A workbook, not executed; without its solutions, it remembers what its cells were.

    Args:
        source: of the notebook.
        with_solutions: whether the answers are filled in.
    """
    result = editions.cells(source, editions.SOLVED if with_solutions else editions.WORK)
    notebook = nbformat.v4.new_notebook(cells=result, metadata=nbformat.from_dict(METADATA))
    notebook.nbformat_minor = 5
    if not with_solutions:
        notebook.metadata["satlib"] = {"generated": digest(notebook)}
    return notebook


def digest(notebook: NotebookNode) -> str:
    """What is generated: kinds and texts of the cells, without what editors change by themselves."""
    texts = [[cell.cell_type, cell.source.rstrip()] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def edited(notebook: NotebookNode) -> bool:
    """Whether somebody has worked in a notebook since it was generated."""
    return notebook.metadata.get("satlib", {}).get("generated") != digest(notebook)


def make_exercise(source: Path, folder: Path = EXERCISES) -> str:
    """Write a notebook of exercises, unless somebody has worked in it; give a line on what was done."""
    target, notebook = folder / f"{source.stem}.ipynb", generate(source, with_solutions=False)
    if target.exists():
        there = nbformat.read(target, 4)
        if edited(there):
            return f"{target.name:36} has somebody's work in it and is left alone: rename it, to have a new one written"
        if digest(there) == digest(notebook):
            return f"{target.name:36} as before"
    write(target, notebook)
    return f"{target.name:36} written"


def make_solution(source: Path) -> str:
    """Write and execute a notebook of solutions, if its cells have changed.

    Raises:
        SystemExit: a cell fails.
    """
    target, notebook = SOLUTIONS / f"{source.stem}.ipynb", generate(source, with_solutions=True)
    if target.exists() and cells_of(notebook) == cells_of(nbformat.read(target, 4)):
        return f"{target.name:36} as before"
    try:
        seconds, memory = execute(notebook)
    except CellExecutionError as error:
        raise SystemExit(f"{source.name}: {error}") from None
    write(target, notebook)
    return f"{target.name:36} {seconds:5.0f} s {memory:5.1f} GB"


def problems(source: Path) -> list[str]:
    """How the committed notebooks of a source differ from what it gives; empty if they do not."""
    lines = []
    for folder, with_solutions in ((SOLUTIONS, True), (EXERCISES, False)):
        path = folder / f"{source.stem}.ipynb"
        name = f"{path.parent.name}/{path.name}"
        if not path.exists():
            lines.append(f"{name} is missing")
            continue
        there, wanted = nbformat.read(path, 4), generate(source, with_solutions)
        if cells_of(there) != cells_of(wanted):
            lines.append(f"{name} is not what {source.name} gives")
        code = [cell for cell in there.cells if cell.cell_type == "code"]
        if not with_solutions:
            if there.metadata.get("satlib") != wanted.metadata["satlib"] or any(cell.outputs for cell in code):
                lines.append(f"{name} has somebody's work in it")
        elif [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
            lines.append(f"{name} was not run once from top to bottom")
    return lines


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("names", nargs="*", help="numbers of notebooks, by default all")
    parser.add_argument("--exercises", action="store_true", help="exercises alone: no solutions")
    arguments = parser.parse_args()
    if arguments.what == "make":
        EXERCISES.mkdir(exist_ok=True)
        for source in sources(arguments.names):
            print("exercises/" + make_exercise(source))
            if not arguments.exercises:
                print("solutions/" + make_solution(source), flush=True)
        return 0
    lines = [line for source in sources(arguments.names) for line in problems(source)]
    stems = {source.stem for source in sources()}
    files = [*EXERCISES.glob("*.ipynb"), *SOLUTIONS.glob("*.ipynb")]
    lines += [f"{path.parent.name}/{path.name} has no source" for path in files if path.stem not in stems]
    if lines:
        print(*lines, "run `make exercises` and commit what it writes", sep="\n", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
