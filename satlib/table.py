"""A table of results like the paper's Table 1: the published scores, and below them those of satlib's own evaluations."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from satlib import origins
from satlib.errors import SatlibError
from satlib.files import read_json
from satlib.metrics import PTB

# Column -> name of the score in an evaluation. The first five are the paper's.
_FIGURES = {
    "BLEU-1": "BLEU-1 (no brevity penalty)",
    "BLEU-2": "BLEU-2 (no brevity penalty)",
    "BLEU-3": "BLEU-3 (no brevity penalty)",
    "BLEU-4": "BLEU-4 (no brevity penalty)",
    "METEOR": "METEOR",
    "COCO BLEU-4": "BLEU-4",
    "ROUGE-L": "ROUGE-L",
    "CIDEr": "CIDEr",
    "SPICE": "SPICE",
    "exact match": "exact match",
    "entropy": "map entropy",
    "movement": "map movement",
    "pointing": "pointing",
}
_DECIMALS = {"METEOR": 2, "entropy": 2, "movement": 2}
_ALWAYS = tuple(_FIGURES)[:8]  # the other columns appear if an evaluation has them

# Table 1 of the paper as printed there: BLEU-1..4 without brevity penalty, METEOR.
_PUBLISHED = {
    "Flickr8k": {
        "Google NIC (ensemble, other split)": "63 41 27 - -",
        "Log Bilinear": "65.6 42.4 27.7 17.7 17.31",
        "Soft-Attention": "67 44.8 29.9 19.5 18.93",
        "Hard-Attention": "67 45.7 31.4 21.3 20.30",
    },
    "Flickr30k": {
        "Google NIC (ensemble, other split)": "66.3 42.3 27.7 18.3 -",
        "Log Bilinear": "60.0 38 25.4 17.1 16.88",
        "Soft-Attention": "66.7 43.4 28.8 19.1 18.49",
        "Hard-Attention": "66.9 43.9 29.6 19.9 18.46",
    },
    "COCO": {
        "CMU/MS Research (AlexNet)": "- - - - 20.41",
        "MS Research (AlexNet, other split)": "- - - - 20.71",
        "BRNN": "64.2 45.1 30.4 20.3 -",
        "Google NIC (ensemble, other split)": "66.6 46.1 32.9 24.6 -",
        "Log Bilinear": "70.8 48.9 34.4 24.3 20.03",
        "Soft-Attention": "70.7 49.2 34.4 24.3 23.90",
        "Hard-Attention": "71.8 50.4 35.7 25.0 23.04",
    },
}
_NAMES = {name.lower(): name for name in _PUBLISHED}
_NONE = "-"


@dataclass(frozen=True)
class TableRow:
    """A line of the table.

    Attributes:
        data: the data set, "Flickr8k" for example.
        model: the model and how its captions were generated.
        figures: column to the score as printed; a missing column is printed as "-".
        protocol: how the captions were split into words; None for published rows, where it is unknown.
    """

    data: str
    model: str
    figures: dict[str, str]
    protocol: str | None = None

    @property
    def ours(self) -> bool:
        """Whether this is satlib's own evaluation."""
        return self.protocol is not None


def rows(paths: Iterable[Path], split: str | None = "test") -> list[TableRow]:
    """Combine the published rows with those of evaluation files, data set by data set, the published rows first.

    Args:
        paths: evaluation files.
        split: evaluations of other splits are left out; None includes all.

    Raises:
        SatlibError: a file is missing, or is not an evaluation.
    """
    ours = []
    for path in paths:
        evaluation = _read(path)
        if split is None or evaluation["split"] == split:
            ours.append((_row(evaluation), path.parent.name))
    models = [(row.data, row.model) for row, _ in ours]
    # Two runs of one recipe are distinguished by their folders.
    ours_named = [
        replace(row, model=f"{row.model} [{folder}]") if models.count((row.data, row.model)) > 1 else row
        for row, folder in ours
    ]
    others = sorted({row.data for row in ours_named} - _PUBLISHED.keys())
    table = []
    for data in (*_PUBLISHED, *others):
        for model, printed in _PUBLISHED.get(data, {}).items():
            figures = zip(_FIGURES, printed.split(), strict=False)
            table.append(TableRow(data, model, {column: value for column, value in figures if value != _NONE}))
        table += [row for row in ours_named if row.data == data]
    return table


