"""Does attention fall on what a word names? Attention maps compared with the places of objects (section 5.4).

A map alpha (h, w) is turned into the 224 x 224 pixels of the square that the encoder sees, and compared with the object's pixels:

    mass      the share of the map on the object ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak      whether the map's peak is on the object (the pointing game of Zhang et al., 2016).

Two kinds of places are known, and each has its own convention:

- Masks. Drawn scenes have them; for COCO's boxes (`instances_*.json`), the mask of a category is the union of its boxes. Words of
  generated captions are measured. For mass, each weight is spread evenly over its cell. "pointing" tolerates 15 pixels between
  the centre of the cell with the largest weight and the object; "pointing strict" has no tolerance: the peak is the first
  largest pixel of the map, upsampled bilinearly.
- Boxes that people drew for phrases (Flickr30k Entities). In true captions, which the decoder is given (teacher forcing), the last
  word of each phrase, usually its noun, is measured; in generated ones, a word that ends some phrase of the photograph's captions.
  Mass and peak (strict) are those of the map upsampled bilinearly, which is separable: with U_h (H, h) and U_w (W, w), the
  interpolation of an axis, a map A becomes U_h A U_w^T.

Attention is informative if it beats two baselines: chance (an even map; a random cell, or the centre of the picture), and the mean
of the caption's maps, which ignores the word.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.coco import Boxes
from satlib.data.entities import Entities
from satlib.data.features import Reader, read_ahead
from satlib.data.images import SIZE
from satlib.data.text import END, tokenise
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Caption, Captioner

TOLERANCE = 15  # pixels: a point this close to an object counts as on it
MEASURES = ("mass", "pointing", "pointing strict")  # each for the map, the mean map ("_still") and chance ("_chance")
MASS = ("mass", "mass even", "mass mean map", "mass best cell")
PEAK = ("peak", "peak centre", "peak mean map", "peak best cell")
SIZES = ("below 10 %", "10 to 40 %", "above 40 %")  # the area of the boxes, as a share of what the encoder sees
CENTRE = SIZE // 2 * SIZE + SIZE // 2  # the pixel at the centre of the square, as an index of the flattened pixels
BATCH = 16  # images: five captions of each are in memory, with the probability of every word
Box = tuple[float, float, float, float]  # left, top, right, bottom, as fractions of the square
Photo = tuple[str, str, tuple[int, int] | None]  # file name, the encoder's view, and the file's size if that matters
_ROUNDING = 1e-9  # pixels


@dataclass(frozen=True)
class Measurement:
    """A word with the measures of its map and of the baselines, 0 to 1, by name.

    kinds: of what the word names; usually one.
    """

    word: str
    kinds: tuple[str, ...]
    values: Mapping[str, float]


# --- Maps on their own -------------------------------------------------------------------------------------------------


def entropy_and_movement(captions: Iterable[Caption]) -> tuple[dict[str, float], dict[str, list[float | None]]]:
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


# --- Masks: drawn scenes, and COCO's boxes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A word that names or describes an object: its index in the caption, its class, the object's mask, bool (224, 224)."""

    index: int
    kind: str
    mask: np.ndarray


