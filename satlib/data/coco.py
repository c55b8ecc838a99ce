"""Microsoft COCO captions (Lin et al., 2014; Chen et al., 2015), with the file names of 2014 or of 2017.

The official test captions are secret, so papers take their development and test images from val2014. If the folder
contains Karpathy's dataset_coco.json, his split is used (5,000 dev, 5,000 test, the rest of val2014 in training), as in most
published results since 2015. Without that file, training uses the official train2014 only (82,783 images, as in the paper's
section 5.2); val2014 is sorted by the SHA-256 of the file names, the first 5,000 images are dev, the next 5,000 test, and
the rest is unused. Both splits are fixed, but scores on one cannot be compared with scores on the other.

The releases of 2014 and 2017 have the same photographs, divided differently (val2017 has 5,000) and named by their numbers alone.
Karpathy's split can be used with both. Without it, the halves of val2017 are dev and test, and the set is called coco-2017.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Raw, Struct

from satlib.data import karpathy
from satlib.data.caption_set import CaptionSet, assemble, clean_all, require_files
from satlib.data.images import WHOLE, Box, in_part
from satlib.errors import SatlibError
from satlib.files.reading import Name, Size, read_json

LAYOUT = (
    "coco/train2014/*.jpg, coco/val2014/*.jpg, coco/annotations/captions_train2014.json and captions_val2014.json "
    "(or coco/dataset_coco.json), or the same with 2017"
)
HELD_OUT = 5_000
_PEOPLE = {"man", "men", "woman", "women", "boy", "boys", "girl", "girls", "child", "children", "player", "players"}


class Image(Struct):
    """An image."""

    id: int
    file_name: Name


class Annotation(Struct):
    """A caption."""

    id: int
    image_id: int
    caption: str


class Captions(Struct):
    """captions_*.json."""

    images: list[Image]
    annotations: list[Annotation]


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """COCO, in Karpathy's split if dataset_coco.json is in the folder, else from the official files of 2014 or 2017.

    Image ids look like "train2014/COCO_train2014_000000000009.jpg", or "train2017/000000000009.jpg" from the files of 2017.

    Raises:
        SatlibError: see `satlib.data.datasets.load`.
    """
    year = _year(folder)
    photos = [folder / f"train{year}", folder / f"val{year}"] if require_images else []
    hint = f"{LAYOUT}; or run: satlib data fetch coco"
    if (folder / "dataset_coco.json").is_file():
        require_files(photos, hint)
        splits, captions = karpathy.read(folder / "dataset_coco.json")
        locate = _in_2017(folder) if year == 2017 else lambda image_id: folder / image_id
        return assemble("coco", captions, splits, locate, require_images, folder, str(folder))
    files = {part: folder / "annotations" / f"captions_{part}.json" for part in (f"train{year}", f"val{year}")}
    require_files([*files.values(), *photos], hint)
    training, held_out = (read(path, part) for part, path in files.items())
    shuffled = sorted(held_out, key=lambda image_id: hashlib.sha256(image_id.encode()).digest())
    size = min(HELD_OUT, len(shuffled) // 2)
    splits = (
        dict.fromkeys(training, "train")
        | dict.fromkeys(shuffled[:size], "dev")
        | dict.fromkeys(shuffled[size : 2 * size], "test")
    )
    name = "coco" if year == 2014 else "coco-2017"
    return assemble(
        name, training | held_out, splits, lambda image_id: folder / image_id, require_images, folder, str(folder)
    )


def _year(folder: Path) -> int:
    """2017 if the folder has photographs or captions of that year and none of 2014, which come first."""

    def has(year: int) -> bool:
        return any(
            (folder / name).exists() for name in (f"train{year}", f"val{year}", f"annotations/captions_val{year}.json")
        )

    return 2017 if has(2017) and not has(2014) else 2014


def _in_2017(folder: Path) -> Callable[[str], Path]:
    """From an image id of 2014 to its file of 2017: the same number, in one of two folders."""
    known = {name: folder / part / name for part in ("train2017", "val2017") for name in _names(folder / part)}

    def locate(image_id: str) -> Path:
        name = image_id.rpartition("_")[2]
        return known.get(name, folder / "train2017" / name)

    return locate


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


class _Parts(Struct):
    """What tells a COCO file from other JSON files."""

    images: Raw = Raw()
    annotations: Raw = Raw()


def has_captions(path: Path) -> bool:
    """Whether a JSON file has images and annotations, as COCO's has."""
    try:
        parts = read_json(path, _Parts, "a COCO captions file")
    except SatlibError:
        return False
    return bool(bytes(parts.images)) and bool(bytes(parts.annotations))


