"""A table of results like the paper's Table 1: the published scores, and below them satlib's own.

A second table compares models: two models caption the same images, so the difference of their
scores is resampled in pairs, and its 95 % interval is narrower than the models' own intervals
suggest. `satlib.evaluation.statistics.METRICS` says which metrics have a column in each.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tabulate import tabulate

from satlib.evaluation import evaluate, statistics
from satlib.evaluation.statistics import Metric, Statistics
from satlib.files import read_json

NOTES = (
    "Percent. BLEU-1..4: without brevity penalty, as in the paper; "
    "COCO BLEU-4: with it, as in the COCO tools.",
    "Mass and peak: how much of a word's map, and how often its largest pixel, "
    "is on what the word names: the objects of a scene, in "
    "generated captions; boxes in a photograph, in true ones.",
    "±: half the 95 % interval by the bootstrap over images, "
    "which does not cover the randomness of training.",
)

# Table 1 of the paper as printed there: BLEU-1..4 without brevity penalty, METEOR.
PUBLISHED = json.loads(
    resources.files("satlib").joinpath("results/published.json").read_text(encoding="utf-8")
)
PAPER = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR")  # the headings of its columns
_NAMES = {name.lower(): name for name in PUBLISHED}


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    data: str  # "Flickr8k", for example
    name: str  # the model's name in the paper, or that of our run's folder, by default its recipe's
    figures: Mapping[str, float]  # heading of a column to score
    # Of our scores, by the names of their metrics.
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    statistics: Statistics | None = None  # of the images of our evaluation
    notes: Sequence[str] = ()  # on our evaluation

    @property
    def ours(self) -> bool:
        """Whether this is satlib's own evaluation."""
        return self.statistics is not None


def columns() -> list[Metric]:
    """The metrics that have a column: those of the paper, then the others."""
    # Sorting is stable: the others stay in the order of METRICS.
    shown = [metric for metric in statistics.METRICS if metric.heading]
    return sorted(shown, key=lambda metric: metric.heading not in PAPER)


def rows(paths: Iterable[Path], split: str = "test") -> list[Row]:
    """The published rows and those of a split's evaluation files, data set by data set.

    The published rows of a data set come first.

    Raises:
        SatlibError: a file is missing, or is not an evaluation.
    """
    ours = []
    for path in paths:
        evaluation = evaluate.read(path)
        if evaluation["split"] == split:
            ours.append(_row(path, evaluation))

    # The paper's data sets first.
    unpublished = {row.data for row in ours} - PUBLISHED.keys()
    table = []
    for data in (*PUBLISHED, *sorted(unpublished)):
        published = PUBLISHED.get(data, {})
        table += [Row(data, name, figures) for name, figures in published.items()]
        table += [row for row in ours if row.data == data]
    return table


def _row(path: Path, evaluation: Mapping[str, Any]) -> Row:
    """Our row, from an evaluation and, beside it, what `satlib ground` measured with boxes."""
    scores = dict(evaluation["metrics"])
    grounded = path.with_name(f"ground-{evaluation['split']}.json")
    if grounded.is_file():
        content = read_json(grounded, dict[str, Any], "a result of satlib ground")
        # Of generated captions, the evaluation itself has the peak.
        means = content.get("true", {}).get("all", {})
        for name in ("mass", "peak"):
            if name in means:
                scores[name] = means[name]

    captions = evaluation.get("captions")
    kept = Statistics.restored(evaluation["statistics"], captions)

    figures = {}
    for metric in columns():
        if metric.name in scores:
            figures[metric.heading] = scores[metric.name]

    # The paper writes "Flickr8k", an evaluation "flickr8k".
    data = evaluation["data"]
    data = _NAMES.get(data.lower(), data)
    name = path.resolve().parent.name
    intervals = statistics.intervals(kept)
    return Row(data, name, figures, intervals, kept, evaluation.get("notes", ()))


def render(rows: Sequence[Row]) -> str:
    """Lay out the table, with notes on the columns, and the table of differences below it."""
    # A column in which no row has a figure is left out.
    filled = set().union(*(row.figures for row in rows))
    shown = [metric for metric in columns() if metric.heading in filled]

    cells = []
    for row in rows:
        name = f"satlib: {row.name}" if row.ours else row.name
        figures = [_figure(row, metric) for metric in shown]
        cells.append([row.data, name, *figures])
    headings = ["Data", "Model", *(metric.heading for metric in shown)]
    notes = [*NOTES, *_unknown(rows)]
    for row in rows:
        notes += [f"{row.name}: {note}" for note in row.notes]
    parts = [_table(cells, headings, 2), "\n".join(notes)]

    if compared := compare(rows):
        headings = ["Data", "Model", "less", *(metric.heading for metric in _compared())]
        parts.append(_table(compared, headings, 3))
        parts.append("Differences, with 95 % intervals by the paired bootstrap over images.")
    return "\n\n".join(parts) + "\n"


def _figure(row: Row, metric: Metric) -> str:
    """A score and half the width of its interval, as far as they are known."""
    if metric.heading not in row.figures:
        return "-"
    figure = f"{row.figures[metric.heading]:.{metric.decimals}f}"
    if metric.name in row.intervals:
        low, high = row.intervals[metric.name]
        figure += f"±{(high - low) / 2:.{metric.decimals}f}"
    return figure


def _unknown(rows: Sequence[Row]) -> list[str]:
    """A line for each column of an evaluation that no metric knows."""
    # A dict, because every column is named once.
    kept = {}
    for row in rows:
        if row.statistics:
            kept |= dict.fromkeys(row.statistics.columns)
    return statistics.unknown(kept)


def _table(
    cells: Sequence[Sequence[str]],
    headers: Sequence[str],
    words: int,
) -> str:
    """Lay out cells; the first `words` columns are text, the others numbers."""
    alignment = ["left"] * words
    alignment += ["right"] * (len(headers) - words)
    # Figures come with their decimals, which tabulate would otherwise cut.
    return tabulate(cells, headers, colalign=alignment, disable_numparse=True)


def compare(rows: Sequence[Row]) -> list[list[str]]:
    """The differences of our rows from soft attention trained the same way.

    An example is the difference of flickr8k-lite0-none from flickr8k-lite0-soft.
    """
    of_models = {row.name: row.statistics for row in rows if row.statistics}
    lines = []
    for row in rows:
        partner = row.name.rpartition("-")[0] + "-soft"
        soft = of_models.get(partner)
        if row.statistics is None or soft is None or partner == row.name:
            continue
        # Only scores of the same images are differences in pairs.
        if soft.images != row.statistics.images:
            continue

        leads = statistics.differences(row.statistics, soft)
        line = [row.data, row.name, partner]
        for metric in _compared():
            # A score that one of the two does not have is printed as nan.
            lead, low, high = leads.get(metric.name, [math.nan] * 3)
            places = f"+.{metric.decimals}f"
            line.append(f"{lead:{places}} ({low:{places}} to {high:{places}})")
        lines.append(line)
    return lines


def _compared() -> list[Metric]:
    """The metrics by which models are compared."""
    return [metric for metric in columns() if metric.compared]
