"""Does attention fall on what a word names? Maps against regions of the picture (section 5.4).

A map (h, w) is upsampled bilinearly to the 224 x 224 pixels that the encoder sees, and compared
with the region of what its word names: the visible pixels of a drawn object, or the boxes that
people drew for a phrase about a photograph.

    mass      the share of the map in the region
              ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak      whether its largest pixel, the first of equal ones, is in the region
              (the pointing game of Zhang et al., 2016)

Attention is informative if it beats two baselines: one that knows nothing (an even map; the centre
of the picture), and the mean of the caption's maps, which ignores the word.
"""

import math
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
from satlib.data.batches import read_batches
from satlib.data.caption_set import Example
from satlib.data.entities import Entities
from satlib.data.features import Reader
from satlib.data.images import SIZE, Box
from satlib.data.text import END, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import metrics, statistics
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Caption, Captioner

MEASURES = ("mass", "mass even", "mass mean map", "peak", "peak centre", "peak mean map")
# The pixel at the centre of the square, as an index of the flattened pixels.
CENTRE = SIZE // 2 * SIZE + SIZE // 2
BATCH = 16  # photographs: five captions of each are in memory, with the probability of every word


@dataclass(frozen=True)
class Target:
    """A word that names something."""

    index: int  # of the word in the caption
    kinds: tuple[str, ...]  # of the thing; usually one
    mask: np.ndarray  # the thing's region, bool (224, 224)


@dataclass(frozen=True)
class Measurement:
    """A word of an image's caption, with the measures of its map and of the baselines."""

    image_id: str
    values: Mapping[str, float]  # 0 to 1, by name (`MEASURES`)


def sharpness(captions: Iterable[Caption]) -> metrics.Columns:
    """The columns "map entropy" and "map movement" of an evaluation: means over a caption's words.

    The entropy is in nats; the movement is the total variation between the maps of consecutive
    words, None for a single map.
    """
    entropies = []
    movements: list[float | None] = []
    for caption in captions:
        alphas = caption.alphas.flatten(1)  # (C, L)
        entropies.append(entropy(alphas).mean().item())
        if len(alphas) > 1:
            distances = movement(alphas.unsqueeze(0))
            movements.append(distances.mean().item())
        else:
            movements.append(None)
    return {"map entropy": entropies, "map movement": movements}


def pixel_maps(alphas: Tensor) -> Tensor:
    """Attention maps (C, h, w) as pixels (C, 224, 224), float64, each of the sum 1.

    They are interpolated bilinearly; drawings are smoother (`plots.upsample`).
    """
    cells = alphas.double().unsqueeze(1)  # (C, 1, h, w)
    pixels = functional.interpolate(
        cells,
        size=(SIZE, SIZE),
        mode="bilinear",
        align_corners=False,
    )
    pixels = pixels.squeeze(1)
    return pixels / pixels.sum((1, 2), keepdim=True)


def measure(
    image_id: str,
    alphas: Tensor,
    targets: Sequence[Target],
    peaked: bool = True,
) -> list[Measurement]:
    """Compare the maps of a caption's words, alphas (C, h, w), with the regions of what they name.

    Even maps have no peak: those of a model without attention are not `peaked`.
    """
    if not targets:
        return []

    # Row 0 is the baseline that ignores the word, the mean of the caption's maps.
    alphas = alphas.double()
    alphas = alphas / alphas.sum((1, 2), keepdim=True)
    maps = [alphas.mean(0)]
    maps += [alphas[target.index] for target in targets]

    pixels = pixel_maps(torch.stack(maps))  # (1 + targets, 224, 224)
    pixels = pixels.flatten(1).numpy()
    # In single precision equal pixels stay equal, and the first of them counts.
    peaks = pixels.astype(np.float32).argmax(1)

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
        measurements.append(Measurement(image_id, values))
    return measurements


