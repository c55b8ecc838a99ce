"""Scores from the statistics of each image, and 95 % intervals by the bootstrap over images (Koehn, 2004).

An evaluation keeps, for each image, numbers whose sums over any set of images give the scores of that set: what BLEU and METEOR
count, the image's own score (`MEANS`), or how many of its words or objects have a property, and how many there are (`SHARES`).
CIDEr's n-gram weights are always those of the whole set. The resamples are the same for all models, so the difference of two models
is resampled in pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from satlib.evaluation.metrics import BLEU, METEOR, bleu_scores, guesses, meteor_scores

# Column -> the factor from its mean to the score.
MEANS = {
    "ROUGE-L": 1, "CIDEr": 1, "exact match": 100, "captions that invent": 100, "map entropy": 1, "map movement": 1,
}  # fmt: skip
# Column -> the column of what it is a share of.
SHARES = {"peak": "named words", "invented objects": "objects"}
RESAMPLES = 2000


@dataclass(frozen=True)
class Statistics:
    """The statistics of N images, P columns of them."""

    columns: tuple[str, ...]
    images: tuple[str, ...]  # their ids, sorted
    values: np.ndarray  # (N, P); NaN for what an image does not have, such as the movement of an empty caption's maps

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> "Statistics":
        """The statistics of an evaluation file, {"columns": [...], "images": {id: [...]}}."""
        images = tuple(sorted(stored["images"]))
        values = np.array([stored["images"][image] for image in images], dtype=np.float64)
        return cls(tuple(stored["columns"]), images, values)


def stored(
    columns: Mapping[str, Sequence[float | None]], image_ids: Sequence[str]
) -> dict[str, Any]:
    """Columns of numbers, one for each image, as `Statistics.restored` reads them: whole numbers as such, others to 3 decimals."""

    def short(value: float | None) -> float | int | None:
        return (
            None
            if value is None
            else int(value)
            if float(value).is_integer()
            else round(float(value), 3)
        )

    rows = [[short(value) for value in row] for row in zip(*columns.values(), strict=True)]
    return {"columns": list(columns), "images": dict(zip(image_ids, rows, strict=True))}


def scores(statistics: Statistics, counts: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of R samples of the images, by name, (R,) each; counts (R, N): how often each image is in each sample.

    All are in percent, except the maps' entropy (nats) and movement (0 to 1).
    """
    at = {name: index for index, name in enumerate(statistics.columns)}
    present = np.isfinite(statistics.values)
    sums = counts @ np.where(present, statistics.values, 0.0)
    result: dict[str, np.ndarray] = {}
    if set(BLEU) <= at.keys():
        result |= bleu_scores(
            sums[:, [at[name] for name in BLEU]],
            counts @ guesses(statistics.values[:, at["words"]]),
        )
    if set(METEOR) <= at.keys():
        result["METEOR"] = meteor_scores(sums[:, [at[name] for name in METEOR]])
    for name in filter(at.__contains__, MEANS):
        images = np.maximum(counts @ present[:, at[name]].astype(np.float64), 1)
        result[name] = MEANS[name] * sums[:, at[name]] / images
    for name in filter(at.__contains__, SHARES):
        result[name] = 100 * sums[:, at[name]] / np.maximum(sums[:, at[SHARES[name]]], 1)
    return result


def whole(columns: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    """The scores of all images, from a column for each statistic."""
    values = np.array(list(columns.values()), dtype=np.float64).T
    everything = Statistics(tuple(columns), tuple(map(str, range(len(values)))), values)
    return {
        name: float(score[0])
        for name, score in scores(everything, np.ones((1, len(values)))).items()
    }


@lru_cache(maxsize=8)
def resamples(images: int) -> np.ndarray:
    """How often each image is in each bootstrap sample: (RESAMPLES, images); always the same."""
    drawn = np.random.default_rng(0).multinomial(
        images, np.full(images, 1 / images), size=RESAMPLES
    )
    return drawn.astype(np.float64)


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of resampled values (R,)."""
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def intervals(statistics: Statistics) -> dict[str, tuple[float, float]]:
    """The 95 % interval of every score that the statistics give."""
    resampled = scores(statistics, resamples(len(statistics.images)))
    return {name: interval(values) for name, values in resampled.items()}


def differences(a: Statistics, b: Statistics) -> dict[str, tuple[float, float, float]]:
    """The difference a - b of every score that both have, with its 95 % interval, by name; both are of the same N images."""
    assert a.images == b.images
    counts = np.concatenate([np.ones((1, len(a.images))), resamples(len(a.images))])
    scores_a, scores_b = scores(a, counts), scores(b, counts)
    leads = {name: scores_a[name] - scores_b[name] for name in scores_a.keys() & scores_b.keys()}
    return {name: (float(lead[0]), *interval(lead[1:])) for name, lead in leads.items()}
