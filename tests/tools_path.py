"""The programs in tools/, to import; and a small notebook to try them on."""

import sys
import tempfile
from pathlib import Path

import jupytext

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import build_site  # noqa: F401
import editions  # noqa: F401
import hatch_hooks  # noqa: F401
import install_cell  # noqa: F401

import exercises


def tasks_alone(source: Path, folder: Path) -> Path:
    """Write the source of a workbook that takes no time to run: a notebook's title, imports and tasks."""
    notebook = jupytext.read(source)
    first, *rest = notebook.cells
    kept = [
        cell
        for cell in rest
        if cell.source.startswith(("import ", "from "))
        or any(tag.startswith(("task:", "hint")) for tag in cell.metadata.get("tags", ()))
    ]
    notebook.cells = [first, *kept]
    jupytext.write(notebook, folder / source.name, fmt="py:percent")
    return folder / source.name


_FOLDER = tempfile.TemporaryDirectory()
SMALL = tasks_alone(exercises.sources(["05"])[0], Path(_FOLDER.name))
