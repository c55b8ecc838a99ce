"""Helpers for all sources: reading text strictly, cleaning captions, finding missing images."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from satlib.data.caption_set import MAX_REFERENCES, SPLITS, CaptionSet, Example
from satlib.data.text import tokenise
from satlib.errors import SatlibError

# Split names of other tools. Karpathy's restval is the part of COCO's val2014 that he adds to training.
SPLIT_NAMES = {
    "train": "train",
    "restval": "train",
    "dev": "dev",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}


def read_text(path: Path) -> str:
    """The content of a UTF-8 text file, without a byte order mark.

    Raises:
        SatlibError: the file is missing, cannot be read, or is not UTF-8 (with the line number).
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist; data/README.md describes the expected layout") from error
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-blank lines with their numbers, counted from 1. Only a newline ends a line.

    Raises:
        SatlibError: as `read_text`.
    """
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def clean(caption: str, where: str) -> str:
    """A caption with each run of white space replaced by one space, none at the ends.

    Raises:
        SatlibError: it contains no word; the message starts with `where`.
    """
    if not tokenise(caption):
        raise SatlibError(f"{where}: the caption contains no word; write one or delete the caption")
    return " ".join(caption.split())


def clean_all(captions: Iterable[str], where: str) -> list[str]:
    """Clean the captions of a large published file; drop the few that contain no word, since users cannot correct them.

    `assemble` still rejects an image that has no caption left.
    """
    return [clean(caption, where) for caption in captions if tokenise(caption)]


def split_name(name: object, where: str) -> str:
    """Our name of a split.

    Raises:
        SatlibError: the split is unknown.
    """
    split = SPLIT_NAMES.get(name.strip().lower()) if isinstance(name, str) else None
    if split is None:
        raise SatlibError(f"{where}: unknown split {name!r}; write train, dev or test")
    return split


def require_files(paths: Iterable[Path], layout: str) -> None:
    """Require that all paths exist.

    Raises:
        SatlibError: paths are missing; the message lists them and the expected layout.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise SatlibError(f"missing: {', '.join(missing)}; expected layout: {layout}")


def absent(examples: Iterable[Example]) -> list[Example]:
    """The examples whose image file is missing. Lists each folder once and opens no file."""
    listings: dict[Path, set[str]] = {}
    missing = []
    for example in examples:
        if example.path is None:
            continue
        folder = example.path.parent
        if folder not in listings:
            listings[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
        if example.path.name not in listings[folder]:
            missing.append(example)
    return missing


def assemble(
    name: str,
    captions: Mapping[str, Sequence[str]],
    splits: Mapping[str, str],
    locate: Callable[[str], Path],
    require_images: bool,
    home: Path,
    called: str = "",
) -> CaptionSet:
    """Make a caption set from captions, splits and image paths.

    Args:
        name: of the set.
        captions: image id -> cleaned captions; the first five are kept.
        splits: image id -> split, in the order of the examples; images without a split are ignored.
        locate: image id -> path of the image.
        require_images: raise an error if image files are missing.
        home: the folder that contains all images.
        called: the argument of `load` if it is not the name (a path).

    Raises:
        SatlibError: an image of a split has no caption, no split has an image, or image files are missing.
    """
    uncaptioned = [image_id for image_id in splits if not captions.get(image_id)]
    if uncaptioned:
        raise SatlibError(
            f"{name}: {_few(uncaptioned, 'image')} in a split but without captions; add captions or remove the images from the split"
        )
    order = {split: [] for split in SPLITS}
    for image_id, split in splits.items():
        order[split].append(Example(image_id, split, tuple(captions[image_id][:MAX_REFERENCES]), locate(image_id)))
    examples = tuple(example for split in SPLITS for example in order[split])
    if not examples:
        raise SatlibError(f"{name} has no images with captions; data/README.md describes the expected layout")
    if require_images and (missing := absent(examples)):
        folder = missing[0].path.parent if missing[0].path else ""
        raise SatlibError(
            f"{name}: {_few([example.image_id for example in missing], 'image')} listed but missing from {folder}; "
            f"add the files, or list all missing images with: satlib data check {called or name}"
        )
    return CaptionSet(name, examples, home=home.resolve())


def _few(image_ids: Sequence[str], noun: str) -> str:
    """The number of images and the first three: "2 images (a.jpg, b.jpg)"."""
    shown = ", ".join(image_ids[:3]) + (", ..." if len(image_ids) > 3 else "")
    return f"{len(image_ids)} {noun}{'s' if len(image_ids) > 1 else ''} ({shown})"
