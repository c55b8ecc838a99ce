"""The metrics, and 95 % intervals of their scores by the bootstrap over images (Koehn, 2004).

An evaluation keeps numbers for each image, its *columns*: what BLEU and METEOR count in the
image's caption, the image's own score, or how many of its words or objects have a property, and how
many there are. From these and the captions, a metric computes the score of any set of images.
`METRICS` is the one list of them; docs/contributing.md adds two.

The resamples are the same for all models, so the difference of two models is resampled in pairs.
CIDEr's n-gram weights are always those of the whole set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from satlib.errors import SatlibError
from satlib.evaluation import metrics
from satlib.evaluation.metrics import BLEU, METEOR, Captions, Columns, References

RESAMPLES = 2000


@dataclass(frozen=True)
class Statistics:
    """What is kept of N images: P columns of numbers, and the captions."""

    columns: tuple[str, ...]
    images: tuple[str, ...]  # their ids, sorted
    # NaN for what an image does not have, such as the movement of an empty caption's maps.
    values: np.ndarray  # (N, P)
    captions: tuple[str, ...] = ()  # as they were written, in the order of the images; or none

    @classmethod
    def restored(cls, stored: Mapping[str, Any], captions: Captions | None = None) -> "Statistics":
        """The statistics of an evaluation file, {"columns": [...], "images": {id: [...]}}.

        `captions` are those of the same file, by image id; a few metrics need them.
        """
        images = tuple(sorted(stored["images"]))
        rows = [stored["images"][image] for image in images]
        values = np.array(rows, dtype=np.float64)  # (N, P)

        # A file from elsewhere may have no captions, or not all of them.
        texts: tuple[str, ...] = ()
        if captions and captions.keys() >= set(images):
            texts = tuple(captions[image] for image in images)
        return cls(tuple(stored["columns"]), images, values, texts)


@dataclass(frozen=True)
class Samples:
    """R samples of N images: all that the score of a metric is computed from.

    The bootstrap draws with replacement, so an image may be in a sample more than once.
    """

    statistics: Statistics
    counts: np.ndarray  # (R, N): how often each image is in each sample

    @property
    def captions(self) -> tuple[str, ...]:
        """The captions of the N images."""
        return self.statistics.captions

    def values(self, column: str) -> np.ndarray:
        """A column: the numbers of the N images, (N,)."""
        index = self.statistics.columns.index(column)
        return self.statistics.values[:, index]

    @cached_property
    def _sums(self) -> np.ndarray:
        """The sums of all P columns, (R, P); what an image does not have adds 0."""
        # One product for all columns is far faster than one for each metric.
        values = self.statistics.values
        present = np.isfinite(values)
        return self.counts @ np.where(present, values, 0.0)

    def sums(self, *columns: str) -> np.ndarray:
        """The sum of each column over the images of each sample, (R, number of columns)."""
        indices = [self.statistics.columns.index(column) for column in columns]
        return self._sums[:, indices]

    def mean(self, column: str, factor: float = 1.0) -> np.ndarray:
        """`factor` times the mean of a column over the images that have the number, (R,)."""
        present = np.isfinite(self.values(column))  # (N,)
        images = self.counts @ present.astype(np.float64)  # (R,)
        sums = self.sums(column)[:, 0]
        # A sample in which no image has the number scores 0.
        return factor * sums / np.maximum(images, 1)

    def share(self, part: str, whole: str) -> np.ndarray:
        """The sum of one column in percent of the sum of another, (R,)."""
        parts, wholes = self.sums(part, whole).T
        return 100 * parts / np.maximum(wholes, 1)


@dataclass(frozen=True)
class Metric:
    """A score of captions. An evaluation has it if it has the columns."""

    name: str  # in an evaluation
    columns: tuple[str, ...]  # of numbers that it needs of each image; "captions" are the captions
    score: Callable[[Samples], np.ndarray]  # its value for each of R samples, (R,)
    # Measures columns, given captions and references whose words are joined by spaces. Metrics of
    # the same columns name the same function. None: the captions suffice, or `evaluate` measures.
    measure: Callable[[Captions, References], Columns] | None = None
    decimals: int = 1  # in the table
    heading: str = ""  # of its column in the table; without a heading it has none
    compared: bool = False  # whether the table has the differences of models, too

    @classmethod
    def mean(cls, column: str, factor: float = 1.0, **options: Any) -> "Metric":
        """`factor` times the mean of a column, named like it."""
        score = partial(Samples.mean, column=column, factor=factor)
        return cls(column, (column,), score, **options)

    @classmethod
    def share(cls, part: str, whole: str, **options: Any) -> "Metric":
        """The sum of one column in percent of the sum of another, named like the first."""
        score = partial(Samples.share, part=part, whole=whole)
        return cls(part, (part, whole), score, **options)


def _bleu(name: str, **options: Any) -> Metric:
    """One of the scores that `metrics.bleu_scores` computes: BLEU-n, of n-grams up to n."""
    n = int(name[len("BLEU-")])
    columns = BLEU[: 2 + n]

    def score(samples: Samples) -> np.ndarray:
        guesses = samples.counts @ metrics.guesses(samples.values("words"))[:, :n]
        return metrics.bleu_scores(samples.sums(*columns), guesses)[name]

    return Metric(name, columns, score, metrics.bleu_columns, **options)


def _meteor(samples: Samples) -> np.ndarray:
    """METEOR of each sample, (R,)."""
    return metrics.meteor_scores(samples.sums(*METEOR))


# All are in percent, except the maps' entropy (nats) and movement (0 to 1).
METRICS = [
    _bleu("BLEU-1"),
    _bleu("BLEU-2"),
    _bleu("BLEU-3"),
    _bleu("BLEU-4", heading="COCO BLEU-4"),
    # The paper's BLEU has no brevity penalty.
    _bleu("BLEU-1 (no brevity penalty)", heading="BLEU-1", compared=True),
    _bleu("BLEU-2 (no brevity penalty)", heading="BLEU-2"),
    _bleu("BLEU-3 (no brevity penalty)", heading="BLEU-3"),
    _bleu("BLEU-4 (no brevity penalty)", heading="BLEU-4", compared=True),
    Metric.mean("ROUGE-L", measure=metrics.rouge_columns),
    Metric.mean(
        "CIDEr",
        measure=metrics.cider_columns,
        heading="CIDEr",
        compared=True,
    ),
    Metric(
        "METEOR",
        METEOR,
        _meteor,
        metrics.meteor_columns,
        decimals=2,
        heading="METEOR",
        compared=True,
    ),
    Metric.mean("exact match", 100, heading="exact match"),
    Metric.mean("captions that invent", 100),
    Metric.mean("map entropy"),
    Metric.mean("map movement"),
    # No evaluation has this column: `satlib ground` measures it, and the table shows it.
    Metric.mean("mass", 100, heading="mass"),
    Metric.share("peak", "named words", heading="peak"),
    Metric.share("invented objects", "objects"),
]


def measure(captions: Captions, references: References) -> tuple[Columns, list[str]]:
    """Measure one caption per image against its references.

    Captions are given as they are written, by image id; an empty one counts and scores 0. METEOR
    takes ten seconds to start.

    Returns:
        The columns of all metrics that measure some, and a line for each score that is missing.

    Raises:
        SatlibError: the image ids differ, no reference of an image has a word, or two metrics
            measure columns of one name.
    """
    split_captions, split_references = metrics.split_words(captions, references)

    columns: Columns = {}
    notes = []
    # Metrics of the same columns name the same function, which runs once.
    functions = [metric.measure for metric in METRICS if metric.measure]
    for function in dict.fromkeys(functions):
        try:
            measured = function(split_captions, split_references)
        except SatlibError as error:
            notes.append(str(error))
            continue
        if twice := measured.keys() & columns.keys():
            raise SatlibError(f"two metrics measure the column {min(twice)!r}: rename the new one")
        columns |= measured

    # Where people write three words, BLEU-4 could only be 0.
    longest = max(len(line.split()) for lines in split_references.values() for line in lines)
    for n in range(longest + 1, metrics.MAX_N + 1):
        columns.pop(f"{n}-grams", None)
        notes.append(f"BLEU-{n} is missing: no reference has {n} words")
    return columns, notes


def unknown(columns: Iterable[str]) -> list[str]:
    """A line for each column that no metric knows: it would silently be left out of all scores."""
    known = set().union(*(metric.columns for metric in METRICS))
    return [
        f"no metric knows the column {column!r}; add it in satlib.evaluation.statistics.METRICS"
        for column in columns
        if column not in known
    ]


def stored(columns: Columns, image_ids: Sequence[str]) -> dict[str, Any]:
    """Columns of numbers, one for each image, as `Statistics.restored` reads them."""
    rows = {}
    for image_id, *numbers in zip(image_ids, *columns.values(), strict=True):
        rows[image_id] = [_short(number) for number in numbers]
    return {"columns": list(columns), "images": rows}


def _short(number: float | None) -> float | int | None:
    """A number as it is stored: a whole number as such, another to 3 decimals."""
    if number is None:
        return None
    if float(number).is_integer():
        return int(number)
    # Three decimals keep the files small and change no score by more than 0.001.
    return round(float(number), 3)


def scores(statistics: Statistics, counts: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of R samples of the images, (R,) each, by the names of their metrics.

    `counts` (R, N) says how often each image is in each sample.
    """
    samples = Samples(statistics, counts)
    available = set(statistics.columns)
    if statistics.captions:
        available.add("captions")

    # Scores whose columns are missing are left out: METEOR needs Java, exact match a drawn scene.
    result = {}
    for metric in METRICS:
        if available.issuperset(metric.columns):
            result[metric.name] = metric.score(samples)
    return result


