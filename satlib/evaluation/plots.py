"""Figures of attention (section 5.4), of training runs and searches: for the screen, a notebook or a PNG file.

Figures are matplotlib objects made without pyplot: no window, no global state, and the same input gives the same bytes. Lines
differ by marker and dash as well as by colour, so figures are readable without colour vision.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

from satlib.errors import SatlibError
from satlib.evaluation import overlay
from satlib.files.atomic import replacing

END_LABEL = "(end)"
_PANEL = 1.6  # inches
_COLUMNS = 6
_WORD, _GATE = 21.0, 10.0  # points: a word above its picture, if it is not too long, and the gate below
_DPI = 144  # two pixels per point
_WIDTH = 100  # of an inch on a notebook's page, in its pixels
GROUND, BRIGHT, PALE = (
    "#24262b",
    "#ffffff",
    "#a6abb5",
)  # of lit photographs on any page; text on it; text of less weight
INK = "#6b7080"  # lines that are no data
_TRAIN, _DEV, _BLEU, _CHOSEN = "#56b4e9", "#0072b2", "#d55e00", INK  # from the palette of Okabe and Ito


class NotebookFigure(Figure):
    """A figure that a notebook displays by itself, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        """The figure as a PNG in all its colours, with two pixels per point."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=_DPI)
        return buffer.getvalue()

    def _ipython_display_(self) -> None:
        """Display `_repr_png_`: once pyplot is imported, IPython would otherwise display it twice."""
        from IPython.display import Image as DisplayedImage
        from IPython.display import display

        display(DisplayedImage(self._repr_png_(), format="png", width=round(_WIDTH * self.get_figwidth())))


class Photographs(NotebookFigure):
    """A figure of photographs: a notebook displays it as a JPEG, much smaller than a PNG; nbconvert does not show WebP."""

    def _ipython_display_(self) -> None:
        from IPython.display import Image as DisplayedImage
        from IPython.display import display

        buffer = io.BytesIO()
        self.savefig(buffer, format="jpeg", dpi=_DPI, pil_kwargs={"quality": 85, "subsampling": 0})
        display(DisplayedImage(buffer.getvalue(), format="jpeg", width=round(_WIDTH * self.get_figwidth())))


class Strip(Photographs):
    """Lit photographs on a dark ground of their own, so that the light is seen first on light and on dark pages."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """As `Figure.savefig`, but on the dark ground whatever the style of the page."""
        super().savefig(*args, **options | {"facecolor": GROUND})


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically; without date and version, so that the same figure gives the same bytes.

    Raises:
        SatlibError: the file cannot be written.
    """
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=_DPI, metadata={"Software": None})


def attention_figure(
    photo: Image.Image,
    words: Sequence[str],
    alphas: Tensor,
    betas: Tensor | None = None,
    path: Path | None = None,
    view: str = "whole",
) -> Figure:
    """Draw the photograph, then for each word the photograph in its own colours where alpha is high, dimmed where it is low.

    Each map is scaled to its own maximum: a uniform map lights the whole photograph, and brightness cannot be compared
    between maps. A thin line encloses what has at least half of the maximum: it shows on dark photographs too.

    Args:
        photo: RGB; drawn whole, in its own aspect ratio.
        words: the caption, without the end mark.
        alphas: (C, h, w), one map per word; a further map belongs to the end mark.
        betas: (C,), the gate, printed below each map.
        path: also write the figure there as a PNG file.
        view: the encoder's view of the photograph (`Captioner.view`); the rest stays dark.

    Raises:
        SatlibError: the number of maps does not match the words, or the file cannot be written.
    """
    figure = _figure(photo, [("", words, alphas, betas, view)])
    if path is not None:
        save(figure, path)
    return figure


def compare_figure(
    photo: Image.Image,
    captions: Sequence[tuple[str, Sequence[str], Tensor]],
    path: Path | None = None,
    views: Sequence[str] = (),
) -> Figure:
    """Draw several captions of one photograph below each other, for example those of several models.

    Args:
        photo: RGB; drawn whole, in its own aspect ratio.
        captions: (label, words, alphas (C, h, w)) for each caption; the label stands above the photograph of its row.
        path: also write the figure there as a PNG file.
        views: the view of each caption's encoder (`Captioner.view`); by default "whole" for all.

    Raises:
        SatlibError: there is no caption, the maps do not match the words, or the file cannot be written.
    """
    if not captions:
        raise SatlibError("there is no caption to draw; give at least one (label, words, alphas)")
    views = views or ["whole"] * len(captions)
    rows = [(label, words, alphas, None, view) for (label, words, alphas), view in zip(captions, views, strict=True)]
    figure = _figure(photo, rows)
    if path is not None:
        save(figure, path)
    return figure


