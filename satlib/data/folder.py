"""Your own folder: images and a table of captions, the first of these that is there.

- captions.csv with the columns image, caption and, optionally, split (train, dev or test), with one caption per row.
- captions.txt of the same form and Images/, as Kaggle has Flickr8k.
- metadata.csv or metadata.jsonl, as Hugging Face's imagefolder has them: file_name, and a column with the caption. There may be
  one in each of the folders train, validation and test.

An image is named by its path inside the folder and may have several rows. Without a split, a hash of that path assigns it to
train, dev or test in the ratio 8 : 1 : 1, so an image stays in its split when others are added.
"""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from satlib.data.caption_set import (
    MAX_REFERENCES,
    SPLIT_NAMES,
    SPLITS,
    CaptionSet,
    Example,
    assemble,
    clean,
    split_name,
)
from satlib.errors import SatlibError
from satlib.files.reading import decode, read_lines, read_text

TABLES = ("captions.csv", "captions.txt", "metadata.csv", "metadata.jsonl")
_SPLITS_8K = Path(__file__).with_name("flickr8k-splits.tsv")


class Row(NamedTuple):
    """An image with one or more of its captions, and where that is written, for messages."""

    where: str
    image: str
    captions: list[str]
    split: str | None = None


def save(data: CaptionSet, folder: Path) -> None:
    """Write a caption set as such a folder: one PNG per image, named after its image id, and at last captions.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for example in data.examples:
        data.photo(example).save(folder / f"{example.image_id}.png")
        rows += [(f"{example.image_id}.png", caption, example.split) for caption in example.references]
    with open(folder / "captions.csv", "x", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("image", "caption", "split"), *rows])


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """The caption set in a folder, named after it."""
    parts = [part for part in sorted(folder.iterdir()) if part.name.lower() in SPLIT_NAMES]
    tables = [table for part in (folder, *parts) if (table := table_in(part))]
    if not tables:
        raise SatlibError(f"{folder} has no captions.csv with image,caption, nor another table that docs/data.md names")
    rows, paths = [], {}
    for table in tables:
        part = table.parent.relative_to(folder)
        photos = table.parent / ("Images" if table.name == "captions.txt" else "")
        for row in _read(table):
            image_id = (part / row.image.strip()).as_posix()  # "./a.jpg" and "a.jpg" are the same image
            paths[image_id] = photos / row.image.strip()
            rows.append(row._replace(image=image_id, split=row.split or part.name or None))
    return assemble(folder.resolve().name, examples_of(rows, paths), folder, require_images)


def table_in(folder: Path) -> Path | None:
    """The table of captions that lies in a folder."""
    return next((folder / name for name in TABLES if (folder / name).is_file()), None)


def examples_of(rows: list[Row], paths: Mapping[str, Path]) -> list[Example]:
    """An example for each image, with its captions, its split and its path, if it has one."""
    captions: dict[str, list[str]] = defaultdict(list)
    splits: dict[str, str] = {}
    for row in rows:
        texts = clean(row.captions)
        if not row.image.strip(". ") or not texts or len(texts) < len(row.captions):
            raise SatlibError(f"{row.where}: no image, or a caption without a word; complete the row or delete it")
        captions[row.image] += texts
        if row.split:
            split = split_name(row.split, row.where)
            if splits.setdefault(row.image, split) != split:
                raise SatlibError(f"{row.where}: {row.image} is in split {split}, but in {splits[row.image]} above")
    splits = splits or _official_8k(captions) or {}
    return [
        Example(image_id, split, tuple(texts[:MAX_REFERENCES]), paths.get(image_id))
        for image_id, texts in captions.items()
        if (split := splits.get(image_id) or by_hash(image_id)) in SPLITS
    ]


def _official_8k(image_ids: Iterable[str]) -> dict[str, str] | None:
    """The official splits if all images are Flickr8k's, by the numbers that begin their names, and each split has some.

    The 92 photographs that are in no official split have the split "none".
    """
    lists = (line.split("\t") for line in read_text(_SPLITS_8K).splitlines())
    official = {number: split for split, listed in lists for number in listed.split(" ")}
    splits = {image_id: official.get(Path(image_id).name.partition("_")[0], "") for image_id in image_ids}
    return splits if "" not in splits.values() and set(SPLITS) <= set(splits.values()) else None


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its id: train for 8 in 10 images, dev for 1, test for 1."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"


def _read(table: Path) -> Iterator[Row]:
    """The rows of a table. In CSV, a caption that comes last may have commas without quotes, as in some copies of Flickr8k."""
    if table.suffix == ".jsonl":
        for number, line in read_lines(table):
            where = f"{table}, line {number}"
            yield _row(decode(line, dict[str, Any], where, "a JSON object", "export the table again"), where)
        return
    reader = csv.DictReader(io.StringIO(read_text(table), newline=""), restval="", strict=True)
    columns = reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or []]
    try:
        for row in reader:
            where = f"{table}, line {reader.line_num}"
            if None in row and columns[-1] != "caption":
                raise SatlibError(f"{where}: too many columns; put double quotes around a caption that contains commas")
            if None in row:
                row["caption"] = ",".join([row["caption"], *row.pop(None)])
            yield _row(row, where)
    except csv.Error as error:
        raise SatlibError(f"{table}, line {reader.line_num}: {error}; check the quotation marks") from error


def _row(row: Mapping[str, Any], where: str) -> Row:
    image = row.get("image", row.get("file_name"))
    if image is None:
        raise SatlibError(f"{where}: no column is called image or file_name; the columns are {', '.join(row)}")
    return Row(where, image, captions_of(row, where), row.get("split"))


def captions_of(row: Mapping[str, Any], where: str) -> list[str]:
    """The captions in a row: of the columns caption..., else text..., else sentence...; a column may hold several."""
    for word in ("caption", "text", "sentence"):
        columns = [value for name, value in row.items() if name.lower().startswith(word) and value]
        if columns:
            return [text for value in columns for text in (value if isinstance(value, list) else [value])]
    raise SatlibError(f"{where}: no caption in a column caption or text; the columns are {', '.join(row)}")
