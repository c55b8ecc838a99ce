"""Your own folder: images and a captions.csv or captions.json, or another layout of `satlib.data.layouts`.

captions.csv has the columns image, caption and, optionally, split (train, dev or test), with one caption per row; an image
may have several rows. captions.json is a list of such rows as objects, in which "caption" may also be a list. An image is
named by its path inside the folder. Without a split column, a hash of that path assigns images to train, dev and test in the
ratio 8 : 1 : 1, so an image stays in its split when others are added.
"""

import csv
import hashlib
import io
from dataclasses import replace
from pathlib import Path

from satlib.data import layouts, parquet
from satlib.data.caption_set import SPLIT_NAMES, SPLITS, CaptionSet, assemble, clean, split_name
from satlib.data.layouts import Layout, Row
from satlib.errors import SatlibError
from satlib.files.atomic import replacing, write_text
from satlib.files.reading import read_text

_SPLITS_8K = Path(__file__).with_name("flickr8k-splits.tsv")


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


def load(place: Path, require_images: bool = True) -> CaptionSet:
    """The caption set in a folder (`satlib.data.layouts`) or in a JSON file of COCO's form, named after the folder or file.

    Raises:
        SatlibError: see `satlib.data.datasets.load`; also if an image is in two splits, or only some images have a split.
    """
    captions: dict[str, list[str]] = {}
    splits: dict[str, str | None] = {}
    paths: dict[str, Path | None] = {}
    folder = place.parent if place.is_file() else place
    sources, packed = _sources(place), None
    if not sources:
        if not (files := parquet.files(place)):
            raise SatlibError(f"{place} has no file of captions; expected layout: images and {layouts.KNOWN}")
        packed = parquet.Photographs(files)
    parts = [(Path(), packed.rows, None)] if packed else [_part(folder, *source) for source in sources]
    for part, rows, photos in parts:
        for where, row in rows:
            if not row.image.strip():
                raise SatlibError(f"{where}: no image is given; write its path relative to {folder / part}")
            image = Path(row.image.strip())
            image_id = (part / image).as_posix()  # "./a.jpg" and "a.jpg" are the same image
            paths[image_id] = None if photos is None else photos / image
            texts = row.caption if isinstance(row.caption, list) else [row.caption]
            captions.setdefault(image_id, []).extend(clean(text, where) for text in texts)
            name = row.split or part.name
            split = split_name(name, where) if name else None
            if splits.setdefault(image_id, split) != split:
                raise SatlibError(
                    f"{where}: {image_id} is in split {splits[image_id]} in an earlier row and in {split} here; use the same split in both"
                )
    data = assemble(
        place.resolve().stem if place.is_file() else place.resolve().name,
        captions,
        _decided(splits, place),
        paths.__getitem__,
        require_images,
        folder,
        str(place),
    )
    return replace(data, draw=packed.photo) if packed else data


def _sources(place: Path) -> list[tuple[Path, Layout, list[Path]]]:
    """The parts of a set, as paths in its folder, each with its layout and files; none if it has no file of captions alone."""
    if place.is_file():
        return [(Path(), layouts.COCO, [place])] if place.suffix == ".json" else []
    if found := layouts.find(place):
        return [(Path(), *found)]
    inner = [part for part in sorted(place.iterdir()) if part.is_dir() and part.name.lower() in SPLIT_NAMES]
    return [(Path(part.name), *found) for part in inner if (found := layouts.find(part))]


def _part(
    folder: Path, part: Path, layout: Layout, files: list[Path]
) -> tuple[Path, list[tuple[str, Row]], Path | None]:
    """A part of a set with its rows and the folder of its images."""
    rows = [row for file in files for row in layout.read(file)]
    return part, rows, _photos(folder / part, layout, rows)


def _photos(folder: Path, layout: Layout, rows: list[tuple[str, Row]]) -> Path:
    """The folder of a layout's images: where the first one is; if it is missing, the first that exists."""
    candidates = [folder / name for name in layout.photos]
    if rows and (found := [path for path in candidates if (path / rows[0][1].image.strip()).is_file()]):
        return found[0]
    return next((path for path in candidates if path.is_dir()), folder)


def _decided(splits: dict[str, str | None], place: Path) -> dict[str, str]:
    """The split of each image: given by all, or by none, and then that of Flickr8k's official lists or by a hash."""
    undecided = [image_id for image_id, split in splits.items() if split is None]
    if undecided and len(undecided) < len(splits):
        raise SatlibError(
            f"{place}: {undecided[0]} has no split, but other images have one; fill in the split of all images or of none"
        )
    if not undecided:
        return {image_id: split for image_id, split in splits.items() if split}
    decided = _official_8k(undecided) or {image_id: by_hash(image_id) for image_id in undecided}
    empty = [split for split in SPLITS if split not in decided.values()]
    if empty:
        raise SatlibError(
            f"{place}: so few images that the hash of their paths gives none to {' and '.join(empty)}; add images, or a column `split` that says train, dev or test"
        )
    return decided


def _official_8k(image_ids: list[str]) -> dict[str, str] | None:
    """The official splits if all images are Flickr8k's, by the numbers that begin their names, and each split has some.

    The 92 photographs that are in no official split are left out.
    """
    numbers = {image_id: Path(image_id).name.partition("_")[0] for image_id in image_ids}
    if not all(number.isdecimal() for number in numbers.values()):
        return None
    lists = (line.split("\t") for line in read_text(_SPLITS_8K).splitlines())
    official = {number: split for split, listed in lists for number in listed.split(" ")}
    if not all(number in official for number in numbers.values()):
        return None
    splits = {image_id: official[number] for image_id, number in numbers.items() if official[number] in SPLITS}
    return splits if set(splits.values()) == set(SPLITS) else None


def by_hash(image_id: str) -> str:
    """The split of an image by the SHA-256 of its id: train for 8 in 10 images, dev for 1, test for 1."""
    tenth = int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % 10
    return ("dev", "test")[tenth] if tenth < 2 else "train"
