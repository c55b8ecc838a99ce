"""Karpathy's dataset_flickr8k.json, dataset_flickr30k.json, dataset_coco.json (Karpathy and Fei-Fei, 2015).

Each is {"dataset": NAME, "images": [{"filename", "split", "sentences": [{"raw"}], "filepath" (COCO: val2014 or
train2014)}]}; the splits of most published figures. `restval`, the rest of COCO's val2014, belongs to training.
"""

from pathlib import Path
from typing import Any

from satlib.datasets import CaptionSet
from satlib.datasets.reading import assemble, clean_all, split_name
from satlib.errors import SatlibError
from satlib.files import read_json

# Where photographs lie, seen from the JSON file's folder or from the data set's folder under the data root.
FOLDERS = ("", "images", "Flicker8k_Dataset", "flickr30k-images", "flickr30k_images")


def load(path: Path, root: Path | None = None, require_images: bool = True) -> CaptionSet:
    """A caption set by one of the JSON files; images beside it, or in the data set's own folder under the data root.

    Raises:
        SatlibError: see `satlib.datasets.load`.
    """
    splits, captions = read(path)
    if not splits:
        raise SatlibError(f"{path} lists no image; fetch the file again")
    name = path.stem.removeprefix("dataset_")
    bases = [path.parent, *([root / name] if root is not None else [])]
    first = next(iter(splits))
    candidates = [base / folder for base in bases for folder in FOLDERS]
    photos = next((folder for folder in candidates if (folder / first).is_file()), None)
    if photos is None:  # the first image is not there: take the folder that exists at all, so that the message names it
        photos = next((folder for folder in candidates if folder.name in FOLDERS[1:] and folder.is_dir()), path.parent)
    return assemble(name, captions, splits, lambda image_id: photos / image_id, require_images, photos, str(path))


def read(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The splits and the captions by image id: the file's name, after its folder where the JSON names one (COCO).

    Raises:
        SatlibError: the file is missing or is something else, an image is listed twice.
    """
    value: Any = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("images"), list):
        raise SatlibError(
            f"{path} is not one of Karpathy's dataset files (an object with a list 'images'); fetch it again"
        )
    splits: dict[str, str] = {}
    captions: dict[str, list[str]] = {}
    for number, image in enumerate(value["images"]):
        where = f"{path}, image {number}"
        try:
            image_id = image["filename"]
            if image.get("filepath"):
                image_id = f"{image['filepath']}/{image_id}"
            split, sentences = image["split"], [sentence["raw"] for sentence in image["sentences"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise SatlibError(
                f"{where}: expected filename, split and sentences with raw; fetch the file again"
            ) from error
        if image_id in splits:
            raise SatlibError(f"{where}: {image_id} is listed twice; fetch the file again")
        splits[image_id] = split_name(split, where)
        captions[image_id] = clean_all(sentences, where)
    return splits, captions
