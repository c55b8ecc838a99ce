"""Workbooks from the notebooks' sources: `python tools/exercises.py make [NN ...]` or `compare`.

From notebooks/NN_name.py (editions.py), `make` writes exercises/NN_name.ipynb and
solutions/NN_name.ipynb, without outputs; `satlib check solutions` runs the latter. A workbook in
which somebody has worked is left alone. `compare` writes nothing and fails where what is committed
differs from what would be written.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import editions
import nbformat
from nbformat import NotebookNode

import notebooks

ROOT = notebooks.ROOT


def generate(source: Path, edition: str) -> NotebookNode:
    """A workbook, `editions.WORK` or `editions.SOLVED`; it remembers what its cells were."""
    notebook = notebooks.generate(source, edition)
    notebook.metadata["satlib"] = {"generated": digest(notebook)}
    return notebook


def workbooks(source: Path) -> dict[Path, NotebookNode]:
    """What the two workbooks of a source should be, by their files."""
    both = (editions.WORK, editions.SOLVED)
    return {ROOT / each / f"{source.stem}.ipynb": generate(source, each) for each in both}


def digest(notebook: NotebookNode) -> str:
    """A hash of the cells' text."""
    # Editors change outputs, counts and trailing blanks by themselves; that is nobody's work.
    texts = [[cell.cell_type, cell.source.rstrip()] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def edited(notebook: NotebookNode) -> bool:
    """Whether somebody has worked in a notebook since it was generated."""
    return notebook.metadata.get("satlib", {}).get("generated") != digest(notebook)


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("names", nargs="*", help="numbers of notebooks, by default all")
    arguments = parser.parse_args()

    differences = 0
    for source in notebooks.sources(arguments.names):
        for path, notebook in workbooks(source).items():
            text = nbformat.writes(notebook) + "\n"
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue

            differences += 1
            name = path.relative_to(ROOT)
            if arguments.what == "compare":
                print(
                    f"{name} is not what its source gives: run `make exercises` and "
                    "commit what it writes"
                )
            elif path.exists() and edited(nbformat.read(path, 4)):
                print(
                    f"{name} has somebody's work in it and is left alone: rename it, "
                    "to have a new one written"
                )
            else:
                path.write_text(text, encoding="utf-8")
                print(f"{name} written")

    return int(arguments.what == "compare" and differences > 0)


if __name__ == "__main__":
    sys.exit(main())
