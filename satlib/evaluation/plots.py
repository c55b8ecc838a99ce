"""Figures of attention (section 5.4) and of training runs, made without pyplot: the same input gives the same bytes."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

from satlib.evaluation import overlay
from satlib.files.atomic import replacing

END_LABEL = "(end)"
GROUND, BRIGHT, PALE = "#24262b", "#ffffff", "#a6abb5"  # behind lit photographs; text on it; text of less weight
INK = "#6b7080"  # lines that are no data
_TRAIN, _DEV, _BLEU = "#56b4e9", "#0072b2", "#d55e00"  # from the palette of Okabe and Ito
_PANEL = 1.6  # inches
_COLUMNS = 6
_WORD, _GATE = 21.0, 10.0  # points: a word above its picture, if it is not too long, and the gate below
_DPI = 144  # two pixels per point


class NotebookFigure(Figure):
    """A figure that a notebook displays by itself, whether or not pyplot was imported."""

    display_as: ClassVar[dict[str, Any]] = {"format": "png"}

    def _repr_png_(self) -> bytes:
        """The figure as a PNG in all its colours, with two pixels per point."""
        return self._encoded(format="png")

    def _encoded(self, **options: Any) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, dpi=_DPI, **options)
        return buffer.getvalue()

    def _ipython_display_(self) -> None:
        """Display the figure once: if pyplot is imported, IPython would otherwise display it twice."""
        from IPython.display import Image as DisplayedImage
        from IPython.display import display

        content = self._encoded(**self.display_as)
        display(DisplayedImage(content, format=self.display_as["format"], width=round(100 * self.get_figwidth())))


class Photographs(NotebookFigure):
    """A figure of photographs: a notebook displays it as a JPEG, much smaller than a PNG; nbconvert does not show WebP."""

    display_as: ClassVar[dict[str, Any]] = {"format": "jpeg", "pil_kwargs": {"quality": 85, "subsampling": 0}}


class Strip(Photographs):
    """Lit photographs on a dark ground of their own, so that the light is seen first on light and on dark pages."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """As `Figure.savefig`, but on the dark ground whatever the style of the page."""
        super().savefig(*args, **options | {"facecolor": GROUND})


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically; without date and version, so that the same figure gives the same bytes."""
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=_DPI, metadata={"Software": None})


# --- Attention ----------------------------------------------------------------------------------------------------------


def attention_figure(
    photo: Image.Image,
    words: Sequence[str],
    alphas: Tensor,
    betas: Tensor | None = None,
    path: Path | None = None,
    view: str = "whole",
) -> Figure:
    """Draw the photograph, then for each word the photograph in its own colours where alpha is high, dimmed where it is low.

    Each map of alphas (C, h, w) is scaled to its own maximum: a uniform map lights the whole photograph. A map more than there are
    words belongs to the end mark. A thin line encloses what has at least half of the maximum. The gate betas (C,) is printed below
    each map. `view` is how the encoder crops the photograph (`Captioner.view`); the rest stays dark. `path` is of a PNG file.
    """
    panels = _panels(photo, "", words, alphas, betas, view)
    columns = _columns(len(panels))
    return _figure([panels[start : start + columns] for start in range(0, len(panels), columns)], path)


def compare_figure(
    photo: Image.Image,
    captions: Sequence[tuple[str, Sequence[str], Tensor]],
    path: Path | None = None,
    views: Sequence[str] = (),
) -> Figure:
    """Draw several captions of one photograph below each other, (label, words, alphas (C, h, w)) each, as `attention_figure` does."""
    rows: list[list[Panel | None]] = []
    columns = 1 + _columns(max(len(alphas) for _, _, alphas in captions), _COLUMNS - 1)
    for (label, words, alphas), view in zip(captions, views or ["whole"] * len(captions), strict=True):
        first, *others = _panels(photo, label, words, alphas, None, view)
        for start in range(0, len(others), columns - 1):  # further rows are indented: each photograph starts a caption
            rows.append([None if start else first, *others[start : start + columns - 1]])
    return _figure(rows, path)


Panel = tuple[str, np.ndarray, np.ndarray | None, float | None]  # title, pixels (H, W, 3), map (H, W), gate


def _panels(
    photo: Image.Image, label: str, words: Sequence[str], alphas: Tensor, betas: Tensor | None, view: str
) -> list[Panel]:
    """The photograph, and for each word the photograph lit by its map."""
    if len(alphas) not in (len(words), len(words) + 1):
        raise ValueError(f"{len(words)} words need as many maps, or one more for the end mark, not {len(alphas)}")
    pixels = overlay.scaled(photo, overlay.SIDE * (1 if max(photo.size) <= overlay.SIDE else 2))
    maps = overlay.spread(photo.size, alphas, pixels.shape[:2], view).numpy()
    gates = [None] * len(maps) if betas is None else betas.tolist()
    lit = [
        (word, overlay.light(pixels, alpha), alpha, gate)
        for word, alpha, gate in zip([*words, END_LABEL], maps, gates, strict=False)
    ]
    return [(label, pixels, None, None), *lit]


def _columns(panels: int, most: int = _COLUMNS) -> int:
    """The number of columns that fills the rows most evenly: no last row with a single panel."""
    return math.ceil(panels / math.ceil(panels / most))