Panel = tuple[str, np.ndarray, np.ndarray | None, float | None]  # title, pixels (H, W, 3), map (H, W), gate


def _figure(photo: Image.Image, captions: Sequence[tuple[str, Sequence[str], Tensor, Tensor | None, str]]) -> Figure:
    """A grid with one or more rows of panels for each caption, the photograph first."""
    pixels = overlay.scaled(photo, overlay.SIDE * (1 if max(photo.size) <= overlay.SIDE else 2))
    for _, words, alphas, *_ in captions:
        require_maps(words, alphas)
    columns = _columns(1 + max(len(alphas) for _, _, alphas, *_ in captions), single=len(captions) == 1)
    rows: list[list[Panel | None]] = []
    for label, words, alphas, betas, view in captions:
        maps = overlay.spread(photo.size, alphas, pixels.shape[:2], view).numpy()
        overlays = [overlay.light(pixels, alpha) for alpha in maps]
        gates = [None] * len(overlays) if betas is None else betas.tolist()
        panels: list[Panel | None] = [(label, pixels, None, None)]
        panels += zip([*words, END_LABEL], overlays, maps, gates, strict=False)
        # If captions are compared, further rows are indented, so that each photograph starts a caption.
        rows.append(panels[:columns])
        step = columns if len(captions) == 1 else max(columns - 1, 1)
        for start in range(columns, len(panels), step):
            rows.append([None] * (columns - step) + panels[start : start + step])

    below = 0.22 if any(betas is not None for _, _, _, betas, _ in captions) else 0.0
    shape = min(max(pixels.shape[0] / pixels.shape[1], 0.5), 1.5)  # a very long photograph is drawn small in its panel
    height = (_PANEL * shape + 0.4 + below) * len(rows)
    figure = Strip(figsize=(_PANEL * columns, height))
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.05, wspace=0, hspace=0)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for row, axes in zip(rows, grid, strict=True):
        for axis, panel in zip(axes, [*row, *[None] * (columns - len(row))], strict=True):
            _draw(axis, panel)
    return figure


def _columns(panels: int, single: bool) -> int:
    """The number of columns that fills the rows most evenly: no last row with a single panel."""
    columns = min(_COLUMNS, panels)
    if single:
        return math.ceil(panels / math.ceil(panels / columns))
    if columns > 1:  # rows after the first are indented by one panel
        return 1 + math.ceil((panels - 1) / math.ceil((panels - 1) / (columns - 1)))
    return columns


def require_maps(words: Sequence[str], alphas: Tensor) -> None:
    """Require a map for each word, and at most one more, for the end mark.

    Raises:
        SatlibError: their number or their shape is another.
    """
    if alphas.dim() != 3 or len(alphas) not in (len(words), len(words) + 1):
        raise SatlibError(
            f"{len(words)} words need maps of shape ({len(words)}, h, w), or one more for the end mark; "
            f"these have shape {tuple(alphas.shape)}"
        )


def _draw(axis: Axes, panel: Panel | None) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_frame_on(False)
    if panel is None:
        return
    title, pixels, alpha, gate = panel
    axis.imshow(pixels)
    if alpha is not None and min(alpha.shape) > 1 and alpha.min() < alpha.max() / 2:
        axis.contour(overlay.strength(alpha), levels=[0.5], colors="white", linewidths=0.8, alpha=0.9)
    # A long word gets a smaller font, to fit its panel; "$" is a dollar, not a formula.
    width = TextPath((0, 0), title.replace("$", r"\$"), size=_WORD).get_extents().width if title else 0
    size = _WORD * min(1, 0.92 * 72 * _PANEL / max(width, 1))
    axis.set_title(title, fontsize=size, pad=4, color=BRIGHT, parse_math=False)
    if gate is not None:
        axis.set_xlabel(f"β = {gate:.2f}", fontsize=_GATE, labelpad=2, color=PALE)


