"""The pictures in an executed notebook: made smaller where it is too large, and taken out for README.md."""

import base64
import io
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent


def shrink(notebook: NotebookNode, limit: int) -> None:
    """Reduce pictures to 256 colours, the largest first, until the notebook has at most `limit` bytes."""
    pictures = [data for cell in notebook.cells for data in _shown(cell)]
    excess = len(nbformat.writes(notebook)) + 1 - limit
    for data in sorted(pictures, key=lambda data: -len(data["image/png"])):
        if excess <= 0:
            return
        buffer = io.BytesIO()
        with Image.open(io.BytesIO(base64.b64decode(data["image/png"]))) as picture:
            few = picture.convert("RGBA").quantize(256, Image.Quantize.FASTOCTREE)
            few.save(buffer, format="png", optimize=True)
        smaller = base64.b64encode(buffer.getvalue()).decode()
        excess -= len(data["image/png"]) - len(smaller)
        data["image/png"] = smaller


def tagged(notebook: NotebookNode) -> dict[Path, bytes]:
    """The pictures for README.md: the last one of each cell with a tag `docs:NAME`, and where it lies.

    Raises:
        SystemExit: such a cell shows no picture.
    """
    found = {}
    for cell in notebook.cells:
        for tag in cell.metadata.get("tags", ()):
            if not tag.startswith("docs:"):
                continue
            if not _shown(cell):
                raise SystemExit(f"the cell with the tag {tag} shows no picture")
            picture = base64.b64decode(_shown(cell)[-1]["image/png"])
            found[ROOT / "docs" / f"{tag.removeprefix('docs:')}.png"] = picture
    return found


def _shown(cell: NotebookNode) -> list[NotebookNode]:
    return [output.data for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
