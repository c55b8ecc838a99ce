"""The data sets by name: each loads into a `CaptionSet`.

Loading reads captions only: images are opened, or drawn, when they are used.
"""

import os
from pathlib import Path

from satlib.data import folder, hub, images, published, scenes
from satlib.data.caption_set import CaptionSet, Example, joined  # noqa: F401 - goes with `load`
from satlib.errors import SatlibError
from satlib.files import collector_paused, read_text

NAMES = ("flickr8k", "flickr30k", "coco", "scenes")

# The name in the recipe own-folder, which only its user can replace.
YOUR_FOLDER = "FOLDER"


def data_root(option: str | None = None) -> Path:
    """The folder of the data sets: the option --data, else $SATLIB_DATA, else ./data."""
    return Path(option or os.environ.get("SATLIB_DATA") or "data").expanduser()


@collector_paused()
def load(
    name: str, root: Path | None = None, require_images: bool = True, train_images: int = 0
) -> CaptionSet:
    """The caption set called `name`, with only the first `train_images` of training.

    name: one of `NAMES`; the path, from here or from the root, of a folder (`satlib.data.folder`)
    or of a JSON file of captions (`satlib.data.published`); a set on Hugging Face's Hub, "hf:USER/NAME"
    (`satlib.data.hub`); or several of these, "flickr8k+FOLDER", each of which is cut to
    `train_images`.
    train_images: 0 means all, or of scenes the default.

    Raises:
        SatlibError: there is no such data set, or its files are not as described.
    """
    if name == "scenes":
        return scenes.load(train=train_images) if train_images else scenes.load()

    root = data_root() if root is None else root
    names = name.split("+")
    # The name of a folder may have a plus sign of its own.
    if any(place.exists() for place in _places(name, root)):
        names = [name]
    sets = [_load_one(one, root) for one in names]
    # Asking for tens of thousands of files takes seconds: only if they are needed.
    if require_images:
        for one in sets:
            one.require_images()
    return joined([one.shortened(train_images) for one in sets])


def _load_one(name: str, root: Path) -> CaptionSet:
    if name.startswith(hub.ON_THE_HUB):
        return hub.load(name)

    places = _places(name, root)
    if name in NAMES:
        # A folder ./coco of yours is not taken for COCO, which is in the root.
        places = [root / name]
    for place in places:
        data = _load_from(place)
        if data is not None:
            return data
        if place.is_dir() and name not in NAMES:
            return _by_hugging_face(place)

    if name in NAMES:
        here = f"; your folder {name} is ./{name}" if Path(name).is_dir() else ""
        raise SatlibError(
            f"{root / name} is missing; run satlib data fetch {name}, or see data/README.md{here}"
        )
    if name == YOUR_FOLDER:
        raise SatlibError(
            "the recipe does not say where your photographs are; add --set data.name=PATH"
        )
    raise SatlibError(
        f"{name!r} is neither a data set ({', '.join(NAMES)}) nor a folder, here or in {root}"
    )


def _places(name: str, root: Path) -> list[Path]:
    """Where a set called like this may lie: here, or in the root."""
    return [Path(name).expanduser(), root / name]


def _load_from(place: Path) -> CaptionSet | None:
    """The caption set of a folder or a file in a layout known here; None for any other."""
    if place.is_file() and place.suffix == ".json":
        # Karpathy's files have sentences in their images.
        is_karpathys = place.name.startswith("dataset") or '"annotations"' not in read_text(place)
        return published.load_karpathy(place) if is_karpathys else published.load_coco([place])
    if place.name in folder.TABLES and place.is_file():
        place = place.parent
    if not place.is_dir():
        return None

    if (place / "Flickr8k_text").is_dir():
        return published.load_flickr8k(place)
    # One's own table first, which the message below asks for where a file cannot be read.
    tables = folder.tables_in(place)[:1]
    if tables:
        return folder.load(place, tables)
    # As its authors have it, RSICD's file is called dataset.json.
    for karpathys in sorted(place.glob("dataset_*.json")) or place.glob("dataset.json"):
        return published.load_karpathy(karpathys)
    cocos = sorted(place.glob("captions*.json")) or sorted(place.glob("annotations/captions*.json"))
    if cocos:
        return published.load_coco(cocos)
    tables = folder.tables_in(place, below=True)
    return folder.load(place, tables) if tables else folder.beside(place)


def _by_hugging_face(place: Path) -> CaptionSet:
    """The caption set of a folder in a layout that is not known here.

    Raises:
        SatlibError: it has no parquet files; the message says what it has.
    """
    if any(place.rglob("*.parquet")):
        return hub.load(str(place))

    photos = images.files_in(place)
    others = sorted({file for file in place.rglob("*") if file.is_file()} - set(photos))
    shown = ", ".join(file.relative_to(place).as_posix() for file in others[:3])
    raise SatlibError(
        f"{place} has no captions that satlib reads; images: {len(photos):,}, other files: "
        f"{len(others):,} ({shown or 'none'}); write image,caption into captions.csv there, or see "
        "docs/data.md"
    )