def _figure(rows: Sequence[Sequence[Panel | None]], path: Path | None) -> Figure:
    """Draw rows of panels."""
    columns = max(map(len, rows))
    _, pixels, _, _ = next(panel for panel in rows[0] if panel)
    shape = min(max(pixels.shape[0] / pixels.shape[1], 0.5), 1.5)  # a very long photograph is drawn small in its panel
    below = 0.22 if any(panel and panel[3] is not None for row in rows for panel in row) else 0.0
    figure = Strip(figsize=(_PANEL * columns, (_PANEL * shape + 0.4 + below) * len(rows)))
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.05, wspace=0, hspace=0)
    for row, axes in zip(rows, figure.subplots(len(rows), columns, squeeze=False), strict=True):
        for axis, panel in zip(axes, [*row, *[None] * (columns - len(row))], strict=True):
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_frame_on(False)
            if panel is not None:
                _draw(axis, *panel)
    if path is not None:
        save(figure, path)
    return figure


def _draw(axis: Axes, title: str, pixels: np.ndarray, alpha: np.ndarray | None, gate: float | None) -> None:
    axis.imshow(pixels)
    if alpha is not None and min(alpha.shape) > 1 and alpha.min() < alpha.max() / 2:
        axis.contour(overlay.strength(alpha), levels=[0.5], colors="white", linewidths=0.8, alpha=0.9)
    # A long word gets a smaller font, to fit its panel; "$" is a dollar, not a formula.
    width = TextPath((0, 0), title.replace("$", r"\$"), size=_WORD).get_extents().width if title else 0
    size = _WORD * min(1, 0.92 * 72 * _PANEL / max(width, 1))
    axis.set_title(title, fontsize=size, pad=4, color=BRIGHT, parse_math=False)
    if gate is not None:
        axis.set_xlabel(f"β = {gate:.2f}", fontsize=_GATE, labelpad=2, color=PALE)


def ground_figure(summary: Mapping[str, Any]) -> Figure:
    """Draw `maps.summary`: peak and mass of the word's map and of both baselines, for all words and for each kind."""
    groups = {"all words": summary["all"], **summary["by kind"]}
    figure = NotebookFigure(figsize=(9.6, 1.3 + 0.36 * len(groups)), layout="constrained")
    panels = (
        ("peak", "centre", "Peak on what the word names (percent of words)"),
        ("mass", "even", "Attention on what the word names (percent of the map)"),
    )
    rows = range(len(groups))
    for axis, (measure, baseline, title) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        for name, label, style in (
            (measure, "the word's map", {"marker": "o", "color": _DEV, "markersize": 8}),
            (f"{measure} mean map", "the caption's mean map", {"marker": "D", "color": _BLEU, "fillstyle": "none"}),
            (
                f"{measure} {baseline}",
                "centre of the picture, even map",
                {"marker": "|", "color": INK, "markersize": 12},
            ),
        ):
            values = [means.get(name, math.nan) for means in groups.values()]  # even maps have no peak
            axis.plot(
                values, rows, label=label, linestyle="none", markeredgewidth=1.8, clip_on=False, zorder=3, **style
            )
        axis.set_title(title, fontsize=11)
        axis.set_xlim(0, 100)
        axis.set_yticks(rows, [f"{name} ({means['words']})" for name, means in groups.items()])
        _plain_axes(axis)
        axis.margins(y=0.15)
    axis.invert_yaxis()
    _legend(figure, axis)
    return figure


# --- Training runs ------------------------------------------------------------------------------------------------------


def curves_figure(log: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the learning curves: train and dev NLL on the left, BLEU-4 of generated dev captions on the right.

    Both panels mark the epoch whose weights were kept (if the log does not say which, the one with the highest BLEU-4) and the
    epoch with the lowest dev NLL: late in training the two diverge (section 4.3). `log` has the lines of log.jsonl.
    """
    epochs = [line for line in log if line.get("event", "epoch") == "epoch"]
    numbers = [line["epoch"] for line in epochs]
    figure = NotebookFigure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    curves = (
        (left, "train_nll", "train NLL", {"color": _TRAIN, "linestyle": "--", "marker": "s"}),
        (left, "dev_nll", "dev NLL", {"color": _DEV, "linestyle": "-", "marker": "o"}),
        (right, "dev_bleu4", "dev BLEU-4", {"color": _BLEU, "linestyle": "-", "marker": "D"}),
    )
    for axis, key, label, style in curves:
        if any(key in line for line in epochs):  # training on rewards has no train NLL
            values = [line.get(key, math.nan) for line in epochs]
            axis.plot(numbers, values, label=label, linewidth=1.8, markersize=5, **style)
    left.set_title("NLL in nats per word (lower is better)", fontsize=11)
    right.set_title("BLEU-4 in percent, generated captions (higher is better)", fontsize=11)
    best = max(epochs, key=lambda line: (line["dev_bleu4"], -line["epoch"]))
    kept = ([line for line in epochs if line.get("kept")] or [best])[-1]
    lowest = min(epochs, key=lambda line: (line["dev_nll"], line["epoch"]))
    for axis in (left, right):
        for dash, line, name in (("-", kept, "kept"), (":", lowest, "lowest dev NLL")):
            label = f"{name}: epoch {line['epoch']}"
            axis.axvline(line["epoch"], label=label, color=INK, linewidth=1.5, zorder=1.5, linestyle=dash)
        axis.set_xlabel("epoch")
        axis.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        _plain_axes(axis)
    _legend(figure, left, right)
    return figure


def _plain_axes(axis: Axes) -> None:
    """A pale grid behind the data, and no frame on top and on the right."""
    axis.grid(color=INK, alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, *axes: Axes) -> None:
    """One legend below all panels; a label that several have is named once."""
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
