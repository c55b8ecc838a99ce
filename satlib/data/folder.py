"""Your own folder: images and captions.csv with the columns image, caption and perhaps split.

An image is named by its path inside the folder and may have several rows, or a list of captions. Without a column split, folders
train, dev (or val) and test name the splits; without those a hash of the path does, 8 : 1 : 1, and images keep their splits when
others are added.

captions.txt and Images/, as Kaggle has Flickr8k, are read likewise, and so is photo.txt beside photo.jpg, with a caption on each
line, for all photographs or none; photographs of Flickr8k get its official splits.
"""

import ast
import contextlib
import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from satlib.data import images
from satlib.data.caption_set import (
    SPLIT_NAMES,
    SPLITS,
    CaptionSet,
    Example,
    assemble,
    clean,
    split_name,
)
from satlib.errors import SatlibError
from satlib.files import read_lines, read_text

TABLES = {
    "captions.csv": "",
    "captions.txt": "Images",
}  # the table's name -> the folder that its images lie in
_SPLITS_8K = Path(__file__).with_name("flickr8k-splits.tsv")


class Row(NamedTuple):
    """An image with one or more of its captions, and where that is written, for messages."""

    where: str
    image: str
    captions: list[str]
    split: str | None = None


def load(table: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of a table, named after its folder."""
    rows, folder = list(_read(table)), table.parent
    paths = {row.image: folder / TABLES[table.name] / row.image for row in rows}
    return assemble(folder.resolve().name, examples_of(rows, paths), folder, require_images)


def beside(folder: Path) -> CaptionSet | None:
    """The caption set of photographs with a .txt beside each, a caption on each line; None if there is no such file."""
    paths = {path.relative_to(folder).as_posix(): path for path in images.files_in(folder)}
    texts = {
        image: path.with_suffix(".txt")
        for image, path in paths.items()
        if path.with_suffix(".txt").is_file()
    }
    rows = [
        Row(
            str(texts.get(image)),
            image,
            [line for _, line in read_lines(texts[image])] if image in texts else [],
        )
        for image in paths
    ]
    return (
        assemble(folder.resolve().name, examples_of(rows, paths), folder, True) if texts else None
    )


def examples_of(rows: list[Row], paths: Mapping[str, Path]) -> list[Example]:
    """An example for each image, with its captions, its split and its path, if it has one."""
    captions: dict[str, list[str]] = defaultdict(list)
    splits: dict[str, str] = {}
    if bad := [
        row.where
        for row in rows
        if not row.image.strip(". ") or len(clean(row.captions)) < len(row.captions)
    ]:
        others = "".join(f", {where.rpartition(' ')[2]}" for where in bad[1:9])
        raise SatlibError(
            f"{bad[0]}{others}: {len(bad):,} rows lack an image or a caption; complete or delete them"
        )
    for row in rows:
        captions[row.image] += clean(row.captions)
        if row.split:
            split = split_name(row.split, row.where)
            if splits.setdefault(row.image, split) != split:
                raise SatlibError(
                    f"{row.where}: {row.image} is in split {split}, but in {splits[row.image]} above"
                )
    splits = splits or _official_8k(captions) or _by_folders(captions)
    return [
        Example(image_id, split, tuple(texts), paths.get(image_id))
        for image_id, texts in captions.items()
        if (split := splits.get(image_id) or by_hash(image_id)) in SPLITS
    ]


def _official_8k(image_ids: Iterable[str]) -> dict[str, str] | None:
    """The official splits, or "none", if all images are Flickr8k's, by the numbers that begin their names."""
    lists = (line.split("\t") for line in read_text(_SPLITS_8K).splitlines())
    official = {number: split for split, listed in lists for number in listed.split(" ")}
    splits = {
        image_id: official.get(Path(image_id).name.partition("_")[0], "") for image_id in image_ids
    }
    return splits if "" not in splits.values() and set(SPLITS) <= set(splits.values()) else None


def _by_folders(image_ids: Iterable[str]) -> dict[str, str]:
    """The splits that the first folders of the images' paths are named after; all of them must be, or none."""
    splits = {
        image_id: SPLIT_NAMES.get(image_id.partition("/")[0].lower(), "") for image_id in image_ids
    }
    named, other = (choose(splits, key=splits.__getitem__, default="") for choose in (max, min))
    if any(splits.values()) and not all(splits.values()):
        raise SatlibError(
            f"{named} is in a folder named after a split, {other} is not; write them in a column split"
        )
    return splits if all(splits.values()) else {}


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its id: train for 8 in 10 images, dev for 1, test for 1."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"


def _read(table: Path) -> Iterator[Row]:
    """The rows of a table. A caption that comes last may have commas without quotes, as in some copies of Flickr8k."""
    reader = csv.DictReader(io.StringIO(read_text(table), newline=""), restval="", strict=True)
    columns = reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or []]
    if not {"image", "caption"} <= set(columns):
        raise SatlibError(
            f"{table}: the first line must name the columns image,caption; it is {','.join(columns)}"
        )
    last = reader.line_num
    try:
        for row in reader:
            first, last = last + 1, reader.line_num
            where = f"{table}, line {last}"
            if None in row and columns[-1] != "caption":
                raise SatlibError(
                    f"{where}: too many columns; put double quotes around a caption that contains commas"
                )
            caption = ",".join([row["caption"], *row.get(None, [])])
            image = Path(
                row["image"].strip().replace("\\", "/")
            )  # "./a.jpg", ".\\a.jpg" and "a.jpg" are one
            if image.suffix and any(
                f"{image.suffix}," in line for line in caption.splitlines()[1:]
            ):
                raise SatlibError(
                    f"{table}: a quotation mark in line {first} swallows the rows to line {last}; double it"
                )
            yield Row(where, image.as_posix(), texts_in(caption), row.get("split"))
    except csv.Error as error:
        raise SatlibError(
            f"{table}, line {reader.line_num}: {error}; check the quotation marks"
        ) from error


def texts_in(caption: str) -> list[str]:
    """A caption; or several, where they are written as a list of Python or JSON."""
    with contextlib.suppress(SyntaxError, ValueError):
        if isinstance(several := ast.literal_eval(caption), list) and several:
            return [str(text) for text in several]
    return [caption]
