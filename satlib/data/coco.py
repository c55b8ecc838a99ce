"""Captions in the JSON form of Microsoft COCO (Lin et al., 2014; Chen et al., 2015), which annotation tools export."""

from pathlib import Path

from msgspec import Raw, Struct

from satlib.data.caption_set import clean
from satlib.errors import SatlibError
from satlib.files.reading import Name, read_json


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
    """The file."""

    images: list[Image]
    annotations: list[Annotation]


def is_coco(path: Path) -> bool:
    """Whether a JSON file has annotations, as COCO's have and Karpathy's have not."""
    return "annotations" in read_json(path, dict[str, Raw], "a file of captions in COCO's or Karpathy's form")


def read(path: Path) -> dict[str, list[str]]:
    """The captions by the name of their image; images in the file's order, captions in that of their ids."""
    content = read_json(path, Captions, "a file of captions in COCO's form", "export it again")
    names = {image.id: image.file_name for image in content.images}
    captions: dict[str, list[str]] = {name: [] for name in names.values()}
    if len(captions) < len(content.images):
        raise SatlibError(f"{path}: two images have the same id or file name; number them anew, or export it again")
    for annotation in sorted(content.annotations, key=lambda annotation: annotation.id):
        if annotation.image_id not in names:
            raise SatlibError(f"{path}: image {annotation.image_id} of a caption is not listed; export the file again")
        captions[names[annotation.image_id]].extend(clean([annotation.caption]))
    return captions
