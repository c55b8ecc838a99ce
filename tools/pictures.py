"""The pictures in an executed notebook that are taken out for README.md and docs/."""

import base64
from pathlib import Path

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent


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
            kind, picture = _shown(cell)[-1]
            found[ROOT / "docs" / f"{tag.removeprefix('docs:')}.{kind}"] = base64.b64decode(picture)
    return found


def _shown(cell: NotebookNode) -> list[tuple[str, str]]:
    """Its pictures in order: "png" or "jpeg", and the picture in base 64."""
    shown = [output.data for output in cell.get("outputs", ()) if "data" in output]
    return [(kind, data[f"image/{kind}"]) for data in shown for kind in ("png", "jpeg") if f"image/{kind}" in data]
