"""Captioned photographs that Hugging Face's library `datasets` reads.

These are an imagefolder, parquet files, or a set on the Hub. A row has an image, and captions in
columns whose names begin with caption, text or sentence. An image is named by the SHA-256 of its
bytes, so that several rows of one photograph come together.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from satlib import files
from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.folder import Row, captions_in, examples_of
from satlib.errors import SatlibError

ON_THE_HUB = "hf:"  # begins the name of a set on the Hub
ADVICE = "write image,caption into captions.csv, or see docs/data.md"


def load(place: str) -> CaptionSet:
    """The caption set of a folder, or of a set on the Hub by its name, "hf:USER/NAME".

    The splits are those of a column split, or else of `datasets`; if that has only one, they are
    decided as for a folder (`satlib.data.folder`).
    """
    name = place.removeprefix(ON_THE_HUB)
    rows = []
    stored = {}  # an image id -> its table, the index of its row, and its column
    tables = _read_tables(place, name)
    for split, table in tables.items():
        table, column = _undecoded(place, table)
        for index, row in enumerate(table):
            where = f"{place}, {split}, row {index + 1}"
            content = _bytes(row.pop(column))
            image_id = hashlib.sha256(content).hexdigest()[:16]
            stored[image_id] = table, index, column

            # `datasets` calls everything "train" where nobody has divided it.
            own_split = row.get("split")
            if not own_split and len(tables) > 1:
                own_split = str(split)
            rows.append(Row(where, image_id, captions_in(row, where), own_split or None))

    def photo(example: Example) -> Image.Image:
        table, index, column = stored[example.image_id]
        content = io.BytesIO(_bytes(table[index][column]))
        return images.open_photo(content, f"{place}, {example.image_id}")

    return CaptionSet(Path(name).stem, tuple(examples_of(rows, {})), photo)


def _read_tables(place: str, name: str) -> Mapping[Any, Any]:
    """The tables of `datasets` by their splits."""
    # Only the extra "hub" installs it.
    try:
        import datasets
    except ImportError as error:
        raise SatlibError(
            f"{place} has no captions.csv; to read it with Hugging Face's datasets: "
            "pip install 'satlib[hub]'"
        ) from error

    # It draws progress bars of its own, which know nothing of satlib's option --quiet.
    if files.quiet:
        datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(name)
    # Errors of the network, the Hub and pyarrow have no type in common.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise SatlibError(f"cannot read {place}: {reason}; {ADVICE}") from error


def _undecoded(place: str, table: Any) -> tuple[Any, str]:
    """A table with its images left encoded, and the name of their column.

    Whoever only reads captions need not wait for pixels, and the hash is of the file's bytes.
    """
    from datasets import Image as ImageColumn

    for column, kind in table.features.items():
        if isinstance(kind, ImageColumn):
            return table.cast_column(column, ImageColumn(decode=False)), column
    raise SatlibError(
        f"{place} has no column of images; it has {', '.join(table.features)}; {ADVICE}"
    )


def _bytes(content: dict[str, Any]) -> bytes:
    """An encoded image, in the table or in a file beside it."""
    return content["bytes"] or Path(content["path"]).read_bytes()
