"""Flickr30k Entities: the boxes that the phrases of a caption name (Plummer et al., ICCV 2015).

The official layout, as a folder or as the authors' `annotations.zip`:

    Annotations/NUMBER.xml   the photograph's size, and objects: ids of entities with a box in pixels, or without one
    Sentences/NUMBER.txt     the captions, one per line, with phrases in brackets: [/EN#18/people A child] in ...

It covers Flickr30k and Flickr8k, whose file names begin with the same numbers. About 1 % of the captions were respelt ("grey"
to "gray") and are not found.
"""

import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from satlib.data.images import WHOLE, Box, in_part
from satlib.data.text import tokenise
from satlib.errors import SatlibError

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")


@dataclass(frozen=True)
class Phrase:
    """A phrase of a caption that names something in the photograph."""

    start: int  # index of its first word in the caption
    end: int  # index after its last word
    entity: str  # the id of what it names, unique within the photograph; "0" for what cannot be seen
    kinds: tuple[str, ...]  # people, clothing, bodyparts, animals, vehicles, ..., notvisual; usually one
    boxes: tuple[Box, ...]  # as fractions of the part that was asked for, 0 to 1; empty if it has no box there


# A phrase of a caption, its entity's id, and its kinds; or the text between phrases, with an empty id.
Piece = tuple[str, str, tuple[str, ...]]


class _Record(NamedTuple):
    """A photograph: its size (width, height), each entity's boxes in pixels, and the lines of its captions."""

    size: tuple[int, int]
    boxes: dict[str, list[Box]]
    lines: list[list[Piece]]


class Entities:
    """Flickr30k Entities, read photograph by photograph when it is asked for."""

    def __init__(self, path: Path | str) -> None:
        """Open a folder or a zip file; no annotation is read yet."""
        self.path = Path(path)
        try:
            self._root: Path | zipfile.Path = self.path if self.path.is_dir() else zipfile.Path(self.path)
        except (OSError, zipfile.BadZipFile) as error:
            raise SatlibError(f"{path} is neither a folder nor the authors' annotations.zip ({error})") from error
        if not all((self._root / folder).is_dir() for folder in ("Annotations", "Sentences")):
            raise SatlibError(f"{path} lacks the folders Annotations and Sentences of Flickr30k Entities")
        self._record = lru_cache(1)(self._read)  # the captions of a photograph are usually asked for in a row

    def __contains__(self, image_id: str) -> bool:
        """Whether there are annotations of a photograph, by its file name."""
        return (self._root / "Sentences" / f"{number(image_id)}.txt").is_file()

    def size(self, image_id: str) -> tuple[int, int]:
        """The original (width, height) of a photograph."""
        return self._record(number(image_id)).size

    def phrases(self, image_id: str, words: Sequence[str], seen: Box = WHOLE) -> list[Phrase]:
        """The phrases of a reference caption, given as words, in order; none if Entities does not have the caption.

        Captions are compared by the letters and digits of their words, because Entities separates some words that others do
        not ("dog 's"). `seen` is the part of the photograph that the boxes are fractions of (`images.seen_part`).
        """
        record, letters = self._record(number(image_id)), _letters(words)
        for pieces in record.lines:
            if "".join(_letters(tokenise(text)) for text, *_ in pieces) == letters:
                return _aligned(words, pieces, _seen(record, seen))
        return []

    def _read(self, key: str) -> _Record:
        annotation, captions = self._root / "Annotations" / f"{key}.xml", self._root / "Sentences" / f"{key}.txt"
        if not (annotation.is_file() and captions.is_file()):
            raise SatlibError(f"{self.path} has no annotations of {key}; download Flickr30k Entities again")
        size, boxes = read_annotation(annotation.read_text(encoding="utf-8-sig"))
        return _Record(size, boxes, _read_captions(captions.read_text(encoding="utf-8-sig")))


def number(image_id: str) -> str:
    """The number of a photograph, which is what its file name has before the first "_" or "."."""
    return re.split(r"[_.]", PurePosixPath(image_id).name)[0]


def _seen(record: _Record, seen: Box) -> dict[str, tuple[Box, ...]]:
    """Each entity's boxes as fractions of a part of the photograph; those outside of it are left out."""
    width, height = record.size
    fractions = {}
    for entity, boxes in record.boxes.items():
        parts = (
            in_part((left / width, top / height, right / width, bottom / height), seen)
            for left, top, right, bottom in boxes
        )
        fractions[entity] = tuple(part for part in parts if part)
    return fractions


def _letters(words: Iterable[str]) -> str:
    """The letters and digits of words, which are the same however a caption was split and punctuated."""
    return "".join(filter(str.isalnum, "".join(words).lower()))


def _aligned(words: Sequence[str], pieces: Sequence[Piece], boxes: dict[str, tuple[Box, ...]]) -> list[Phrase]:
    """The phrases of a caption whose words have the same letters: each spans the words that its first and last letter are in."""
    owner = [index for index, word in enumerate(words) for _ in _letters([word])]
    ends = [0]
    for text, *_ in pieces:
        ends.append(ends[-1] + len(_letters(tokenise(text))))
    return [
        Phrase(owner[first], owner[last - 1] + 1, entity, kinds, boxes.get(entity, ()))
        for (first, last), (_, entity, kinds) in zip(pairwise(ends), pieces, strict=True)
        if entity and first < last  # a phrase of punctuation alone names nothing
    ]


def read_annotation(text: str) -> tuple[tuple[int, int], dict[str, list[Box]]]:
    """The size (width, height) of a photograph, and the boxes in pixels of each entity that has some, clipped to the picture."""
    boxes: dict[str, list[Box]] = defaultdict(list)
    root = ElementTree.fromstring(text)
    width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    for item in root.iterfind("object[bndbox]"):
        left, top, right, bottom = (float(item.findtext(f"bndbox/{corner}", "")) for corner in _CORNERS)
        for name in item.iterfind("name"):
            box = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
            boxes[(name.text or "").strip()].append(box)
    return (width, height), boxes


def _read_captions(text: str) -> list[list[Piece]]:
    """The captions of Sentences/NUMBER.txt, each as pieces that join to its text."""
    lines = []
    for line in filter(str.strip, text.split("\n")):
        pieces, at = [], 0
        for phrase in _PHRASE.finditer(line):
            pieces.append((line[at : phrase.start()], "", ()))
            pieces.append((phrase["words"], phrase["entity"], tuple(phrase["kinds"].split("/")[1:])))
            at = phrase.end()
        lines.append([*pieces, (line[at:], "", ())])
    return lines