def whole(columns: Columns, captions: Sequence[str] = ()) -> dict[str, float]:
    """The scores of all images, from their columns and captions."""
    rows = list(columns.values())
    values = np.array(rows, dtype=np.float64).T  # (N, P)
    # A score does not depend on the images' ids.
    statistics = Statistics(tuple(columns), (), values, tuple(captions))

    once = scores(statistics, np.ones((1, len(values))))
    return {name: float(score[0]) for name, score in once.items()}


@lru_cache(maxsize=8)
def resamples(images: int) -> np.ndarray:
    """How often each image is in each bootstrap sample: (RESAMPLES, images); always the same."""
    # The same seed for all models: their differences are of the same images.
    random = np.random.default_rng(0)
    chances = np.full(images, 1 / images)
    drawn = random.multinomial(images, chances, size=RESAMPLES)
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
    """The difference a - b of every score that both have, with its 95 % interval, by name.

    Both are of the same N images.
    """
    assert a.images == b.images
    # The first sample has each image once and gives the difference itself.
    once = np.ones((1, len(a.images)))
    counts = np.concatenate([once, resamples(len(a.images))])
    scores_a = scores(a, counts)
    scores_b = scores(b, counts)

    # Only one of them may have a score: METEOR, for example, where the other had no Java.
    result = {}
    for name in scores_a.keys() & scores_b.keys():
        leads = scores_a[name] - scores_b[name]
        low, high = interval(leads[1:])
        result[name] = (float(leads[0]), low, high)
    return result
