"""Microsoft COCO captions (Lin et al., 2014; Chen et al., 2015), with the file names of 2014 or of 2017.

The official test captions are secret. If the folder contains Karpathy's dataset_coco.json, his split of val2014 is used (5,000
dev, 5,000 test, the rest in training), as in most published results. Otherwise training uses the official train2014 only
(82,783 images, section 5.2); val2014 is sorted by the SHA-256 of the file names, and the first 5,000 images are dev, the next
5,000 test. Scores on one split cannot be compared with scores on the other.

The release of 2017 has the same photographs, divided differently (val2017 has 5,000) and named by their numbers alone. Karpathy's
split can be used with it. Without it, the halves of val2017 are dev and test, and the set is called coco-2017.
"""

import hashlib
from pathlib import Path

from msgspec import Raw, Struct

from satlib.data import karpathy
from satlib.data.caption_set import CaptionSet, assemble, clean, require_files
from satlib.errors import SatlibError
from satlib.files.reading import Name, read_json

LAYOUT = (
    "coco/train2014/*.jpg, coco/val2014/*.jpg, coco/annotations/captions_train2014.json and captions_val2014.json "
    "(or coco/dataset_coco.json), or the same with 2017; or run: satlib data fetch coco"
)
HELD_OUT = 5_000


class Image(Struct):
    """An image."""

    id: int | str
    file_name: Name


class Annotation(Struct):
    """A caption. (COCO gives it an id, which orders the captions of an image; those who write such files often do not.)"""

    image_id: int | str
    caption: str
    id: int = 0


class Captions(Struct):
    """captions_*.json."""

    images: list[Image]
    annotations: list[Annotation]


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """COCO, in Karpathy's split if dataset_coco.json is in the folder, else from the official files of 2014 or 2017.

    Image ids look like "train2014/COCO_train2014_000000000009.jpg", or "train2017/000000000009.jpg" from the files of 2017.
    """
    year = 2017 if _has(folder, 2017) and not _has(folder, 2014) else 2014
    parts = [f"train{year}", f"val{year}"]
    photos = [folder / part for part in parts] if require_images else []
    if (folder / "dataset_coco.json").is_file():
        require_files(photos, LAYOUT)
        splits, captions = karpathy.read(folder / "dataset_coco.json")
        renamed = {path.name: path for part in parts for path in (folder / part).glob("*")} if year == 2017 else {}

        def locate(image_id: str) -> Path:
            return renamed.get(image_id.rpartition("_")[2], folder / image_id)

        return assemble("coco", captions, splits, locate, require_images, folder, str(folder))
    files = [folder / "annotations" / f"captions_{part}.json" for part in parts]
    require_files([*files, *photos], LAYOUT)
    training, held_out = (read(path, part) for path, part in zip(files, parts, strict=True))
    shuffled = sorted(held_out, key=lambda image_id: hashlib.sha256(image_id.encode()).digest())
    size = min(HELD_OUT, len(shuffled) // 2)
    splits = dict.fromkeys(training, "train") | dict.fromkeys(shuffled[:size], "dev")
    splits |= dict.fromkeys(shuffled[size : 2 * size], "test")
    name = "coco" if year == 2014 else "coco-2017"
    return assemble(name, training | held_out, splits, folder.joinpath, require_images, folder, str(folder))


def _has(folder: Path, year: int) -> bool:
    """Whether the folder has photographs or captions of a release."""
    return any([*folder.glob(f"*{year}"), *folder.glob(f"annotations/captions_*{year}.json")])


def is_coco(path: Path) -> bool:
    """Whether a JSON file has annotations, as COCO's have and Karpathy's have not."""
    return "annotations" in read_json(path, dict[str, Raw], "a file of captions in COCO's or Karpathy's form")


def read(path: Path, part: str = "") -> dict[str, list[str]]:
    """The captions of each image, by PART/FILE, or FILE without a part; images in the file's order, captions in that of their ids."""
    content = read_json(path, Captions, "a COCO captions file", "download or export it again")
    names = {image.id: f"{part}/{image.file_name}" if part else image.file_name for image in content.images}
    captions: dict[str, list[str]] = {name: [] for name in names.values()}
    if len(captions) < len(content.images):
        raise SatlibError(f"{path}: two images have the same id or file name; number them anew, or export it again")
    for annotation in sorted(content.annotations, key=lambda annotation: annotation.id):
        if annotation.image_id not in names:
            raise SatlibError(f"{path}: image {annotation.image_id} of a caption is not listed; export the file again")
        captions[names[annotation.image_id]].extend(clean([annotation.caption]))
    return captions
