"""Does attention fall on what a word names? Attention maps compared with the objects of drawn scenes (section 5.4).

A map alpha (h, w) is compared with the object's pixels in the 224 x 224 pixels of the square that the encoder sees:

    mass      the share of the map on the object ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak      whether the map's peak is on the object (the pointing game of Zhang et al., 2016).

Scenes know the pixels of their objects, so the words of generated captions are measured. For mass, each weight is spread evenly
over its cell. "pointing" tolerates 15 pixels between the centre of the cell with the largest weight and the object; "pointing
strict" has no tolerance: the peak is the first largest pixel of the map, upsampled bilinearly.

Attention is informative if it beats two baselines: chance (an even map; a random cell), and the mean of the caption's maps, which
ignores the word. `satlib.evaluation.grounding` compares maps with boxes in photographs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import Reader
from satlib.data.images import SIZE
from satlib.data.scenes import Scene
from satlib.data.text import END
from satlib.errors import SatlibError
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Caption, Captioner
from satlib.model.transformer import TransformerDecoder

TOLERANCE = 15  # pixels: a point this close to an object counts as on it


@dataclass(frozen=True)
class Measurement:
    """A word with the measures of its map and of the baselines, 0 to 1, by name.

    kinds: of what the word names; usually one.
    """

    word: str
    kinds: tuple[str, ...]
    values: Mapping[str, float]


# --- Maps on their own -------------------------------------------------------------------------------------------------


def entropy_and_movement(captions: Iterable[Caption]) -> tuple[dict[str, float], dict[str, Sequence[float | None]]]:
    """Sharpness and movement of the attention maps of captions: means over captions, and statistics.

    "map entropy" is in nats (log L for a uniform map); "map movement" is the total variation distance between the maps of
    consecutive words (0 to 1), None for a caption with a single map.
    """
    entropies: list[float] = []
    movements: list[float | None] = []
    for caption in captions:
        alphas = caption.alphas.flatten(1)
        entropies.append(entropy(alphas).mean().item())
        movements.append(movement(alphas.unsqueeze(0)).mean().item() if len(alphas) > 1 else None)
    moved = [value for value in movements if value is not None]
    means = {"map entropy": sum(entropies) / len(entropies), "map movement": sum(moved) / max(len(moved), 1)}
    return means, {"map entropy": entropies, "map movement": movements}


@torch.inference_mode()
def of_heads(captioner: Captioner, reader: Reader, captions: Mapping[str, Caption]) -> dict[str, dict[str, Caption]]:
    """The captions, by image id, with the maps of one head in place of their mean, by its name; of an LSTM there is none."""
    found: dict[str, dict[str, Caption]] = defaultdict(dict)
    if not isinstance(captioner.decoder, TransformerDecoder):
        return found
    for image_id, caption in captions.items():
        ids = torch.tensor([[*captioner.vocabulary.encode(caption.text), END]], device=captioner.device)
        maps = captioner.decoder.maps(captioner.annotations(reader.read([image_id]).to(captioner.device)), ids)[0].cpu()
        for layer, head in np.ndindex(maps.shape[1:3]):
            alphas = maps[:, layer, head].unflatten(1, captioner.encoder.grid)
            found[f"layer {layer + 1}, head {head + 1}"][image_id] = replace(caption, alphas=alphas)
    return found


@lru_cache
def interpolation(cells: int, pixels: int = SIZE) -> Tensor:
    """The matrix (pixels, cells) that upsamples an axis linearly, as torch does with align_corners=False; float64."""
    one_hot = torch.eye(cells, dtype=torch.float64).unsqueeze(0)
    return functional.interpolate(one_hot, size=pixels, mode="linear", align_corners=False)[0].T.contiguous()


def upsample(maps: Tensor, pixels: int = SIZE) -> Tensor:
    """Attention maps (..., h, w) as pixels (..., pixels, pixels), upsampled bilinearly; float64, each sums to 1.

    `overlay.upsample` is the paper's way of drawing a map, which blurs it; this one moves as little of it as possible.
    """
    height, width = maps.shape[-2:]
    maps = interpolation(height, pixels) @ maps.double() @ interpolation(width, pixels).T
    return maps / maps.sum((-2, -1), keepdim=True)


def peaks(maps: Tensor) -> Tensor:
    """The index, in the flattened pixels, of the largest value of each upsampled map: (..., h, w) -> (...).

    Of several such pixels the first one in reading order counts.
    """
    return upsample(maps).flatten(-2).argmax(-1)


@lru_cache
def cell_peaks(height: int, width: int) -> Tensor:
    """The peak of each cell's own map, one there and zero elsewhere: (h * w,), as `peaks`."""
    return peaks(torch.eye(height * width).view(-1, height, width))


# --- The objects of drawn scenes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A word that names or describes an object: its index in the caption, its class, the object's mask, bool (224, 224)."""

    index: int
    kind: str
    mask: np.ndarray


