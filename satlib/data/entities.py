"""Flickr30k Entities: the boxes that the phrases of a caption name (Plummer et al., ICCV 2015).

The official layout, as a folder or as the authors' `annotations.zip`:

    Annotations/NUMBER.xml   the photograph's size, and its objects: ids of entities with a box in
                             pixels, or without one
    Sentences/NUMBER.txt     the captions, one per line, with phrases in brackets:
                             [/EN#18/people A child] in ...

It covers Flickr30k and Flickr8k, whose files have the same numbers. About 1 % of the captions were
respelt and are not found.
"""

import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from satlib.data.images import Box
from satlib.data.text import tokenise
from satlib.errors import SatlibError

# [/EN#18/people A child], or with several kinds [/EN#18/people/clothing A child].
_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")


class Phrase(NamedTuple):
    """A phrase of a caption that names something in the photograph."""

    # The index of its last word, usually a noun.
    head: int
    # people, clothing, bodyparts, animals, vehicles, ..., notvisual; usually one.
    kinds: tuple[str, ...]
    # As fractions of the photograph's sides; empty if it has no box.
    boxes: tuple[Box, ...]


class _Mention(NamedTuple):
    """A phrase in a caption that is written as its letters alone."""

    end: int  # the number of letters up to the phrase's end
    entity: str
    kinds: tuple[str, ...]


class _Record(NamedTuple):
    """A photograph: the boxes of each entity as fractions of its sides, and its captions."""

    boxes: dict[str, list[Box]]
    captions: dict[str, list[_Mention]]  # by their letters


class Entities:
    """Flickr30k Entities, read photograph by photograph when it is asked for.

    Raises:
        SatlibError: the path is neither the folder nor the zip file that the authors publish.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._root: Path | zipfile.Path = self.path
        if not self.path.is_dir():
            try:
                self._root = zipfile.Path(self.path)
            except (OSError, zipfile.BadZipFile) as error:
                raise SatlibError(
                    f"{path} is neither a folder nor the authors' annotations.zip ({error})"
                ) from error

        for folder in ("Annotations", "Sentences"):
            if not (self._root / folder).is_dir():
                raise SatlibError(
                    f"{path} lacks the folders Annotations and Sentences of Flickr30k Entities"
                )
        # The captions of a photograph are usually asked for one after the other.
        self._record = lru_cache(1)(self._read)

    def __contains__(self, image_id: str) -> bool:
        """Whether there are annotations of a photograph, by its file name."""
        return (self._root / "Sentences" / f"{_number(image_id)}.txt").is_file()

    def phrases(self, image_id: str, words: Sequence[str]) -> list[Phrase]:
        """The phrases of a reference caption, in order; none if Entities does not have the caption.

        words: the words of the caption. Only their letters and digits are compared, because
        Entities separates some words that others do not ("dog 's").
        """
        record = self._record(_number(image_id))
        mentions = record.captions.get(_letters(words), [])

        # For each letter the index of the word that it belongs to, which leads back to the words.
        word_of: list[int] = []
        for index, word in enumerate(words):
            word_of += [index] * len(_letters([word]))

        phrases = []
        for mention in mentions:
            boxes = tuple(record.boxes.get(mention.entity, ()))
            phrases.append(Phrase(word_of[mention.end - 1], mention.kinds, boxes))
        return phrases

    def _read(self, number: str) -> _Record:
        """The annotations of a photograph."""
        annotation = self._root / "Annotations" / f"{number}.xml"
        sentences = self._root / "Sentences" / f"{number}.txt"
        if not (annotation.is_file() and sentences.is_file()):
            raise SatlibError(
                f"{self.path} has no annotations of {number}; download Flickr30k Entities again"
            )

        root = ElementTree.fromstring(annotation.read_text(encoding="utf-8-sig"))
        width = int(root.findtext("size/width", ""))
        height = int(root.findtext("size/height", ""))
        captions: dict[str, list[_Mention]] = {}
        for line in sentences.read_text(encoding="utf-8-sig").split("\n"):
            letters, mentions = _read_caption(line)
            captions.setdefault(letters, mentions)  # of equal ones the first
        return _Record(_read_boxes(root, width, height), captions)


def _read_boxes(root: ElementTree.Element, width: int, height: int) -> dict[str, list[Box]]:
    """The boxes of each entity of a photograph, as fractions of its sides."""
    boxes: dict[str, list[Box]] = defaultdict(list)
    for item in root.iterfind("object[bndbox]"):
        left = float(item.findtext("bndbox/xmin", ""))
        top = float(item.findtext("bndbox/ymin", ""))
        right = float(item.findtext("bndbox/xmax", ""))
        bottom = float(item.findtext("bndbox/ymax", ""))

        # A box may reach beyond the edges of its photograph, and none may be left of it.
        left = max(left, 0) / width
        top = max(top, 0) / height
        right = min(right, width) / width
        bottom = min(bottom, height) / height
        if left >= right or top >= bottom:
            continue

        # One box may show several entities, and an entity may have several boxes.
        for entity in item.iterfind("name"):
            boxes[(entity.text or "").strip()].append((left, top, right, bottom))
    return boxes


def _read_caption(line: str) -> tuple[str, list[_Mention]]:
    """The letters of a line of Sentences/NUMBER.txt, and its phrases."""
    letters = ""
    mentions = []
    position = 0  # in the line, up to which it has been read
    for phrase in _PHRASE.finditer(line):
        letters += _letters(tokenise(line[position : phrase.start()]))
        own = _letters(tokenise(phrase["words"]))
        letters += own
        position = phrase.end()

        # A phrase of punctuation alone names nothing.
        if own:
            kinds = tuple(phrase["kinds"].split("/")[1:])  # "/people/clothing"
            mentions.append(_Mention(len(letters), phrase["entity"], kinds))

    letters += _letters(tokenise(line[position:]))
    return letters, mentions


def _number(image_id: str) -> str:
    """The number of a photograph: what its file name has before the first "_" or "."."""
    return re.split(r"[_.]", PurePosixPath(image_id).name)[0]


def _letters(words: Iterable[str]) -> str:
    """The letters and digits of words: the same however a caption was split and punctuated."""
    return "".join(filter(str.isalnum, "".join(words).lower()))