def read(path: Path, part: str = "") -> dict[str, list[str]]:
    """Captions by image id ("PART/FILE", or "FILE" without a part), in the order of the file's images; the captions of an image in the order of their ids.

    Raises:
        SatlibError: the file is missing or is not a COCO captions file.
    """
    content = read_json(path, Captions, "a COCO captions file", "download or export it again")
    names = {image.id: f"{part}/{image.file_name}" if part else image.file_name for image in content.images}
    captions: dict[str, list[str]] = {name: [] for name in names.values()}
    for annotation in sorted(content.annotations, key=lambda annotation: annotation.id):
        where = f"{path}, annotation {annotation.id}"
        if annotation.image_id not in names:
            raise SatlibError(f"{where}: image {annotation.image_id} is not listed; download or export it again")
        captions[names[annotation.image_id]].extend(clean_all([annotation.caption], where))
    return captions


# --- Boxes of objects ---------------------------------------------------------------------------------------------------


class _Photograph(Struct):
    """An image of COCO and its size in pixels."""

    id: int
    file_name: Name
    width: Size
    height: Size


class _Category(Struct):
    """A kind of object."""

    id: int
    name: Name


class _Object(Struct):
    """An object; its box is left, top, width and height in pixels."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]


class _Instances(Struct):
    """instances_*.json."""

    images: list[_Photograph]
    categories: list[_Category]
    annotations: list[_Object]


class Boxes:
    """Object boxes in COCO's format."""

    def __init__(self, path: Path) -> None:
        """Read an `instances_*.json`.

        Raises:
            SatlibError: the file does not exist or has another format.
        """
        self.path, advice = path, "download it again"
        content = read_json(path, _Instances, "a file of boxes in COCO's format (instances_*.json)", advice)
        names = {category.id: category.name for category in content.categories}
        photographs = {image.id: image for image in content.images}
        self._boxes: dict[str, list[tuple[str, Box]]] = {Path(image.file_name).name: [] for image in content.images}
        for number, each in enumerate(content.annotations):
            image, name = photographs.get(each.image_id), names.get(each.category_id)
            if image is None or name is None:
                missing = "an image" if image is None else "a category"
                raise SatlibError(f"{path}: annotation {number} is of {missing} that is not listed; {advice}")
            left, top, width, height = each.bbox
            box = left / image.width, top / image.height, (left + width) / image.width, (top + height) / image.height
            self._boxes[Path(image.file_name).name].append((name, box))

    def __contains__(self, image_id: str) -> bool:
        """Whether a photograph is listed, by its file name."""
        return Path(image_id).name in self._boxes

    def named(self, image_id: str, words: Sequence[str], seen: Box = WHOLE) -> list[tuple[int, str, tuple[Box, ...]]]:
        """The words of a caption that name a category with boxes in the photograph: (index, category, boxes), by index.

        The boxes are fractions of the part `seen` (`images.seen_part`); those outside of it are left out.
        """
        boxes: dict[str, list[Box]] = defaultdict(list)
        for name, box in self._boxes.get(Path(image_id).name, []):
            if part := in_part(box, seen):
                boxes[name].append(part)
        found = [(index, name, tuple(boxes[name])) for name in sorted(boxes) for index in _named(name, words)]
        return sorted(found, key=lambda word: word[0])


def _named(name: str, words: Sequence[str]) -> Iterator[int]:
    """The indices at which a category's name occurs, singular or plural; for "fire hydrant", that of the last word."""
    parts = re.findall(r"\w+", name.lower())
    plural = {"person": "people", "knife": "knives", "sheep": "sheep", "skis": "skis", "mouse": "mice"}.get(parts[-1])
    ends = {parts[-1], plural or parts[-1] + ("es" if parts[-1].endswith(("s", "sh", "ch", "x")) else "s")}
    if name == "person":
        ends |= _PEOPLE
    for index in range(len(parts) - 1, len(words)):
        if words[index] in ends and list(words[index - len(parts) + 1 : index]) == parts[:-1]:
            yield index
