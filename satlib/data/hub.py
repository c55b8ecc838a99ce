"""Captioned photographs that Hugging Face's library `datasets` reads: an imagefolder, parquet files, or a set on the Hub.

A row has an image and captions, in columns whose names begin with caption, text or sentence. An image is named by the SHA-256 of
its bytes, so that several rows of one photograph come together.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.folder import Row, examples_of, texts_in
from satlib.errors import SatlibError

ON_THE_HUB = "hf:"  # begins the name of a set on the Hub
ADVICE = "of JSON files only Karpathy's are read: write image,caption into captions.csv"


def load(place: str) -> CaptionSet:
    """The caption set of a folder, or on the Hub by its name, "hf:USER/NAME".

    The splits are those of a column split, or else of `datasets`; if that has only one, they are decided as for a folder.
    """
    try:
        import datasets
    except ImportError as error:
        raise SatlibError(
            f"{place} has no captions.csv; to read it with Hugging Face's datasets: pip install 'satlib[hub]'"
        ) from error
    name = place.removeprefix(ON_THE_HUB)
    try:
        tables = datasets.load_dataset(name)
    except Exception as error:  # of the network, of the Hub, of pyarrow
        raise SatlibError(
            f"cannot read {place}: {' '.join(str(error).split())[:200]}; {ADVICE}"
        ) from error
    rows, stored = [], {}
    for split, table in tables.items():
        column = next(
            (name for name, kind in table.features.items() if isinstance(kind, datasets.Image)),
            None,
        )
        if column is None:
            raise SatlibError(
                f"{place} has no column of images; it has {', '.join(table.features)}; {ADVICE}"
            )
        table = table.cast_column(column, datasets.Image(decode=False))
        for index, row in enumerate(table):
            where = f"{place}, {split}, row {index + 1}"
            image_id = hashlib.sha256(_bytes(row.pop(column))).hexdigest()[:16]
            stored[image_id] = table, index, column
            own_split = row.get("split") or (str(split) if len(tables) > 1 else None)
            rows.append(Row(where, image_id, _captions(row, where), own_split))

    def photo(example: Example) -> Image.Image:
        table, index, column = stored[example.image_id]
        return images.open_photo(
            io.BytesIO(_bytes(table[index][column])), f"{place}, {example.image_id}"
        )

    return CaptionSet(Path(name).stem, tuple(examples_of(rows, {})), photo)


def _bytes(content: dict[str, Any]) -> bytes:
    """An encoded image, in the table or in a file beside it."""
    return content["bytes"] or Path(content["path"]).read_bytes()


def _captions(row: Mapping[str, Any], where: str) -> list[str]:
    """The captions in a row; a column may hold several."""
    for word in ("caption", "text", "sentence"):
        columns = [value for name, value in row.items() if name.lower().startswith(word) and value]
        if columns:
            return [
                text
                for value in columns
                for text in (value if isinstance(value, list) else texts_in(value))
            ]
    others = ", ".join(row) or "none"
    raise SatlibError(
        f"{where}: no caption in a column caption or text; the other columns: {others}; {ADVICE}"
    )
