"""Scores from statistics of each image, and 95 % intervals by the bootstrap over images (Koehn, 2004).

An evaluation file keeps, for each image, numbers whose sums over any set of images give the scores of that set:

    BLEU       words of the caption and of the closest reference, and matching n-grams for n = 1 to 4;
    METEOR     the 23 numbers of the Java program's own statistics (`meteor_score`);
    the rest   the image's own score, of which the score of a set is the mean.

CIDEr's n-gram weights are always those of the whole set: in a resample, only which images count changes.
A percentile interval comes from `RESAMPLES` draws of as many images as there are, with replacement. The draws are the same for all
models, so the difference of two models is resampled in pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

BLEU = ("words", "reference words", "1-grams", "2-grams", "3-grams", "4-grams")
_STAGES = ("exact", "stem", "synonym", "paraphrase")
_METEOR_PARTS = (
    "words", "reference words", "function words", "reference function words",
    *(f"{stage} {part}" for stage in _STAGES for part in ("content", "reference content", "function", "reference function")),
    "chunks", "matches", "reference matches",
)  # fmt: skip
METEOR = tuple(f"METEOR {part}" for part in _METEOR_PARTS)
MEANS = {
    "ROUGE-L": 1,
    "CIDEr": 1,
    "exact match": 100,
    "map entropy": 1,
    "map movement": 1,
    "captions that invent": 100,
}  # and the factor to the score
# Scores that are shares: what is counted, and of how many.
POINTING = {"pointing": "pointing words", "pointing strict": "pointing words"}
INVENTIONS = {
    "wrong size": "sizes",
    "wrong colour": "colours",
    "wrong texture": "textures",
    "wrong shape": "shapes",
    "wrong relation": "relations",
    "invented objects": "objects",
}
RESAMPLES = 2000
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75  # METEOR 1.5's own values for English
_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of its stages


@dataclass(frozen=True)
class Statistics:
    """The statistics of images.

    Attributes:
        columns: their names, P of them.
        images: the images' ids, N of them, sorted.
        values: (N, P); NaN for what an image does not have, such as the movement of the maps of an empty caption.
    """

    columns: tuple[str, ...]
    images: tuple[str, ...]
    values: np.ndarray

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Statistics":
        """The statistics of an evaluation file, {"columns": [...], "images": {id: [...]}}."""
        images = tuple(sorted(stored["images"]))
        values = np.array([stored["images"][image] for image in images], dtype=np.float64)
        return cls(tuple(stored["columns"]), images, values)


def stored(columns: Mapping[str, Sequence[float | None]], image_ids: Sequence[str]) -> dict[str, Any]:
    """Columns of numbers, one for each image, as `Statistics.of` reads them: whole numbers as such, others to 3 decimals."""
    rows = zip(*columns.values(), strict=True)
    return {
        "columns": list(columns),
        "images": {image: [_short(value) for value in row] for image, row in zip(image_ids, rows, strict=True)},
    }


def _short(value: float | None) -> float | int | None:
    return None if value is None else int(value) if float(value).is_integer() else round(float(value), 3)


def scores(statistics: Statistics, counts: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of R samples of the images, by name, (R,) each: percent, but nats for the maps' entropy and 0 to 1 for movement.

    Args:
        statistics: of N images.
        counts: (R, N), how often each image is in each sample.
    """
    at = {name: index for index, name in enumerate(statistics.columns)}
    there = np.isfinite(statistics.values)
    sums = counts @ np.where(there, statistics.values, 0.0)
    found: dict[str, np.ndarray] = {}
    if set(BLEU) <= at.keys():
        found |= bleu_scores(sums[:, [at[name] for name in BLEU]], counts @ _guesses(statistics.values[:, at["words"]]))
    if set(METEOR) <= at.keys():
        found["METEOR"] = 100 * meteor_score(sums[:, [at[name] for name in METEOR]])
    for name, factor in MEANS.items():
        if name in at:
            present = np.maximum(counts @ there[:, at[name]].astype(np.float64), 1)
            found[name] = factor * sums[:, at[name]] / present
    for name, of in (POINTING | INVENTIONS).items():
        if {name, of} <= at.keys():
            found[name] = 100 * sums[:, at[name]] / np.maximum(sums[:, at[of]], 1)
    return found


def _guesses(words: np.ndarray) -> np.ndarray:
    """How many n-grams captions of so many words have, n = 1 to 4: (N,) -> (N, 4)."""
    return np.maximum(words[:, None] - np.arange(4), 0)


def bleu_scores(sums: np.ndarray, guesses: np.ndarray) -> dict[str, np.ndarray]:
    """Corpus BLEU-1..4 in percent as in the COCO tools, with and without brevity penalty: sums (R, 6), guesses (R, 4) -> (R,)."""
    small, tiny = 1e-9, 1e-15  # the COCO tools' own
    precision = (sums[:, 2:] + tiny) / (guesses + small)
    bleu = np.cumprod(precision, axis=1) ** (1 / np.arange(1, 5))
    ratio = (sums[:, 0] + tiny) / (sums[:, 1] + small)
    penalty = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0)
    found = {f"BLEU-{n}": 100 * penalty * bleu[:, n - 1] for n in range(1, 5)}
    return found | {f"BLEU-{n} (no brevity penalty)": 100 * bleu[:, n - 1] for n in range(1, 5)}


def meteor_score(sums: np.ndarray) -> np.ndarray:
    """METEOR 1.5, 0 to 1, from the sums (R, 23) of the program's statistics, as the program computes it -> (R,).

    A caption that equals its reference has one chunk in what the program prints, and none where it computes scores: its
    fragmentation is 0. The statistics here have none (`metrics`).
    """
    lengths, functions = sums[:, :2], sums[:, 2:4]  # of the caption, of the reference
    stages = sums[:, 4:20].reshape(-1, 4, 2, 2)  # stage, content or function word, caption or reference
    chunks, matched = sums[:, 20], sums[:, 21:23]
    weighted = np.einsum("rskc,s,k->rc", stages, _WEIGHTS, (DELTA, 1 - DELTA))
    whole = DELTA * (lengths - functions) + (1 - DELTA) * functions
    precision, recall = (weighted / np.where(whole > 0, whole, 1)).T
    mean = precision * recall / np.maximum(ALPHA * precision + (1 - ALPHA) * recall, 1e-300)
    fragmentation = chunks / np.maximum(matched.mean(1), 1e-300)
    return mean * (1 - GAMMA * fragmentation**BETA)


@lru_cache(maxsize=8)
def resamples(images: int, number: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """How often each image is in each bootstrap sample: (number, images); the same for the same arguments."""
    drawn = np.random.default_rng(seed).multinomial(images, np.full(images, 1 / images), size=number)
    return drawn.astype(np.float64)


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of resampled values (R,)."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def intervals(statistics: Statistics) -> dict[str, tuple[float, float]]:
    """The 95 % interval of every score that the statistics give."""
    drawn = scores(statistics, resamples(len(statistics.images)))
    return {name: interval(values) for name, values in drawn.items()}


def differences(a: Statistics, b: Statistics) -> dict[str, tuple[float, float, float]]:
    """The difference a - b of every score that both have, with its 95 % interval: (difference, low, high) by name.

    Args:
        a: of N images.
        b: of the same images.
    """
    assert a.images == b.images
    counts = np.concatenate([np.ones((1, len(a.images))), resamples(len(a.images))])
    of_a, of_b = scores(a, counts), scores(b, counts)
    found = {}
    for name in of_a.keys() & of_b.keys():
        difference = of_a[name] - of_b[name]
        found[name] = float(difference[0]), *interval(difference[1:])
    return found
