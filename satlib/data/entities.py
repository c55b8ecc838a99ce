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
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from satlib.data.images import WHOLE, Box, in_part
from satlib.data.text import tokenise
from satlib.errors import SatlibError

_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")


@dataclass(frozen=True)
class Phrase:
    """A phrase of a caption that names something in the photograph."""

    start: int  # index of its first word in the caption
    end: int  # index after its last word
    entity: str  # the id of what it names, unique within the photograph; "0" for what cannot be seen
    kinds: tuple[str, ...]  # people, clothing, bodyparts, animals, vehicles, ..., notvisual; usually one
    boxes: tuple[Box, ...]  # as fractions of the part that was asked for, 0 to 1; empty if it has no box there


class _Caption(NamedTuple):
    """A caption by its letters, and its phrases: their first letter, the letter after the last, the entity and its kinds."""

    letters: str
    phrases: list[tuple[int, int, str, tuple[str, ...]]]


class _Record(NamedTuple):
    """A photograph: its size (width, height), each entity's boxes in pixels, and its captions."""

    size: tuple[int, int]
    boxes: dict[str, list[Box]]
    captions: list[_Caption]


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
        word_of = [index for index, word in enumerate(words) for _ in _letters([word])]  # of each letter
        for caption in record.captions:
            if caption.letters == letters:
                return [
                    Phrase(word_of[first], word_of[end - 1] + 1, entity, kinds, _boxes(record, entity, seen))
                    for first, end, entity, kinds in caption.phrases
                ]
        return []

    def _read(self, key: str) -> _Record:
        annotation, captions = self._root / "Annotations" / f"{key}.xml", self._root / "Sentences" / f"{key}.txt"
        if not (annotation.is_file() and captions.is_file()):
            raise SatlibError(f"{self.path} has no annotations of {key}; download Flickr30k Entities again")
        lines = captions.read_text(encoding="utf-8-sig").split("\n")
        size, boxes = read_annotation(annotation.read_text(encoding="utf-8-sig"))
        return _Record(size, boxes, [_read_caption(line) for line in lines if line.strip()])


def number(image_id: str) -> str:
    """The number of a photograph, which is what its file name has before the first "_" or "."."""
    return re.split(r"[_.]", PurePosixPath(image_id).name)[0]


def _letters(words: Iterable[str]) -> str:
    """The letters and digits of words, which are the same however a caption was split and punctuated."""
    return "".join(filter(str.isalnum, "".join(words).lower()))


def _boxes(record: _Record, entity: str, seen: Box) -> tuple[Box, ...]:
    """An entity's boxes as fractions of a part of the photograph; those outside of it are left out."""
    width, height = record.size
    boxes = (
        in_part((left / width, top / height, right / width, bottom / height), seen)
        for left, top, right, bottom in record.boxes.get(entity, ())
    )
    return tuple(box for box in boxes if box)


def read_annotation(text: str) -> tuple[tuple[int, int], dict[str, list[Box]]]:
    """The size (width, height) of a photograph, and the boxes in pixels of each entity that has some, clipped to the picture."""
    boxes: dict[str, list[Box]] = defaultdict(list)
    root = ElementTree.fromstring(text)
    width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
    for item in root.iterfind("object[bndbox]"):
        corners = (float(item.findtext(f"bndbox/{corner}", "")) for corner in ("xmin", "ymin", "xmax", "ymax"))
        left, top, right, bottom = corners
        for name in item.iterfind("name"):
            box = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
            boxes[(name.text or "").strip()].append(box)
    return (width, height), boxes


def _read_caption(line: str) -> _Caption:
    """A line of Sentences/NUMBER.txt. A phrase of punctuation alone names nothing and is left out."""
    letters, phrases, at = "", [], 0
    for phrase in _PHRASE.finditer(line):
        first = letters + _letters(tokenise(line[at : phrase.start()]))
        letters = first + _letters(tokenise(phrase["words"]))
        if len(letters) > len(first):
            phrases.append((len(first), len(letters), phrase["entity"], tuple(phrase["kinds"].split("/")[1:])))
        at = phrase.end()
    return _Caption(letters + _letters(tokenise(line[at:])), phrases)
