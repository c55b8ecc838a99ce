"""Karpathy's dataset_flickr8k.json, dataset_flickr30k.json and dataset_coco.json: captions and splits (Karpathy and Fei-Fei, 2015).

Most published results use these splits: 1,014 images of Flickr30k in dev and 1,000 in test, 5,000 and 5,000 of COCO, whose
official test captions are secret. `restval`, the rest of COCO's val2014, belongs to training.

COCO's release of 2017 has the same photographs, divided differently and named by their numbers alone. Either will do.
"""

from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import MAX_REFERENCES, CaptionSet, Example, assemble, clean, split_name
from satlib.files.reading import Name, read_json

# Folders of the photographs, relative to the JSON file's.
FOLDERS = ("", "images", "Flicker8k_Dataset", "flickr30k-images", "flickr30k_images")


class _Sentence(Struct):
    raw: str


class _Image(Struct):
    filename: Name
    split: str
    sentences: list[_Sentence]
    filepath: str = ""  # of COCO, "train2014" or "val2014"

    @property
    def name(self) -> str:
        return f"{self.filepath}/{self.filename}" if self.filepath else self.filename


class _File(Struct):
    images: list[_Image]


def load(path: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of one of the JSON files, with its images beside it.

    Image ids are file names; COCO's begin with their folder: "train2014/COCO_train2014_000000000009.jpg".
    """
    listed = read_json(path, _File, "one of Karpathy's dataset files", "download it again").images
    first = listed[0].name if listed else ""
    photos = next((path.parent / folder for folder in FOLDERS if (path.parent / folder / first).is_file()), path.parent)
    renamed = {} if (photos / first).is_file() else {file.name: file for file in photos.glob("*2017/*.jpg")}
    examples = []
    for image in listed:
        captions = clean(sentence.raw for sentence in image.sentences)[:MAX_REFERENCES]
        file = renamed.get(image.filename.rpartition("_")[2], photos / image.name)
        examples.append(Example(image.name, split_name(image.split, f"{path}, {image.name}"), tuple(captions), file))
    return assemble(path.stem.removeprefix("dataset_"), examples, photos, require_images)
