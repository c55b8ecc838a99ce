"""Your own folder: images and captions.csv with the columns image, caption and perhaps split.

An image is named by its path inside the folder. It may have several rows, or a list of captions in
one. Without a column split, the folders train, dev (or val) and test name the splits. Without those
folders, a hash of the path decides, 8 : 1 : 1, and images keep their splits when others are added.

captions.txt and Images/, as Kaggle has Flickr8k, are read likewise, and so is photo.txt beside
photo.jpg, with a caption on each line, for all photographs or none. Photographs of Flickr8k get its
official splits.
"""

import ast
import contextlib
import csv
import hashlib
import io
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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

# The name of a table -> the folder that its images lie in, relative to the table's.
TABLES = {"captions.csv": "", "captions.txt": "Images"}

# SPLIT<tab>NUMBER NUMBER ... on a line; the split "none" is that of the photographs in no split.
_SPLITS_8K = Path(__file__).with_name("flickr8k-splits.tsv")


class Row(NamedTuple):
    """An image with one or more of its captions, and where they are written, for messages."""

    where: str
    image: str
    captions: list[str]
    split: str | None = None


def load(table: Path) -> CaptionSet:
    """The caption set of a table, named after its folder."""
    folder = table.parent
    photos = folder / TABLES[table.name]
    examples = examples_of(_read(table), lambda image: photos / image)
    return assemble(folder.resolve().name, examples, folder)


def beside(folder: Path) -> CaptionSet | None:
    """The caption set of photographs with a .txt beside each, one caption per line.

    None if there is no such file.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in images.files_in(folder)}
    texts = {image: path.with_suffix(".txt") for image, path in paths.items()}
    if not any(text.is_file() for text in texts.values()):
        return None

    rows = []
    for image, text in texts.items():
        captions = [line for _, line in read_lines(text)] if text.is_file() else []
        # A row without captions, too: `assemble` lists the photographs that lack them.
        rows.append(Row(str(text), image, captions))
    examples = examples_of(rows, paths.get)
    return assemble(folder.resolve().name, examples, folder)


def examples_of(rows: Iterable[Row], path_of: Callable[[str], Path | None]) -> list[Example]:
    """An example for each image, with its captions, its split and its path, if it has one.

    Raises:
        SatlibError: a row lacks an image or a caption, or an image is in two splits.
    """
    captions: dict[str, list[str]] = defaultdict(list)
    splits: dict[str, str] = {}
    incomplete = []
    # One pass, which keeps no row: of a large table the rows would fill more memory than the captions.
    for row in rows:
        texts = clean(row.captions)
        captions[row.image] += texts
        # "." is what an empty path becomes.
        has_image = bool(row.image.strip(". "))
        if not has_image or len(texts) < len(row.captions):
            incomplete.append(row.where)

        if not row.split:
            continue
        split = split_name(row.split, row.where)
        above = splits.setdefault(row.image, split)
        if above != split:
            raise SatlibError(f"{row.where}: {row.image} is in split {split}, but in {above} above")
    _refuse(incomplete)

    # Without a single entry in a column split, the names of the images may tell.
    if not splits:
        splits = _official_8k(captions) or _by_folders(captions)

    examples = []
    for image_id, texts in captions.items():
        # By its hash also where the column split is empty in some rows.
        split = splits.get(image_id) or by_hash(image_id)
        # The official lists of Flickr8k have photographs in no split: they are left out.
        if split in SPLITS:
            examples.append(Example(image_id, split, tuple(texts), path_of(image_id)))
    return examples


def _refuse(incomplete: list[str]) -> None:
    """Refuse rows, if there are any, without an image or with a caption that has no words."""
    if not incomplete:
        return

    # The first with its whole place, up to eight more by line: "captions.csv, line 2, 4, 7".
    lines = [where.rpartition(" ")[2] for where in incomplete[1:9]]
    raise SatlibError(
        f"{', '.join([incomplete[0], *lines])}: {len(incomplete):,} rows lack an image or a "
        "caption; complete or delete them"
    )


# --- Splits -----------------------------------------------------------------------------------


def _official_8k(image_ids: Iterable[str]) -> dict[str, str] | None:
    """The official splits, or "none", if all images are Flickr8k's and every split has some."""
    official: dict[str, str] = {}  # the number of a photograph -> its split
    for line in read_text(_SPLITS_8K).splitlines():
        split, numbers = line.split("\t")
        official.update(dict.fromkeys(numbers.split(" "), split))

    splits = {}
    for image_id in image_ids:
        # 667626_18933d713e.jpg: only the number, because copies differ in the rest.
        number = Path(image_id).name.partition("_")[0]
        if number not in official:
            return None
        splits[image_id] = official[number]

    # A selection that lacks a whole split could not be trained or tested by the official ones.
    return splits if set(SPLITS) <= set(splits.values()) else None


