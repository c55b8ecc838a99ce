"""The files in which people keep captions: a table of layouts, each with its reader.

A reader gives, for a file, rows (place in the file, image, captions, split or None); `satlib.data.folder` makes a caption set of them.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from satlib.data import coco, flickr
from satlib.data.caption_set import SPLIT_NAMES
from satlib.errors import SatlibError
from satlib.files.reading import decode, read_json, read_lines, read_text

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
OURS = "captions.csv with the columns image,caption[,split], or captions.json, a list of objects of the same form"
KNOWN = f"{OURS}; Kaggle's captions.txt or results.csv; metadata.csv or metadata.jsonl; a JSON file as COCO has it; or parquet files"


class Row(Struct):
    """A row of captions.csv, or of captions.json, where it may have several captions."""

    image: str
    caption: str | list[str]
    split: str | None = None


Rows = Iterator[tuple[str, Row]]


def _csv(path: Path, needed: str, form: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file with their places; its first line must name the columns `needed`, as in `form`."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    if not set(needed.split(",")) <= set(columns):
        if len(columns) == 1 and (other := next((mark for mark in _SEPARATORS if mark in columns[0]), "")):
            raise SatlibError(
                f"{path}: the columns are separated by {_SEPARATORS[other]}; save the file with commas, as {form}"
            )
        raise SatlibError(f"{path}: the first line must name the columns {form}; it has {', '.join(columns) or 'none'}")
    reader.fieldnames = columns
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row:
                raise SatlibError(
                    f"{where}: more fields than columns; put double quotes around a caption that contains commas"
                )
            yield where, {name: value or "" for name, value in row.items()}
    except csv.Error as error:
        raise SatlibError(f"{path}, line {reader.line_num}: {error}; check the quotation marks") from error


def _our_csv(path: Path) -> Rows:
    for where, row in _csv(path, "image,caption", "image,caption[,split]"):
        yield where, Row(row["image"], row["caption"], row.get("split"))


def _our_json(path: Path) -> Rows:
    if coco.has_captions(path):
        return _coco(path)
    rows = read_json(path, list[Row], "a list of objects with image and caption", f"expected: {OURS}")
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))


def _kaggle_8k(path: Path) -> Rows:
    """Kaggle's Flickr8k: lines IMAGE,CAPTION below such a heading; in some copies a caption with commas has no quotes."""
    lines = read_lines(path)
    if not lines or [name.strip() for name in lines[0][1].lower().split(",")] != ["image", "caption"]:
        found = repr(lines[0][1][:60]) if lines else "nothing"
        raise SatlibError(f"{path}: the first line must be image,caption, as in Kaggle's Flickr8k; it is {found}")
    for number, line in lines[1:]:
        image, comma, caption = line.partition(",")
        if not comma:
            raise SatlibError(f"{path}, line {number}: expected IMAGE,CAPTION, found {line[:60]!r}; correct the line")
        if len(caption) > 1 and caption[0] == caption[-1] == '"':
            caption = caption[1:-1].replace('""', '"')
        yield f"{path}, line {number}", Row(image, caption)


def _kaggle_30k(path: Path) -> Rows:
    captions = flickr.read_captions(path, flickr.KAGGLE, "IMAGE.jpg| NUMBER| CAPTION", header=True)
    return ((f"{path}, {image}", Row(image, texts)) for image, texts in captions.items())


def _metadata_csv(path: Path) -> Rows:
    for where, row in _csv(path, "file_name", "file_name,text[,split]"):
        yield where, imagefolder(row, where)


def _metadata_jsonl(path: Path) -> Rows:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        yield where, imagefolder(decode(line, dict[str, Any], where, "an object", "correct the line"), where)


def imagefolder(row: Mapping[str, Any], where: str) -> Row:
    """A row of Hugging Face's imagefolder: captions are the columns caption..., else text..., else the only one of text."""
    if not isinstance(row.get("file_name"), str):
        raise SatlibError(f"{where}: file_name must be the path of an image; correct the row")
    texts = {
        name: value if isinstance(value, list) else [value]
        for name, value in row.items()
        if name not in ("file_name", "split") and isinstance(value, str | list)
    }
    named = [[name for name in texts if name.lower().startswith(word)] for word in ("caption", "text", "sentence")]
    columns = next((names for names in named if names), list(texts) if len(texts) == 1 else [])
    captions = [text for name in columns for text in texts[name] if text != ""]
    if not columns or not all(isinstance(text, str) for text in captions):
        found = ", ".join(name for name in row if name != "file_name") or "none"
        raise SatlibError(f"{where}: one column must hold the caption; call it text (the others are {found})")
    return Row(row["file_name"], captions, row.get("split") or None)


def _coco(path: Path) -> Rows:
    """A JSON file with images and annotations; train.json, captions_val2017.json and the like say the split in their names."""
    split = SPLIT_NAMES.get(re.split(r"[_.-]", re.sub(r"\d+$", "", path.stem.lower()))[-1])
    return ((f"{path}, {image}", Row(image, texts, split)) for image, texts in coco.read(path).items())


class Layout(NamedTuple):
    """How somebody keeps captions.

    Attributes:
        files: glob patterns of the files with the captions, in the set's folder.
        read: the reader of one of them.
        photos: folders in which images may be, seen from the set's folder; the first that has the first image is taken.
    """

    files: tuple[str, ...]
    read: Callable[[Path], Rows]
    photos: tuple[str, ...] = ("",)


COCO = Layout(("*.json", "annotations/*.json"), _coco, ("", "images", "train", "val", "test"))
LAYOUTS = (
    Layout(("captions.csv",), _our_csv),
    Layout(("captions.json",), _our_json, COCO.photos),
    Layout(("captions.txt",), _kaggle_8k, ("Images", "images", "Flicker8k_Dataset", "")),
    Layout(("results.csv",), _kaggle_30k, ("flickr30k_images", "flickr30k-images", "")),
    Layout(("metadata.csv",), _metadata_csv),
    Layout(("metadata.jsonl",), _metadata_jsonl),
)


def find(folder: Path) -> tuple[Layout, list[Path]] | None:
    """The layout of a folder and its files with captions; None if it has none.

    Raises:
        SatlibError: it has several.
    """
    found = [(layout, folder / layout.files[0]) for layout in LAYOUTS if (folder / layout.files[0]).is_file()]
    if len(found) > 1:
        names = " and ".join(file.name for _, file in found)
        raise SatlibError(
            f"{folder} has {names}, and only one can hold the captions; move the others out of the folder"
        )
    if found:
        return found[0][0], [found[0][1]]
    files = [file for pattern in COCO.files for file in sorted(folder.glob(pattern)) if coco.has_captions(file)]
    return (COCO, files) if files else None
