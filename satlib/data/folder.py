"""Your own folder: images and one file of captions.

- captions.csv with the columns image, caption and, optionally, split (train, dev or test), with one caption per row.
- captions.txt of the same form and Images/, as Kaggle has Flickr8k.
- metadata.csv or metadata.jsonl, as Hugging Face's imagefolder has them: file_name, and a column with the caption. There may be
  one in each of the folders train, validation and test.
- captions.json in COCO's form.

An image is named by its path inside the folder and may have several rows. If no image has a split, a hash of that path assigns
images to train, dev and test in the ratio 8 : 1 : 1, so an image stays in its split when others are added.
"""

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from satlib.data import coco
from satlib.data.caption_set import SPLIT_NAMES, SPLITS, CaptionSet, assemble, clean, split_name
from satlib.errors import SatlibError
from satlib.files.reading import decode, read_lines, read_text

KNOWN = (
    "captions.csv with the columns image,caption[,split]; Kaggle's captions.txt; Hugging Face's metadata.csv or metadata.jsonl; "
    "captions.json in COCO's form; or parquet files"
)
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


def load(place: Path, require_images: bool = True) -> CaptionSet:
    """The caption set in a folder, or in a JSON file in COCO's form, named after the folder or file."""
    folder, tables = (place.parent, [place]) if place.is_file() else (place, _tables(place))
    rows, paths = [], {}
    for table in tables:
        own = list(READERS.get(table.name, _coco)(table))
        photos = _photos(table, own)
        part = table.parent.relative_to(folder)
        for row in own:
            image_id = (part / row.image.strip()).as_posix()  # "./a.jpg" and "a.jpg" are the same image
            paths[image_id] = photos / row.image.strip()
            rows.append(row._replace(image=image_id, split=row.split or part.name or None))
    captions, splits = gather(rows, place)
    name = place.resolve().stem if place.is_file() else place.resolve().name
    return assemble(name, captions, splits, paths.__getitem__, folder, require_images)


def _tables(folder: Path) -> list[Path]:
    """The file of captions in a folder, or those in its folders train, validation and test."""
    parts = [folder, *(part for part in sorted(folder.iterdir()) if part.name.lower() in SPLIT_NAMES)]
    tables = [part / name for part in parts for name in READERS if (part / name).is_file()]
    if not tables:
        raise SatlibError(f"{folder} has no file of captions; expected: images and {KNOWN}")
    places = [table.parent for table in tables]
    if len(set(places)) < len(places) or (len(places) > 1 and folder in places):
        names = " and ".join(str(table.relative_to(folder)) for table in tables)
        raise SatlibError(f"{folder} has {names}, and only one can hold the captions; move the others elsewhere")
    return tables


def _photos(table: Path, rows: list[Row]) -> Path:
    """The folder of a table's images: where the first one is, in Kaggle's Images/ or in the table's own folder."""
    folders = [table.parent / name for name in ("Images", "images", "Flicker8k_Dataset", "")]
    return next((folder for folder in folders if rows and (folder / rows[0].image.strip()).is_file()), table.parent)


def gather(rows: list[Row], place: object) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The captions and the split of each image."""
    captions: dict[str, list[str]] = {}
    splits: dict[str, str | None] = {}
    for row in rows:
        texts = clean(row.captions)
        if not row.image.strip(". ") or not texts or len(texts) < len(row.captions):
            raise SatlibError(f"{row.where}: no image, or a caption without a word; complete the row or delete it")
        captions.setdefault(row.image, []).extend(texts)
        split = split_name(row.split, row.where) if row.split else None
        if splits.setdefault(row.image, split) != split:
            raise SatlibError(f"{row.where}: {row.image} is in split {split}, but in {splits[row.image]} above")
    undecided = [image_id for image_id, split in splits.items() if split is None]
    if undecided and len(undecided) < len(splits):
        raise SatlibError(f"{place}: {undecided[0]} has no split, but other images have one; fill in all or none")
    if not undecided:
        return captions, {image_id: split for image_id, split in splits.items() if split}
    decided = _official_8k(undecided) or {image_id: by_hash(image_id) for image_id in undecided}
    if empty := [split for split in SPLITS if split not in decided.values()]:
        raise SatlibError(
            f"{place}: so few images that the hash of their paths gives none to {' and '.join(empty)}; add images, or a column "
            "`split` that says train, dev or test"
        )
    return captions, decided


def _official_8k(image_ids: list[str]) -> dict[str, str] | None:
    """The official splits if all images are Flickr8k's, by the numbers that begin their names, and each split has some.

    The 92 photographs that are in no official split are left out.
    """
    lists = (line.split("\t") for line in read_text(_SPLITS_8K).splitlines())
    official = {number: split for split, listed in lists for number in listed.split(" ")}
    splits = {image_id: official.get(Path(image_id).name.partition("_")[0], "") for image_id in image_ids}
    if not all(splits.values()):
        return None
    splits = {image_id: split for image_id, split in splits.items() if split in SPLITS}
    return splits if set(splits.values()) == set(SPLITS) else None


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its id: train for 8 in 10 images, dev for 1, test for 1."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"


def _csv(path: Path) -> Iterator[Row]:
    """The rows of a CSV file whose first line names the columns. A caption that comes last may have commas without quotes."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), restval="", strict=True)
    columns = reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or []]
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row and columns[-1] != "caption":
                raise SatlibError(f"{where}: too many columns; put double quotes around a caption that contains commas")
            if None in row:
                row["caption"] = ",".join([row["caption"], *row.pop(None)])
            yield _row(row, where)
    except csv.Error as error:
        raise SatlibError(f"{path}, line {reader.line_num}: {error}; check the quotation marks") from error


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        yield _row(decode(line, dict[str, Any], where, "a JSON object", "export the file again"), where)


def _row(row: Mapping[str, Any], where: str) -> Row:
    image = row.get("image", row.get("file_name"))
    if image is None:
        raise SatlibError(f"{where}: no column is called image or file_name; the columns are {', '.join(row)}")
    return Row(where, image, captions_of(row, where), row.get("split"))


def captions_of(row: Mapping[str, Any], where: str) -> list[str]:
    """The captions in a row: of the columns caption..., else text..., else sentence..., else of the only one with text."""
    texts = {
        name: value if isinstance(value, list) else [value]
        for name, value in row.items()
        if name not in ("image", "file_name", "filename", "split") and isinstance(value, str | list)
    }
    named = ([name for name in texts if name.lower().startswith(word)] for word in ("caption", "text", "sentence"))
    columns = next(filter(None, named), list(texts) if len(texts) == 1 else [])
    if not columns:
        raise SatlibError(f"{where}: a column `caption` must hold the caption; the columns are {', '.join(row)}")
    return [text for name in columns for text in texts[name] if text != ""]


def _coco(path: Path) -> Iterator[Row]:
    """A file in COCO's form; train.json, captions_val2017.json and the like say the split in their names."""
    split = SPLIT_NAMES.get(path.stem.lower().rstrip("0123456789").rpartition("_")[2])
    for image, captions in coco.read(path).items():
        yield Row(f"{path}, {image}", image, captions, split)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "captions.csv": _csv,
    "captions.txt": _csv,
    "metadata.csv": _csv,
    "metadata.jsonl": _jsonl,
    "captions.json": _coco,
}
