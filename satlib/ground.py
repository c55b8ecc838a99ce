"""Where the words looked, held against where their objects are: attention measured, not only looked at (section 5.4).

For each word of a generated caption that names or describes an object whose pixels are known, two questions are asked of
its map alpha (each weight spread evenly over its cell of the grid):

    mass      how much of alpha lies on the object's pixels;
    pointing  is the peak on it (the pointing game of Zhang et al., 2016: the centre of the heaviest cell within 15 pixels).

Beside each stand what chance gives (an even map; a random cell) and what a map that ignores the word gives (the mean of the
caption's maps): attention is worth something where it beats both. Scenes know their objects' masks; photographs of COCO have
boxes (`instances_*.json`), and there a word counts that is a category's name.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from satlib.captioner import Caption
from satlib.datasets import CaptionSet, Example, scenes
from satlib.errors import SatlibError
from satlib.files import read_json
from satlib.images import SIZE, seen_box

TOLERANCE = 15  # pixels around an object within which a point counts as on it
MEASURES = ("mass", "pointing")


@dataclass(frozen=True)
class Target:
    """A word that names an object: its index in the caption, its class, and the object's pixels, bool (224, 224)."""

    index: int
    kind: str
    mask: np.ndarray


@dataclass(frozen=True)
class Looked:
    """One word's measures, each in 0..1: of its own map, of a map that ignores the word, and of chance."""

    word: str
    kind: str
    mass: float
    pointing: float
    mass_still: float
    pointing_still: float
    mass_chance: float
    pointing_chance: float


def measure(caption: Caption, targets: Iterable[Target]) -> list[Looked]:
    """Hold a caption's maps against the objects that its words name.

    Args:
        caption: words and maps (C, h, w), that of the end mark last.
        targets: the words that count.
    """
    maps = caption.alphas[: len(caption.words)].double().numpy()
    still = maps.mean(0)
    found, known = [], {}  # an object's cells by its mask, which the words of a phrase share
    for target in targets:
        if id(target.mask) not in known:
            known[id(target.mask)] = target.mask, *_cells(target.mask, maps.shape[1:])
        _, cover, hit = known[id(target.mask)]
        alpha = maps[target.index]
        found.append(
            Looked(
                caption.words[target.index],
                target.kind,
                mass=float((alpha * cover).sum()),
                pointing=float(hit.flat[alpha.argmax()]),
                mass_still=float((still * cover).sum()),
                pointing_still=float(hit.flat[still.argmax()]),
                mass_chance=float(cover.mean()),
                pointing_chance=float(hit.mean()),
            )
        )
    return found


