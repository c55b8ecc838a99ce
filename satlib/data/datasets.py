"""Caption sets: images with their captions and splits (section 5.2).

Every source loads into the same small object, `CaptionSet`. Loading reads captions only: an image is opened, or drawn, when
`CaptionSet.photo` is called.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from satlib.data import images
from satlib.errors import SatlibError

MAX_REFERENCES = 5
SPLITS = ("train", "dev", "test")
NAMES = ("flickr8k", "flickr30k", "coco", "scenes")
YOUR_FOLDER = "FOLDER"  # stands in the recipe own-folder for what only its user knows


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


@dataclass(frozen=True)
class CaptionSet:
    """Images with captions and splits.

    Attributes:
        name: used in reports and in the names of feature stores.
        examples: all examples, in the order of their source.
        draw: draws the image of an example that has no file.
        home: the absolute path of the image folder; None if the images are drawn or read from shards.
    """

    name: str
    examples: tuple[Example, ...]
    draw: Callable[[Example], Image.Image] | None = None
    home: Path | None = None

    def __len__(self) -> int:
        """The number of images in all splits."""
        return len(self.examples)

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of one split, in order; empty if the set has none.

        Raises:
            SatlibError: the split is unknown.
        """
        if name not in SPLITS:
            raise SatlibError(f"unknown split {name!r}; choose from {', '.join(SPLITS)}")
        return tuple(example for example in self.examples if example.split == name)

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


def data_root(option: str | None = None) -> Path:
    """The folder of the data sets: the option `--data`, else the environment variable SATLIB_DATA, else ./data."""
    return Path(option or os.environ.get("SATLIB_DATA") or "data").expanduser()


def find_root(name: str) -> Path | None:
    """The data root that contains a folder of this name: `data_root()`, or ../data, which a notebook uses.

    None if neither contains it, for code that can also work without the data set.
    """
    return next((root for root in (data_root(), Path("..") / "data") if (root / name).is_dir()), None)


def load(name: str, root: Path | None = None, require_images: bool = True, train_images: int = 0) -> CaptionSet:
    """Load a caption set.

    Args:
        name: "flickr8k", "flickr30k", "coco" (each in a folder of that name under the root), "scenes" (drawn, needs
            no files), the path of one of Karpathy's dataset_*.json files, the path of your own folder with a captions.csv
            or captions.json (both from here, or from the root), or the location of shards (`satlib.data.shards`).
        root: the data root; `data_root()` by default.
        require_images: raise an error if listed image files are missing (lists each folder once, opens no file).
        train_images: load only this many training images, from the first; 0 means all (of scenes, the default number).
            Shards ignore it.

    Raises:
        SatlibError: the set is unknown, files or images are missing, a line is malformed, or captions are empty or not UTF-8.
    """
    data = _load(name, data_root() if root is None else root, require_images, train_images)
    train = data.split("train")[train_images:] if train_images and type(data) is CaptionSet else ()
    unused = set(train)
    return (
        replace(data, examples=tuple(example for example in data.examples if example not in unused)) if unused else data
    )


def _load(name: str, root: Path, require_images: bool, train_images: int) -> CaptionSet:
    # The sources import this module's classes, so each one is imported only when it is used.
    if name == "scenes":
        from satlib.data import scenes

        return scenes.load(train=train_images) if train_images else scenes.load()
    if name in NAMES:
        if not root.is_dir():
            raise SatlibError(
                f"the data root {root} does not exist; set it with --data or SATLIB_DATA, or run: satlib data fetch {name}"
            )
        if name == "coco":
            from satlib.data import coco

            return coco.load(root / name, require_images)
        from satlib.data import flickr

        return (flickr.load_8k if name == "flickr8k" else flickr.load_30k)(root / name, require_images)
    from satlib.data import sharded

    if sharded.is_location(name):
        return sharded.Shards(name)
    for path in (Path(name).expanduser(), root / name):
        if path.suffix == ".json" and path.is_file():
            from satlib.data import karpathy

            return karpathy.load(path, root, require_images)
        if path.is_dir():
            from satlib.data import folder

            return folder.load(path, require_images)
    if name == YOUR_FOLDER:
        raise SatlibError(
            "the recipe does not say where your photographs are; add --set data.name=PATH, with your folder"
        )
    raise SatlibError(
        f"{name!r} is neither a data set that satlib knows nor a file or folder, here or in {root}; choose from "
        f"{', '.join(NAMES)} or give a path"
    )