def _by_folders(image_ids: Iterable[str]) -> dict[str, str]:
    """The splits that the top folders in the images' paths are named after; empty if none is.

    Raises:
        SatlibError: only some of the folders are named after a split.
    """
    splits = {}
    others = []
    for image_id in image_ids:
        top_folder = image_id.partition("/")[0].lower()
        if top_folder in SPLIT_NAMES:
            splits[image_id] = SPLIT_NAMES[top_folder]
        else:
            others.append(image_id)

    # The others may be meant for training, or may have been forgotten: only their owner knows.
    if splits and others:
        raise SatlibError(
            f"{next(iter(splits))} is in a folder named after a split, {others[0]} is not; "
            "write them in a column split"
        )
    return splits


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its id: 8 in 10 are train, 1 dev, 1 test."""
    digest = hashlib.sha256(image_id.encode()).digest()
    tenth = int.from_bytes(digest[:8], "big") % 10
    if tenth == 0:
        return "dev"
    if tenth == 1:
        return "test"
    return "train"


# --- Tables -----------------------------------------------------------------------------------


def _read(table: Path) -> Iterator[Row]:
    """The rows of a table.

    If the caption is the last column, it may contain commas without quotes, as in some copies of
    Flickr8k.
    """
    # Line breaks as they are: the csv module handles those inside quotes itself.
    text = io.StringIO(read_text(table), newline="")
    reader = csv.DictReader(text, restval="", strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    reader.fieldnames = columns
    if not {"image", "caption"} <= set(columns):
        raise SatlibError(
            f"{table}: the first line must name the columns image,caption; "
            f"it is {','.join(columns)}"
        )

    last = reader.line_num
    try:
        for row in reader:
            # A quoted caption may contain line breaks, so that a row takes several lines.
            first = last + 1
            last = reader.line_num
            where = f"{table}, line {last}"

            # The csv module collects the fields beyond the last column under None.
            surplus = row.get(None, [])
            if surplus and columns[-1] != "caption":
                raise SatlibError(
                    f"{where}: too many columns; "
                    "put double quotes around a caption that contains commas"
                )
            caption = ",".join([row["caption"], *surplus])

            image = _image_id(row["image"])

            # A quotation mark that is not closed takes in the rows below, up to the next mark.
            for further_line in caption.splitlines()[1:]:
                suffix = Path(image).suffix
                if suffix and f"{suffix}," in further_line:
                    raise SatlibError(
                        f"{table}: a quotation mark in line {first} swallows the rows to line "
                        f"{last}; double it"
                    )
            yield Row(where, image, texts_in(caption), row.get("split"))
    except csv.Error as error:
        raise SatlibError(
            f"{table}, line {reader.line_num}: {error}; check the quotation marks"
        ) from error


@lru_cache  # a path takes longer than a row, and the rows of an image follow each other
def _image_id(written: str) -> str:
    r"""One id for "./a.jpg", ".\a.jpg" and "a.jpg"."""
    return Path(written.strip().replace("\\", "/")).as_posix()


def texts_in(caption: str) -> list[str]:
    """A caption; or several, if they are written as a Python or JSON list of strings."""
    # Parsing takes longer than all the rest: only what may be a list is parsed.
    if not caption.lstrip().startswith("["):
        return [caption]

    # Python warns of "\d" in what is no Python at all.
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings(action="ignore"):
        value = ast.literal_eval(caption.strip())
        if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
            return value
    return [caption]
