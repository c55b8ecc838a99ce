"""Your own folder: images and a captions.csv or captions.json.

captions.csv has the columns image, caption and, if you like, split (train, dev or test); one caption a row, an image may
have several. captions.json is a list of such rows as objects; there "caption" may be a list too. An image is named by its
path inside the folder. Without a column split, a hash of that path decides, 8 : 1 : 1, so that an image stays where it
is when others are added.
"""

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from satlib.datasets import SPLITS, CaptionSet
from satlib.datasets.reading import assemble, clean, read_text, split_name
from satlib.errors import SatlibError
from satlib.files import read_json, replacing, write_text

LAYOUT = "captions.csv with the columns image,caption[,split], or captions.json, a list of objects of the same form"


def save(data: CaptionSet, folder: Path) -> None:
    """Write a set's images and captions as such a folder: a PNG each, named after its image id, and captions.csv.

    Raises:
        SatlibError: a captions.csv lies there already, or the folder cannot be written.
    """
    table = folder / "captions.csv"
    if table.exists():
        raise SatlibError(f"{table} is there already; name another folder")
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["image", "caption", "split"])
    for example in data.examples:
        with replacing(folder / f"{example.image_id}.png") as partial:
            data.photo(example).save(partial, format="PNG")
        writer.writerows([f"{example.image_id}.png", caption, example.split] for caption in example.references)
    write_text(table, rows.getvalue())


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of a folder, named after it.

    Raises:
        SatlibError: see `satlib.datasets.load`; also when an image is put into two splits, or only some rows have a split.
    """
    table, json = folder / "captions.csv", folder / "captions.json"
    if not table.is_file() and not json.is_file():
        raise SatlibError(f"{folder} has neither captions.csv nor captions.json; expected layout: images and {LAYOUT}")
    captions: dict[str, list[str]] = {}
    splits: dict[str, str | None] = {}
    for where, row in _csv_rows(table) if table.is_file() else _json_rows(json):
        image_id = row.get("image")
        if not isinstance(image_id, str) or not image_id.strip():
            raise SatlibError(f"{where}: no image is named; write its path inside {folder}")
        image_id = Path(image_id.strip()).as_posix()  # "./a.jpg" and "a.jpg" are one image
        texts = row.get("caption")
        captions.setdefault(image_id, []).extend(
            clean(text, where) for text in (texts if isinstance(texts, list) else [texts])
        )
        split = split_name(row["split"], where) if row.get("split") else None
        if splits.setdefault(image_id, split) != split:
            raise SatlibError(
                f"{where}: {image_id} is in split {splits[image_id]} in an earlier row and in {split} here; put it into one"
            )
    undecided = [image_id for image_id, split in splits.items() if split is None]
    if undecided and len(undecided) < len(splits):
        raise SatlibError(
            f"{folder}: {undecided[0]} has no split although others have one; fill in all of them or none"
        )
    decided = {image_id: split or by_hash(image_id) for image_id, split in splits.items()}
    empty = [split for split in SPLITS if split not in decided.values()]
    if undecided and empty:
        raise SatlibError(
            f"{folder}: by hash no image falls into {' and '.join(empty)}; add images or a column split (train, dev, test)"
        )
    return assemble(
        folder.resolve().name,
        captions,
        decided,
        lambda image_id: folder / image_id,
        require_images,
        folder,
        str(folder),
    )


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its image id alone: 8 in 10 train, 1 dev, 1 test."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    if not {"image", "caption"} <= set(columns):
        raise SatlibError(
            f"{path}: the first line must name the columns image,caption[,split]; it names {', '.join(columns) or 'none'}"
        )
    reader.fieldnames = columns
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row:
                raise SatlibError(f'{where}: more fields than columns; put "quotes" around a caption with commas')
            yield where, row
    except csv.Error as error:
        raise SatlibError(f"{path}, line {reader.line_num}: {error}; check the quotes") from error


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SatlibError(f"{path} is not a list of objects with image and caption; expected: {LAYOUT}")
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))
