"""A table of results like the paper's Table 1: the published scores, and below them those of satlib's own evaluations.

A second table says which differences between rows are larger than chance: beside soft attention, and beside the paper. Two models
caption the same images, so the difference of their scores is resampled in pairs (`satlib.evaluation.statistics.differences`); its
95 % interval is narrower than the models' own intervals suggest. A difference whose interval contains 0 is called none.

BLEU without brevity penalty, which the paper reports, is high for captions of one word. So the length of the captions stands beside
it, and captions that are much shorter than the references or nearly all the same get no verdict.
"""

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.evaluation.metrics import PTB
from satlib.evaluation.statistics import BLEU, INVENTIONS, RESAMPLES, Statistics, differences, intervals
from satlib.files.reading import read_json
from satlib.model import shipped

# Column -> name of the score in an evaluation, or of what is computed from its statistics here. BLEU and METEOR are the paper's.
_FIGURES = {
    "BLEU-1": "BLEU-1 (no brevity penalty)",
    "BLEU-2": "BLEU-2 (no brevity penalty)",
    "BLEU-3": "BLEU-3 (no brevity penalty)",
    "BLEU-4": "BLEU-4 (no brevity penalty)",
    "length": "length",
    "METEOR": "METEOR",
    "COCO BLEU-4": "BLEU-4",
    "ROUGE-L": "ROUGE-L",
    "CIDEr": "CIDEr",
    "SPICE": "SPICE",
    "exact match": "exact match",
    "entropy": "map entropy",
    "movement": "map movement",
    "pointing": "pointing",
    "pointing strict": "pointing strict",
    "mass in boxes": "mass in boxes",
    "peak in box": "peak in box",
    "generated peak": "generated peak",
}
_INVENTIONS = {
    name: name for name in ("invented objects", "captions that invent", *INVENTIONS)
}  # the columns of a table of its own
# Column -> where a ground-SPLIT.json has it, of all phrases or words.
_GROUNDED = {
    "mass in boxes": ("true", "mass"),
    "peak in box": ("true", "peak"),
    "generated peak": ("generated", "peak"),
}
_DECIMALS = {"length": 2, "METEOR": 2, "entropy": 2, "movement": 2}
_PAPERS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR")
_ALWAYS = (*_PAPERS, "COCO BLEU-4", "ROUGE-L", "CIDEr")  # the other columns appear if an evaluation has them
# No verdict on captions with less than this share of the references' words (BLEU's penalty, which the paper left out, is 0.72 there) ...
_SHORT = 0.75
# ... nor if one caption has this share of the images, or if this share of the captions would be all the different ones.
_SAME, _DIFFERENT = 0.5, 0.1
_NO_VERDICT = "no verdict"

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
# Column -> name of the score, and its decimals.
_COMPARED = {
    "BLEU-1": ("BLEU-1 (no brevity penalty)", 1),
    "BLEU-4": ("BLEU-4 (no brevity penalty)", 1),
    "METEOR": ("METEOR", 2),
    "CIDEr": ("CIDEr", 1),
}
_COMPARED_HEADING = ("Data", "Model", "compared with", *_COMPARED)
_COMPARED_NOTES = (
    "Differences, with their 95 % intervals by the paired bootstrap over images; none: the interval contains 0.",
    'Compared with the paper: our score is above or below the published one; "within": the published one is in our 95 % interval.',
)
_NO_VERDICT_NOTE = (
    f"No verdict: the captions have less than {_SHORT:.0%} of the references' words, or one caption has at least {_SAME:.0%} of the images, "
    f"or there are fewer different captions than {_DIFFERENT:.0%} of the images."
).replace("%", " %")
_PAPER = {"soft": "Soft-Attention", "hard": "Hard-Attention"}
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
        half_widths: column to half the width of the score's 95 % interval, for evaluations with statistics.
        name: the folder of the evaluation, with the folder above it if another row has the same one.
        evaluation: what its file holds; empty for published rows.
        shipped: whether the evaluation comes with satlib.
        remark: why its captions get no verdict; empty if they get one.
    """

    data: str
    model: str
    figures: dict[str, str]
    protocol: str | None = None
    half_widths: dict[str, str] = field(default_factory=dict)
    name: str = ""
    evaluation: dict[str, Any] = field(default_factory=dict)
    shipped: bool = False
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row for a program: figures and half widths as numbers, as they are printed."""
        return {
            "data": self.data,
            "model": self.model,
            "ours": self.ours,
            "name": self.name,
            "protocol": self.protocol,
            "remark": self.remark,
            "figures": {column: float(value) for column, value in self.figures.items()},
            "half_widths": {column: float(value) for column, value in self.half_widths.items()},
        }

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
    with_satlib = {path.resolve() for path in shipped.evaluations()}
    ours, folders = [], []
    for given in paths:
        evaluation, path = _read(given), given.resolve()
        if split is None or evaluation["split"] == split:
            ours.append(_row(evaluation, path, path in with_satlib))
            folders.append(path.parent)
    names = Counter(folder.name for folder in set(folders))
    ours = [
        replace(row, name=f"{folder.parent.name}/{row.name}") if names[row.name] > 1 and not row.shipped else row
        for row, folder in zip(ours, folders, strict=True)
    ]
    recipes = [(row.data, row.evaluation["recipe"]) for row in ours]
    # Runs of one recipe are distinguished by their folders, under whose names the table of differences has them.
    ours_named = [
        replace(row, model=f"{row.model} [{row.name}]")
        if recipes.count((row.data, recipe)) > 1 and row.name != recipe
        else row
        for row, (_, recipe) in zip(ours, recipes, strict=True)
    ]
    others = sorted({row.data for row in ours_named} - _PUBLISHED.keys())
    table = []
    for data in (*_PUBLISHED, *others):
        for model, printed in _PUBLISHED.get(data, {}).items():
            figures = zip(_PAPERS, printed.split(), strict=True)
            table.append(TableRow(data, model, {column: value for column, value in figures if value != _NONE}))
        table += [row for row in ours_named if row.data == data]
    return table


