"""A table of results like the paper's Table 1: the published scores, and below them those of satlib's own evaluations.

A second table compares models: two models caption the same images, so the difference of their scores is resampled in pairs, and
its 95 % interval is narrower than the models' own intervals suggest.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from tabulate import tabulate

from satlib.evaluation import evaluate
from satlib.evaluation.statistics import Statistics, differences, intervals
from satlib.files import read_json

# Column -> name of the score in an evaluation. BLEU and METEOR are the paper's.
COLUMNS = {f"BLEU-{n}": f"BLEU-{n} (no brevity penalty)" for n in range(1, 5)}
COLUMNS |= {
    "METEOR": "METEOR",
    "COCO BLEU-4": "BLEU-4",
    "CIDEr": "CIDEr",
    "exact match": "exact match",
}
COLUMNS |= {"mass": "mass", "peak": "peak"}
DECIMALS = dict.fromkeys(COLUMNS, 1) | {"METEOR": 2}
COMPARED = ("BLEU-1", "BLEU-4", "METEOR", "CIDEr")
NOTES = (
    "Percent. BLEU-1..4: without brevity penalty, as in the paper; COCO BLEU-4: with it, as in the COCO tools.",
    "Mass and peak: how much of a word's map, and how often its largest pixel, is on what the word names: the objects of a scene, in "
    "generated captions; boxes in a photograph, in true ones.",
    "±: half the 95 % interval by the bootstrap over images, which does not cover the randomness of training.",
)

# Table 1 of the paper as printed there: BLEU-1..4 without brevity penalty, METEOR.
PUBLISHED = json.loads(
    resources.files("satlib").joinpath("results/published.json").read_text(encoding="utf-8")
)
_NAMES = {name.lower(): name for name in PUBLISHED}


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    data: str  # "Flickr8k", for example
    name: str  # the model's name in the paper, or that of our run's folder, by default its recipe's
    figures: Mapping[str, float]  # column to score
    half_widths: Mapping[str, float] = field(default_factory=dict)  # of the scores' 95 % intervals
    statistics: Statistics | None = None  # of the images of our evaluation

    @property
    def ours(self) -> bool:
        """Whether this is satlib's own evaluation."""
        return self.statistics is not None


def rows(paths: Iterable[Path], split: str = "test") -> list[Row]:
    """Combine the published rows with those of evaluation files of a split, data set by data set, the published rows first.

    Raises:
        SatlibError: a file is missing, or is not an evaluation.
    """
    evaluations = {path: evaluate.read(path) for path in paths}
    ours = [
        _row(path, evaluation)
        for path, evaluation in evaluations.items()
        if evaluation["split"] == split
    ]
    table = []
    for data in (*PUBLISHED, *sorted({row.data for row in ours} - PUBLISHED.keys())):
        table += [Row(data, name, scores) for name, scores in PUBLISHED.get(data, {}).items()]
        table += [row for row in ours if row.data == data]
    return table


def _row(path: Path, evaluation: Mapping[str, Any]) -> Row:
    """Our row, from an evaluation and, beside it, what `satlib ground` measured with boxes."""
    scores = dict(evaluation["metrics"])
    grounded = path.with_name(f"ground-{evaluation['split']}.json")
    if grounded.is_file():
        means = (
            read_json(grounded, dict[str, Any], "a result of satlib ground")
            .get("true", {})
            .get("all", {})
        )
        scores |= {name: means[name] for name in ("mass", "peak") if name in means}
    statistics = Statistics.restored(evaluation["statistics"])
    widths = {name: (high - low) / 2 for name, (low, high) in intervals(statistics).items()}
    return Row(
        _NAMES.get(evaluation["data"].lower(), evaluation["data"]),
        path.resolve().parent.name,
        {column: scores[name] for column, name in COLUMNS.items() if name in scores},
        {
            column: widths[name]
            for column, name in COLUMNS.items()
            if name in scores and name in widths
        },
        statistics,
    )


def render(rows: Sequence[Row]) -> str:
    """Lay out the table, with notes on the columns, and the table of differences below it."""
    columns = [column for column in COLUMNS if any(column in row.figures for row in rows)]
    cells = [[row.data, f"satlib: {row.name}" if row.ours else row.name] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        for column in columns:
            decimals = DECIMALS[column]
            figure = f"{row.figures[column]:.{decimals}f}" if column in row.figures else "-"
            if column in row.half_widths:
                figure += f"±{row.half_widths[column]:.{decimals}f}"
            line.append(figure)
    parts = [_table(cells, ["Data", "Model", *columns], 2), "\n".join(NOTES)]
    if compared := compare(rows):
        parts.append(_table(compared, ["Data", "Model", "less", *COMPARED], 3))
        parts.append("Differences, with 95 % intervals by the paired bootstrap over images.")
    return "\n\n".join(parts) + "\n"


def _table(cells: Sequence[Sequence[str]], headers: Sequence[str], words: int) -> str:
    """Lay out cells; the first `words` columns are text, the others numbers."""
    alignment = [*["left"] * words, *["right"] * (len(headers) - words)]
    return tabulate(cells, headers, colalign=alignment, disable_numparse=True)


def compare(rows: Sequence[Row]) -> list[list[str]]:
    """The differences of our rows from soft attention trained the same way: of flickr8k-lite0-none from flickr8k-lite0-soft."""
    statistics = {row.name: row.statistics for row in rows if row.statistics}
    lines = []
    for row in rows:
        partner = row.name.rpartition("-")[0] + "-soft"
        soft = statistics.get(partner)
        if row.statistics and soft and partner != row.name and soft.images == row.statistics.images:
            leads, cells = differences(row.statistics, soft), []
            for column in COMPARED:
                decimals = DECIMALS[column]
                lead, low, high = leads.get(COLUMNS[column], (math.nan,) * 3)
                cells.append(f"{lead:+.{decimals}f} ({low:+.{decimals}f} to {high:+.{decimals}f})")
            lines.append([row.data, row.name, partner, *cells])
    return lines