def measure(caption: Caption, targets: Iterable[Target]) -> list[Measurement]:
    """Compare a caption's attention maps with the objects that its words name: `MEASURES`.

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


def require_places(data: CaptionSet, boxes: Boxes | None) -> None:
    """Refuse photographs without boxes.

    Raises:
        SatlibError: the set is not "scenes", and there are no boxes.
    """
    if boxes is None and data.name != "scenes":
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


def ground(data: CaptionSet, captions: Mapping[str, Caption], boxes: Boxes | None = None) -> list[Measurement]:
    """Measure every word of the captions that names an object whose pixels are known; the other words are left out.

    Args:
        data: the set that the images belong to.
        captions: image id to caption.
        boxes: the objects of photographs; scenes have masks of their own.

    Raises:
        SatlibError: the set has no masks and there are no boxes, or no word could be measured.
    """
    require_places(data, boxes)

    def targets(example: Example, words: Sequence[str]) -> list[Target]:
        if boxes is None:
            return scene_targets(example, words)
        return [Target(*word) for word in boxes.named(example.image_id, words)]

    captioned = [example for example in data.examples if example.image_id in captions]
    measurements = measure_all(captioned, captions, targets)
    if not measurements:
        raise SatlibError("no word of these captions names an object with a known position; are these the right boxes?")
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


# --- Boxes that people drew for phrases --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mention:
    """A word of a caption and the boxes of what it names.

    Attributes:
        index: of the word in the caption.
        kinds: of what it names, such as people or animals; usually one.
        boxes: as fractions of what the encoder sees.
    """

    index: int
    kinds: tuple[str, ...]
    boxes: tuple[Box, ...]


def inside_boxes(boxes: Sequence[Box], pixels: int = SIZE) -> Tensor:
    """The pixels of the square that boxes cover wholly or in part, so that every box has some: bool (pixels, pixels)."""

    def covered(begin: float, end: float) -> slice:  # an edge between two pixels may be off by a rounding error
        return slice(math.floor(begin * pixels + _ROUNDING), math.ceil(end * pixels - _ROUNDING))

    inside = torch.zeros(pixels, pixels, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        inside[covered(top, bottom), covered(left, right)] = True
    return inside


def measure_mentions(captions: Iterable[tuple[Caption, Sequence[Mention]]], peaked: bool = True) -> list[Measurement]:
    """Measure the words of an image's captions that name something with boxes: `MASS` and `PEAK`.

    Args:
        captions: each with the words to measure.
        peaked: whether the maps have a peak; False for a model without attention, which leaves out `PEAK`.
    """
    measurements: list[Measurement] = []
    regions: dict[tuple[Box, ...], tuple[Tensor, Tensor, Tensor]] = {}  # an image's captions share most boxes
    for caption, mentions in captions:
        if not mentions:
            continue
        maps = caption.alphas[: len(caption.words)].cpu()
        mean = maps.mean(0)
        peak = peaks(torch.stack([mean, *(maps[mention.index] for mention in mentions)])) if peaked else None
        for number, mention in enumerate(mentions, 1):
            if mention.boxes not in regions:
                regions[mention.boxes] = _region(mention.boxes, *mean.shape)
            inside, cover, total = regions[mention.boxes]
            values = {
                "mass": _mass(maps[mention.index], cover, total),
                "mass even": float(inside.double().mean()),
                "mass mean map": _mass(mean, cover, total),
                "mass best cell": float(cover.max()),  # of any map, as every map is a mean of cells
            }
            if peak is not None:
                values |= {
                    "peak": float(inside[peak[number]]),
                    "peak centre": float(inside[CENTRE]),
                    "peak mean map": float(inside[peak[0]]),
                    "peak best cell": float(inside[cell_peaks(*mean.shape)].any()),
                }
            measurements.append(Measurement(caption.words[mention.index], mention.kinds, values))
    return measurements


def _region(boxes: Sequence[Box], height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes, rasterised once for all maps of a grid (h, w) that are compared with them.

    Returns:
        Their pixels, bool (SIZE * SIZE,); the share of each cell's own upsampled map inside, (h, w); its sum over all pixels, (h, w).
    """
    inside, rows, columns = inside_boxes(boxes), interpolation(height), interpolation(width)
    total = torch.outer(rows.sum(0), columns.sum(0))
    return inside.flatten(), rows.T @ inside.double() @ columns / total, total


def _mass(alpha: Tensor, cover: Tensor, total: Tensor) -> float:
    """The share of a map (h, w) that is inside the boxes of a `_region`, 0 to 1."""
    weights = alpha.double() * total  # what each cell adds to the upsampled map
    return float((weights * cover).sum() / weights.sum())


def in_reference(entities: Entities, photo: Photo, reference: str, language: str) -> list[Mention] | None:
    """The last word of each phrase of a reference that has boxes; None if Entities does not have the reference."""
    image_id, view, size = photo
    sentence = entities.sentence(image_id, reference, view, size, language)
    if sentence is None:
        return None
    return [Mention(phrase.end - 1, phrase.kinds, phrase.boxes) for phrase in sentence.phrases if phrase.boxes]


