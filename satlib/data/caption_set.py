"""Caption sets: images with their captions and splits (section 5.2). Every source loads into the same small object, `CaptionSet`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from PIL import Image

from satlib.data import images
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError

MAX_REFERENCES = 5
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Example:
    """One image and its captions.

    Attributes:
        image_id: unique within its set; the file's name, or its path inside the set's folder.
        split: "train", "dev" or "test".
        references: 1 to 5 raw captions, each on one line.
        path: the image file; None if the image is drawn.
    """

    image_id: str
    split: str
    references: tuple[str, ...]
    path: Path | None = None


@dataclass
class CaptionSet:
    """Images with captions and splits.

    Attributes:
        name: used in reports and in the names of feature stores.
        examples: all examples, in the order of their source.
        draw: draws the image of an example that has no file.
        home: the absolute path of the image folder; None if the images are drawn or read from shards.
        streamed: whether the training images are a stream (`satlib.data.shards`), which can only be read in its own order.
        language: the recipe's data.language that the set was made for; "" if it does not say.
    """

    name: str
    examples: tuple[Example, ...]
    draw: Callable[[Example], Image.Image] | None = None
    home: Path | None = None
    streamed: ClassVar[bool] = False
    language: ClassVar[str] = ""

    def __len__(self) -> int:
        """The number of images in all splits."""
        return len(self.examples)

    @property
    def where(self) -> str:
        """The place of the images, in words."""
        return "drawn, needs no files" if self.home is None else str(self.home)

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of one split, in order; empty if the set has none.

        Raises:
            SatlibError: the split is unknown.
        """
        if name not in SPLITS:
            raise SatlibError(f"unknown split {name!r}; choose from {', '.join(SPLITS)}")
        return tuple(example for example in self.examples if example.split == name)

    def shortened(self, train_images: int) -> "CaptionSet":
        """The set with only this many training images, from the first; 0 means all."""
        unused = set(self.split("train")[train_images:] if train_images else ())
        return replace(self, examples=tuple(one for one in self.examples if one not in unused)) if unused else self

    def vocabulary(self, size: int, min_count: int, language: str = "") -> Vocabulary:
        """The vocabulary of the training captions (`Vocabulary.from_captions`)."""
        captions = (caption for example in self.split("train") for caption in example.references)
        return Vocabulary.from_captions(captions, size, min_count, language)

    def read_all(self) -> Iterator[Example]:
        """Yield the examples of all splits."""
        yield from self.examples

    def photo(self, example: Example) -> Image.Image:
        """The image of an example in RGB, read from its file or drawn.

        Raises:
            SatlibError: the file is missing or cannot be read.
        """
        if example.path is not None:
            return images.open_photo(example.path)
        if self.draw is None:
            raise SatlibError(
                f"image {example.image_id} of {self.name} has no file and cannot be drawn; load the data set again"
            )
        return self.draw(example)

    def image(self, image_id: str) -> Image.Image:
        """The image with an id; errors as for `photo`."""
        return self.photo(self._by_id[image_id])

    @cached_property
    def _by_id(self) -> dict[str, Example]:
        return {example.image_id: example for example in self.examples}