def _cells(mask: np.ndarray, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For each cell (h, w): the part of its pixels in the mask, and whether the mask is within TOLERANCE of its centre."""
    edges, pixels, begin = _layout(mask.shape, grid)
    inside = mask.astype(np.int64)
    for axis, first in enumerate(edges):
        inside = np.add.reduceat(inside, first[:-1], axis=axis)  # (224, 224) -> (h, w)
    cover = inside / np.outer(*(np.diff(first) for first in edges))
    return cover, np.logical_or.reduceat(mask.ravel()[pixels], begin).reshape(grid)


@lru_cache
def _layout(shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Where cells begin and end on each axis; the pixels near each one's centre, cell after cell, and where those of each begin."""
    exact = [np.linspace(0, size, cells + 1) for size, cells in zip(shape, grid, strict=True)]
    ys, xs = np.ogrid[: shape[0], : shape[1]]
    centres = [(each[:-1] + each[1:]) / 2 - 0.5 for each in exact]
    near = [np.flatnonzero((ys - y) ** 2 + (xs - x) ** 2 <= TOLERANCE**2) for y in centres[0] for x in centres[1]]
    begin = np.cumsum([0, *map(len, near[:-1])])
    return [np.array([round(edge) for edge in each]) for each in exact], np.concatenate(near), begin


def scene_targets(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that truly say something of one of a scene's objects, and its visible pixels."""
    scene = scenes.scene(example.image_id)
    masks = scene.masks
    said = {index: value[0] for phrase in scenes.grammar.phrases(words) for index, value in phrase.attributes.items()}
    return [
        Target(index, said[index], masks[number])
        for index, number in enumerate(scenes.mentions(words, scene))
        if number is not None
    ]


def scene_mistakes(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that are false of the object that the rest of their noun phrase describes, and its pixels.

    A phrase that describes neither object better than the other (`scenes.mentions`) has none.
    """
    scene = scenes.scene(example.image_id)
    masks, numbers = scene.masks, scenes.mentions(words, scene)
    found = []
    for phrase in scenes.grammar.phrases(words):
        for number in {numbers[index] for index in phrase.attributes} - {None}:
            wrong = [index for index in phrase.attributes if numbers[index] is None]
            found += [Target(index, phrase.attributes[index][0], masks[number]) for index in wrong]
    return found


def look_up(
    examples: Iterable[Example],
    captions: Mapping[str, Caption],
    targets: Callable[[Example, Sequence[str]], list[Target]] = scene_targets,
) -> list[Looked]:
    """Every word of the examples' captions that can be measured; none where no word says anything true."""
    return [
        looked
        for example in examples
        for looked in measure(captions[example.image_id], targets(example, captions[example.image_id].words))
    ]


class Boxes:
    """Boxes of COCO's format, in the square that the encoder sees."""

    def __init__(self, path: Path, view: str = "whole") -> None:
        """Read an `instances_*.json`; `view` is what the captioner's encoder sees of a photograph (`images.square`).

        Raises:
            SatlibError: no such file, or another kind of file.
        """
        self._view = view
        content = read_json(path)
        try:
            names = {each["id"]: each["name"] for each in content["categories"]}
            sizes = {each["id"]: (each["width"], each["height"]) for each in content["images"]}
            files = {each["id"]: Path(each["file_name"]).name for each in content["images"]}
            self._boxes: dict[str, list[tuple[str, list[float], tuple[int, int]]]] = defaultdict(list)
            for each in content["annotations"]:
                image = each["image_id"]
                self._boxes[files[image]].append((names[each["category_id"]], each["bbox"], sizes[image]))
        except (KeyError, TypeError) as error:
            raise SatlibError(
                f"{path} is not a file of boxes in COCO's format (instances_*.json): {error!r}"
            ) from error

    def targets(self, example: Example, words: Sequence[str]) -> list[Target]:
        """The words that name a category of which the photograph has boxes: all of that category's together."""
        boxes = self._boxes.get(Path(example.image_id).name, [])
        found = []
        for name in sorted({name for name, *_ in boxes}):
            mask = np.zeros((SIZE, SIZE), dtype=bool)
            for other, box, size in boxes:
                if other == name:
                    left, top, right, bottom = in_square(box, size, self._view)
                    mask[top:bottom, left:right] = True
            if mask.any():  # else all of it was cropped away
                found += [Target(index, name, mask) for index in _named(name, words)]
        return sorted(found, key=lambda target: target.index)


def in_square(box: Sequence[float], size: tuple[int, int], view: str = "whole") -> tuple[int, int, int, int]:
    """A box (x, y, width, height) of a photograph (width, height) in the 224-pixel square: (left, top, right, bottom)."""
    seen = seen_box(size, view)
    corners = (box[0], box[1], box[0] + box[2], box[1] + box[3])
    scales = [SIZE / (seen[axis + 2] - seen[axis]) for axis in (0, 1)]
    left, top, right, bottom = (
        min(max(round((corner - seen[i % 2]) * scales[i % 2]), 0), SIZE) for i, corner in enumerate(corners)
    )
    return left, top, right, bottom


def _named(name: str, words: Sequence[str]) -> Iterator[int]:
    """Where a category's name stands among the words, in singular or plural; of "fire hydrant" the last word."""
    parts = re.findall(r"\w+", name.lower())
    plural = {"person": "people", "knife": "knives", "sheep": "sheep", "skis": "skis", "mouse": "mice"}.get(parts[-1])
    ends = {parts[-1], plural or parts[-1] + ("es" if parts[-1].endswith(("s", "sh", "ch", "x")) else "s")}
    if name == "person":
        ends |= {
            "man",
            "men",
            "woman",
            "women",
            "boy",
            "boys",
            "girl",
            "girls",
            "child",
            "children",
            "player",
            "players",
        }
    for index in range(len(parts) - 1, len(words)):
        if words[index] in ends and list(words[index - len(parts) + 1 : index]) == parts[:-1]:
            yield index


def require_places(data: CaptionSet, boxes: Boxes | None) -> None:
    """Refuse a set whose objects' places nobody knows.

    Raises:
        SatlibError: photographs without boxes.
    """
    if boxes is None and data.name != "scenes":
        raise SatlibError(f"{data.name} does not know where its objects are; give boxes in COCO's format with --boxes")


def ground(data: CaptionSet, captions: Mapping[str, Caption], boxes: Boxes | None = None) -> list[Looked]:
    """Every word of every caption that can be measured.

    Args:
        data: where the captions' images are.
        captions: by image id.
        boxes: for photographs; scenes know their masks.

    Raises:
        SatlibError: the set has no masks and there are no boxes, or no word could be measured.
    """
    require_places(data, boxes)
    captioned = [example for example in data.examples if example.image_id in captions]
    found = look_up(captioned, captions, scene_targets if boxes is None else boxes.targets)
    if not found:
        raise SatlibError("no word of these captions names an object whose place is known; are these the right boxes?")
    return found


def summary(looked: Sequence[Looked]) -> dict[str, Any]:
    """Means in percent, over all words and by class and by word (of at least 5 occurrences), commonest first."""

    def means(group: Sequence[Looked]) -> dict[str, float]:
        figures: dict[str, float] = {"words": len(group)}
        for measure in MEASURES:
            for suffix in ("", "_still", "_chance"):
                figures[measure + suffix] = 100 * float(np.mean([getattr(each, measure + suffix) for each in group]))
        return figures

    def by(attribute: str, least: int) -> dict[str, dict[str, float]]:
        groups: dict[str, list[Looked]] = defaultdict(list)
        for each in looked:
            groups[getattr(each, attribute)].append(each)
        kept = sorted((-len(group), name) for name, group in groups.items() if len(group) >= least)
        return {name: means(groups[name]) for _, name in kept}

    return {"all": means(looked), "by class": by("kind", 1), "by word": by("word", 5)}


def render(found: Mapping[str, Any], words: int = 12) -> str:
    """A table of `summary` for a terminal: all words, each class, the commonest words."""
    heading = f"{'percent':16} {'words':>6}  {'pointing':>8} {'still':>6} {'chance':>6}  {'mass':>6} {'still':>6} {'chance':>6}"
    lines = [heading]

    def line(name: str, figures: Mapping[str, float]) -> str:
        pointing, mass = ([figures[m + s] for s in ("", "_still", "_chance")] for m in ("pointing", "mass"))
        return (
            f"{name:16} {figures['words']:6d}  {pointing[0]:8.1f} {pointing[1]:6.1f} {pointing[2]:6.1f}  "
            f"{mass[0]:6.1f} {mass[1]:6.1f} {mass[2]:6.1f}"
        )

    lines.append(line("all", found["all"]))
    for title, shown in (("by class", None), ("by word", words)):
        lines += ["", title]
        lines += [line("  " + name, figures) for name, figures in list(found[title].items())[:shown]]
    lines += [
        "",
        "pointing: the peak of the word's map is on its object; mass: the part of the map that is; still: the same of a map",
        "that ignores the word; chance: of a random cell, and of an even map.",
    ]
    return "\n".join(lines)