def in_caption(entities: Entities, photo: Photo, words: Sequence[str]) -> list[Mention]:
    """The words of a generated caption that end a phrase that people wrote about the photograph.

    The boxes are those of all phrases of the photograph's captions with that last word.
    """
    boxes: dict[str, dict[Box, None]] = defaultdict(dict)  # as ordered sets
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    for sentence in entities.sentences(*photo):
        for phrase in sentence.phrases:
            if phrase.boxes:
                head = sentence.words[phrase.end - 1]
                boxes[head] |= dict.fromkeys(phrase.boxes)
                kinds[head] |= dict.fromkeys(phrase.kinds)
    return [Mention(i, tuple(kinds[word]), tuple(boxes[word])) for i, word in enumerate(words) if word in boxes]


@torch.inference_mode()
def forced(captioner: Captioner, batch: Tensor, references: Sequence[Sequence[str]]) -> list[list[Caption]]:
    """The maps of true captions, by teacher forcing; words outside the vocabulary are unknown words, as in training.

    Args:
        captioner: hard attention passes on what the recipe's `decoding.look` says.
        batch: B images (B, 3, 224, 224) or their annotation vectors (B, L, D).
        references: the raw captions of each image.

    Returns:
        A caption for each reference, with its own words, the map of the end mark last, and log p(y|a).
    """
    captioner.eval()
    a = captioner.annotations(batch.to(captioner.device))
    vocabulary = captioner.vocabulary
    rows = [(image, reference) for image, its in enumerate(references) for reference in its]
    ids = [[*vocabulary.encode(reference), END] for _, reference in rows]
    captions: list[list[Caption]] = [[] for _ in references]
    if not rows:
        return captions
    padded = pad_sequence([torch.tensor(each) for each in ids], True, END).to(captioner.device)
    output = captioner.decoder(a[torch.tensor([image for image, _ in rows], device=a.device)], padded)
    scores = output.logits.log_softmax(2).gather(2, padded.unsqueeze(2)).squeeze(2).cpu()
    alphas, betas = output.alphas.float().cpu(), output.betas.float().cpu()
    for row, (image, reference) in enumerate(rows):
        length = len(ids[row])  # what follows is padding, which no earlier word depends on
        captions[image].append(
            Caption(
                tokenise(reference, vocabulary.language),
                float(scores[row, :length].sum()),
                alphas[row, :length].view(length, *captioner.encoder.grid),
                betas[row, :length],
                vocabulary.language,
            )
        )
    return captions


def ground_phrases(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    entities: Entities,
    examples: Sequence[Example],
    generated: Mapping[str, Caption],
    progress: bool = True,
) -> dict[str, Any]:
    """Measure the true and the generated captions of photographs.

    Args:
        captioner: a trained captioner.
        data: the caption set.
        reader: reads the encoder's inputs or annotation vectors by image id.
        entities: the boxes.
        examples: the photographs of a split.
        generated: image id to generated caption, of the photographs that Entities covers; the others are left out.
        progress: show a progress bar.

    Returns:
        What `satlib ground --entities` writes under "entities": "true" and "generated" (`phrase_summary`); of the maps of the true
        captions, end marks included, "entropy share", their entropy in percent of ln L, and "movement"; and "counts".

    Raises:
        SatlibError: Entities has none of the captions, or is damaged.
    """
    annotated = [example for example in examples if example.image_id in generated]
    view = captioner.view
    photos = {  # a file is opened for the view "crop" alone, which depends on the file's size
        example.image_id: (example.image_id, view, None if view == "whole" else data.photo(example).size)
        for example in annotated
    }
    peaked = captioner.recipe.decoder.attention != "none"
    spoken = [
        measurement
        for image_id, caption in generated.items()
        for measurement in measure_mentions([(caption, in_caption(entities, photos[image_id], caption.words))], peaked)
    ]
    true, captions = _true(captioner, reader, entities, annotated, photos, progress)
    if not captions:
        raise SatlibError(
            f"{entities.path} has none of the captions of {data.name} {examples[0].split}; are these the annotations of this data set?"
        )
    figures, _ = entropy_and_movement(captions)
    return {
        "true": phrase_summary(true),
        "generated": phrase_summary(spoken),
        "entropy share": 100 * figures["map entropy"] / math.log(math.prod(captioner.encoder.grid)),
        "movement": figures["map movement"],
        "counts": {
            "images": len(annotated),
            "images without annotations": len(examples) - len(annotated),
            "references": len(captions),
            "references not found": sum(len(example.references) for example in annotated) - len(captions),
        },
    }


