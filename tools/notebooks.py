"""The course's notebooks from their sources.

    python tools/notebooks.py make [NN ...] [--all]
    python tools/notebooks.py compare
    python tools/notebooks.py again NN [--change OLD NEW]

notebooks/NN_name.py (Jupytext, percent format) is written by hand. `make` generates NN_name.ipynb
from it, executes those whose cells differ from their source, or all with --all, and writes
notebooks/INDEX.md and QUESTIONS.md. The picture of a cell tagged `docs:NAME` is written to docs/NAME.png (or .jpeg).
`compare` fails where what is committed differs. `again` prints what a notebook prints after
changes, such as `--change "manual_seed(0)" "manual_seed(1)"`; comments in a source that begin with
"again" name some.
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
SECONDS = 600  # a cell that takes longer hangs


def sources(names: Sequence[str] = ()) -> list[Path]:
    """The sources of the notebooks in order; of some, by the beginnings of their names."""
    paths = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
    return [path for path in paths if not names or path.name.startswith(tuple(names))]


def generate(source: Path, edition: str = editions.READ) -> NotebookNode:
    """An edition of a source, not executed."""
    cells = editions.cells(source, edition)
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def execute(notebook: NotebookNode) -> None:
    """Run it in place, in its own folder, and keep of its outputs what a reader sees.

    Raises:
        CellExecutionError: a cell failed.
    """
    # Kernels inherit it: a picture stands in for a widget, and sealed cells show their answers.
    os.environ[still.ENVIRONMENT] = "1"
    resources = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources=resources,
    )
    client.execute()

    # Without the widgets' states: megabytes that need a kernel.
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":
            cell.outputs = shown(cell.outputs)


def shown(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The outputs of a cell as they are stored."""
    kept: list[NotebookNode] = []
    for output in outputs:
        # Progress bars and warnings belong to that one run.
        if output.get("name") == "stderr":
            continue

        # A widget's model lives in the kernel: without it, a page would show an error. The
        # course's own widgets have put a picture in their place (satcourse.widgets.still).
        if WIDGET in output.get("data", {}):
            continue

        # Our figures are readable on any page.
        output.get("metadata", {}).pop("needs_background", None)

        # The kernel sends what is printed in pieces, cut at random moments: join them.
        printed = output.output_type == "stream"
        if printed and kept and output.name == kept[-1].get("name"):
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def pictures(notebook: NotebookNode) -> dict[Path, bytes]:
    """The pictures for README.md and docs/, by their files.

    A cell with a tag `docs:NAME` gives its last one.
    """
    found = {}
    for cell in notebook.cells:
        for tag in editions.tags(cell):
            if tag.startswith("docs:"):
                data = [output.data for output in cell.outputs if "data" in output][-1]
                kind = "png" if "image/png" in data else "jpeg"
                path = ROOT / "docs" / f"{tag.removeprefix('docs:')}.{kind}"
                found[path] = base64.b64decode(data[f"image/{kind}"])
    return found


def is_current(source: Path) -> bool:
    """Whether the committed notebook has its source's cells and was run once, top to bottom."""
    path = source.with_suffix(".ipynb")
    if not path.exists():
        return False

    notebook = nbformat.read(path, 4)
    committed = [(cell.id, cell.source) for cell in notebook.cells]
    generated = [(cell.id, cell.source) for cell in generate(source).cells]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    return committed == generated and counts == list(range(1, len(counts) + 1))


def make(source: Path) -> None:
    """Generate, execute and write one notebook and its pictures."""
    start = time.monotonic()
    notebook = generate(source)
    execute(notebook)
    source.with_suffix(".ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    for path, picture in pictures(notebook).items():
        path.write_bytes(picture)
    print(f"{source.stem:32} {time.monotonic() - start:5.0f} s", flush=True)


def again(source: Path, changes: Sequence[Sequence[str]]) -> None:
    """Print what a notebook prints after changes, without its claims, which would fail."""
    notebook = generate(source)
    notebook.cells = [cell for cell in notebook.cells if "claims" not in editions.tags(cell)]
    for old, new in changes:
        changed = [cell for cell in notebook.cells if old in cell.source]
        if not changed:
            sys.exit(f"no {old!r} in {source}")
        for cell in changed:
            cell.source = cell.source.replace(old, new)

    execute(notebook)
    texts = []
    for cell in notebook.cells:
        texts += [output.text for output in cell.get("outputs", ()) if "text" in output]
    print("".join(texts))


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("make", "compare", "again"))
    parser.add_argument("names", nargs="*", help="numbers of notebooks, by default all")
    parser.add_argument("--all", action="store_true", help="unchanged ones, too")
    parser.add_argument(
        "--change",
        nargs=2,
        action="append",
        default=[],
        metavar=("OLD", "NEW"),
    )
    arguments = parser.parse_intermixed_args()  # so that numbers may follow --all
    chosen = sources(arguments.names)
    if arguments.what == "again":
        for source in chosen:
            again(source, arguments.change)
        return 0

    # These pages are of all notebooks, whichever were named.
    everything = {source.stem: generate(source) for source in sources()}
    pages = {"INDEX": paper_index.page(everything), "QUESTIONS": paper_index.questions(everything)}
    if arguments.what == "make":
        for source in chosen:
            if arguments.all or not is_current(source):
                make(source)
        for name, text in pages.items():
            (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
        return 0

    stale = [source.stem for source in chosen if not is_current(source)]
    for name, text in pages.items():
        if (FOLDER / f"{name}.md").read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(*stale, "differ from their sources: run `make notebooks` and commit", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
