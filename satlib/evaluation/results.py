"""Captions in a file, by whatever captioner: satlib's evaluations, image ids with captions, and the results format of the COCO tools."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct

from satlib.data.caption_set import CaptionSet
from satlib.errors import SatlibError
from satlib.files.reading import read_json

FORMS = 'an evaluation of satlib, {"image id": "caption", ...}, or a list of {"image_id": ..., "caption": "..."}, COCO\'s results format'
_COCO = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{12})")  # the names of COCO's files of 2014 and 2017


class Result(Struct):
    """A caption as the COCO tools have it; COCO's image ids are numbers."""

    image_id: int | str
    caption: str


class Rescored(Struct):
    """What scoring needs of an earlier evaluation; the rest it passes on."""

    captions: dict[str, str]
    data: str | None = None
    split: str | None = None
    metrics: dict[str, float] = {}


def read(path: Path) -> tuple[dict[str, Any], dict[str, str] | list[Result]]:
    """The earlier evaluation that a file holds (empty if it is none), and its captions.

    Raises:
        SatlibError: the file is missing, or has none of the forms.
    """
    about = FORMS, "correct the file"
    content = read_json(path, list[Result] | dict[str, Any], *about)
    if isinstance(content, list):
        return {}, content
    if isinstance(content.get("captions"), dict):
        return content, read_json(path, Rescored, *about).captions
    return {}, read_json(path, dict[str, str], *about)


def by_our_ids(results: Iterable[Result], data: CaptionSet, path: Path) -> dict[str, str]:
    """The captions of COCO's results format by satlib's image ids.

    An image is named by its id here, by its file's name, by that without the ending, or, where files are called as COCO's, by its number.

    Raises:
        SatlibError: an image is not in the data set, or has two captions; the message starts with `path`.
    """
    ids: dict[str, set[str]] = {}
    for example in data.examples:
        file = PurePosixPath(example.image_id)
        names = {example.image_id, file.name, file.stem}
        if number := _COCO.fullmatch(file.stem):
            names.add(str(int(number[1])))
        for name in names:
            ids.setdefault(name, set()).add(example.image_id)
    captions: dict[str, str] = {}
    for number, result in enumerate(results):
        where = f"{path}: [{number}].image_id is {msgspec.json.encode(result.image_id).decode()}"
        found = ids.get(str(result.image_id), set())
        if len(found) != 1:
            problem = f"fits {len(found)} images" if found else "is no image"
            example = data.examples[0].image_id
            raise SatlibError(
                f'{where}, which {problem} of {data.name}; name images as satlib does, for example "{example}"'
            )
        (image_id,) = found
        if image_id in captions:
            raise SatlibError(f"{where}, and that image has a caption already; keep one for each image")
        captions[image_id] = result.caption
    return captions
