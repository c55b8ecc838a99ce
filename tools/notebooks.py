"""The course's notebooks from their sources: `python tools/notebooks.py make [NN ...] [--all]`, or `index`, `compare`.

notebooks/NN_name.py (Jupytext, percent format) is what is written by hand. `make` generates notebooks/NN_name.ipynb from it, with the
installing cell put in (and Colab's badge, if pyproject.toml has the repository's address, `Source` in [project.urls]), and
executes those whose cells differ from their source, or all with --all. The picture of a cell with the tag `docs:NAME` is
written to docs/NAME.png (a JPEG to NAME.jpeg), for README.md. `index` writes notebooks/INDEX.md from the marks in the sources.
`compare` writes nothing and fails where what is committed differs from what would be generated.

The same source gives the workbook (editions.py, exercises.py).
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import editions
import nbformat
import paper_index
import pictures
from execution import execute
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from paper_index import Mark

from satlib.files.atomic import replacing

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"
MAX_BYTES = 2_500_000
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def sources(names: Sequence[str] = ()) -> list[Path]:
    """The sources of the notebooks in order; of some, by the beginnings of their names.

    Raises:
        SystemExit: no source begins so.
    """
    every = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
    for name in names:
        if not any(path.name.startswith(name) for path in every):
            raise SystemExit(f"no notebook begins with {name}; there are {', '.join(path.stem for path in every)}")
    return [path for path in every if not names or any(path.name.startswith(name) for name in names)]


def generate(source: Path) -> NotebookNode:
    """The notebook of a source, not executed."""
    return nbformat.v4.new_notebook(cells=editions.cells(source, editions.READ), metadata=METADATA)


def shows_picture(output: NotebookNode) -> bool:
    """Whether an output is a figure: a PNG, or a JPEG of lit photographs."""
    return any(kind in output.get("data", ()) for kind in ("image/png", "image/jpeg"))


def minutes_to_read(notebook: NotebookNode, seconds_a_line: float = 1.5) -> float:
    """An estimate: 200 words of prose a minute, some seconds for a line of code, 20 for a figure; what closes it is not counted."""
    closing = re.compile(r"## (?:Try it|References|Exercises)")
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown" and not closing.match(cell.source)]
    words = len(re.sub(r"<!--.*?-->", "", "\n".join(prose), flags=re.DOTALL).split())
    code = [
        each
        for each in notebook.cells
        if each.cell_type == "code" and not {"claims", "install"} & set(each.metadata.get("tags", ()))
    ]
    lines = sum(1 for cell in code for line in cell.source.splitlines() if line.strip())
    figures = sum(shows_picture(output) for cell in code for output in cell.get("outputs", ()))
    return words / 200 + lines * seconds_a_line / 60 + figures * 20 / 60


def cells_of(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    """What has to be equal: each cell's id, kind and text."""
    return [(cell.id, cell.cell_type, cell.source) for cell in notebook.cells]


def write(target: Path, notebook: NotebookNode) -> int:
    """Write an executed notebook and its pictures for README.md.

    Returns:
        its bytes.

    Raises:
        SystemExit: it is too large to be shown on the web.
    """
    text = nbformat.writes(notebook) + "\n"
    if len(text) > MAX_BYTES:
        raise SystemExit(
            f"{target.name} has {len(text) / 1e6:.1f} MB, above {MAX_BYTES / 1e6}: make its figures smaller"
        )
    with replacing(target) as partial:
        partial.write_text(text, encoding="utf-8")
    for path, picture in pictures.tagged(notebook).items():
        path.write_bytes(picture)
    return len(text)


def make(source: Path) -> None:
    """Generate, execute and write one notebook.

    Raises:
        SystemExit: a cell fails, or the notebook is too large to be shown.
    """
    target, notebook = source.with_suffix(".ipynb"), generate(source)
    try:
        seconds, memory = execute(notebook, FOLDER)
    except CellExecutionError as error:
        raise SystemExit(f"{source.name}: {error}") from None
    size = write(target, notebook)
    print(f"{target.name:32} {seconds:5.0f} s {memory:5.1f} GB {size / 1e6:5.2f} MB")


def problems(source: Path) -> list[str]:
    """How a committed notebook differs from what its source gives; empty if it does not."""
    target = source.with_suffix(".ipynb")
    if not target.exists():
        return [f"{target.name} is missing"]
    notebook, found = nbformat.read(target, 4), []
    if cells_of(notebook) != cells_of(generate(source)):
        found.append(f"{target.name} is not what {source.name} gives")
    numbers = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"{target.name} was not run once from top to bottom")
    found += [
        f"{path.name} is not the picture in {target.name}"
        for path, picture in pictures.tagged(notebook).items()
        if not path.is_file() or path.read_bytes() != picture
    ]
    if target.stat().st_size > MAX_BYTES:
        found.append(f"{target.name} is larger than {MAX_BYTES / 1e6} MB")
    return found


def marks(names: Sequence[str] = ()) -> list[Mark]:
    """Every mark of every notebook, or of those whose names begin so: equations first, then sections, then claims."""
    return paper_index.marks({source.stem: generate(source) for source in sources(names)})


def index() -> str:
    """The text of notebooks/INDEX.md."""
    return paper_index.page(marks())


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "index", "compare"))
    parser.add_argument("names", nargs="*", help="the numbers of some notebooks; all if left out")
    parser.add_argument("--all", action="store_true", help="execute those too whose source is as before")
    arguments = parser.parse_args()
    if arguments.what == "make":
        for source in sources(arguments.names):
            if arguments.all or problems(source):
                make(source)
            else:
                print(f"{source.stem}.ipynb is as its source")
    if arguments.what in ("make", "index"):
        (FOLDER / "INDEX.md").write_text(index(), encoding="utf-8")
        return 0
    found = [problem for source in sources(arguments.names) for problem in problems(source)]
    if not (FOLDER / "INDEX.md").is_file() or (FOLDER / "INDEX.md").read_text(encoding="utf-8") != index():
        found.append("INDEX.md is not what the marks give")
    if found:
        print(*found, "run `make notebooks` and commit what it writes", sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
