"""Captions in a file, by whatever captioner: an evaluation of satlib, image ids with captions, or the COCO tools' results format."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from satlib.data.caption_set import CaptionSet
from satlib.files.reading import read_json

FORMS = 'an evaluation of satlib, {"image id": "caption", ...}, or a list of {"image_id": ..., "caption": "..."}, COCO\'s results format'
_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{12})")  # the names of COCO's files of 2014 and 2017


class Result(Struct):
    """A caption as the COCO tools have it; COCO's image ids are numbers."""

    image_id: int | str
    caption: str


def read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The earlier evaluation that a file holds (empty if it is none), and its captions by the names of their images.

    Raises:
        SatlibError: the file is missing, or has none of the forms.
    """
    content = read_json(path, list[Result] | dict[str, Any], FORMS, "correct the file")
    if isinstance(content, list):
        return {}, {str(result.image_id): result.caption for result in content}
    if isinstance(content.get("captions"), dict):
        return content, content["captions"]
    return {}, read_json(path, dict[str, str], FORMS, "correct the file")


def by_our_ids(captions: Mapping[str, str], data: CaptionSet) -> dict[str, str]:
    """Captions by satlib's image ids, in the order of the data set.

    An image may be named by its id here, by its file's name, by that without the ending, or, where files are called as COCO's, by
    its number. A name that fits no image, or several, stays as it is.
    """
    ids: dict[str, str] = {}
    for example in data.examples:
        file = PurePosixPath(example.image_id)
        number = _COCO.fullmatch(file.stem)
        for name in {file.name, file.stem, str(int(number[1])) if number else file.stem}:
            ids[name] = name if name in ids else example.image_id
    ids |= {example.image_id: example.image_id for example in data.examples}
    return {ids.get(name, name): caption for name, caption in captions.items()}
