"""Does attention fall on what a word names? Attention maps compared with regions of the picture (section 5.4).

A map (h, w) is upsampled bilinearly to the 224 x 224 pixels that the encoder sees, and compared with the region of what its word
names: the visible pixels of a drawn object, or the boxes that people drew for a phrase about a photograph.

    mass      the share of the map in the region ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak      whether its largest pixel, the first of equal ones, is in the region (the pointing game of Zhang et al., 2016)

Attention is informative if it beats two baselines: one that knows nothing (an even map; the centre of the picture), and the mean of
the caption's maps, which ignores the word.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.features import Reader
from satlib.data.images import SIZE, WHOLE, Box, seen_part
from satlib.data.text import END, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import metrics, statistics
from satlib.files import progress_bar, read_ahead
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Caption, Captioner

MEASURES = ("mass", "mass even", "mass mean map", "peak", "peak centre", "peak mean map")
CENTRE = (
    SIZE // 2 * SIZE + SIZE // 2
)  # the pixel at the centre of the square, as an index of the flattened pixels
BATCH = 16  # photographs: five captions of each are in memory, with the probability of every word


@dataclass(frozen=True)
class Target:
    """A word that names something: its index in the caption, what kinds of thing (usually one), and its region, bool (224, 224)."""

    index: int
    kinds: tuple[str, ...]
    mask: np.ndarray


@dataclass(frozen=True)
class Measurement:
    """A word of an image's caption with the measures of its map and of the baselines, 0 to 1, by name (`MEASURES`)."""

    image_id: str
    kinds: tuple[str, ...]
    values: Mapping[str, float]


def sharpness(captions: Iterable[Caption]) -> metrics.Columns:
    """The columns "map entropy" and "map movement" of an evaluation: means over the words of each caption.

    The entropy is in nats; the movement is the total variation between the maps of consecutive words, None for a single map.
    """
    columns: metrics.Columns = {"map entropy": [], "map movement": []}
    for caption in captions:
        alphas = caption.alphas.flatten(1)
        columns["map entropy"].append(entropy(alphas).mean().item())
        columns["map movement"].append(
            movement(alphas.unsqueeze(0)).mean().item() if len(alphas) > 1 else None
        )
    return columns


def upsample(alphas: Tensor) -> Tensor:
    """Attention maps (C, h, w) as pixels (C, 224, 224), float64, each of the sum 1; drawings also blur them (`plots.upsample`)."""
    cells = alphas.double().unsqueeze(1)
    pixels = functional.interpolate(
        cells, size=(SIZE, SIZE), mode="bilinear", align_corners=False
    ).squeeze(1)
    return pixels / pixels.sum((1, 2), keepdim=True)


def measure(
    image_id: str, alphas: Tensor, targets: Sequence[Target], peaked: bool = True
) -> list[Measurement]:
    """Compare the maps of a caption's words, alphas (C, h, w), with the regions of what they name; even maps have no peak."""
    if not targets:
        return []
    alphas = alphas.double()
    alphas = alphas / alphas.sum((1, 2), keepdim=True)
    pixels = (
        upsample(torch.stack([alphas.mean(0), *(alphas[target.index] for target in targets)]))
        .flatten(1)
        .numpy()
    )
    peaks = pixels.astype(np.float32).argmax(1)  # single precision: equal pixels stay equal
    measurements = []
    for row, target in enumerate(targets, 1):
        inside = target.mask.ravel()
        values = {
            "mass": float(pixels[row][inside].sum()),
            "mass even": float(inside.mean()),
            "mass mean map": float(pixels[0][inside].sum()),
        }
        if peaked:
            values |= {
                "peak": float(inside[peaks[row]]),
                "peak centre": float(inside[CENTRE]),
                "peak mean map": float(inside[peaks[0]]),
            }
        measurements.append(Measurement(image_id, target.kinds, values))
    return measurements


def summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The number of words, the means of the measures in percent and their 95 % intervals (bootstrap over images).

    They are of all words, and by kind, the most frequent first; a word that names things of two kinds counts in both.
    """
    at = {
        image_id: row
        for row, image_id in enumerate(dict.fromkeys(word.image_id for word in measurements))
    }
    by_kind: dict[str, list[Measurement]] = defaultdict(list)
    for word in measurements:
        for kind in word.kinds:
            by_kind[kind].append(word)
    kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))
    return {
        "all": _means(measurements, at),
        "by kind": {kind: _means(by_kind[kind], at) for kind in kinds},
    }


def _means(group: Sequence[Measurement], at: Mapping[str, int]) -> dict[str, Any]:
    """The means of a group of words, with intervals; `at` numbers all images."""
    names = list(group[0].values) if group else []
    means: dict[str, Any] = {
        name: 100 * math.fsum(word.values[name] for word in group) / len(group) for name in names
    }
    rows = [at[word.image_id] for word in group]
    if len(set(rows)) > 1:
        sums = np.zeros((len(at), len(names) + 1))
        np.add.at(sums, rows, [[*word.values.values(), 1] for word in group])
        totals = statistics.resamples(len(at)) @ sums
        totals = totals[totals[:, -1] > 0]  # a rare kind is not in every sample
        resampled = dict(zip(names, (100 * totals[:, :-1] / totals[:, -1:]).T, strict=True))
        means["intervals"] = {
            name: list(statistics.interval(values)) for name, values in resampled.items()
        }
    return {"words": len(group), **means}


def render(means: Mapping[str, Any]) -> str:
    """A `summary` as a table for a terminal; ± is half the width of the 95 % interval."""
    rows = []
    for name, group in {"all words": means["all"], **means["by kind"]}.items():
        half = {
            measure: (high - low) / 2 for measure, (low, high) in group.get("intervals", {}).items()
        }
        cells = (
            f"{group[measure]:.1f} ± {half[measure]:.1f}" if measure in half else "-"
            for measure in MEASURES
        )
        rows.append([name, group["words"], *cells])
    return tabulate(rows, ["percent", "words", *MEASURES], stralign="right", disable_numparse=True)


def scene_targets(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that correctly describe one of a scene's objects, with the object's visible pixels."""
    scene = scenes.scene(example.image_id)
    masks, targets = scene.masks, []
    kinds = {
        index: kind
        for phrase in scenes.grammar.phrases(words)
        for index, (kind, _) in phrase.attributes.items()
    }
    for index, number in enumerate(scenes.mentions(words, scene)):
        if number is not None:
            targets.append(Target(index, (kinds[index],), masks[number]))
    return targets


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
            targets += [
                Target(index, (phrase.attributes[index][0],), masks[number]) for index in wrong
            ]
    return targets


def measure_all(
    examples: Iterable[Example], captions: Mapping[str, Caption], peaked: bool = True
) -> list[Measurement]:
    """Measure every word of the scenes' captions, by image id, that describes an object."""
    measurements = []
    for example in examples:
        caption = captions[example.image_id]
        alphas = caption.alphas[: len(caption.words)]
        measurements += measure(
            example.image_id, alphas, scene_targets(example, caption.words), peaked
        )
    return measurements


def in_boxes(boxes: Iterable[Box]) -> np.ndarray:
    """The pixels of the square that boxes cover wholly or in part, so that every box has some: bool (224, 224)."""
    inside = np.zeros((SIZE, SIZE), dtype=bool)
    for box in boxes:
        # An edge between two pixels may be off by a rounding error.
        left, top = (math.floor(edge * SIZE + 1e-9) for edge in box[:2])
        right, bottom = (math.ceil(edge * SIZE - 1e-9) for edge in box[2:])
        inside[top:bottom, left:right] = True
    return inside


@torch.inference_mode()
def forced(
    captioner: Captioner, batch: Tensor, references: Sequence[Sequence[str]]
) -> list[list[Tensor]]:
    """The maps of the words of true captions, by teacher forcing; words outside the vocabulary are unknown words, as in training.

    For B images (B, 3, 224, 224), or their annotation vectors (B, L, D), and the references of each: (C, h, w) for each reference.
    """
    captioner.eval()
    a = captioner.annotations(batch.to(captioner.device))
    rows = torch.tensor([row for row, own in enumerate(references) for _ in own], device=a.device)
    ids = [
        torch.tensor(captioner.vocabulary.encode(reference))
        for own in references
        for reference in own
    ]
    # What follows a caption is padding, which no earlier word depends on.
    output = captioner.decoder(a[rows], pad_sequence(ids, True, END).to(a.device))
    maps = iter(output.alphas.float().cpu().unflatten(2, captioner.encoder.grid))
    return [[next(maps)[: len(tokenise(reference))] for reference in own] for own in references]


def measure_true(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    examples: Sequence[Example],
    entities: Entities,
) -> list[Measurement]:
    """Measure true captions of photographs: of each phrase that has boxes the last word, usually its noun.

    Photographs, and references, that Entities does not have are left out.

    Raises:
        SatlibError: it has none of them.
    """
    peaked = captioner.recipe.decoder.attention != "none"
    known = [example for example in examples if example.image_id in entities]
    batches = [known[start : start + BATCH] for start in range(0, len(known), BATCH)]
    inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
    measurements = []
    for batch, images in zip(progress_bar(batches, desc="true captions"), inputs, strict=True):
        references = [
            list(dict.fromkeys(example.references)) for example in batch
        ]  # of two equal ones, one
        for example, own, maps in zip(
            batch, references, forced(captioner, images, references), strict=True
        ):
            seen = WHOLE  # a file is opened for the view "crop" alone, which depends on its size
            if captioner.view != "whole":
                seen = seen_part(data.photo(example).size, captioner.view)
            for reference, alphas in zip(own, maps, strict=True):
                phrases = [
                    p
                    for p in entities.phrases(example.image_id, tokenise(reference), seen)
                    if p.boxes
                ]
                targets = [
                    Target(phrase.head, phrase.kinds, in_boxes(phrase.boxes)) for phrase in phrases
                ]
                measurements += measure(example.image_id, alphas, targets, peaked)
    if not measurements:
        raise SatlibError(
            f"{entities.path} has no boxes for the captions of these {len(examples):,} photographs"
        )
    return measurements
