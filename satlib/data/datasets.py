"""The data sets by name: each loads into a `CaptionSet`. Loading reads captions only: images are opened, or drawn, when used."""

import os
from pathlib import Path

from satlib.data import folder, hub, published, scenes
from satlib.data.caption_set import CaptionSet, Example, joined  # noqa: F401 - what goes with `load`
from satlib.errors import SatlibError

NAMES = ("flickr8k", "flickr30k", "coco", "scenes")
YOUR_FOLDER = "FOLDER"  # in the recipe own-folder, for what its user knows


def data_root(option: str | None = None) -> Path:
    """The folder of the data sets: the option `--data`, else the environment variable SATLIB_DATA, else ./data."""
    return Path(option or os.environ.get("SATLIB_DATA") or "data").expanduser()


def load(
    name: str, root: Path | None = None, require_images: bool = True, train_images: int = 0
) -> CaptionSet:
    """The caption set called `name`, with only the first `train_images` of training (0: all, or of scenes the default).

    name: one of `NAMES`; the path, from here or from the root, of a folder (`satlib.data.folder`) or of one of Karpathy's JSON
    files; a set on Hugging Face's Hub, "hf:USER/NAME" (`satlib.data.hub`); or several of these, "flickr8k+FOLDER", each of which
    is cut to `train_images`.
    """
    if name == "scenes":
        return scenes.load(train=train_images) if train_images else scenes.load()
    root = data_root() if root is None else root
    names = (
        [name] if Path(name).expanduser().exists() or (root / name).exists() else name.split("+")
    )
    return joined([_load(one, root, require_images).shortened(train_images) for one in names])


def _load(name: str, root: Path, require_images: bool) -> CaptionSet:
    if name.startswith(hub.ON_THE_HUB):
        return hub.load(name)
    for place in [root / name] if name in NAMES else [Path(name).expanduser(), root / name]:
        if place.suffix == ".json" and place.is_file():
            return published.load_karpathy(place, require_images)
        if (place / "Flickr8k_text").is_dir():
            return published.load_flickr8k(place, require_images)
        for file in place.glob("dataset_*.json"):
            return published.load_karpathy(file, require_images)
        for file in (place / table for table in folder.TABLES):
            if file.is_file():
                return folder.load(file, require_images)
        if place.is_dir() and name not in NAMES:
            return folder.beside(place) or hub.load(str(place))
    if name in NAMES:
        raise SatlibError(
            f"{root / name} is missing; run satlib data fetch {name}, or see data/README.md"
        )
    if name == YOUR_FOLDER:
        raise SatlibError(
            "the recipe does not say where your photographs are; add --set data.name=PATH"
        )
    raise SatlibError(
        f"{name!r} is neither a data set ({', '.join(NAMES)}) nor a folder, here or in {root}"
    )
