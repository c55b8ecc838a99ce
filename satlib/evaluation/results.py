"""Captions in a file, by whatever captioner: an evaluation of satlib, image ids with captions, or the COCO tools' results format."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from satlib.data.caption_set import CaptionSet
from satlib.files.reading import read_json

FORMS = 'an evaluation of satlib, {"image id": "caption", ...}, or a list of {"image_id": ..., "caption": "..."}'
_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)")  # the names of COCO's files of 2014 and 2017


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
    """Captions by satlib's image ids; an image may be named by its id, its file's name, or the number of COCO's file."""
    ids = {}
    for example in data.examples:
        file = PurePosixPath(example.image_id)
        number = _COCO.fullmatch(file.stem)
        ids |= dict.fromkeys((example.image_id, file.name, number[1] if number else file.name), example.image_id)
    return {ids.get(name, name): caption for name, caption in captions.items()}
