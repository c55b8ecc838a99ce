"""Does attention fall on the object that a word names? Attention maps compared with the objects' pixels (section 5.4).

For each word of a generated caption that names or describes an object whose pixels are known, two measures of its map alpha
(each weight spread evenly over its cell of the grid):

    mass      the share of alpha that lies on the object's pixels;
    pointing  whether the peak is on the object (the pointing game of Zhang et al., 2016: the centre of the cell with the
              largest weight lies within 15 pixels of it);
    pointing strict  the same without a tolerance: the peak of the map, upsampled as in `pointing`, is on the object.

Each is compared with chance (a uniform map; a random cell) and with the mean of the caption's maps, which ignores the word:
attention is informative if it beats both. Drawn scenes have masks of their objects. COCO photographs have boxes
(`instances_*.json`); there, the words that name a category are measured. For phrases with boxes, see `phrase_grounding`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import Struct

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.images import SIZE, seen_box
from satlib.errors import SatlibError
from satlib.evaluation import pointing
from satlib.files.reading import Name, Size, read_json
from satlib.model.captioner import Caption

TOLERANCE = 15  # pixels: a point this close to an object counts as on it
MEASURES = ("mass", "pointing", "pointing strict")
_PEOPLE = {"man", "men", "woman", "women", "boy", "boys", "girl", "girls", "child", "children", "player", "players"}


class Photograph(Struct):
    """An image of COCO and its size in pixels."""

    id: int
    file_name: Name
    width: Size
    height: Size


class Category(Struct):
    """A kind of object."""

    id: int
    name: Name


class LabelledBox(Struct):
    """An object: left, top, width and height in pixels."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]


class Instances(Struct):
    """instances_*.json."""

    images: list[Photograph]
    categories: list[Category]
    annotations: list[LabelledBox]


@dataclass(frozen=True)
class Target:
    """A word that names or describes an object: its index in the caption, its class, the object's mask, bool (224, 224)."""

    index: int
    kind: str
    mask: np.ndarray


@dataclass(frozen=True)
class Looked:
    """The measures of one word, 0 to 1: for its own map, for the caption's mean map (`_still`), and for chance."""

    word: str
    kind: str
    mass: float
    pointing: float
    pointing_strict: float
    mass_still: float
    pointing_still: float
    pointing_strict_still: float
    mass_chance: float
    pointing_chance: float
    pointing_strict_chance: float


def measure(caption: Caption, targets: Iterable[Target]) -> list[Looked]:
    """Compare a caption's attention maps with the objects that its words name.

    Args:
        caption: words and maps (C, h, w), the map of the end mark last.
        targets: the words to measure.
    """
    tensors = caption.alphas[: len(caption.words)].double()
    maps = tensors.numpy()
    still = maps.mean(0)
    *peaks, still_peak = pointing.peaks(torch.cat([tensors, tensors.mean(0, keepdim=True)])).tolist()
    cell_peaks = pointing.cell_peaks(*still.shape).numpy()
    measured, cells = [], {}  # cells by the id of a mask, because the words of a phrase share one
    for target in targets:
        if id(target.mask) not in cells:
            cells[id(target.mask)] = target.mask, *_cells(target.mask, maps.shape[1:])
        _, cover, hit = cells[id(target.mask)]
        alpha = maps[target.index]
        measured.append(
            Looked(
                caption.words[target.index],
                target.kind,
                mass=float((alpha * cover).sum()),
                pointing=float(hit.flat[alpha.argmax()]),
                pointing_strict=float(target.mask.flat[peaks[target.index]]),
                mass_still=float((still * cover).sum()),
                pointing_still=float(hit.flat[still.argmax()]),
                pointing_strict_still=float(target.mask.flat[still_peak]),
                mass_chance=float(cover.mean()),
                pointing_chance=float(hit.mean()),
                pointing_strict_chance=float(target.mask.flat[cell_peaks].mean()),
            )
        )
    return measured


