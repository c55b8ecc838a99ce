"""Captioned photographs that Hugging Face's library `datasets` reads: parquet files in a folder, or a set on the Hub.

A row has an image and captions, in columns as in `folder.text_of`. An image is called by the column file_name or filename, or by
its path, if no two rows have the same; otherwise by the SHA-256 of its bytes, so that rows of one photograph come together.
Needs the extra [hub].
"""

import hashlib
import io
from pathlib import Path, PurePath
from typing import Any

from PIL import Image

from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example, examples_of
from satlib.data.folder import Row, gather, text_of
from satlib.errors import SatlibError

ON_THE_HUB = "hf:"  # begins the name of a set on the Hub


def load(place: str) -> CaptionSet:
    """The caption set of a folder with parquet files or of one such file, or on the Hub by its name, "hf:USER/NAME".

    The splits are those of a column split, or else of `datasets`; if that has only one, they are decided as for `folder.load`.

    Raises:
        SatlibError: the extra [hub] is not installed, the set cannot be read, or it has no images or no captions.
    """
    try:
        import datasets
    except ImportError as error:
        raise SatlibError(f"{place} needs Hugging Face's datasets; run: pip install 'satlib[hub]'") from error
    name = place.removeprefix(ON_THE_HUB)
    try:
        files = name if name.endswith(".parquet") else None
        tables = datasets.load_dataset("parquet", data_files=files) if files else datasets.load_dataset(name)
    except Exception as error:  # of the network, of the Hub, of pyarrow
        raise SatlibError(f"cannot read {place}: {' '.join(str(error).split())[:200]}") from error
    rows, digests, places = [], [], []
    for split, table in tables.items():
        column = _image_column(table.features, place)
        table = table.cast_column(column, datasets.Image(decode=False))
        for index, row in enumerate(table):
            where = f"{place}, {split}, row {index + 1}"
            content = row.pop(column)
            image = row.get("file_name") or row.get("filename") or content["path"] or ""
            own_split = row.get("split") or (str(split) if len(tables) > 1 else None)
            rows.append(Row(where, PurePath(image.strip()).as_posix() if image else "", text_of(row, where), own_split))
            digests.append(hashlib.sha256(_bytes(content)).hexdigest()[:16])
            places.append((table, index, column))
    names = [row.image for row in rows]
    if not all(names) or len(set(names)) < len(names):
        rows = [row._replace(image=digest) for row, digest in zip(rows, digests, strict=True)]
    captions, splits = gather(rows, place)
    place_of = {row.image: where for row, where in zip(rows, places, strict=True)}

    def photo(example: Example) -> Image.Image:
        table, index, column = place_of[example.image_id]
        return images.open_photo(io.BytesIO(_bytes(table[index][column])), f"{place}, {example.image_id}")

    return CaptionSet(Path(name).stem, examples_of(captions, splits, lambda _: None), photo)


def _image_column(features: dict[str, Any], place: str) -> str:
    """The column of images; of several, the one called image."""
    columns = [name for name, kind in features.items() if "bytes" in str(kind) or "Image" in str(kind)]
    if not columns:
        raise SatlibError(f"{place} has no column of images, as Hugging Face writes them; it has {', '.join(features)}")
    return "image" if "image" in columns else columns[0]


def _bytes(content: dict[str, Any]) -> bytes:
    """An encoded image: in the table, or in a file of its own beside it."""
    return content["bytes"] or Path(content["path"]).read_bytes()