def measure(caption: Caption, targets: Iterable[Target]) -> list[Measurement]:
    """Compare a caption's attention maps with the objects that its words name.

    "mass", "pointing" and "pointing strict" are measured of the word's map, of the caption's mean map ("_still") and of chance ("_chance").

    Args:
        caption: words and maps (C, h, w), the map of the end mark last.
        targets: the words to measure.
    """
    tensors = caption.alphas[: len(caption.words)].double()
    maps = tensors.numpy()
    still = maps.mean(0)
    *strict, strict_still = peaks(torch.cat([tensors, tensors.mean(0, keepdim=True)])).tolist()
    of_cells = cell_peaks(*still.shape).numpy()
    covers: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # by the id of a mask: the words of a phrase share one
    measurements = []
    for target in targets:
        if id(target.mask) not in covers:
            covers[id(target.mask)] = cells(target.mask, maps.shape[1:])
        cover, near = covers[id(target.mask)]
        alpha, inside = maps[target.index], target.mask.flat
        values = {
            "mass": float((alpha * cover).sum()),
            "mass_still": float((still * cover).sum()),
            "mass_chance": float(cover.mean()),
            "pointing": float(near.flat[alpha.argmax()]),
            "pointing_still": float(near.flat[still.argmax()]),
            "pointing_chance": float(near.mean()),
            "pointing strict": float(inside[strict[target.index]]),
            "pointing strict_still": float(inside[strict_still]),
            "pointing strict_chance": float(inside[of_cells].mean()),
        }
        measurements.append(Measurement(caption.words[target.index], (target.kind,), values))
    return measurements


def cells(mask: np.ndarray, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
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


def exemplary(captioner: Captioner, beam: int | None = None) -> Iterator[tuple[Scene, Caption]]:
    """The first test scenes, in their order, about which the model is right and where it looks at what it names.

    This rule chooses the scene of the README's pictures and of notebook 00's first one, so that nobody picks a flattering one by
    eye: the caption is exactly right (`scenes.exact_match`), and for every word that describes an object the peak of the
    map is on the object's visible pixels ("pointing strict").

    Args:
        captioner: a model of scenes.
        beam: as in `Captioner.caption`.

    Raises:
        SatlibError: none of the 500 test scenes is such.
    """
    found = False
    for example in scenes.load(train=0, dev=0).split("test"):
        scene = scenes.scene(example.image_id)
        (caption,) = captioner.caption([scene.photo()], beam)
        if scenes.exact_match(caption.words, scene):
            words = measure(caption, scene_targets(example, caption.words))
            if all(word.values["pointing strict"] for word in words):
                found = True
                yield scene, caption
    if not found:
        raise SatlibError(
            "for none of 500 test scenes is the caption right and every peak on its object; train the model for longer"
        )


def require_masks(data: CaptionSet) -> None:
    """Refuse photographs.

    Raises:
        SatlibError: the set is not "scenes".
    """
    if data.name != "scenes":
        raise SatlibError(
            f"{data.name} has no object masks; give boxes in COCO's format with --boxes, or Flickr30k Entities with --entities"
        )


def measure_all(
    examples: Iterable[Example],
    captions: Mapping[str, Caption],
    targets: Callable[[Example, Sequence[str]], list[Target]] = scene_targets,
) -> list[Measurement]:
    """Measure every word of the examples' captions that has a target; the list is empty if none has."""
    return [
        measurement
        for example in examples
        for measurement in measure(captions[example.image_id], targets(example, captions[example.image_id].words))
    ]


def ground(data: CaptionSet, captions: Mapping[str, Caption]) -> list[Measurement]:
    """Measure every word of the captions that names an object of its scene; the other words are left out.

    Args:
        data: the set that the scenes belong to.
        captions: image id to caption.

    Raises:
        SatlibError: the set has no masks, or no word could be measured.
    """
    require_masks(data)
    measurements = measure_all([example for example in data.examples if example.image_id in captions], captions)
    if not measurements:
        raise SatlibError("no word of these captions names an object of its scene; train the model for longer")
    return measurements


def summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Means in percent: over all words, by class, and by word, the most frequent first.

    "by word" leaves out words measured fewer than 5 times.
    """

    def means(group: Sequence[Measurement]) -> dict[str, float]:
        of_group = {name: 100 * float(np.mean([each.values[name] for each in group])) for name in group[0].values}
        return {"words": len(group), **of_group}

    def by(group_of: Callable[[Measurement], str], least: int) -> dict[str, dict[str, float]]:
        groups: dict[str, list[Measurement]] = defaultdict(list)
        for each in measurements:
            groups[group_of(each)].append(each)
        frequent = sorted((-len(group), name) for name, group in groups.items() if len(group) >= least)
        return {name: means(groups[name]) for _, name in frequent}

    return {
        "all": means(measurements),
        "by class": by(lambda each: each.kinds[0], 1),
        "by word": by(lambda each: each.word, 5),
    }


def render(means: Mapping[str, Any], words: int = 12) -> str:
    """Lay out a `summary` as a table for a terminal: all words, each class, each head, the `words` most frequent words."""
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
    if "by head" in means:
        lines += ["", "all words, by head", *(line(name, figures) for name, figures in means["by head"].items())]
    lines += ["", by_word]
    lines += [line("  " + name, figures) for name, figures in list(means["by word"].items())[:words]]
    lines += [
        "",
        "pointing: words whose map has its peak within 15 pixels of their object; strict: the same without a tolerance; mass: the",
        "share of the map on the object; still: the same for the mean of the caption's maps, which ignores the word; chance: a random",
        "cell, and a uniform map.",
    ]
    return "\n".join(lines)
