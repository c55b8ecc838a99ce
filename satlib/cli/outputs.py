"""Where results go: to a folder, and to the terminal."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from satlib.data.caption_set import CaptionSet


def results_folder(options: argparse.Namespace, captions: "CaptionSet") -> Path:
    """--out, or the model's run; runs/NAME for one of satlib's models.

    Another data set than the model's has a folder of its own in it.
    """
    model: Path = options.model
    if options.out:
        return options.out

    # A model that comes with satlib has a name, and no file where one may write.
    if not model.exists():
        folder = Path("runs") / model.name
    elif model.is_dir():
        folder = model
    else:
        folder = model.parent
    return folder / captions.name if options.data_set else folder


def print_json(value: Any) -> None:
    """Print a value as indented JSON, with letters escaped where the terminal would lose them."""
    # Windows' consoles often have another encoding.
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, indent=1, ensure_ascii=not unicode, allow_nan=False))


def print_rows(rows: dict[str, str]) -> None:
    """Print names and texts in two columns."""
    width = max(map(len, rows))
    for name, line in rows.items():
        print(f"{name:{width}}  {line}")