def render(rows: Sequence[TableRow], style: str = "text", with_intervals: bool = True, inventions: bool = False) -> str:
    """Lay out the table, with notes on the columns and protocols below it, and the table of differences below these.

    Args:
        rows: the result of `rows`.
        style: "text" for a terminal, "markdown" for a README.
        with_intervals: show 95 % intervals and differences, for evaluations with statistics.
        inventions: in place of all this, a table of what captions invent (`satlib.evaluation.inventions`).

    Raises:
        SatlibError: an unknown style, or no row says what its captions invent.
    """
    if style not in ("text", "markdown"):
        raise SatlibError(f"unknown table style {style!r}; choose text or markdown")
    if inventions:
        rows = [row for row in rows if any(column in row.figures for column in _INVENTIONS)]
        if not rows:
            raise SatlibError(
                "none of these evaluations says what its captions invent; score them again: satlib evaluate FILE.json"
            )
    columns = [
        column
        for column in (_INVENTIONS if inventions else _FIGURES)
        if column in _ALWAYS or any(column in row.figures for row in rows)
    ]
    marks: dict[str, str] = {protocol: "*" * i for i, protocol in enumerate(_protocols(rows))}

    plus = "±" if style == "text" else " ± "

    def cell(row: TableRow, column: str) -> str:
        figure = row.figures.get(column, _NONE)
        return f"{figure}{plus}{row.half_widths[column]}" if with_intervals and column in row.half_widths else figure

    def label(row: TableRow) -> str:
        mark = marks.get(row.protocol or "", "")
        if style == "text":
            return f"satlib: {row.name}{mark}" if row.ours else row.model
        return row.model + mark + (f" ({_NO_VERDICT}: {row.remark})" if row.remark else "")

    cells = [(row.data, label(row), *(cell(row, column) for column in columns)) for row in rows]
    remarks = {label(row): f"{_NO_VERDICT}: {row.remark}" for row in rows if row.remark}
    notes = list(_INVENTIONS_NOTES) if inventions else _notes(rows, columns, marks, with_intervals)
    if style == "text":
        notes = [*_descriptions(rows), "", *notes] if any(row.ours for row in rows) else notes
    parts = [_laid_out(("Data", "Model", *columns), cells, notes, style, remarks=remarks)]
    if with_intervals and not inventions and (compared := compare(rows)):
        notes = [*_COMPARED_NOTES, *([_NO_VERDICT_NOTE] if remarks else [])]
        parts.append(_laid_out(_COMPARED_HEADING, compared, notes, style, words=3))
    return "\n".join(parts)


