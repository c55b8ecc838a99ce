"""Microsoft COCO 2014 captions (Lin et al., 2014; Chen et al., 2015).

The official test captions are secret, so papers take their development and test images from val2014. If the folder
contains Karpathy's dataset_coco.json, his split is used (5,000 dev, 5,000 test, the rest of val2014 in training), as in most
published results since 2015. Without that file, training uses the official train2014 only (82,783 images, as in the paper's
section 5.2); val2014 is sorted by the SHA-256 of the file names, the first 5,000 images are dev, the next 5,000 test, and
the rest is unused. Both splits are fixed, but scores on one cannot be compared with scores on the other.
"""

import hashlib
from pathlib import Path

from satlib.datasets import CaptionSet, karpathy
from satlib.datasets.reading import assemble, clean_all, require_files
from satlib.errors import SatlibError
from satlib.files import read_json
from satlib.schemas import CocoCaptions

LAYOUT = "coco/train2014/*.jpg, coco/val2014/*.jpg, coco/annotations/captions_train2014.json and captions_val2014.json (or coco/dataset_coco.json)"
HELD_OUT = 5_000


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """COCO 2014, in Karpathy's split if dataset_coco.json is in the folder, else from the official files.

    Image ids look like "train2014/COCO_train2014_000000000009.jpg".

    Raises:
        SatlibError: see `satlib.datasets.load`.
    """
    photos = [folder / "train2014", folder / "val2014"] if require_images else []
    hint = f"{LAYOUT}; or run: satlib data fetch coco"
    if (folder / "dataset_coco.json").is_file():
        require_files(photos, hint)
        splits, captions = karpathy.read(folder / "dataset_coco.json")
        return assemble("coco", captions, splits, lambda image_id: folder / image_id, require_images, folder)
    files = {part: folder / "annotations" / f"captions_{part}.json" for part in ("train2014", "val2014")}
    require_files([*files.values(), *photos], hint)
    training, held_out = (read(path, part) for part, path in files.items())
    shuffled = sorted(held_out, key=lambda image_id: hashlib.sha256(image_id.encode()).digest())
    size = min(HELD_OUT, len(shuffled) // 2)
    splits = (
        dict.fromkeys(training, "train")
        | dict.fromkeys(shuffled[:size], "dev")
        | dict.fromkeys(shuffled[size : 2 * size], "test")
    )
    return assemble("coco", training | held_out, splits, lambda image_id: folder / image_id, require_images, folder)


def read(path: Path, part: str) -> dict[str, list[str]]:
    """Captions by image id ("PART/FILE"), in the order of the file's images; the captions of an image in the order of their ids.

    Raises:
        SatlibError: the file is missing or is not a COCO captions file.
    """
    value = read_json(path, CocoCaptions, "a COCO captions file", "download it again")
    names = {image["id"]: f"{part}/{image['file_name']}" for image in value["images"]}
    captions: dict[str, list[str]] = {name: [] for name in names.values()}
    for annotation in sorted(value["annotations"], key=lambda annotation: annotation["id"]):
        where = f"{path}, annotation {annotation['id']}"
        if annotation["image_id"] not in names:
            raise SatlibError(f"{where}: image {annotation['image_id']} is not listed; download it again")
        captions[names[annotation["image_id"]]].extend(clean_all([annotation["caption"]], where))
    return captions