def render(rows: Sequence[TableRow], style: str = "text") -> str:
    """Lay out the table, with notes on the columns and protocols below it.

    Args:
        rows: the result of `rows`.
        style: "text" for a terminal, "markdown" for a README.

    Raises:
        SatlibError: an unknown style.
    """
    if style not in ("text", "markdown"):
        raise SatlibError(f"unknown table style {style!r}; choose text or markdown")
    columns = [column for column in _FIGURES if column in _ALWAYS or any(column in row.figures for row in rows)]
    marks = {protocol: "*" * i for i, protocol in enumerate(_protocols(rows))}
    lines = [(row.data, row.model + marks.get(row.protocol or "", ""), row) for row in rows]
    cells = [(data, model, *(row.figures.get(column, _NONE) for column in columns)) for data, model, row in lines]
    heading = ("Data", "Model", *columns)
    notes = [
        "Percent. BLEU-1..4: the paper's protocol, corpus BLEU without brevity penalty.",
        'COCO BLEU-4: the COCO tools\' BLEU-4, with brevity penalty. Rows without "satlib": Table 1 of the paper.',
    ]
    if "entropy" in columns:
        notes.append(
            "Entropy of the maps in nats (uniform 7x7 map: 3.89, 14x14: 5.28); movement: total variation between words, 0 to 1."
        )
    if any(row.ours and row.data != "scenes" for row in rows):
        notes.append(
            'After the encoder, its view: "whole" is the photograph squeezed to a square, "crop" its middle, as in the paper.'
        )
    if "pointing" in columns:
        notes.append(
            "Pointing: percent of words whose map has its peak on the object that they name, for objects with known positions."
        )
    notes += [f"satlib{mark}: {protocol}." for protocol, mark in marks.items()]
    if style == "markdown":
        return _markdown(heading, cells) + "\n\n" + "\n\n".join(map(_escape, notes)) + "\n"
    return _text(heading, cells) + "\n\n" + "\n".join(notes) + "\n"


def _protocols(rows: Sequence[TableRow]) -> list[str]:
    """The protocols of our rows; that of the COCO tools, which needs no mark, is always the first."""
    protocols = {row.protocol for row in rows if row.protocol is not None}
    return [] if not protocols else [PTB, *sorted(protocols - {PTB})]


def _text(heading: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in (heading, *cells)) for i in range(1, len(heading))]

    def lay(line: Sequence[str]) -> str:
        return "  ".join([line[1].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[2:], widths[1:], strict=True))])

    lines, data = [lay(heading)], None
    for line in cells:
        if line[0] != data:
            data = line[0]
            lines.append(f"{data} ".ljust(len(lay(heading)), "-"))
        lines.append(lay(line))
    return "\n".join(lines)


def _markdown(heading: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    ruler = ["---", "---", *["---:"] * (len(heading) - 2)]
    escaped = [[_escape(cell) for cell in line] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heading, ruler, *escaped))


def _escape(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


def _row(evaluation: dict[str, Any]) -> TableRow:
    encoder = evaluation["encoder"]
    if "view" in evaluation and evaluation["data"] != "scenes":  # scenes are drawn as squares: every view is the same
        encoder += f" ({evaluation['view']})"
    parts = [evaluation["recipe"], encoder, evaluation["attention"]]
    sources = origins.current(evaluation.get("origins", ()))
    parts += [source for source in dict.fromkeys(sources) if source.startswith(origins.DISTILLED)]
    if evaluation.get("maximised") == "reward":
        parts.append("trained on rewards")
    averaged = [source for source in sources if source.startswith(origins.AVERAGED)]
    same_recipe = [source for source in averaged if " of another " in source]  # the file has the shares
    if same_recipe:
        parts.append(f"weights of {len(same_recipe) + 1} such models averaged")
    parts += [source for source in averaged if source not in same_recipe]
    parts.append(f"beam {evaluation['beam']}")
    if evaluation.get("length_normalisation"):
        parts.append(f"normalised {evaluation['length_normalisation']:g}")
    if evaluation.get("look", "expected") != "expected":
        parts.append(f"context from the {'most probable' if evaluation['look'] == 'probable' else 'sampled'} location")
    if evaluation["split"] != "test":
        parts.append(f"{evaluation['split']} split")
    measured = evaluation["metrics"]
    figures = {
        column: f"{measured[name]:.{_DECIMALS.get(column, 1)}f}"
        for column, name in _FIGURES.items()
        if name in measured
    }
    data = evaluation["data"]
    return TableRow(_NAMES.get(data.lower(), data), "satlib: " + ", ".join(parts), figures, evaluation["protocol"])


def _read(path: Path) -> dict[str, Any]:
    evaluation = read_json(path)
    again = "create it again with `satlib evaluate`"
    if not isinstance(evaluation, dict):
        raise SatlibError(f"{path} is not an evaluation (a JSON object); {again}")
    for key in ("recipe", "data", "split", "encoder", "attention", "protocol"):
        if not isinstance(evaluation.get(key), str):
            raise SatlibError(f"{path} is not an evaluation: {key!r} is missing or not text; {again}")
    if not isinstance(evaluation.get("beam"), int) or not isinstance(evaluation.get("metrics"), dict):
        raise SatlibError(f"{path} is not an evaluation: 'beam' or 'metrics' is missing or of the wrong kind; {again}")
    for name, value in evaluation["metrics"].items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SatlibError(f"{path}: the score {name!r} is {json.dumps(value)}, not a number; {again}")
    return evaluation
