"""What all sources share: reading text strictly, cleaning captions, noticing absent images."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from satlib.datasets import MAX_REFERENCES, SPLITS, CaptionSet, Example
from satlib.errors import SatlibError
from satlib.text import tokenise

# What other tools call our splits. Karpathy's restval is the part of COCO's val2014 that he adds to training.
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
    """A whole UTF-8 text, without the mark that some editors put at its beginning.

    Raises:
        SatlibError: the file is missing, cannot be read, or is not UTF-8 (says the line).
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist; see data/README.md for what lies where") from error
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1. A line ends at a newline and nowhere else.

    Raises:
        SatlibError: as `read_text`.
    """
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def clean(caption: object, where: str) -> str:
    """A caption on one line, ends trimmed.

    Raises:
        SatlibError: it is not text or has no word in it; `where` says which one.
    """
    if not isinstance(caption, str):
        raise SatlibError(f"{where}: the caption is not text; write one sentence there")
    if not tokenise(caption):
        raise SatlibError(f"{where}: the caption has no word in it; write one or delete it")
    return " ".join(caption.split())


def clean_all(captions: Iterable[object], where: str) -> list[str]:
    """Captions of a large published file: the few without a word are left out, since nobody can mend such a file by hand.

    `assemble` still refuses an image that is left with none.

    Raises:
        SatlibError: one is not text.
    """
    return [clean(caption, where) for caption in captions if not isinstance(caption, str) or tokenise(caption)]


def split_name(name: object, where: str) -> str:
    """Our name of a split.

    Raises:
        SatlibError: no split is called that.
    """
    split = SPLIT_NAMES.get(name.strip().lower()) if isinstance(name, str) else None
    if split is None:
        raise SatlibError(f"{where}: no split is called {name!r}; write train, dev or test")
    return split


def require_files(paths: Iterable[Path], layout: str) -> None:
    """Refuse a folder that lacks something.

    Raises:
        SatlibError: names what is missing and the layout that is expected.
    """
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise SatlibError(f"missing: {', '.join(missing)}; expected layout: {layout}")


def absent(examples: Iterable[Example]) -> list[Example]:
    """The examples whose image file is not there. Each folder is listed once; no file is opened."""
    listings: dict[Path, set[str]] = {}
    found = []
    for example in examples:
        if example.path is None:
            continue
        folder = example.path.parent
        if folder not in listings:
            listings[folder] = set(os.listdir(folder)) if folder.is_dir() else set()
        if example.path.name not in listings[folder]:
            found.append(example)
    return found


def assemble(
    name: str,
    captions: Mapping[str, Sequence[str]],
    splits: Mapping[str, str],
    locate: Callable[[str], Path],
    require_images: bool,
    home: Path,
    called: str = "",
) -> CaptionSet:
    """Put a caption set together.

    Args:
        name: of the set.
        captions: image_id -> cleaned captions; the first five are kept.
        splits: image_id -> split, in the order of the examples; images of `captions` in no split are left out.
        locate: image_id -> path of the image.
        require_images: refuse absent image files.
        home: the folder that all images lie in.
        called: what `load` was asked for, where that is not the name (a path).

    Raises:
        SatlibError: an image of a split has no caption, no image is left, or image files are absent.
    """
    silent = [image_id for image_id in splits if not captions.get(image_id)]
    if silent:
        raise SatlibError(
            f"{name}: {_few(silent, 'image')} of a split without a caption; add captions or take the images out of the split"
        )
    order = {split: [] for split in SPLITS}
    for image_id, split in splits.items():
        order[split].append(Example(image_id, split, tuple(captions[image_id][:MAX_REFERENCES]), locate(image_id)))
    examples = tuple(example for split in SPLITS for example in order[split])
    if not examples:
        raise SatlibError(f"{name} has no image with captions; see data/README.md for what lies where")
    if require_images and (missing := absent(examples)):
        folder = missing[0].path.parent if missing[0].path else ""
        raise SatlibError(
            f"{name}: {_few([example.image_id for example in missing], 'image')} listed but absent from {folder}; "
            f"put them there, or see all with: satlib data check {called or name}"
        )
    return CaptionSet(name, examples, home=home.resolve())


def _few(image_ids: Sequence[str], noun: str) -> str:
    """How many, and the first three: "2 images (a.jpg, b.jpg)"."""
    shown = ", ".join(image_ids[:3]) + (", ..." if len(image_ids) > 3 else "")
    return f"{len(image_ids)} {noun}{'s' if len(image_ids) > 1 else ''} ({shown})"