_INVENTIONS_NOTES = (
    "Percent. Wrong size ... relation: of the sizes ... relations that captions of scenes state, those that are false.",
    "Invented objects: of the objects that captions name, those that are not there. In a scene, no object has that colour and shape. "
    "In a photograph, no reference mentions an object of that kind, which people do not always do either.",
    "Captions that invent: those with an invented object. ±: half the width of the 95 % interval by the bootstrap over images.",
)


def _descriptions(rows: Sequence[TableRow]) -> list[str]:
    """What the names of our rows in a terminal stand for: the model, and how its captions were generated."""
    return [
        f"{row.name}: "
        + row.model.removeprefix("satlib: ").removeprefix(f"{row.name}, ").removesuffix(f" [{row.name}]")
        for row in rows
        if row.ours
    ]


def _notes(rows: Sequence[TableRow], columns: Sequence[str], marks: dict[str, str], with_intervals: bool) -> list[str]:
    """What is said below the table."""
    notes = [
        "Percent. BLEU-1..4: the paper's protocol, corpus BLEU without brevity penalty.",
        'COCO BLEU-4: the COCO tools\' BLEU-4, with brevity penalty. Rows without "satlib": Table 1 of the paper.',
    ]
    if "length" in columns:
        notes.append(
            "Length: the words of the captions divided by those of the references, of each image's the closest in length. Without "
            "brevity penalty, BLEU is high for captions that are too short."
        )
    if with_intervals and any(row.half_widths for row in rows):
        notes.append(
            f"±: half the width of the 95 % interval by the bootstrap over images ({RESAMPLES:,} resamples, percentiles). It covers "
            "the choice of test images, not the randomness of training."
        )
    if "entropy" in columns:
        notes.append(
            "Entropy: of the maps, in nats (an even 7x7 map has 3.89, an even 14x14 map 5.28). Movement: how much of the map moves from "
            "one word to the next (total variation, 0 to 1)."
        )
    if any("@" in row.model or "+" in row.model for row in rows):
        notes.append(
            '"A+B": the encoders A and B side by side. "A@288": A sees photographs of 288 x 288 pixels instead of 224 x 224.'
        )
    if any("distilled from " in row.model for row in rows):
        notes.append('"distilled from" another model: trained on its word probabilities as well as on the captions.')
    if any(row.ours and row.data != "scenes" for row in rows):
        notes.append(
            'The word after the encoder\'s name says what it sees: "whole" is the whole photograph, squeezed to a square; "crop" is its '
            "middle (the paper's choice)."
        )
    if "pointing" in columns:
        notes.append(
            "Pointing: percent of words whose map has its peak on the object that they name, or within 15 pixels of it, for objects "
            "with known positions."
        )
    if "pointing strict" in columns:
        notes.append("Pointing strict: the same without tolerance: the peak is on the object's pixels.")
    if any(column in columns for column in _GROUNDED):
        notes.append(
            "The last three columns compare maps with the boxes that people drew for the phrases of the reference captions (Flickr30k "
            "Entities). Mass in boxes: the share of a phrase's map that lies in its boxes. Peak in box: percent of phrases whose map "
            "has its peak in a box. Generated peak: the same for words of generated captions."
        )
    # "COCO tools: PTB tokenizer, ..., on both sides": one colon is enough in a sentence.
    protocols = {mark: protocol.replace(": ", ", ", 1) for protocol, mark in marks.items()}
    return notes + [
        f'Protocol of the rows with "satlib{mark}": {each} (captions and references).'
        for mark, each in protocols.items()
    ]


