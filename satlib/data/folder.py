"""Your own folder: images and captions.csv with the columns image, caption and perhaps split.

An image is named by its path inside the folder. It may have several rows, or a list of captions in
one. Without a column split, the folders train, dev (or val) and test name the splits. Without those
folders, a hash of the path decides, 8 : 1 : 1, and images keep their splits when others are added.

captions.txt and Images/, as Kaggle has Flickr8k, are read likewise, and so are metadata.csv and
metadata.jsonl, as Hugging Face has imagefolders, and tables in subfolders, of the images there. So
is photo.txt, or photo.caption, beside photo.jpg, with a caption on each line, for all photographs
or none. Photographs of Flickr8k get its official splits.
"""

import ast
import contextlib
import csv
import hashlib
import io
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.files import decode, note, read_lines, read_text

TABLES = ("captions.csv", "captions.txt", "metadata.csv", "metadata.jsonl")
# Where the images may lie, relative to the file that lists them: mirrors name it differently.
FOLDERS = (
    "",
    "Images",
    "images",
    "imgs",
    "Flicker8k_Dataset",
    "flickr30k-images",
    "flickr30k_images",
)

# What a table's columns are called. There may be several of captions: text_0 to text_4.
_IMAGE = ("image", "file_name", "filename")
_CAPTIONS = ("caption", "text", "sentence")

# The columns of what `satlib.captioning` writes, now and earlier: captions of a model.
MACHINE = ["image", "caption", "score", "model"]
EARLIER_MACHINE = ["image", "caption", "confidence"]

# SPLIT<tab>NUMBER NUMBER ... on a line; the split "none" is that of the photographs in no split.
_SPLITS_8K = Path(__file__).with_name("flickr8k-splits.tsv")


class Row(NamedTuple):
    """An image with one or more of its captions, and where they are written, for messages."""

    where: str
    image: str
    captions: list[str]
    split: str | None = None


def tables_in(folder: Path, below: bool = False) -> list[Path]:
    """The tables of a folder, by their names; with `below`, those of its subfolders, too."""
    files = folder.rglob("*.*") if below else folder.iterdir()
    # Windows takes Captions.csv for the same name.
    return sorted(file for file in files if file.name.lower() in TABLES)


def load(folder: Path, tables: Sequence[Path]) -> CaptionSet:
    """The caption set of some tables in a folder, named after it."""
    rows = []
    paths = {}
    for table in tables:
        listed = list(_read(table))
        files = located([row.image for row in listed], table.parent)
        # In a subfolder, an image is named with it: "train/1.jpg" of train/metadata.csv.
        here = table.parent.relative_to(folder)
        ids = {name: (here / name).as_posix() if here.name else name for name in files}
        paths |= {ids[name]: file for name, file in files.items()}
        rows += [row._replace(image=ids[row.image]) for row in listed]
    return assemble(folder.resolve().name, examples_of(rows, paths), folder)


