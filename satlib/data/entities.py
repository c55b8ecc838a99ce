"""Flickr30k Entities: the boxes that the phrases of a caption name (Plummer et al., ICCV 2015).

The official layout, as a folder or as the authors' `annotations.zip`:

    Annotations/NUMBER.xml   the photograph's size, and objects: ids of entities with a box in pixels, or without one
    Sentences/NUMBER.txt     the captions, one per line, with phrases in brackets: [/EN#18/people A child] in ...

It covers Flickr30k and Flickr8k, whose files have the same numbers. About 1 % of the captions were respelt and are not found.
"""

import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from satlib.data.images import WHOLE, Box, in_part
from satlib.data.text import tokenise
from satlib.errors import SatlibError

_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")


class Phrase(NamedTuple):
    """A phrase of a caption that names something in the photograph."""

    head: int  # the index of its last word, usually a noun
    kinds: tuple[
        str, ...
    ]  # people, clothing, bodyparts, animals, vehicles, ..., notvisual; usually one
    boxes: tuple[
        Box, ...
    ]  # as fractions of the part that was asked for, 0 to 1; empty if it has no box there


class _Record(NamedTuple):
    """A photograph: its size in pixels, the boxes of each entity as fractions, and its captions.

    A caption is its letters, and of each phrase the letter after its last, its entity and its kinds.
    """

    size: tuple[int, int]
    boxes: dict[str, list[Box]]
    captions: list[tuple[str, list[tuple[int, str, tuple[str, ...]]]]]


class Entities:
    """Flickr30k Entities, read photograph by photograph when it is asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self._root: Path | zipfile.Path = (
                self.path if self.path.is_dir() else zipfile.Path(self.path)
            )
        except (OSError, zipfile.BadZipFile) as error:
            raise SatlibError(
                f"{path} is neither a folder nor the authors' annotations.zip ({error})"
            ) from error
        if not all((self._root / folder).is_dir() for folder in ("Annotations", "Sentences")):
            raise SatlibError(
                f"{path} lacks the folders Annotations and Sentences of Flickr30k Entities"
            )
        self._record = lru_cache(1)(
            self._read
        )  # the captions of a photograph are usually asked for in a row

    def __contains__(self, image_id: str) -> bool:
        """Whether there are annotations of a photograph, by its file name."""
        return (self._root / "Sentences" / f"{_number(image_id)}.txt").is_file()

    def size(self, image_id: str) -> tuple[int, int]:
        """The original (width, height) of a photograph."""
        return self._record(_number(image_id)).size

    def phrases(self, image_id: str, words: Sequence[str], seen: Box = WHOLE) -> list[Phrase]:
        """The phrases of a reference caption, given as words, in order; none if Entities does not have the caption.

        Captions are compared by the letters and digits of their words, because Entities separates some words that others do
        not ("dog 's"). `seen` is the part of the photograph that the boxes are fractions of (`images.seen_part`).
        """
        record, letters = self._record(_number(image_id)), _letters(words)
        word_of = [
            index for index, word in enumerate(words) for _ in _letters([word])
        ]  # of each letter
        for caption, phrases in record.captions:
            if caption == letters:
                parts = {
                    entity: [in_part(box, seen) for box in boxes]
                    for entity, boxes in record.boxes.items()
                }
                return [
                    Phrase(
                        word_of[end - 1], kinds, tuple(box for box in parts.get(entity, ()) if box)
                    )
                    for end, entity, kinds in phrases
                ]
        return []

    def _read(self, number: str) -> _Record:
        annotation, sentences = (
            self._root / "Annotations" / f"{number}.xml",
            self._root / "Sentences" / f"{number}.txt",
        )
        if not (annotation.is_file() and sentences.is_file()):
            raise SatlibError(
                f"{self.path} has no annotations of {number}; download Flickr30k Entities again"
            )
        boxes: dict[str, list[Box]] = defaultdict(list)
        root = ElementTree.fromstring(annotation.read_text(encoding="utf-8-sig"))
        width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
        for item in root.iterfind("object[bndbox]"):
            corners = (
                float(item.findtext(f"bndbox/{corner}", ""))
                for corner in ("xmin", "ymin", "xmax", "ymax")
            )
            left, top, right, bottom = corners
            box = (
                max(left, 0) / width,
                max(top, 0) / height,
                min(right, width) / width,
                min(bottom, height) / height,
            )
            for entity in item.iterfind("name"):
                boxes[(entity.text or "").strip()].append(box)
        lines = sentences.read_text(encoding="utf-8-sig").split("\n")
        return _Record(
            (width, height), boxes, [_read_caption(line) for line in lines if line.strip()]
        )


def _number(image_id: str) -> str:
    """The number of a photograph, which is what its file name has before the first "_" or "."."""
    return re.split(r"[_.]", PurePosixPath(image_id).name)[0]


def _letters(words: Iterable[str]) -> str:
    """The letters and digits of words, which are the same however a caption was split and punctuated."""
    return "".join(filter(str.isalnum, "".join(words).lower()))


def _read_caption(line: str) -> tuple[str, list[tuple[int, str, tuple[str, ...]]]]:
    """A line of Sentences/NUMBER.txt; a phrase of punctuation alone names nothing and is left out."""
    letters, phrases, at = "", [], 0
    for phrase in _PHRASE.finditer(line):
        letters += _letters(tokenise(line[at : phrase.start()]))
        own = _letters(tokenise(phrase["words"]))
        letters, at = letters + own, phrase.end()
        if own:
            phrases.append((len(letters), phrase["entity"], tuple(phrase["kinds"].split("/")[1:])))
    return letters + _letters(tokenise(line[at:])), phrases