def _laid_out(
    heading: Sequence[str],
    cells: Sequence[Sequence[str]],
    notes: Sequence[str],
    style: str,
    words: int = 2,
    remarks: Mapping[str, str] | None = None,
) -> str:
    """A table and its notes; its first `words` columns are text, the others numbers. A remark stands below the row of its label."""
    if style == "markdown":
        return _markdown(heading, cells, words) + "\n\n" + "\n\n".join(map(_escape, notes)) + "\n"
    wrapped = [textwrap.fill(note, _width(), subsequent_indent="  ", break_on_hyphens=False) for note in notes]
    return _text(heading, cells, words, remarks or {}) + "\n\n" + "\n".join(wrapped) + "\n"


def _width() -> int:
    """The columns of the terminal, at most 100; 100 where there is none, as in a file."""
    return min(shutil.get_terminal_size((100, 0)).columns, 100)


def _protocols(rows: Sequence[TableRow]) -> list[str]:
    """The protocols of our rows; that of the COCO tools, which needs no mark, is always the first."""
    protocols = {row.protocol for row in rows if row.protocol is not None}
    return [] if not protocols else [PTB, *sorted(protocols - {PTB})]


def _text(heading: Sequence[str], cells: Sequence[Sequence[str]], words: int, remarks: Mapping[str, str]) -> str:
    """The table for a terminal: as many columns as fit, and below them the others, of the rows that have any of those."""
    widths = [max(len(line[i]) for line in (heading, *cells)) for i in range(len(heading))]
    blocks, room = [], 0
    for column in range(words, len(heading)):
        if not blocks or room < 2 + widths[column]:
            blocks.append([])
            room = _width() - sum(widths[1:words]) - 2 * (words - 2)
        blocks[-1].append(column)
        room -= 2 + widths[column]
    parts = []
    for block in blocks:
        first = block is blocks[0]
        lines = [line for line in cells if first or any(line[column] != _NONE for column in block)]
        if lines:
            parts.append(_block(heading, lines, widths, (range(1, words), block), remarks if first else {}))
    return "\n\n".join(parts)


def _block(
    heading: Sequence[str],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    columns: tuple[Sequence[int], Sequence[int]],
    remarks: Mapping[str, str],
) -> str:
    """Some columns of a table, those of text and those of numbers, with a line above each data set."""

    def lay(line: Sequence[str]) -> str:
        texts, numbers = columns
        return "  ".join([*(line[i].ljust(widths[i]) for i in texts), *(line[i].rjust(widths[i]) for i in numbers)])

    lines, data = [lay(heading)], None
    for line in cells:
        if line[0] != data:
            data = line[0]
            lines.append(f"{data} ".ljust(len(lay(heading)), "-"))
        lines.append(lay(line))
        if line[1] in remarks:
            lines.append(textwrap.indent(textwrap.fill(remarks[line[1]], _width() - 4), "    "))
    return "\n".join(lines)


def _markdown(heading: Sequence[str], cells: Sequence[Sequence[str]], words: int) -> str:
    ruler = [*["---"] * words, *["---:"] * (len(heading) - words)]
    escaped = [[_escape(cell) for cell in line] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heading, ruler, *escaped))


