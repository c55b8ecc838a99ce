"""The course's notebooks from their sources: `python tools/notebooks.py make [NN ...] [--all]`, `compare`, or `again NN`.

notebooks/NN_name.py (Jupytext, percent format) is written by hand. `make` generates NN_name.ipynb from it, executes those
whose cells differ from their source, or all with --all, and writes notebooks/INDEX.md. The picture of a cell tagged `docs:NAME`
is written to docs/NAME.png (or .jpeg). `compare` fails where what is committed differs. `again` prints what a notebook prints after
changes, as `--change "manual_seed(0)" "manual_seed(1)"`; comments in a source that begin with "again" name some.
"""

import argparse
import base64
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import editions
import nbformat
import paper_index
from nbclient import NotebookClient
from nbformat import NotebookNode

from satcourse.widgets import still

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "> **Run > Run All Cells**, and here is something to move."
SECONDS = 600  # a cell that takes longer hangs


def sources(names: Sequence[str] = ()) -> list[Path]:
    """The sources of the notebooks in order; of some, by the beginnings of their names."""
    return [
        path
        for path in sorted(FOLDER.glob("[0-9][0-9]_*.py"))
        if not names or path.name.startswith(tuple(names))
    ]


def generate(source: Path) -> NotebookNode:
    """The notebook of a source, not executed."""
    return nbformat.v4.new_notebook(cells=editions.cells(source, editions.READ), metadata=METADATA)


def execute(notebook: NotebookNode) -> None:
    """Run it in place, in its own folder, and keep of its outputs what a reader sees; a cell that fails raises."""
    os.environ[still.ENVIRONMENT] = "1"
    resources = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources).execute()
    notebook.metadata = nbformat.from_dict(
        METADATA
    )  # without the widgets' states: megabytes that need a kernel
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        outputs: list[NotebookNode] = []
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":  # progress bars and warnings are of that one run
                continue
            if WIDGET in output.get(
                "data", {}
            ):  # its model lives in the kernel: a page would show an error
                output.data, output.metadata = (
                    NotebookNode({"text/markdown": NO_WIDGET}),
                    NotebookNode(),
                )
            output.get("metadata", {}).pop(
                "needs_background", None
            )  # figures are readable on any page
            if (
                outputs
                and output.output_type == "stream"
                and output.name == outputs[-1].get("name")
            ):
                outputs[
                    -1
                ].text += (
                    output.text
                )  # the kernel sends what is printed in pieces, at chance moments
            else:
                outputs.append(output)
        if cell.cell_type == "code":
            cell.outputs = outputs


def pictures(notebook: NotebookNode) -> dict[Path, bytes]:
    """The pictures for README.md and docs/: the last one of each cell with a tag `docs:NAME`, and where it lies."""
    found = {}
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", ()):
            if tag.startswith("docs:"):
                data = [output.data for output in cell.outputs if "data" in output][-1]
                kind = next(kind for kind in ("png", "jpeg") if f"image/{kind}" in data)
                path = ROOT / "docs" / f"{tag.removeprefix('docs:')}.{kind}"
                found[path] = base64.b64decode(data[f"image/{kind}"])
    return found


def is_current(source: Path) -> bool:
    """Whether the committed notebook has its source's cells, and was run once from top to bottom."""
    path = source.with_suffix(".ipynb")
    if not path.exists():
        return False
    notebook = nbformat.read(path, 4)
    cells = [
        [(cell.id, cell.source) for cell in each.cells] for each in (notebook, generate(source))
    ]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    return cells[0] == cells[1] and counts == list(range(1, len(counts) + 1))


def make(source: Path) -> None:
    """Generate, execute and write one notebook and its pictures."""
    start, notebook = time.monotonic(), generate(source)
    execute(notebook)
    source.with_suffix(".ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    for path, picture in pictures(notebook).items():
        path.write_bytes(picture)
    print(f"{source.stem:32} {time.monotonic() - start:5.0f} s", flush=True)


def again(source: Path, changes: Sequence[Sequence[str]]) -> None:
    """Print what a notebook without its claims prints after changes."""
    notebook = generate(source)
    notebook.cells = [
        cell for cell in notebook.cells if "claims" not in cell.metadata.get("tags", ())
    ]
    for old, new in changes:
        for cell in [cell for cell in notebook.cells if old in cell.source] or sys.exit(
            f"no {old!r} in {source}"
        ):
            cell.source = cell.source.replace(old, new)
    execute(notebook)
    print(
        *(
            part.text
            for cell in notebook.cells
            for part in cell.get("outputs", ())
            if "text" in part
        ),
        sep="",
    )


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("make", "compare", "again"))
    parser.add_argument("names", nargs="*", help="numbers of notebooks, by default all")
    parser.add_argument("--all", action="store_true", help="unchanged ones, too")
    parser.add_argument("--change", nargs=2, action="append", default=[], metavar=("OLD", "NEW"))
    arguments = parser.parse_intermixed_args()  # so that numbers may follow --all
    for source in sources(arguments.names):
        if arguments.what == "again":
            again(source, arguments.change)
        elif arguments.what == "make" and (arguments.all or not is_current(source)):
            make(source)
    index, text = (
        FOLDER / "INDEX.md",
        paper_index.page({source.stem: generate(source) for source in sources()}),
    )
    if arguments.what == "make":
        index.write_text(text, encoding="utf-8")
    if arguments.what != "compare":
        return 0
    stale = [source.stem for source in sources(arguments.names) if not is_current(source)]
    stale += ["INDEX"] if index.read_text(encoding="utf-8") != text else []
    if stale:
        print(*stale, "differ from their sources: run `make notebooks` and commit", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
