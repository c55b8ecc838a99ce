"""Caption sets: images with their captions and splits (section 5.2). Every source loads into a `CaptionSet`."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from satlib.data import images
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError

SPLITS = ("train", "dev", "test")
# Names of splits elsewhere -> ours. Karpathy's restval is the part of COCO's val2014 that he adds to training.
SPLIT_NAMES = {split: split for split in SPLITS} | dict.fromkeys(
    ("val", "valid", "validation"), "dev"
)
SPLIT_NAMES["restval"] = "train"


@dataclass(frozen=True)
class Example:
    """One image and its captions."""

    image_id: str  # unique within its set: the file's name, or its path inside the set's folder
    split: str  # "train", "dev" or "test"
    references: tuple[str, ...]  # raw captions, each on one line
    path: Path | None = None  # None if the image has no file of its own


@dataclass
class CaptionSet:
    """Images with captions and splits."""

    name: str  # used in reports and in the names of feature stores
    examples: tuple[Example, ...]  # in the order of their source
    draw: Callable[[Example], Image.Image] | None = (
        None  # draws, or reads, an image that has no file of its own
    )
    home: Path | None = (
        None  # the absolute path of the image folder; None if the images have no files
    )

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
        return replace(
            self,
            examples=self.split("train")[:train_images] + self.split("dev") + self.split("test"),
        )

    def vocabulary(self, size: int, min_count: int) -> Vocabulary:
        """The vocabulary of the training captions (`Vocabulary.from_captions`)."""
        captions = (caption for example in self.split("train") for caption in example.references)
        return Vocabulary.from_captions(captions, size, min_count)

    def photo(self, example: Example) -> Image.Image:
        """The image of an example in RGB, read from its file or drawn; errors as for `images.open_photo`."""
        if example.path is not None:
            return images.open_photo(example.path)
        assert self.draw is not None
        return self.draw(example)


def clean(captions: Iterable[str]) -> list[str]:
    """Captions on one line each, with single spaces; those without a word, or with "nan" or "null" alone, are left out."""
    return [
        " ".join(caption.split())
        for caption in captions
        if tokenise(caption) not in ([], ["nan"], ["null"])
    ]


def split_name(name: str, where: str) -> str:
    """Our name of a split; `where` is for the message."""
    if name.strip().lower() not in SPLIT_NAMES:
        raise SatlibError(f"{where}: unknown split {name!r}; write train, dev or test")
    return SPLIT_NAMES[name.strip().lower()]


def assemble(
    name: str, examples: Iterable[Example], home: Path, require_images: bool
) -> CaptionSet:
    """The caption set of images in the folder `home`; those without captions or without a file are refused."""
    ordered = tuple(sorted(examples, key=lambda example: SPLITS.index(example.split)))
    if not ordered:
        raise SatlibError(
            f"{name} has no images with captions; data/README.md describes the expected layout"
        )
    if uncaptioned := [example.image_id for example in ordered if not example.references]:
        raise SatlibError(f"{name}: {_few(uncaptioned)} in a split, but without captions")
    if require_images and (
        missing := [e.image_id for e in ordered if not (e.path and e.path.is_file())]
    ):
        raise SatlibError(
            f"{name}: {_few(missing)} missing from {home}; satlib data check lists all of them"
        )
    return CaptionSet(name, ordered, home=home.resolve())


def joined(sets: Sequence[CaptionSet]) -> CaptionSet:
    """Several caption sets as one; an image id that two of them have is refused."""
    if len(sets) == 1:
        return sets[0]
    owners = {example.image_id: own for own in sets for example in own.examples}
    if shared := [
        e.image_id for own in sets for e in own.examples if owners[e.image_id] is not own
    ]:
        raise SatlibError(
            f"{' and '.join(own.name for own in sets)} share {_few(shared)}; rename them in one of the sets"
        )
    homes = [str(own.home) for own in sets if own.home]
    return CaptionSet(
        "+".join(own.name for own in sets),
        tuple(example for own in sets for example in own.examples),
        lambda example: owners[example.image_id].photo(example),
        Path(os.path.commonpath(homes)) if homes else None,
    )


def _few(image_ids: Sequence[str]) -> str:
    """The number of images and the first three: "2 images (a.jpg, b.jpg)"."""
    shown = ", ".join(image_ids[:3]) + (", ..." if len(image_ids) > 3 else "")
    return f"{len(image_ids)} images ({shown})"