def _escape(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


def _row(evaluation: dict[str, Any], path: Path, with_satlib: bool) -> TableRow:
    encoder = evaluation["encoder"]
    if "view" in evaluation and evaluation["data"] != "scenes":  # scenes are drawn as squares: every view is the same
        encoder += f" ({evaluation['view']})"
    parts = [evaluation["recipe"], encoder, evaluation["attention"]]
    if evaluation.get("decoder") == "transformer":
        parts.append("Transformer")
    sources = evaluation.get("origins", ())
    parts += [source for source in dict.fromkeys(sources) if source.startswith("distilled from ")]
    if "normaliser" in evaluation:
        parts.append(evaluation["normaliser"])
    if evaluation.get("boxes"):
        parts.append("attention supervised by boxes")
    if evaluation.get("maximised") == "reward":
        named = ", ".join(evaluation.get("rewards", ()))
        parts.append(f"trained on rewards ({named})" if named else "trained on rewards")
    averaged = [source for source in sources if source.startswith("weights averaged with ")]
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
    length = _length(evaluation)
    measured = evaluation["metrics"] | _grounded(path.with_name(f"ground-{evaluation['split']}.json"))
    if length is not None:
        measured["length"] = length
    figures, widths = {}, {}
    limits = {} if "statistics" not in evaluation else intervals(evaluation["statistics"])
    for column, name in (_FIGURES | _INVENTIONS).items():
        decimals = _DECIMALS.get(column, 1)
        if name in measured:
            figures[column] = f"{measured[name]:.{decimals}f}"
        if name in measured and name in limits:
            widths[column] = f"{(limits[name][1] - limits[name][0]) / 2:.{decimals}f}"
    data, model = _NAMES.get(evaluation["data"].lower(), evaluation["data"]), "satlib: " + ", ".join(parts)
    name, protocol, remark = path.parent.name, evaluation["protocol"], _remark(evaluation, length)
    return TableRow(data, model, figures, protocol, widths, name, evaluation, with_satlib, remark)


def _length(evaluation: Mapping[str, Any]) -> float | None:
    """The words of the captions divided by those of the closest references, as BLEU counts them; None without statistics."""
    statistics: Statistics | None = evaluation.get("statistics")
    if statistics is None or not {*BLEU[:2]} <= {*statistics.columns}:
        return None
    words, references = (statistics.values[:, statistics.columns.index(name)].sum() for name in BLEU[:2])
    return float(words / references) if references else None


def _remark(evaluation: Mapping[str, Any], length: float | None) -> str:
    """Why captions get no verdict: much shorter than the references, or nearly all the same; empty if neither."""
    parts = (
        [f"the captions have {length:.2f} of the references' words"] if length is not None and length < _SHORT else []
    )
    counts = Counter(evaluation.get("captions", {}).values())
    images = counts.total()
    if images >= 1 / _DIFFERENT:  # of a few images, nothing can be said
        commonest, times = counts.most_common(1)[0]
        if times >= _SAME * images:
            parts.append(f'{times:,} of {images:,} are "{textwrap.shorten(commonest, 60, placeholder=" ...")}"')
        elif len(counts) < _DIFFERENT * images:
            parts.append(f"{images:,} images have {len(counts):,} different captions")
    return "; ".join(parts)


def _grounded(path: Path) -> dict[str, float]:
    """The figures for photographs' boxes, if `satlib ground --entities` has measured the run."""
    if not path.is_file():
        return {}
    measured = read_json(path, dict[str, Any], "a result of satlib ground", "create it again").get("entities")
    if measured is None:  # without boxes, or with COCO's
        return {}
    try:
        return {
            column: float(measured[captions]["all"][name])
            for column, (captions, name) in _GROUNDED.items()
            if captions in measured and (name != "peak" or name in measured[captions]["all"])  # no attention, no peak
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SatlibError(
            f"{path} has figures for boxes in another form ({error!r}); create it again with `satlib ground --entities`"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    evaluation = evaluate.read(path)
    if evaluation.get("statistics"):
        evaluation["statistics"] = Statistics.of(evaluation["statistics"])
    return evaluation


# --- Differences between rows ---


def compare(rows: Sequence[TableRow]) -> list[tuple[str, ...]]:
    """The lines of the table of differences, below `HEADING`: each of our rows that has statistics, in their order."""
    lines = []
    for row in rows:
        if not row.ours or "statistics" not in row.evaluation:
            continue
        reference = soft_row(row, rows)
        if reference is not None:
            found = differences(row.evaluation["statistics"], reference.evaluation["statistics"])
            cells = [
                _NO_VERDICT if row.remark and "no brevity penalty" in name else _paired(found.get(name), decimals)
                for name, decimals in _COMPARED.values()
            ]
            lines.append((row.data, row.name, reference.name, *cells))
        paper = [other for other in rows if other.data == row.data and other.model == _PAPER.get(_attention(row))]
        lines += [
            (row.data, row.name, f"paper, {other.model}", *_beside(row, other)) for other in paper if not other.ours
        ]
    return lines


def soft_row(row: TableRow, rows: Sequence[TableRow]) -> TableRow | None:
    """The row of soft attention with a softmax, trained on captions alone, that a row is compared with; None if that is the row itself.

    Of the rows of the same data, split and images: that of the recipe of the same name but for the attention, or else one with the same
    encoder and view, or else any; of several, the one with the shortest recipe name, or else the first. A row that comes with satlib is
    compared with such rows only, and another run with one of these if its own recipe's twin is not there. Captions that get no verdict
    are compared with others, and nothing with them.
    """
    twin = re.sub(r"-(soft|hard|none|transformer)\b.*$", "-soft", row.evaluation["recipe"])

    def distance(other: TableRow) -> tuple[bool, bool, bool, int]:
        theirs, ours = other.evaluation, row.evaluation
        same = (theirs["encoder"], theirs.get("view")) == (ours["encoder"], ours.get("view"))
        return theirs["recipe"] != twin, not other.shipped, not same, len(theirs["recipe"])

    candidates = [
        other
        for other in rows
        if _plain_soft(other) and _same_images(row, other) and not other.remark and (other.shipped or not row.shipped)
    ]
    main = min(candidates, key=lambda other: (not other.shipped, len(other.evaluation["recipe"])), default=None)
    if row is main:
        return None
    others = [other for other in candidates if other is not row]
    return min(others, key=distance, default=None)


def _attention(row: TableRow) -> str:
    return row.evaluation.get("attention", "")


def _plain_soft(row: TableRow) -> bool:
    """Whether a row is of an LSTM with soft attention by a softmax, trained on captions alone, not averaged with another model."""
    others = {"maximised", "boxes", "words", "normaliser", "decoder"} & row.evaluation.keys()
    plain = not others and not row.evaluation.get("origins")
    return row.ours and _attention(row) == "soft" and plain and "statistics" in row.evaluation


def _same_images(a: TableRow, b: TableRow) -> bool:
    """Whether two evaluations are of the same images."""
    theirs, ours = (row.evaluation["statistics"] for row in (a, b))
    return (a.data, a.evaluation["split"]) == (b.data, b.evaluation["split"]) and theirs.images == ours.images


def _paired(found: tuple[float, float, float] | None, decimals: int) -> str:
    if found is None:
        return "-"
    difference, low, high = found
    between = f"({low:+.{decimals}f} to {high:+.{decimals}f})"
    return f"none {between}" if low <= 0 <= high else f"{difference:+.{decimals}f} {between}"


def _beside(row: TableRow, paper: TableRow) -> list[str]:
    """How our scores stand to the paper's printed ones."""
    if row.remark:
        return [_NO_VERDICT] * len(_COMPARED)
    of_images: Statistics = row.evaluation["statistics"]
    limits, cells = intervals(of_images), []
    for column, (name, _) in _COMPARED.items():
        if column not in paper.figures or name not in limits:
            cells.append("-")
            continue
        printed, (low, high) = float(paper.figures[column]), limits[name]
        cells.append("above" if low > printed else "below" if high < printed else "within")
    return cells
