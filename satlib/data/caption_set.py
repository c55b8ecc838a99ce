"""Caption sets: images with their captions and splits (section 5.2).

Every source loads into a `CaptionSet`.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from satlib.data import images
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError

SPLITS = ("train", "dev", "test")

# Names of splits elsewhere -> ours.
SPLIT_NAMES = {
    "train": "train",
    "dev": "dev",
    "test": "test",
    "val": "dev",
    "valid": "dev",
    "validation": "dev",
    # The part of COCO's val2014 that Karpathy adds to training.
    "restval": "train",
}


@dataclass(frozen=True, slots=True)
class Example:
    """One image and its captions."""

    image_id: str  # unique within its set: the file's name, or its path inside the set's folder
    split: str  # "train", "dev" or "test"
    references: tuple[str, ...]  # raw captions, each on one line
    path: Path | None = None  # None if the image has no file of its own
    number: str = ""  # the id in COCO's files, of captions and of results


@dataclass
class CaptionSet:
    """Images with captions and splits."""

    # Used in reports and in the names of feature stores.
    name: str
    # In the order of their source.
    examples: tuple[Example, ...]
    # Draws, or reads, an image that has no file of its own.
    draw: Callable[[Example], Image.Image] | None = None
    # The absolute path of the image folder; None if the images have no files.
    home: Path | None = None

    def __len__(self) -> int:
        return len(self.examples)

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of one split, in order; empty if the set has none."""
        if name not in SPLITS:
            raise SatlibError(f"unknown split {name!r}; choose from {', '.join(SPLITS)}")
        return tuple(example for example in self.examples if example.split == name)

    def shortened(self, train_images: int) -> "CaptionSet":
        """The set with only the first training images; 0 means all."""
        if not train_images:
            return self
        # The other splits stay whole, so that scores can be compared with those of the whole set.
        train = self.split("train")[:train_images]
        return replace(self, examples=train + self.split("dev") + self.split("test"))

    def vocabulary(self, size: int, min_count: int) -> Vocabulary:
        """The vocabulary of the training captions (`Vocabulary.from_captions`)."""
        captions = (caption for example in self.split("train") for caption in example.references)
        return Vocabulary.from_captions(captions, size, min_count)

    def photo(self, example: Example) -> Image.Image:
        """The image of an example in RGB, read or drawn; errors as for `images.open_photo`."""
        if example.path is not None:
            return images.open_photo(example.path)
        assert self.draw is not None
        return self.draw(example)

    def require_images(self) -> None:
        """Refuse a set with images whose files are missing."""
        missing = [e.image_id for e in self.examples if e.path and not e.path.is_file()]
        if missing:
            raise SatlibError(
                f"{self.name}: {_few(missing)} missing from {self.home}; "
                "satlib data check lists all of them, satlib train --skip-broken leaves them out"
            )


def clean(captions: Iterable[str]) -> list[str]:
    """Captions on one line each, with single spaces, without those that say nothing.

    These have no word, or only "nan" or "null", which spreadsheets write into empty cells.
    """
    cleaned = []
    for caption in captions:
        if tokenise(caption) not in ([], ["nan"], ["null"]):
            cleaned.append(" ".join(caption.split()))
    return cleaned


def split_name(name: str, where: str) -> str:
    """Our name of a split; `where` is for the message."""
    known = SPLIT_NAMES.get(name.strip().lower())
    if known is None:
        raise SatlibError(f"{where}: unknown split {name!r}; write train, dev or test")
    return known


def assemble(name: str, examples: Iterable[Example], home: Path) -> CaptionSet:
    """The caption set of images in the folder `home`.

    Raises:
        SatlibError: there are none, or some have no captions, lead out of the folder or have names
            that are not UTF-8.
    """
    ordered = sorted(examples, key=lambda example: SPLITS.index(example.split))
    if not ordered:
        raise SatlibError(
            f"{name} has no images with captions; data/README.md describes the expected layout"
        )

    uncaptioned = [example.image_id for example in ordered if not example.references]
    if uncaptioned:
        raise SatlibError(
            f"{name}: {_few(uncaptioned)} in a split, but without captions; write some, or move the "
            "images out"
        )

    # A stranger's table must not read files elsewhere, and an address is no file.
    image_ids = [example.image_id for example in ordered]
    leads_out = re.compile(r"/|\w+:/|(.*[/\\])?\.\.([/\\]|$)").match
    outside = [one for one in image_ids if leads_out(one)]
    if outside:
        raise SatlibError(
            f"{name}: {_few(outside)} outside {home}; copy them into it, and name them from there"
        )
    # What the system cannot decode has surrogates, which no file of satlib's can hold.
    undecoded = [
        one for one in image_ids if not one.isascii() and re.search("[\ud800-\udfff]", one)
    ]
    if undecoded:
        raise SatlibError(f"{name}: {_few(undecoded)} with names that are not UTF-8; rename them")
    return CaptionSet(name, tuple(ordered), home=home.resolve())


def joined(sets: Sequence[CaptionSet]) -> CaptionSet:
    """Several caption sets as one.

    Raises:
        SatlibError: two of them have an image of the same id.
    """
    if len(sets) == 1:
        return sets[0]

    owners: dict[str, CaptionSet] = {}  # an image id -> the set that reads or draws it
    for own in sets:
        for example in own.examples:
            owners[example.image_id] = own

    examples: list[Example] = []
    shared: list[str] = []
    for own in sets:
        examples += own.examples
        # An id that two sets have belongs, by now, to the later one.
        shared += [e.image_id for e in own.examples if owners[e.image_id] is not own]
    if shared:
        names = " and ".join(own.name for own in sets)
        raise SatlibError(f"{names} share {_few(shared)}; rename them in one of the sets")

    # `home` tells one feature store from another: that of several folders is what they share.
    homes = [str(own.home) for own in sets if own.home]
    return CaptionSet(
        "+".join(own.name for own in sets),
        tuple(examples),
        lambda example: owners[example.image_id].photo(example),
        Path(os.path.commonpath(homes)) if homes else None,
    )


def _few(image_ids: Sequence[str]) -> str:
    """The number of images and the first three: "2 images (a.jpg, b.jpg)"."""
    shown = ", ".join(image_ids[:3])
    if len(image_ids) > 3:
        shown += ", ..."
    images = "image" if len(image_ids) == 1 else "images"
    # A name that is not UTF-8 could not be printed as it is.
    return f"{len(image_ids):,} {images} ({shown})".encode(errors="backslashreplace").decode()
