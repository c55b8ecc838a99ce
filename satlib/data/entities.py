"""Flickr30k Entities: the boxes that the phrases of a caption name (Plummer et al., ICCV 2015).

The official layout, as a folder or as the authors' `annotations.zip`, perhaps below a top folder:

    Annotations/NUMBER.xml   the photograph's size, and objects: ids of entities with a box in pixels, or without one
    Sentences/NUMBER.txt     the captions, one per line, with phrases in brackets: [/EN#18/people A child] in ...

It covers Flickr30k, and with it Flickr8k, whose file names begin with the same numbers. The captions are the same in another
order, sometimes with other punctuation; about 1 % were also respelt ("grey" to "gray") and are not found.
"""

import re
import xml.etree.ElementTree as ElementTree
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from satlib.data.images import WHOLE, Box, in_part
from satlib.data.text import tokenise
from satlib.errors import SatlibError

_AGAIN = "copy or download Flickr30k Entities again"
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")
_FOLDERS = {"Annotations": ".xml", "Sentences": ".txt"}
_LAYOUT = "Annotations/NUMBER.xml and Sentences/NUMBER.txt, a folder or the authors' annotations.zip"


@dataclass(frozen=True)
class Phrase:
    """A phrase of a caption that names something in the photograph.

    Attributes:
        start: index of its first word in the caption.
        end: index after its last word.
        entity: the id of what it names, unique within the photograph; "0" for what cannot be seen.
        kinds: people, clothing, bodyparts, animals, vehicles, instruments, scene, other, notvisual; usually one.
        boxes: as fractions of the part that was asked for, 0 to 1; empty if the entity has no box there.
    """

    start: int
    end: int
    entity: str
    kinds: tuple[str, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Sentence:
    """A caption's words and its phrases in order."""

    words: tuple[str, ...]
    phrases: tuple[Phrase, ...]


class Piece(NamedTuple):
    """A phrase of a caption, with its entity's id and kinds, or the text between phrases, with an empty id."""

    text: str
    entity: str = ""
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Record:
    """What is known about a photograph: its size, each entity's boxes in pixels, and the lines of its captions."""

    size: tuple[int, int]
    boxes: dict[str, list[Box]]
    lines: list[list[Piece]]


def number(image_id: str) -> str:
    """The number of a photograph: what its file name has before the first "_" or ".".

    >>> number("1000268201_693b08cb0e.jpg"), number("1000268201.jpg")
    ('1000268201', '1000268201')
    """
    return re.split(r"[_.]", PurePosixPath(image_id).name)[0]


class Entities:
    """Flickr30k Entities, read photograph by photograph when it is asked for."""

    def __init__(self, path: Path | str) -> None:
        """Find the files in a folder or a zip file; none is read yet.

        Raises:
            SatlibError: the path does not exist, is a damaged zip file, or lacks Annotations/ or Sentences/.
        """
        self.path = Path(path)
        self._archive: zipfile.ZipFile | None = None
        if self.path.is_dir():
            names = [
                file.relative_to(self.path).as_posix()
                for folder in _FOLDERS
                for file in (*self.path.glob(f"{folder}/*"), *self.path.glob(f"*/{folder}/*"))
            ]
        elif self.path.is_file():
            try:
                self._archive = zipfile.ZipFile(self.path)
            except (zipfile.BadZipFile, OSError) as error:
                raise SatlibError(f"{self.path} is not a complete zip file ({error}); {_AGAIN}") from error
            names = self._archive.namelist()
        else:
            raise SatlibError(f"{self.path} does not exist; name Flickr30k Entities: {_LAYOUT}")
        self._files = self._find(names)
        self._latest: tuple[str, _Record] | None = None  # the captions of a photograph are usually asked for in a row

    def _find(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """The file of each photograph in Annotations and in Sentences: {"Annotations": {number: name}, ...}."""
        tops: dict[PurePosixPath, dict[str, dict[str, str]]] = defaultdict(lambda: {folder: {} for folder in _FOLDERS})
        for name in names:
            file = PurePosixPath(name)
            folder = file.parent.name
            if file.suffix == _FOLDERS.get(folder) and not name.startswith("__MACOSX/") and file.name[0] != ".":
                tops[file.parent.parent][folder][file.stem] = name
        complete = [found for found in tops.values() if all(found.values())]
        if len(complete) != 1:
            problem = (
                "does not contain both folders" if not complete else f"contains both folders {len(complete)} times"
            )
            raise SatlibError(f"{self.path} {problem} of Flickr30k Entities; expected: {_LAYOUT}")
        return complete[0]

    def __contains__(self, image_id: str) -> bool:
        """Whether there are annotations of a photograph, by its file name."""
        return any(number(image_id) in files for files in self._files.values())

    def size(self, image_id: str) -> tuple[int, int]:
        """The original (width, height) of a photograph; errors as for `sentence`."""
        return self._record(image_id).size

    def sentence(self, image_id: str, words: Sequence[str], seen: Box = WHOLE) -> Sentence | None:
        """A reference caption with its phrases, or None if Entities does not have the caption.

        Captions are compared by the letters and digits of their words, because Entities separates some words that others do
        not ("dog 's"). The first one counts if an image has two equal captions.

        Args:
            image_id: the photograph's file name.
            words: of the caption, split in any way.
            seen: the part of the photograph that the boxes are fractions of (`images.seen_part`).

        Raises:
            SatlibError: the photograph has no annotations, or they are damaged; the message names the file.
        """
        record, letters = self._record(image_id), _letters(words)
        for pieces in record.lines:
            if "".join(_letters(tokenise(text)) for text, *_ in pieces) == letters:
                return _aligned(words, pieces, _seen(record, seen))
        return None

    def sentences(self, image_id: str, seen: Box = WHOLE) -> list[Sentence]:
        """All captions of a photograph as Entities has them, split by `tokenise`; arguments and errors as for `sentence`."""
        record = self._record(image_id)
        boxes = _seen(record, seen)
        return [_aligned(tokenise("".join(text for text, *_ in line)), line, boxes) for line in record.lines]

    def _record(self, image_id: str) -> _Record:
        key = number(image_id)
        if self._latest is None or self._latest[0] != key:
            texts = {folder: self._read(folder, key) for folder in _FOLDERS}
            size, boxes = read_annotation(*texts["Annotations"])
            self._latest = key, _Record(size, boxes, read_captions(*texts["Sentences"]))
        return self._latest[1]

    def _read(self, folder: str, key: str) -> tuple[str, str]:
        """The text of a photograph's file in a folder, and the file's name for error messages."""
        name = self._files[folder].get(key)
        if name is None:
            raise SatlibError(f"{self.path} has no {folder}/{key}{_FOLDERS[folder]}; {_AGAIN}")
        where = f"{self.path}, {name}"
        try:
            raw = (self.path / name).read_bytes() if self._archive is None else self._archive.read(name)
            return raw.decode("utf-8-sig"), where
        except (zipfile.BadZipFile, zlib.error, OSError, UnicodeDecodeError) as error:
            raise SatlibError(f"cannot read {where} ({error}); {_AGAIN}") from error


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


def _aligned(words: Sequence[str], pieces: Sequence[Piece], boxes: dict[str, tuple[Box, ...]]) -> Sentence:
    """The phrases of a caption whose words have the same letters: each spans the words that its first and last letter are in."""
    owner = [index for index, word in enumerate(words) for _ in _letters([word])]
    ends = [0]
    for text, *_ in pieces:
        ends.append(ends[-1] + len(_letters(tokenise(text))))
    phrases = [
        Phrase(owner[first], owner[last - 1] + 1, entity, kinds, boxes.get(entity, ()))
        for (first, last), (_, entity, kinds) in zip(pairwise(ends), pieces, strict=True)
        if entity and first < last  # a phrase of punctuation alone names nothing
    ]
    return Sentence(tuple(words), tuple(phrases))


# --- The two files of a photograph --------------------------------------------------------------------------------------


def read_annotation(text: str, where: str) -> tuple[tuple[int, int], dict[str, list[Box]]]:
    """The size (width, height) of a photograph, and the boxes in pixels of each entity that has some, clipped to the picture.

    Args:
        text: the content of Annotations/NUMBER.xml.
        where: the file's name for error messages.

    Raises:
        SatlibError: it is not XML, lacks a tag or a number, or has a box that is empty in the picture.
    """
    boxes: dict[str, list[Box]] = defaultdict(list)
    try:
        root = ElementTree.fromstring(text)
        width, height = (int(root.findtext(f"size/{side}", "")) for side in ("width", "height"))
        for item in root.iterfind("object[bndbox]"):
            left, top, right, bottom = (float(item.findtext(f"bndbox/{corner}", "")) for corner in _CORNERS)
            box = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
            if not (box[0] < box[2] and box[1] < box[3]):
                raise ValueError(
                    f"no pixel of {width} x {height} is in the box {left:g}, {top:g}, {right:g}, {bottom:g}"
                )
            for name in item.iterfind("name"):
                boxes[(name.text or "").strip()].append(box)
    except (ElementTree.ParseError, ValueError) as error:
        raise SatlibError(f"{where} is not an annotation of Flickr30k Entities ({error}); {_AGAIN}") from error
    return (width, height), boxes


def read_captions(text: str, where: str) -> list[list[Piece]]:
    """The captions of Sentences/NUMBER.txt, each as pieces that join to its text; arguments as for `read_annotation`.

    Raises:
        SatlibError: a phrase is not written as [/EN#ID/KIND words]; the message names the line.
    """
    lines = []
    for count, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        phrases = list(_PHRASE.finditer(line))
        if len(phrases) != line.count("[/EN#"):
            raise SatlibError(f"{where}, line {count}: expected phrases as [/EN#ID/KIND words]; {_AGAIN}")
        pieces, at = [], 0
        for phrase in phrases:
            pieces += [
                Piece(line[at : phrase.start()]),
                Piece(phrase["words"], phrase["entity"], tuple(phrase["kinds"].split("/")[1:])),
            ]
            at = phrase.end()
        lines.append([*pieces, Piece(line[at:])])
    return lines
