"""Karpathy's dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json: captions and splits (Karpathy and Fei-Fei, 2015).

Most published results use these splits: 1,014 images of Flickr30k in dev and 1,000 in test, 5,000 and 5,000 of COCO, whose
official test captions are secret. `restval`, the rest of COCO's val2014, belongs to training.

COCO's release of 2017 has the same photographs, divided differently and named by their numbers alone. Either will do.
"""

from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import CaptionSet, assemble, clean, split_name
from satlib.errors import SatlibError
from satlib.files.reading import Name, read_json

# Folders of the photographs, relative to the JSON file's folder or to the data set's folder under the data root.
FOLDERS = ("", "images", "Flicker8k_Dataset", "flickr30k-images", "flickr30k_images")


class Sentence(Struct):
    """A caption."""

    raw: str


class Image(Struct):
    """An image with its captions."""

    filename: Name
    split: str
    sentences: list[Sentence]
    filepath: str = ""  # of COCO, "train2014" or "val2014"


class Karpathy(Struct):
    """One of the JSON files."""

    images: list[Image]


def load(path: Path, root: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of one of the JSON files, with images beside it or in the data set's folder under the data root.

    Image ids are file names; COCO's begin with their folder: "train2014/COCO_train2014_000000000009.jpg".
    """
    name = path.stem.removeprefix("dataset_")
    if not path.is_file():
        raise SatlibError(
            f"missing: {path}; run satlib data fetch {name} (data/README.md says which file belongs where)"
        )
    splits: dict[str, str] = {}
    captions: dict[str, list[str]] = {}
    for image in read_json(path, Karpathy, "one of Karpathy's dataset files", "download it again").images:
        image_id = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
        splits[image_id] = split_name(image.split, f"{path}, {image_id}")
        captions[image_id] = clean(sentence.raw for sentence in image.sentences)
    first = next(iter(splits), "")
    candidates = [base / folder for base in (path.parent, root / name) for folder in FOLDERS]
    photos = next((folder for folder in candidates if (folder / first).is_file()), path.parent)
    renamed = {} if (photos / first).is_file() else {file.name: file for file in photos.glob("*2017/*.jpg")}

    def locate(image_id: str) -> Path:
        return renamed.get(image_id.rpartition("_")[2], photos / image_id)

    return assemble(name, captions, splits, locate, photos, require_images)