def summary(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """The number of words, and the means of the measures in percent with their 95 % intervals.

    The intervals are by the bootstrap over images.
    """
    means: dict[str, Any] = {"words": len(measurements)}
    names = list(measurements[0].values) if measurements else []
    for name in names:
        total = math.fsum(word.values[name] for word in measurements)
        means[name] = 100 * total / len(measurements)

    # Each image has a row, in the order in which the words name them first.
    rows: dict[str, int] = {}
    for word in measurements:
        rows.setdefault(word.image_id, len(rows))
    # A single image has no spread.
    if len(rows) < 2:
        return means

    # For each image the sums of its words' measures, and last how many words it has.
    own_rows = [rows[word.image_id] for word in measurements]
    numbers = [[*word.values.values(), 1] for word in measurements]
    sums = np.zeros((len(rows), len(names) + 1))
    np.add.at(sums, own_rows, numbers)

    totals = statistics.resamples(len(rows)) @ sums  # (R, measures + 1)
    resampled = 100 * totals[:, :-1] / totals[:, -1:]
    intervals = {}
    for name, values in zip(names, resampled.T, strict=True):
        intervals[name] = list(statistics.interval(values))
    means["intervals"] = intervals
    return means


def render(means: Mapping[str, Any]) -> str:
    """A `summary` as a table for a terminal; ± is half the width of the 95 % interval."""
    row = ["all words", means["words"]]
    for measure in MEASURES:
        if measure in means.get("intervals", {}):
            low, high = means["intervals"][measure]
            row.append(f"{means[measure]:.1f} ± {(high - low) / 2:.1f}")
        else:
            row.append("-")
    return tabulate(
        [row],
        headers=["percent", "words", *MEASURES],
        stralign="right",
        disable_numparse=True,
    )


def scene_targets(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that correctly describe one of a scene's objects.

    Their regions are the objects' visible pixels.
    """
    scene = scenes.scene(example.image_id)
    masks = scene.masks

    kinds = {}  # of the words that describe something, by index
    for phrase in scenes.grammar.phrases(words):
        for index, (kind, _) in phrase.attributes.items():
            kinds[index] = kind

    targets = []
    for index, number in enumerate(scenes.mentions(words, scene)):
        if number is not None:
            target = Target(index, (kinds[index],), masks[number])
            targets.append(target)
    return targets


def measure_all(
    examples: Iterable[Example],
    captions: Mapping[str, Caption],
    peaked: bool = True,
) -> list[Measurement]:
    """Measure every word of the scenes' captions, by image id, that describes an object."""
    measurements = []
    for example in examples:
        caption = captions[example.image_id]
        alphas = caption.alphas[: len(caption.words)]  # without the end mark's
        targets = scene_targets(example, caption.words)
        measurements += measure(example.image_id, alphas, targets, peaked)
    return measurements


def in_boxes(boxes: Iterable[Box]) -> np.ndarray:
    """The pixels of the square that boxes cover wholly or in part, bool (224, 224).

    So every box has some.
    """
    inside = np.zeros((SIZE, SIZE), dtype=bool)
    for box in boxes:
        # An edge between two pixels may be off by a rounding error.
        left, top, right, bottom = box
        first_row = math.floor(top * SIZE + 1e-9)
        first_column = math.floor(left * SIZE + 1e-9)
        end_row = math.ceil(bottom * SIZE - 1e-9)
        end_column = math.ceil(right * SIZE - 1e-9)
        inside[first_row:end_row, first_column:end_column] = True
    return inside


@torch.inference_mode()
def forced(
    captioner: Captioner,
    batch: Tensor,
    references: Sequence[Sequence[str]],
) -> list[list[Tensor]]:
    """The maps of the words of true captions, by teacher forcing: (C, h, w) for each reference.

    Words outside the vocabulary are unknown words, as in training. For B images (B, 3, 224, 224),
    or their annotation vectors (B, L, D), and the references of each.
    """
    captioner.eval()
    a = captioner.annotations(batch.to(captioner.device))  # (B, L, D)

    # Every reference is a row of the decoder's batch, and needs the image that it belongs to.
    rows = []
    ids = []
    for row, own in enumerate(references):
        for reference in own:
            encoded = captioner.vocabulary.encode(reference)
            rows.append(row)
            ids.append(torch.tensor(encoded))

    # What follows a caption is padding, which no earlier word depends on.
    words = pad_sequence(ids, True, END).to(a.device)
    a_of_rows = a[torch.tensor(rows, device=a.device)]
    output = captioner.decoder(a_of_rows, words)
    alphas = output.alphas.float().cpu()  # (rows, C, L)
    maps = iter(alphas.unflatten(2, captioner.encoder.grid))

    result = []
    for own in references:
        lengths = [len(tokenise(reference)) for reference in own]
        result.append([next(maps)[:length] for length in lengths])
    return result


def measure_true(
    captioner: Captioner,
    reader: Reader,
    examples: Sequence[Example],
    entities: Entities,
) -> list[Measurement]:
    """Measure true captions of photographs: of each phrase that has boxes the last word.

    That is usually its noun. Photographs, and references, that Entities does not have are left out.

    Raises:
        SatlibError: it has none of them.
    """
    peaked = captioner.recipe.decoder.attention != "none"
    known = [example for example in examples if example.image_id in entities]

    measurements = []
    for batch, images in read_batches(reader, known, BATCH, "true captions"):
        # Of two equal references of an image, one.
        references = [list(dict.fromkeys(example.references)) for example in batch]
        maps = forced(captioner, images, references)
        for example, own, own_maps in zip(batch, references, maps, strict=True):
            for reference, alphas in zip(own, own_maps, strict=True):
                targets = _phrase_targets(entities, example, reference)
                measurements += measure(example.image_id, alphas, targets, peaked)

    if not measurements:
        raise SatlibError(
            f"{entities.path} has no boxes for the captions of these {len(examples):,} photographs"
        )
    return measurements


def _phrase_targets(entities: Entities, example: Example, reference: str) -> list[Target]:
    """The last words of a reference's phrases that have boxes."""
    phrases = entities.phrases(example.image_id, tokenise(reference))
    return [
        Target(phrase.head, phrase.kinds, in_boxes(phrase.boxes))
        for phrase in phrases
        if phrase.boxes
    ]