def _cells(mask: np.ndarray, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For each cell (h, w): the share of its pixels in the mask, and whether its centre is within TOLERANCE of the mask."""
    edges, pixels, begin = _layout(mask.shape, grid)
    inside = mask.astype(np.int64)
    for axis, first in enumerate(edges):
        inside = np.add.reduceat(inside, first[:-1], axis=axis)  # (224, 224) -> (h, w)
    cover = inside / np.outer(*(np.diff(first) for first in edges))
    return cover, np.logical_or.reduceat(mask.ravel()[pixels], begin).reshape(grid)


@lru_cache
def _layout(shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The edges of the cells on each axis; the pixels near each cell's centre, concatenated; each cell's start in these."""
    exact = [np.linspace(0, size, cells + 1) for size, cells in zip(shape, grid, strict=True)]
    ys, xs = np.ogrid[: shape[0], : shape[1]]
    centres = [(edges[:-1] + edges[1:]) / 2 - 0.5 for edges in exact]
    near = [np.flatnonzero((ys - y) ** 2 + (xs - x) ** 2 <= TOLERANCE**2) for y in centres[0] for x in centres[1]]
    begin = np.cumsum([0, *map(len, near[:-1])])
    return [np.array([round(edge) for edge in edges]) for edges in exact], np.concatenate(near), begin


def scene_targets(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that correctly describe one of a scene's objects, with the object's visible pixels."""
    scene = scenes.scene(example.image_id)
    masks = scene.masks
    classes = {
        index: value[0] for phrase in scenes.grammar.phrases(words) for index, value in phrase.attributes.items()
    }
    return [
        Target(index, classes[index], masks[number])
        for index, number in enumerate(scenes.mentions(words, scene))
        if number is not None
    ]


def scene_mistakes(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that are wrong about the object that the rest of their noun phrase describes, with its pixels.

    A phrase that matches both objects equally well (`scenes.mentions`) has no such words.
    """
    scene = scenes.scene(example.image_id)
    masks, numbers = scene.masks, scenes.mentions(words, scene)
    targets = []
    for phrase in scenes.grammar.phrases(words):
        for number in {numbers[index] for index in phrase.attributes} - {None}:
            wrong = [index for index in phrase.attributes if numbers[index] is None]
            targets += [Target(index, phrase.attributes[index][0], masks[number]) for index in wrong]
    return targets


def look_up(
    examples: Iterable[Example],
    captions: Mapping[str, Caption],
    targets: Callable[[Example, Sequence[str]], list[Target]] = scene_targets,
) -> list[Looked]:
    """Measure every word of the examples' captions that has a target; the list is empty if none has."""
    return [
        looked
        for example in examples
        for looked in measure(captions[example.image_id], targets(example, captions[example.image_id].words))
    ]


class Boxes:
    """Object boxes in COCO's format, as masks in the square that the encoder sees."""

    def __init__(self, path: Path, view: str = "whole") -> None:
        """Read an `instances_*.json`; `view` is the encoder's view of a photograph (`images.square`).

        Raises:
            SatlibError: the file does not exist or has another format.
        """
        self._view = view
        kind, advice = "a file of boxes in COCO's format (instances_*.json)", "download it again"
        content = read_json(path, Instances, kind, advice)
        names = {category.id: category.name for category in content.categories}
        photographs = {image.id: image for image in content.images}
        self._boxes: dict[str, list[tuple[str, list[float], tuple[int, int]]]] = defaultdict(list)
        for number, box in enumerate(content.annotations):
            image, name = photographs.get(box.image_id), names.get(box.category_id)
            if image is None or name is None:
                missing = "image" if image is None else "category"
                raise SatlibError(
                    f"{path}: annotation {number} is of a{'n' * (image is None)} {missing} that is not listed; {advice}"
                )
            size = image.width, image.height
            self._boxes[Path(image.file_name).name].append((name, list(box.bbox), size))

    def targets(self, example: Example, words: Sequence[str]) -> list[Target]:
        """The words that name a category with boxes in the photograph; the mask is the union of the category's boxes.

        Boxes outside the encoder's view are left out.
        """
        boxes = self._boxes.get(Path(example.image_id).name, [])
        targets = []
        for name in sorted({name for name, *_ in boxes}):
            mask = np.zeros((SIZE, SIZE), dtype=bool)
            for other, box, size in boxes:
                if other == name:
                    left, top, right, bottom = in_square(box, size, self._view)
                    mask[top:bottom, left:right] = True
            if mask.any():  # otherwise the crop removed all of it
                targets += [Target(index, name, mask) for index in _named(name, words)]
        return sorted(targets, key=lambda target: target.index)


def in_square(box: Sequence[float], size: tuple[int, int], view: str = "whole") -> tuple[int, int, int, int]:
    """Map a box (x, y, width, height) of a photograph (width, height) to the 224-pixel square: (left, top, right, bottom).

    Coordinates outside the view are clipped to its border.
    """
    seen = seen_box(size, view)
    corners = (box[0], box[1], box[0] + box[2], box[1] + box[3])
    scales = [SIZE / (seen[axis + 2] - seen[axis]) for axis in (0, 1)]
    left, top, right, bottom = (
        min(max(round((corner - seen[i % 2]) * scales[i % 2]), 0), SIZE) for i, corner in enumerate(corners)
    )
    return left, top, right, bottom


def _named(name: str, words: Sequence[str]) -> Iterator[int]:
    """The indices at which a category's name occurs, singular or plural; for "fire hydrant", that of the last word."""
    parts = re.findall(r"\w+", name.lower())
    plural = {"person": "people", "knife": "knives", "sheep": "sheep", "skis": "skis", "mouse": "mice"}.get(parts[-1])
    ends = {parts[-1], plural or parts[-1] + ("es" if parts[-1].endswith(("s", "sh", "ch", "x")) else "s")}
    if name == "person":
        ends |= _PEOPLE
    for index in range(len(parts) - 1, len(words)):
        if words[index] in ends and list(words[index - len(parts) + 1 : index]) == parts[:-1]:
            yield index


def require_places(data: CaptionSet, boxes: Boxes | None) -> None:
    """Refuse photographs without boxes.

    Raises:
        SatlibError: the set is not "scenes", and there are no boxes.
    """
    if boxes is None and data.name != "scenes":
        raise SatlibError(
            f"{data.name} has no object masks; give boxes in COCO's format with --boxes, or Flickr30k Entities with --entities"
        )


def ground(data: CaptionSet, captions: Mapping[str, Caption], boxes: Boxes | None = None) -> list[Looked]:
    """Measure every word of the captions that names an object whose pixels are known; the other words are left out.

    Args:
        data: the set that the images belong to.
        captions: image id to caption.
        boxes: the objects of photographs; scenes have masks of their own.

    Raises:
        SatlibError: the set has no masks and there are no boxes, or no word could be measured.
    """
    require_places(data, boxes)
    captioned = [example for example in data.examples if example.image_id in captions]
    looked = look_up(captioned, captions, scene_targets if boxes is None else boxes.targets)
    if not looked:
        raise SatlibError("no word of these captions names an object with a known position; are these the right boxes?")
    return looked


def summary(looked: Sequence[Looked]) -> dict[str, Any]:
    """Means in percent: over all words, by class, and by word, the most frequent first.

    "by word" leaves out words measured fewer than 5 times.
    """

    def means(group: Sequence[Looked]) -> dict[str, float]:
        figures: dict[str, float] = {"words": len(group)}
        for measure in MEASURES:
            for suffix in ("", "_still", "_chance"):
                figures[measure + suffix] = 100 * float(
                    np.mean([getattr(word, measure.replace(" ", "_") + suffix) for word in group])
                )
        return figures

    def by(attribute: str, least: int) -> dict[str, dict[str, float]]:
        groups: dict[str, list[Looked]] = defaultdict(list)
        for word in looked:
            groups[getattr(word, attribute)].append(word)
        frequent = sorted((-len(group), name) for name, group in groups.items() if len(group) >= least)
        return {name: means(groups[name]) for _, name in frequent}

    return {"all": means(looked), "by class": by("kind", 1), "by word": by("word", 5)}


def render(means: Mapping[str, Any], words: int = 12) -> str:
    """Lay out a `summary` as a table for a terminal: all words, each class, the `words` most frequent words."""
    titles = {"pointing": "pointing", "pointing strict": "strict", "mass": "mass"}
    heading = f"{'percent':16} {'words':>6}"
    heading += "".join(f"  {title:>8} {'still':>6} {'chance':>6}" for title in titles.values())

    def line(name: str, figures: Mapping[str, float]) -> str:
        blocks = ([figures[measure + suffix] for suffix in ("", "_still", "_chance")] for measure in titles)
        return f"{name:16} {figures['words']:6d}" + "".join(f"  {a:8.1f} {b:6.1f} {c:6.1f}" for a, b, c in blocks)

    total = len(means["by word"])
    by_word = "by word" if total <= words else f"by word (the {words} most frequent of {total})"
    lines = [heading, line("all", means["all"]), "", "by class"]
    lines += [line("  " + name, figures) for name, figures in means["by class"].items()]
    lines += ["", by_word]
    lines += [line("  " + name, figures) for name, figures in list(means["by word"].items())[:words]]
    lines += [
        "",
        "pointing: words whose map has its peak within 15 pixels of their object; strict: the same without a tolerance; mass: the",
        "share of the map on the object; still: the same for the mean of the caption's maps, which ignores the word; chance: a random",
        "cell, and a uniform map.",
    ]
    return "\n".join(lines)
