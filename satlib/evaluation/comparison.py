"""Which differences between rows of the table of results are larger than chance: paired with soft attention, and with the paper.

Two models caption the same images, so the difference of their scores is resampled in pairs (`satlib.evaluation.statistics.differences`); its 95 %
interval is narrower than the models' own intervals suggest. A difference whose interval contains 0 is called none.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from satlib.evaluation.statistics import Statistics, differences, intervals

if TYPE_CHECKING:
    from satlib.evaluation.table import TableRow

# Column -> name of the score, and its decimals.
_SCORES = {
    "BLEU-1": ("BLEU-1 (no brevity penalty)", 1),
    "BLEU-4": ("BLEU-4 (no brevity penalty)", 1),
    "METEOR": ("METEOR", 2),
    "CIDEr": ("CIDEr", 1),
}
HEADING = ("Data", "Model", "compared with", *_SCORES)
NOTES = (
    "Differences, with their 95 % intervals by the paired bootstrap over images; none: the interval contains 0.",
    'Compared with the paper: our score is above or below the published one; "within": the published one is in our 95 % interval.',
)
_PAPER = {"soft": "Soft-Attention", "hard": "Hard-Attention"}


def compare(rows: Sequence["TableRow"]) -> list[tuple[str, ...]]:
    """The lines of the table of differences, below `HEADING`: each of our rows that has statistics, in their order."""
    lines = []
    for row in rows:
        if not row.ours or "statistics" not in row.evaluation:
            continue
        reference = soft_row(row, rows)
        if reference is not None:
            found = differences(row.evaluation["statistics"], reference.evaluation["statistics"])
            cells = [_paired(found.get(name), decimals) for name, decimals in _SCORES.values()]
            lines.append((row.data, row.name, reference.name, *cells))
        paper = [other for other in rows if other.data == row.data and other.model == _PAPER.get(_attention(row))]
        lines += [
            (row.data, row.name, f"paper, {other.model}", *_beside(row, other)) for other in paper if not other.ours
        ]
    return lines


def soft_row(row: "TableRow", rows: Sequence["TableRow"]) -> "TableRow | None":
    """The row of soft attention with a softmax, trained on captions alone, that a row is compared with; None if that is the row itself.

    Of the rows of the same data, split and images: that of the recipe of the same name but for the attention, or else one with the same
    encoder and view, or else any; of several, the one with the shortest recipe name, or else the first.
    """
    twin = re.sub(r"-(soft|hard|none)\b.*$", "-soft", row.evaluation["recipe"])

    def distance(other: "TableRow") -> tuple[bool, bool, int]:
        theirs, ours = other.evaluation, row.evaluation
        same = (theirs["encoder"], theirs.get("view")) == (ours["encoder"], ours.get("view"))
        return theirs["recipe"] != twin, not same, len(theirs["recipe"])

    candidates = [other for other in rows if _plain_soft(other) and _same_images(row, other)]
    main = min(candidates, key=lambda other: len(other.evaluation["recipe"]), default=None)
    if row is main:
        return None
    others = [other for other in candidates if other is not row]
    return min(others, key=distance, default=None)


def _attention(row: "TableRow") -> str:
    return row.evaluation.get("attention", "")


def _plain_soft(row: "TableRow") -> bool:
    """Whether a row is of soft attention with a softmax, trained on captions alone, not averaged with another model."""
    plain = not {"maximised", "boxes", "normaliser"} & row.evaluation.keys() and not row.evaluation.get("origins")
    return row.ours and _attention(row) == "soft" and plain and "statistics" in row.evaluation


def _same_images(a: "TableRow", b: "TableRow") -> bool:
    """Whether two evaluations are of the same images."""
    theirs, ours = (row.evaluation["statistics"] for row in (a, b))
    return (a.data, a.evaluation["split"]) == (b.data, b.evaluation["split"]) and theirs.images == ours.images


def _paired(found: tuple[float, float, float] | None, decimals: int) -> str:
    if found is None:
        return "-"
    difference, low, high = found
    between = f"({low:+.{decimals}f} to {high:+.{decimals}f})"
    return f"none {between}" if low <= 0 <= high else f"{difference:+.{decimals}f} {between}"


def _beside(row: "TableRow", paper: "TableRow") -> list[str]:
    """How our scores stand to the paper's printed ones."""
    of_images: Statistics = row.evaluation["statistics"]
    limits, cells = intervals(of_images), []
    for column, (name, _) in _SCORES.items():
        if column not in paper.figures or name not in limits:
            cells.append("-")
            continue
        printed, (low, high) = float(paper.figures[column]), limits[name]
        cells.append("above" if low > printed else "below" if high < printed else "within")
    return cells
