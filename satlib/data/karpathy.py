"""Karpathy's dataset_flickr8k.json, dataset_flickr30k.json, dataset_coco.json (Karpathy and Fei-Fei, 2015).

Each is {"dataset": NAME, "images": [{"filename", "split", "sentences": [{"raw"}], "filepath" (COCO: val2014 or
train2014)}]}. Most published results use these splits. `restval`, the rest of COCO's val2014, belongs to training.
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
    filepath: str = ""


class Karpathy(Struct):
    """One of the JSON files."""

    images: list[Image]


def load(path: Path, root: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of one of the JSON files, with images beside it or in the data set's folder under the data root."""
    splits, captions = read(path)
    name, first = path.stem.removeprefix("dataset_"), next(iter(splits), "")
    candidates = [base / folder for base in (path.parent, root / name) for folder in FOLDERS]
    photos = next((folder for folder in candidates if (folder / first).is_file()), path.parent)
    return assemble(name, captions, splits, photos.joinpath, require_images, photos, str(path))


def read(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The splits and the captions by image id, which is the file name, preceded by its folder if the JSON gives one (COCO)."""
    content = read_json(path, Karpathy, "one of Karpathy's dataset files", "download it again")
    splits: dict[str, str] = {}
    captions: dict[str, list[str]] = {}
    for image in content.images:
        image_id = f"{image.filepath}/{image.filename}" if image.filepath else image.filename
        if image_id in splits:
            raise SatlibError(f"{path}: {image_id} is listed twice; download the file again")
        splits[image_id] = split_name(image.split, f"{path}, {image_id}")
        captions[image_id] = clean(sentence.raw for sentence in image.sentences)
    return splits, captions
