"""The data sets by name: each loads into a `CaptionSet`. Loading reads captions only: an image is opened, or drawn, when it is used."""

import os
from pathlib import Path

from satlib.data import flickr8k, folder, hub, karpathy, scenes
from satlib.data.caption_set import CaptionSet, Example  # noqa: F401 - what goes with `load`
from satlib.errors import SatlibError

NAMES = ("flickr8k", "flickr30k", "coco", "scenes")
# An imagefolder or parquet files: in a folder, or in its folders data, train, validation and test.
_HUGGING_FACE = ("metadata.*", "*/metadata.*", "*.parquet", "*/*.parquet")
YOUR_FOLDER = "FOLDER"  # stands in the recipe own-folder for what only its user knows


def data_root(option: str | None = None) -> Path:
    """The folder of the data sets: the option `--data`, else the environment variable SATLIB_DATA, else ./data."""
    return Path(option or os.environ.get("SATLIB_DATA") or "data").expanduser()


def load(name: str, root: Path | None = None, require_images: bool = True, train_images: int = 0) -> CaptionSet:
    """The caption set called `name`, with only the first `train_images` of training (0: all; of scenes, the default number).

    name: one of `NAMES`; the path, from here or from the root, of a folder (`satlib.data.folder`) or of one of Karpathy's JSON
    files; or a set on Hugging Face's Hub, "hf:USER/NAME" (`satlib.data.hub`).
    """
    if name == "scenes":
        return scenes.load(train=train_images) if train_images else scenes.load()
    return _load(name, data_root() if root is None else root, require_images).shortened(train_images)


def _load(name: str, root: Path, require_images: bool) -> CaptionSet:
    if name == "flickr8k":
        return flickr8k.load(root / name, require_images)
    if name in ("flickr30k", "coco"):
        return karpathy.load(root / name / f"dataset_{name}.json", root, require_images)
    if name.startswith(hub.ON_THE_HUB):
        return hub.load(name)
    for path in (Path(name).expanduser(), root / name):
        if path.suffix == ".json" and path.is_file():
            return karpathy.load(path, root, require_images)
        if path.is_dir():
            if (path / "Flickr8k_text").is_dir():
                return flickr8k.load(path, require_images)
            for file in path.glob("dataset_*.json"):
                return karpathy.load(file, root, require_images)
            tables = any((path / table).is_file() for table in folder.TABLES)
            if not tables and any(next(path.glob(pattern), None) for pattern in _HUGGING_FACE):
                return hub.load(str(path))
            return folder.load(path, require_images)
    if name == YOUR_FOLDER:
        raise SatlibError("the recipe does not say where your photographs are; add --set data.name=PATH")
    raise SatlibError(f"{name!r} is neither a data set ({', '.join(NAMES)}) nor a folder, here or in {root}")
