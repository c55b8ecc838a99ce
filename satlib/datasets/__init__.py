"""Caption sets: images, what people said about them, and which split each image is in (section 5.2).

Every source gives the same small object. Constructors read captions, never pixels: an image is opened, or drawn, when
`CaptionSet.photo` asks for it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from satlib import images
from satlib.errors import SatlibError

MAX_REFERENCES = 5
SPLITS = ("train", "dev", "test")
NAMES = ("flickr8k", "flickr30k", "coco", "scenes")


@dataclass(frozen=True)
class Example:
    """One image and its captions.

    Attributes:
        image_id: unique in its set; the file's name, or its path inside the set's own folder.
        split: "train", "dev" or "test".
        references: raw captions, 1 to 5 of them, each on one line.
        path: the image file; None where the image is drawn.
    """

    image_id: str
    split: str
    references: tuple[str, ...]
    path: Path | None = None


@dataclass(frozen=True)
class CaptionSet:
    """Images with captions and splits.

    Attributes:
        name: what it is called in reports and feature stores.
        examples: all of them, in the order of their source.
        draw: makes the image of an example that has no file.
        home: the folder of its images, absolute; None where they are drawn or come out of shards.
    """

    name: str
    examples: tuple[Example, ...]
    draw: Callable[[Example], Image.Image] | None = None
    home: Path | None = None

    def __len__(self) -> int:
        """The number of images, all splits together."""
        return len(self.examples)

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of one split, in order; empty where the set has none.

        Raises:
            SatlibError: no split is called that.
        """
        if name not in SPLITS:
            raise SatlibError(f"no split is called {name!r}; choose among {', '.join(SPLITS)}")
        return tuple(example for example in self.examples if example.split == name)

    def photo(self, example: Example) -> Image.Image:
        """The image of an example in RGB: its file read, or its scene drawn.

        Raises:
            SatlibError: the file is missing or cannot be read.
        """
        if example.path is not None:
            return images.open_photo(example.path)
        if self.draw is None:
            raise SatlibError(
                f"{example.image_id} of {self.name} has neither a file nor a way to be drawn; load the set again"
            )
        return self.draw(example)


def data_root(option: str | None = None) -> Path:
    """Where data sets lie: the option `--data`, else the variable SATLIB_DATA, else ./data."""
    return Path(option or os.environ.get("SATLIB_DATA") or "data").expanduser()


def find_root(name: str) -> Path | None:
    """The data root that has a folder of this name: `data_root()`, or the data/ beside this folder, as it is for a notebook.

    None where neither has one: for what can be done with a data set, and as well without.
    """
    return next((root for root in (data_root(), Path("..") / "data") if (root / name).is_dir()), None)


def load(name: str, root: Path | None = None, require_images: bool = True, train_images: int = 0) -> CaptionSet:
    """Load a caption set.

    Args:
        name: "flickr8k", "flickr30k", "coco" (each in a folder of that name under the root), "scenes" (drawn, needs no
            file), the path of one of Karpathy's dataset_*.json, or the path of your own folder with a captions.csv or
            captions.json, or where shards lie (`satlib.datasets.shards`).
        root: the data root; `data_root()` by default.
        require_images: refuse a set of which listed image files are absent (one listing of the folder, no file opened).
        train_images: how many scenes to draw for training, as a recipe's data.train_images says; 0: their usual number.
            A set of files is always loaded whole: training takes the first so many of it.

    Raises:
        SatlibError: no such set, files are missing, a line is malformed, captions are empty or not UTF-8, images are absent.
    """
    # Each source is imported when it is asked for: they import this module's classes.
    if name == "scenes":
        from satlib.datasets import scenes

        return scenes.load(train=train_images) if train_images else scenes.load()
    root = data_root() if root is None else root
    if name in NAMES:
        if not root.is_dir():
            raise SatlibError(
                f"the data root {root} does not exist; name it with --data or SATLIB_DATA, or run: satlib data fetch {name}"
            )
        if name == "coco":
            from satlib.datasets import coco

            return coco.load(root / name, require_images)
        from satlib.datasets import flickr

        return (flickr.load_8k if name == "flickr8k" else flickr.load_30k)(root / name, require_images)
    from satlib.datasets import sharded

    if sharded.lie_at(name):
        return sharded.Shards(name)
    path = Path(name).expanduser()
    if path.suffix == ".json" and path.is_file():
        from satlib.datasets import karpathy

        return karpathy.load(path, root, require_images)
    if path.is_dir():
        from satlib.datasets import folder

        return folder.load(path, require_images)
    raise SatlibError(
        f"no data set is called {name!r} and no such file or folder exists; choose among {', '.join(NAMES)} or give a path"
    )
