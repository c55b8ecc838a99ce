"""Your own folder: images and a captions.csv or captions.json.

captions.csv has the columns image, caption and, optionally, split (train, dev or test), with one caption per row; an image
may have several rows. captions.json is a list of such rows as objects, in which "caption" may also be a list. An image is
named by its path inside the folder. Without a split column, a hash of that path assigns images to train, dev and test in the
ratio 8 : 1 : 1, so an image stays in its split when others are added.
"""

import csv
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import SPLITS, CaptionSet, assemble, clean, split_name
from satlib.errors import SatlibError
from satlib.files.atomic import replacing, write_text
from satlib.files.reading import read_json, read_text

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
LAYOUT = "captions.csv with the columns image,caption[,split], or captions.json, a list of objects of the same form"


class Row(Struct):
    """A row of captions.csv, or of captions.json, where it may have several captions."""

    image: str
    caption: str | list[str]
    split: str | None = None


def save(data: CaptionSet, folder: Path) -> None:
    """Write a caption set as such a folder: one PNG per image, named after its image id, and captions.csv.

    Raises:
        SatlibError: the folder already has a captions.csv, or cannot be written.
    """
    table = folder / "captions.csv"
    if table.exists():
        raise SatlibError(f"{table} already exists; choose another folder")
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["image", "caption", "split"])
    for example in data.examples:
        with replacing(folder / f"{example.image_id}.png") as partial:
            data.photo(example).save(partial, format="PNG")
        writer.writerows([f"{example.image_id}.png", caption, example.split] for caption in example.references)
    write_text(table, rows.getvalue())


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """The caption set in a folder, named after the folder.

    Raises:
        SatlibError: see `satlib.data.datasets.load`; also if an image is in two splits, or only some images have a split.
    """
    table, json = folder / "captions.csv", folder / "captions.json"
    if not table.is_file() and not json.is_file():
        raise SatlibError(f"{folder} has neither captions.csv nor captions.json; expected layout: images and {LAYOUT}")
    captions: dict[str, list[str]] = {}
    splits: dict[str, str | None] = {}
    for where, row in _csv_rows(table) if table.is_file() else _json_rows(json):
        if not row.image.strip():
            raise SatlibError(f"{where}: no image is given; write its path relative to {folder}")
        image_id = Path(row.image.strip()).as_posix()  # "./a.jpg" and "a.jpg" are the same image
        texts = row.caption if isinstance(row.caption, list) else [row.caption]
        captions.setdefault(image_id, []).extend(clean(text, where) for text in texts)
        split = split_name(row.split, where) if row.split else None
        if splits.setdefault(image_id, split) != split:
            raise SatlibError(
                f"{where}: {image_id} is in split {splits[image_id]} in an earlier row and in {split} here; use the same split in both"
            )
    undecided = [image_id for image_id, split in splits.items() if split is None]
    if undecided and len(undecided) < len(splits):
        raise SatlibError(
            f"{folder}: {undecided[0]} has no split, but other images have one; fill in the split of all images or of none"
        )
    decided = {image_id: split or by_hash(image_id) for image_id, split in splits.items()}
    empty = [split for split in SPLITS if split not in decided.values()]
    if undecided and empty:
        raise SatlibError(
            f"{folder}: the hash assigns no image to {' and '.join(empty)}; add images or a split column (train, dev, test)"
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
    """The split of an image by the SHA-256 of its id: train for 8 in 10 images, dev for 1, test for 1."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"


def _csv_rows(path: Path) -> Iterator[tuple[str, Row]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    if not {"image", "caption"} <= set(columns):
        if len(columns) == 1 and (other := next((mark for mark in ";\t|" if mark in columns[0]), "")):
            raise SatlibError(
                f"{path}: the columns are separated by {_SEPARATORS[other]}; save the file with commas, as image,caption[,split]"
            )
        raise SatlibError(
            f"{path}: the first line must name the columns image,caption[,split]; it has {', '.join(columns) or 'none'}"
        )
    reader.fieldnames = columns
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row:
                raise SatlibError(
                    f"{where}: more fields than columns; put double quotes around a caption that contains commas"
                )
            yield where, Row(row["image"] or "", row["caption"] or "", row.get("split"))
    except csv.Error as error:
        raise SatlibError(f"{path}, line {reader.line_num}: {error}; check the quotation marks") from error


def _json_rows(path: Path) -> Iterator[tuple[str, Row]]:
    rows = read_json(path, list[Row], "a list of objects with image and caption", f"expected: {LAYOUT}")
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))