def curves_figure(log: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the learning curves: train and dev NLL on the left, BLEU-4 of generated dev captions on the right.

    Both panels mark the epoch whose weights were kept (if the log does not say which, the one with the highest BLEU-4, the
    first of equals) and the epoch with the lowest dev NLL: late in training the two diverge (section 4.3).

    Args:
        log: the lines of log.jsonl; those with "event": "epoch" are drawn.

    Raises:
        SatlibError: the log has no epoch.
    """
    epochs = [line for line in log if line.get("event", "epoch") == "epoch"]
    if not epochs:
        raise SatlibError("the log has no finished epoch; train for at least one")
    figure = NotebookFigure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    if any("train_nll" in line for line in epochs):  # training on rewards has none
        _curve(left, epochs, "train_nll", "train NLL", color=_TRAIN, linestyle="--", marker="s")
    _curve(left, epochs, "dev_nll", "dev NLL", color=_DEV, linestyle="-", marker="o")
    _curve(right, epochs, "dev_bleu4", "dev BLEU-4", color=_BLEU, linestyle="-", marker="D")
    left.set_title("NLL in nats per word (lower is better)", fontsize=11)
    right.set_title("BLEU-4 in percent, generated captions (higher is better)", fontsize=11)
    best_bleu = max(epochs, key=lambda line: (_value(line, "dev_bleu4", -math.inf), -line["epoch"]))
    chosen = ([line for line in epochs if line.get("kept")] or [best_bleu])[-1]
    lowest = min(epochs, key=lambda line: (_value(line, "dev_nll", math.inf), line["epoch"]))
    marked = (("-", chosen, "kept"), (":", lowest, "lowest dev NLL"))
    for axis in (left, right):
        for dash, line, name in marked:
            style = {"color": _CHOSEN, "linewidth": 1.5, "zorder": 1.5, "linestyle": dash}
            axis.axvline(line["epoch"], label=f"{name}: epoch {line['epoch']}", **style)
        axis.set_xlabel("epoch")
        axis.set_xlim(epochs[0]["epoch"] - 0.5, epochs[-1]["epoch"] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        _plain_axes(axis)
    handles = {
        label: handle for axis in (left, right) for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    return figure


def ground_figure(summary: Mapping[str, Any]) -> Figure:
    """Draw `maps.summary`: peak and mass, for all words and for each kind.

    A dot marks the word's own map, a diamond the mean map of its caption, which ignores the word, and a tick the other baseline.
    """
    groups = {"all words": summary["all"], **summary["by kind"]}
    figure = NotebookFigure(figsize=(9.6, 1.3 + 0.36 * len(groups)), layout="constrained")
    panels = (
        ("peak", "centre", "Peak where the word says (percent of words)"),
        ("mass", "even", "Attention where the word says (percent of the map)"),
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
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return figure


def search_figure(history: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """Draw a search (`tune`): the score of each trial in order, and against each hyperparameter that varied.

    The axis of a hyperparameter is logarithmic if its values are positive and span a factor of 8 or more.

    Args:
        history: the trials, as in `history.json`; trials without a score are left out.
        measure: the name of the score, for the axis.
    """
    names = list(history[0]["values"])
    columns = min(4, 1 + len(names))
    rows = -(-(1 + len(names)) // columns)
    figure = NotebookFigure(figsize=(3.1 * columns, 0.5 + 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    kinds = (("finished", "o", "full"), ("stopped early", "D", "none"))
    for axis, name in zip(axes, ("trial", *names), strict=False):
        for state, marker, fill in kinds:
            scored = {i: t for i, t in enumerate(history, 1) if t["state"] == state and t["value"] is not None}
            x = [i if name == "trial" else trial["values"][name] for i, trial in scored.items()]
            x = [str(value) if isinstance(value, str | bool) else value for value in x]
            y = [trial["value"] for trial in scored.values()]
            axis.plot(x, y, marker, color=_DEV if fill == "full" else _BLEU, fillstyle=fill, label=state)
        numbers = [trial["values"].get(name) for trial in history]
        if all(isinstance(n, float) and n > 0 for n in numbers) and max(numbers) >= 8 * min(numbers):
            axis.set_xscale("log")
        axis.set_xlabel(name, fontsize=9)
        _plain_axes(axis)
    for i, axis in enumerate(axes):
        axis.set_visible(i <= len(names))
        if i % columns == 0:
            axis.set_ylabel(measure)
    finished = [trial["value"] for trial in history if trial["state"] == "finished"]
    if finished:
        axes[0].axhline(max(finished), color=_CHOSEN, linewidth=1, linestyle=":", label=f"best: {max(finished):.2f}")
    legend = axes[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return figure


def _plain_axes(axis: Axes) -> None:
    """A pale grid behind the data, and no frame on top and on the right."""
    axis.grid(color=INK, alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _curve(axis: Axes, epochs: Sequence[Mapping[str, Any]], key: str, label: str, **style: Any) -> None:
    values = [_value(line, key, math.nan) for line in epochs]
    axis.plot([line["epoch"] for line in epochs], values, label=label, linewidth=1.8, markersize=5, **style)


def _value(line: Mapping[str, Any], key: str, otherwise: float) -> float:
    value = line.get(key)
    return otherwise if value is None or math.isnan(value) else value