def _true(
    captioner: Captioner,
    reader: Reader,
    entities: Entities,
    examples: Sequence[Example],
    photos: Mapping[str, Photo],
    progress: bool,
) -> tuple[list[Measurement], list[Caption]]:
    """Measure the true captions of some images; and these captions, as far as Entities has them, of two equal ones one."""
    measurements, captions = [], []
    peaked, language = captioner.recipe.decoder.attention != "none", captioner.vocabulary.language
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
    with progress_bar(total=len(examples), unit="img", desc="true captions", show=progress) as bar:
        for batch, images in zip(batches, inputs, strict=True):
            mentions = [
                {
                    reference: found
                    for reference in example.references
                    if (found := in_reference(entities, photos[example.image_id], reference, language)) is not None
                }
                for example in batch
            ]
            of_images = forced(captioner, images, [list(of_image) for of_image in mentions])
            for of_image, its in zip(mentions, of_images, strict=True):
                measurements += measure_mentions(zip(its, of_image.values(), strict=True), peaked)
                captions += its
            bar.update(len(batch))
    return measurements, captions


def phrase_summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The number of phrases and the means of the measures in percent: of all, by kind, and by the area of the boxes.

    A word that names things of two kinds counts in both. Kinds are ordered by their number of phrases. 10 % and 40 % of the
    area belong to the middle size.
    """

    def means(group: Sequence[Measurement]) -> dict[str, float]:
        names = group[0].values if group else ()
        of_group = {name: 100 * math.fsum(each.values[name] for each in group) / len(group) for name in names}
        return {"phrases": len(group), **of_group}

    by_kind: dict[str, list[Measurement]] = defaultdict(list)
    by_size: dict[str, list[Measurement]] = {name: [] for name in SIZES}
    for each in measurements:
        for kind in each.kinds:
            by_kind[kind].append(each)
        area = each.values["mass even"]
        by_size[SIZES[(area >= 0.1) + (area > 0.4)]].append(each)
    kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))
    return {
        "all": means(measurements),
        "by kind": {kind: means(by_kind[kind]) for kind in kinds},
        "by size": {name: means(group) for name, group in by_size.items() if group},
    }


def render_phrases(report: Mapping[str, Any]) -> str:
    """Lay out what `ground_phrases` returns as a table for a terminal."""
    columns = "  ".join(
        (f"{'mass':>6} {'even':>6} {'mean':>6} {'best':>6}", f"{'peak':>6} {'centre':>6} {'mean':>6} {'best':>6}")
    )
    lines = [f"{'percent':16} {'phrases':>8}  {columns}"]

    def line(name: str, figures: Mapping[str, float]) -> str:
        mass, peak = (
            " ".join(f"{figures[each]:6.1f}" if each in figures else f"{'-':>6}" for each in names)
            for names in (MASS, PEAK)
        )
        return f"{name:16} {figures['phrases']:8,d}  {mass}  {peak}"

    for captions in ("true", "generated"):
        part = report[captions]
        lines += ["", line(f"{captions} captions", part["all"])]
        for group in ("by kind", "by size"):
            lines += [f" {group}", *(line("  " + name, figures) for name, figures in part[group].items())]
    counts = report["counts"]
    lines += [
        "",
        "mass: the share of the word's map inside the boxes of what it names; peak: words whose map has its peak in a box, with no",
        "tolerance. even: the same mass of an even map; centre: the centre of the picture; mean: the mean of the caption's maps,",
        "which ignores the word; best: the best single cell of the grid.",
        f"true captions: the maps' entropy is {report['entropy share']:.1f} % of that of an even map; their movement from word to word is "
        f"{report['movement']:.2f}.",
        f"{counts['references']:,} reference captions of {counts['images']:,} photographs; {counts['references not found']:,} more are worded "
        "differently in Flickr30k Entities, and are left out.",
    ]
    if counts["images without annotations"]:
        lines.append(
            f"Flickr30k Entities has no annotations of {counts['images without annotations']:,} photographs, which are left out."
        )
    return "\n".join(lines)