def located(names: Sequence[str], home: Path, own: str = "") -> dict[str, Path]:
    """The files of listed images, by their names: in `own` or one of `FOLDERS`, below `home`.

    If none of them has half of them, all are looked for in `home` by their names alone, whether in
    capitals or not; so are COCO's photographs of 2014 by their names of 2017. What is not found is
    expected in the one that has most, or in `home` itself if none has any.
    """
    # Some twenty tell for all: to look for each of COCO's 123,287 takes long. One may be missing,
    # and have a namesake in another folder; or one alone may lie beside the table.
    some = names[:: len(names) // 20 + 1]
    counts = {}
    for folder in (own, f"images/{own}", *FOLDERS):
        counts[home / folder] = sum((home / folder / name).is_file() for name in some)
    fullest = max(counts, key=counts.__getitem__)
    if not counts[fullest]:
        fullest = home
    paths = {name: fullest / name for name in names}

    scattered = 2 * counts[fullest] < len(some)
    # A Mac writes "é" as e and an accent.
    doubtful = [name for name in paths if scattered or not name.isascii()]
    lost = [name for name in doubtful if not paths[name].is_file()]
    found = _by_name(home if scattered else fullest, scattered) if lost else {}
    for name in lost:
        of_2017 = re.sub(r"^(\w+/)?COCO_\w+_", "", name)
        paths[name] = found.get(_spelt(name)) or found.get(of_2017) or paths[name]

    near = [name for name in lost if paths[name].name != Path(name).name]
    if near:
        example = f"{near[0]} is {paths[near[0]].name}"
        note(f"{home}: {len(near):,} names are spelt in another way than their files: {example}")
    return paths


def _by_name(home: Path, alone: bool) -> dict[str, Path | None]:
    """The image files below a folder, by their paths in it and, if `alone`, by their names alone."""
    found: dict[str, Path | None] = {}
    for file in images.files_in(home):
        path = _spelt(file.relative_to(home).as_posix())
        for name in {path, _spelt(file.name)} if alone else {path}:
            # Two images of one name: nobody knows which is meant.
            found[name] = None if name in found else file
    return found


def _spelt(name: str) -> str:
    """One spelling of what some systems take for the same name."""
    return unicodedata.normalize("NFC", name).lower()


def beside(folder: Path) -> CaptionSet | None:
    """The caption set of photographs with a .txt (or .caption) beside each, one caption per line.

    None if there is no such file.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in images.files_in(folder)}
    for ending in (".txt", ".caption"):
        texts = {image: path.with_suffix(ending) for image, path in paths.items()}
        if any(text.is_file() for text in texts.values()):
            break
    else:
        return None

    rows = []
    for image, text in texts.items():
        captions = [line for _, line in read_lines(text)] if text.is_file() else []
        # A row without captions, too: `assemble` lists the photographs that lack them.
        rows.append(Row(str(text), image, captions))
    examples = examples_of(rows, paths)
    return assemble(folder.resolve().name, examples, folder)


def examples_of(rows: Iterable[Row], paths: Mapping[str, Path]) -> list[Example]:
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
            examples.append(Example(image_id, split, tuple(texts), paths.get(image_id)))
    return examples


def _refuse(incomplete: list[str]) -> None:
    """Refuse rows, if there are any, without an image or with a caption that has no words."""
    if not incomplete:
        return

    # Those of the first one's table by line, up to nine: "captions.csv, line 2, 4, 7".
    first_table = incomplete[0].rpartition(" ")[0]
    lines = [where.rpartition(" ")[2] for where in incomplete if where.startswith(first_table)]
    raise SatlibError(
        f"{first_table} {', '.join(lines[:9])}: rows without an image or a caption "
        f"({len(incomplete):,}); complete or delete them"
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
    digest = hashlib.sha256(image_id.encode(errors="surrogateescape")).digest()
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
    for first, last, row in _lines(table) if "json" in table.suffix.lower() else _csv(table):
        where = f"{table}, line {last}"
        captions = captions_in(row, where)
        named = next((row[column] for column in _IMAGE if row.get(column)), "")
        image = _image_id(str(named), table.parent)

        # A quotation mark that is not closed takes in the rows below, up to the next mark.
        further_lines = [line for caption in captions for line in caption.splitlines()[1:]]
        for line in further_lines:
            suffix = Path(image).suffix
            if suffix and f"{suffix}," in line:
                raise SatlibError(
                    f"{table}: a quotation mark in line {first} swallows the rows to line {last}; "
                    "double it"
                )
        yield Row(where, image, captions, str(row.get("split") or ""))


def _lines(table: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The rows of JSON lines, each with the numbers of its first and last line."""
    for number, line in read_lines(table):
        where = f"{table}, line {number}"
        yield number, number, decode(line, dict[str, Any], where, "a JSON object", "correct it")


def _csv(table: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The rows of a CSV file, each with the numbers of its first and last line."""
    # Line breaks as they are: the csv module handles those inside quotes itself.
    # Kept as bytes: a StringIO takes four for every letter.
    text = io.TextIOWrapper(io.BytesIO(read_text(table).encode()), "utf-8", newline="")
    reader = csv.DictReader(text, restval="", strict=True)
    columns = [name.strip().lower() for name in reader.fieldnames or []]
    reader.fieldnames = columns
    if not (set(_IMAGE) & set(columns) and any(map(_kind, columns))):
        raise SatlibError(
            f"{table}: the first line must name the columns image,caption; "
            f"it is {','.join(columns)}"
        )

    # A model that learns its own captions learns its mistakes.
    if set(MACHINE) <= set(columns) or columns == EARLIER_MACHINE:
        raise SatlibError(
            f"{table} has the captions that satlib wrote, not a person's; give it another name"
        )

    last = reader.line_num
    try:
        for row in reader:
            # A quoted caption may contain line breaks, so that a row takes several lines.
            first = last + 1
            last = reader.line_num

            # The csv module collects the fields beyond the last column under None.
            surplus = row.pop(None, [])
            # The commas of an unquoted caption were taken for columns.
            if surplus and not _kind(columns[-1]):
                raise SatlibError(
                    f"{table}, line {last}: too many columns; "
                    "put double quotes around a caption that contains commas"
                )
            row[columns[-1]] = ",".join([row[columns[-1]], *surplus])
            yield first, last, row
    except csv.Error as error:
        raise SatlibError(
            f"{table}, line {reader.line_num}: {error}; check the quotation marks"
        ) from error


@cache
def _kind(column: str) -> str:
    """The word in `_CAPTIONS` that a column is called by, with or without a number; or ""."""
    match = re.fullmatch(rf"({'|'.join(_CAPTIONS)})s?[ _-]?\d*", column.lower())
    return match[1] if match else ""


def captions_in(row: Mapping[str, Any], where: str) -> list[str]:
    """The captions in a row of a table; a column may hold several.

    Raises:
        SatlibError: no column is called like captions.
    """
    for word in _CAPTIONS:
        captions = []
        for name, value in row.items():
            if value and _kind(name) == word:
                captions += _joined(value if isinstance(value, list) else texts_in(str(value)))
        # Only the first word that finds any: a text beside the captions may be something else.
        if captions:
            return captions
    if any(map(_kind, row)):
        return [""]  # which `examples_of` reports, with all others
    raise SatlibError(
        f"{where}: no caption in a column {', '.join(_CAPTIONS)}; the columns are {', '.join(row)}"
    )


def _joined(values: list[Any]) -> list[str]:
    """Several captions; or one, if they are its words. Some sets list words, of one or of several."""
    texts = []
    for value in values:
        # A caption that is missing (null) has no words, which `examples_of` reports.
        words = value if isinstance(value, list) else [value or ""]
        texts.append(" ".join(map(str, words)))
    if len(texts) > 1 and all(len(tokenise(text)) < 2 for text in texts):
        return [" ".join(texts)]
    return texts


# What a path would change in a name: "./a", "/a", "a//b", "a/", "C:/a".
_UNUSUAL = re.compile(r"(^|/)\.?(/|$)|:")


def _image_id(written: str, home: Path) -> str:
    r"""One id for "./a.jpg", ".\a.jpg", "a.jpg", and the whole path of a.jpg in `home`."""
    name = written.strip().replace("\\", "/")
    # A path takes longer than all the rest of a row.
    if not _UNUSUAL.search(name):
        return name
    image = Path(name)
    with contextlib.suppress(ValueError):
        image = image.relative_to(home.absolute())
    return image.as_posix()


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
