"""The two files that Flickr30k Entities has for a photograph: XML with boxes, and captions with phrases in brackets."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from satlib.errors import SatlibError

Box = tuple[float, float, float, float]  # left, top, right, bottom
AGAIN = "copy or download Flickr30k Entities again"
_BEYOND = 2.0  # pixels: how far a box may extend beyond the picture; it is clipped
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_PHRASE = re.compile(r"\[/EN#(?P<entity>\d+)(?P<kinds>(?:/[^\s\[\]/]+)*)\s(?P<words>[^\[\]]*)\]")


class Piece(NamedTuple):
    """A part of a caption: a phrase, with the id of its entity and its kinds, or the text between phrases, with an empty id."""

    text: str
    entity: str = ""
    kinds: tuple[str, ...] = ()


def read_annotation(text: str, where: str) -> tuple[tuple[int, int], dict[str, list[Box]]]:
    """The size (width, height) of a photograph, and the boxes in pixels of each entity that has some.

    Args:
        text: the content of Annotations/NUMBER.xml.
        where: the file's name for error messages.

    Raises:
        SatlibError: it is not XML or has a document type, a tag or number is missing, or a box is empty, inverted or outside the
            picture; the message names the file and the object.
    """
    if "<!DOCTYPE" in text:  # annotations have none, and entities declared there can expand without limit
        raise SatlibError(f"{where} declares a document type, so it is not an annotation; {AGAIN}")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise SatlibError(f"{where} is not well-formed XML ({error}); {AGAIN}") from error
    width, height = (_value(root.find("size"), side, where, "size") for side in ("width", "height"))
    if not (width >= 1 and height >= 1 and width.is_integer() and height.is_integer()):
        raise SatlibError(f"{where}: {width:g} x {height:g} is not the size of a photograph; {AGAIN}")
    size = int(width), int(height)
    boxes: dict[str, list[Box]] = defaultdict(list)
    for count, item in enumerate(root.findall("object"), 1):
        what = f"object {count}"
        entities = [(name.text or "").strip() for name in item.findall("name")]
        if not all(entities) or not entities:
            raise SatlibError(f"{where}: {what} has no name; {AGAIN}")
        corners = item.find("bndbox")
        if corners is not None:
            box = _clipped([_value(corners, tag, where, f"the box of {what}") for tag in _CORNERS], size, where, what)
            for entity in entities:
                boxes[entity].append(box)
        elif item.find("nobndbox") is None and item.find("scene") is None:
            raise SatlibError(f"{where}: {what} has neither bndbox nor nobndbox nor scene; {AGAIN}")
    return size, boxes


def _value(parent: ElementTree.Element | None, tag: str, where: str, what: str) -> float:
    text = None if parent is None else parent.findtext(tag)
    try:
        value = float(text) if text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SatlibError(f"{where}: {what} has no number {tag} (found {text!r}); {AGAIN}")
    return value


def _clipped(corners: Sequence[float], size: tuple[int, int], where: str, what: str) -> Box:
    """A box in pixels, within the picture.

    Raises:
        SatlibError: it is empty or inverted, or extends more than _BEYOND pixels beyond the picture.
    """
    left, top, right, bottom = corners
    width, height = size
    box = f"{where}: the box of {what} ({', '.join(f'{corner:g}' for corner in corners)})"
    if not (left < right and top < bottom):
        raise SatlibError(f"{box} is empty or inverted; correct it, or {AGAIN}")
    if min(left, top) < -_BEYOND or right > width + _BEYOND or bottom > height + _BEYOND:
        raise SatlibError(f"{box} is outside the picture of {width} x {height} pixels; correct it, or {AGAIN}")
    inside = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        raise SatlibError(f"{box} is outside the picture of {width} x {height} pixels; correct it, or {AGAIN}")
    return inside


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
            raise SatlibError(f"{where}, line {count}: expected phrases as [/EN#ID/KIND words]; {AGAIN}")
        pieces, at = [], 0
        for phrase in phrases:
            pieces += [
                Piece(line[at : phrase.start()]),
                Piece(phrase["words"], phrase["entity"], tuple(phrase["kinds"].split("/")[1:])),
            ]
            at = phrase.end()
        lines.append([*pieces, Piece(line[at:])])
    return lines
