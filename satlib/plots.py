"""Where each word looked (section 5.4), and how a training went: figures for the screen, a notebook or a PNG.

Figures are matplotlib's own objects, made without pyplot: no window, no global state, the same bytes for the same input.
Light, not hue, shows attention, and lines differ by marker and dash as well as colour: readable without colour vision.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satlib.errors import SatlibError
from satlib.files import replacing
from satlib.images import seen_box

END_LABEL = "(end)"
_SEEN = 224  # pixels: of the square that the encoder sees, and of the longer side of what is drawn beside it
_PANEL = 1.6  # inches
_COLUMNS = 6
_GLOW = np.array([1.0, 0.86, 0.30])  # seen on dark and on bright photographs
_TRAIN, _DEV, _BLEU, _CHOSEN = "#56b4e9", "#0072b2", "#d55e00", "0.35"  # of the palette of Okabe and Ito


class Picture(Figure):
    """A figure that a notebook shows by itself, whether pyplot was imported or not."""

    def _repr_png_(self) -> bytes:
        """In 256 colours: a quarter of the bytes, so that a notebook full of photographs can be looked at on the web."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="rgba", dpi=100)
        pixels = buffer.getvalue()
        width = int(self.get_figwidth() * 100)
        picture = Image.frombytes("RGBA", (width, len(pixels) // (4 * width)), pixels).convert("RGB")
        buffer = io.BytesIO()
        picture.quantize(256, Image.Quantize.FASTOCTREE).save(buffer, format="png", optimize=True)
        return buffer.getvalue()

    def _ipython_display_(self) -> None:
        """Show `_repr_png_`: where pyplot was imported, its own way for every figure would come first, in full colour."""
        from IPython.display import Image as Shown
        from IPython.display import display

        display(Shown(self._repr_png_(), format="png"))


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all; no date and no version, so that the same figure gives the same bytes.

    Raises:
        SatlibError: the file cannot be written.
    """
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=150, metadata={"Software": None})


def upsample(alphas: Tensor, size: tuple[int, int] = (_SEEN, _SEEN)) -> Tensor:
    """Bring maps to the size of the photograph: each weight fills its cell, then a Gaussian smooths (section 5.4).

    For a map of 14x14 and a photograph of 224x224 the factor is the paper's 2^4 = 16. The Gaussian's standard deviation is
    one cell. At the border the map is mirrored: nothing is lost (the mean stays the same), an even map stays even.

    Args:
        alphas: (C, h, w).
        size: (H, W) in pixels.

    Returns:
        (C, H, W), float32.
    """
    height, width = alphas.shape[-2:]
    maps = functional.interpolate(alphas.detach().float().cpu().unsqueeze(1), size=size, mode="nearest-exact").squeeze(
        1
    )
    maps = _smooth(maps, size[1] / width)
    return _smooth(maps.transpose(1, 2), size[0] / height).transpose(1, 2)


def _smooth(maps: Tensor, sigma: float) -> Tensor:
    """Convolve the last axis of (C, H, W) with a Gaussian cut at 4 sigma, mirrored at the border (c b a | a b c)."""
    radius, width = int(4 * sigma + 0.5), maps.shape[2]
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    there = torch.arange(-radius, width + radius) % (2 * width)
    there = torch.minimum(there, 2 * width - 1 - there)
    # As a matrix: row x holds what each pixel gives to pixel x. With kernels this wide it is far faster than conv1d.
    weights = (kernel / kernel.sum()).expand(width, -1)
    matrix = torch.zeros(width, width).scatter_add_(1, there.unfold(0, 2 * radius + 1, 1), weights)
    return maps @ matrix.T


def attention_figure(
    photo: Image.Image,
    words: Sequence[str],
    alphas: Tensor,
    betas: Tensor | None = None,
    path: Path | None = None,
    view: str = "whole",
) -> Figure:
    """Draw the photograph, then for each word the places it was seen at: lit where alpha is high, dim and grey where low.

    Each map is scaled from 0 to its own maximum, so that an even map lights everything.

    Args:
        photo: RGB; drawn whole, in its own shape.
        words: of the caption, without the end mark.
        alphas: (C, h, w), one map a word; one more is that of the end mark.
        betas: (C,): the gate's value, written below each map.
        path: also write a PNG there.
        view: what the encoder saw of the photograph (`Captioner.view`); what it did not see stays dark.

    Raises:
        SatlibError: the number of maps does not fit the words, or the file cannot be written.
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
    """Draw several captions of one photograph, of several models for example, one below the other.

    Args:
        photo: RGB; drawn whole, in its own shape.
        captions: (label, words, alphas (C, h, w)) each; the label stands above the photograph of its row.
        path: also write a PNG there.
        views: what each caption's encoder saw of the photograph (`Captioner.view`); "whole" where none are given.

    Raises:
        SatlibError: no caption, maps that do not fit the words, or the file cannot be written.
    """
    if not captions:
        raise SatlibError("there is no caption to draw; give at least one (label, words, alphas)")
    views = views or ["whole"] * len(captions)
    rows = [(label, words, alphas, None, view) for (label, words, alphas), view in zip(captions, views, strict=True)]
    figure = _figure(photo, rows)
    if path is not None:
        save(figure, path)
    return figure


def _figure(photo: Image.Image, captions: Sequence[tuple[str, Sequence[str], Tensor, Tensor | None, str]]) -> Figure:
    """A grid with a row (or more) of panels for each caption, the photograph first."""
    # Larger photographs than those of drawn scenes are shown at twice the resolution.
    pixels = scaled(photo, _SEEN if max(photo.size) <= _SEEN else 2 * _SEEN)
    rows: list[list[tuple[str, np.ndarray, float | None] | None]] = []
    longest = 1 + max(_maps_of(words, alphas) for _, words, alphas, *_ in captions)
    columns = min(_COLUMNS, longest)
    if len(captions) == 1:  # as even as it gets: no last row with one panel
        columns = math.ceil(longest / math.ceil(longest / columns))
    elif columns > 1:
        columns = 1 + math.ceil((longest - 1) / math.ceil((longest - 1) / (columns - 1)))
    for label, words, alphas, betas, view in captions:
        maps = spread(photo.size, alphas, pixels.shape[:2], view).numpy()
        lit = [_light(pixels, alpha) for alpha in maps]
        titles = [*words, END_LABEL][: len(lit)]
        gates = [None] * len(lit) if betas is None else betas.tolist()
        panels = [(label, pixels, None), *zip(titles, lit, gates, strict=True)]
        # Where captions are compared, a second row is set in, so that each photograph starts a caption.
        rows.append(panels[:columns])
        step = columns if len(captions) == 1 else max(columns - 1, 1)
        for start in range(columns, len(panels), step):
            rows.append([None] * (columns - step) + panels[start : start + step])

    below = 0.22 if any(betas is not None for _, _, _, betas, _ in captions) else 0.0
    shape = min(max(pixels.shape[0] / pixels.shape[1], 0.5), 1.5)  # a strip stays small within its panel
    height = (_PANEL * shape + 0.24 + below) * len(rows)
    figure = Picture(figsize=(_PANEL * columns, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.04, wspace=0, hspace=0)
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for row, axes in zip(rows, grid, strict=True):
        for axis, panel in zip(axes, [*row, *[None] * (columns - len(row))], strict=True):
            _draw(axis, panel)
    return figure


def _maps_of(words: Sequence[str], alphas: Tensor) -> int:
    if alphas.dim() != 3 or len(alphas) not in (len(words), len(words) + 1):
        raise SatlibError(
            f"{len(words)} words need maps of shape ({len(words)}, h, w), or one more for the end mark; "
            f"these have the shape {tuple(alphas.shape)}"
        )
    return len(alphas)


def lit(photo: Image.Image, alphas: Tensor, longest: int = _SEEN, view: str = "whole") -> np.ndarray:
    """A photograph in its own shape, lit by each of some maps as in `attention_figure`.

    Args:
        photo: RGB.
        alphas: (C, h, w).
        longest: pixels of the photograph's longer side, H or W.
        view: what the encoder saw of it (`images.square`); the rest stays dark.

    Returns:
        (C, H, W, 3), uint8.
    """
    pixels = scaled(photo, longest)
    return np.stack([_light(pixels, alpha) for alpha in spread(photo.size, alphas, pixels.shape[:2], view).numpy()])


def scaled(photo: Image.Image, longest: int = _SEEN) -> np.ndarray:
    """An RGB photograph in its own shape, its longer side of `longest` pixels: (H, W, 3), 0 to 1."""
    factor = longest / max(photo.size)
    width, height = (max(1, round(factor * side)) for side in photo.size)
    return np.asarray(photo.convert("RGB").resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32) / 255


def spread(photo: tuple[int, int], alphas: Tensor, size: tuple[int, int], view: str = "whole") -> Tensor:
    """Bring maps of what the encoder saw to where that lies in the photograph; 0 where the encoder saw nothing.

    Args:
        photo: (width, height) of the photograph.
        alphas: (C, h, w).
        size: (H, W) of the photograph as it is drawn.
        view: what the encoder saw of it (`images.square`).

    Returns:
        (C, H, W), float32.
    """
    left, top, right, bottom = seen_box(photo, view)
    columns, rows = size[1] / photo[0], size[0] / photo[1]
    top, bottom = (min(max(round(edge * rows), 0), size[0]) for edge in (top, bottom))
    left, right = (min(max(round(edge * columns), 0), size[1]) for edge in (left, right))
    maps = torch.zeros(len(alphas), *size)
    maps[:, top:bottom, left:right] = upsample(alphas, (bottom - top, right - left))
    return maps


def _light(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Light the photograph (H, W, 3) by a map (H, W): dim and grey at 0, in colour and with a glow at the maximum."""
    strength = (alpha / max(float(alpha.max()), 1e-12)).clip(0, 1)[..., None]
    dim = 0.14 + 0.42 * pixels.mean(axis=2, keepdims=True)
    lit = (1 - strength) * dim + strength * (0.55 * pixels + 0.45 * _GLOW)
    return np.rint(255 * lit).astype(np.uint8)


def _draw(axis: Axes, panel: tuple[str, np.ndarray, float | None] | None) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_frame_on(False)
    if panel is None:
        return
    title, picture, gate = panel
    axis.imshow(picture)
    # A word as wide as its panel at most; "$" is a dollar, not a formula.
    size = min(13.0, 13.0 * 15 / max(len(title), 1))
    axis.set_title(title, fontsize=size, pad=3, parse_math=False)
    if gate is not None:
        axis.set_xlabel(f"β = {gate:.2f}", fontsize=9, labelpad=2)


def curves_figure(log: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw a training: NLL per word of train and dev on the left, BLEU-4 of generated dev captions on the right.

    The epoch that is kept (the highest BLEU-4, the first of equals) and that of the lowest dev NLL are marked on both
    sides: late in training the two part ways (section 4.3).

    Args:
        log: the lines of log.jsonl; those with "event": "epoch" are drawn.

    Raises:
        SatlibError: no epoch in the log.
    """
    epochs = [line for line in log if line.get("event", "epoch") == "epoch"]
    if not epochs:
        raise SatlibError("the log has no finished epoch; train for at least one")
    figure = Picture(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    if any("train_nll" in line for line in epochs):  # a training on rewards has none
        _curve(left, epochs, "train_nll", "train NLL", color=_TRAIN, linestyle="--", marker="s")
    _curve(left, epochs, "dev_nll", "dev NLL", color=_DEV, linestyle="-", marker="o")
    _curve(right, epochs, "dev_bleu4", "dev BLEU-4", color=_BLEU, linestyle="-", marker="D")
    left.set_title("NLL in nats per word (lower is better)", fontsize=11)
    right.set_title("BLEU-4 in percent, generated captions (higher is better)", fontsize=11)
    kept = [line for line in epochs if line.get("kept")]
    best_bleu = max(epochs, key=lambda line: (_value(line, "dev_bleu4", -math.inf), -line["epoch"]))
    chosen = kept[-1] if kept else best_bleu
    lowest = min(epochs, key=lambda line: (_value(line, "dev_nll", math.inf), line["epoch"]))
    for axis in (left, right):
        axis.axvline(chosen["epoch"], color=_CHOSEN, linewidth=1.5, zorder=1.5, label=f"kept: epoch {chosen['epoch']}")
        axis.axvline(
            lowest["epoch"],
            color=_CHOSEN,
            linewidth=1.5,
            zorder=1.5,
            linestyle=":",
            label=f"lowest dev NLL: epoch {lowest['epoch']}",
        )
        axis.set_xlabel("epoch")
        axis.set_xlim(epochs[0]["epoch"] - 0.5, epochs[-1]["epoch"] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    handles = {
        label: handle for axis in (left, right) for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    return figure


def ground_figure(found: Mapping[str, Any]) -> Figure:
    """Draw `ground.summary`: for all words and each class, how often the peak is on the object, and how much of the map.

    A dot for the word's own map, a diamond for one that ignores the word, a tick for chance.
    """
    groups = {"all words": found["all"], **found["by class"]}
    figure = Picture(figsize=(9.6, 1.3 + 0.36 * len(groups)), layout="constrained")
    titles = {"pointing": "Peak on the object (percent of words)", "mass": "Part of the map on the object (percent)"}
    for axis, (measure, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        rows = range(len(groups))
        for suffix, label, style in (
            ("", "the word's map", {"marker": "o", "color": _DEV, "markersize": 8}),
            (
                "_still",
                "a map that ignores the word",
                {"marker": "D", "color": _BLEU, "markersize": 6, "fillstyle": "none"},
            ),
            ("_chance", "chance", {"marker": "|", "color": _CHOSEN, "markersize": 12}),
        ):
            values = [figures[measure + suffix] for figures in groups.values()]
            axis.plot(
                values, rows, linestyle="none", label=label, markeredgewidth=1.8, clip_on=False, zorder=3, **style
            )
        axis.set_title(title, fontsize=11)
        axis.set_xlim(0, 100)
        axis.set_yticks(rows, [f"{name} ({figures['words']})" for name, figures in groups.items()])
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.15)
    axis.invert_yaxis()
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    return figure


def search_figure(history: Sequence[Mapping[str, Any]], measure: str) -> Figure:
    """Draw a search (`tune`): what each trial was worth in their order, and against each value that varied.

    Args:
        history: the trials as `history.json` has them.
        measure: what "value" is.
    """
    names = list(history[0]["values"])
    columns = min(4, 1 + len(names))
    rows = -(-(1 + len(names)) // columns)
    figure = Picture(figsize=(3.1 * columns, 0.5 + 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    kinds = (("finished", "o", "full"), ("stopped early", "D", "none"))
    for axis, name in zip(axes, ("trial", *names), strict=False):
        for state, marker, fill in kinds:
            drawn = [
                (i + 1, each) for i, each in enumerate(history) if each["state"] == state and each["value"] is not None
            ]
            x = [i if name == "trial" else each["values"][name] for i, each in drawn]
            x = [str(value) if isinstance(value, str | bool) else value for value in x]
            y = [each["value"] for _, each in drawn]
            axis.plot(x, y, marker, color=_DEV if fill == "full" else _BLEU, fillstyle=fill, label=state)
        numbers = [each["values"].get(name) for each in history]
        if all(isinstance(n, float) and n > 0 for n in numbers) and max(numbers) >= 8 * min(numbers):
            axis.set_xscale("log")
        axis.set_xlabel(name, fontsize=9)
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    for i, axis in enumerate(axes):
        axis.set_visible(i <= len(names))
        if i % columns == 0:
            axis.set_ylabel(measure)
    finished = [each["value"] for each in history if each["state"] == "finished"]
    if finished:
        axes[0].axhline(max(finished), color=_CHOSEN, linewidth=1, linestyle=":", label=f"best: {max(finished):.2f}")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9.5
    )
    return figure


def _curve(axis: Axes, epochs: Sequence[Mapping[str, Any]], key: str, label: str, **style: str) -> None:
    values = [_value(line, key, math.nan) for line in epochs]
    axis.plot([line["epoch"] for line in epochs], values, label=label, linewidth=1.8, markersize=5, **style)


def _value(line: Mapping[str, Any], key: str, otherwise: float) -> float:
    value = line.get(key)
    return otherwise if value is None or math.isnan(value) else value


def growth_figure(found: Mapping[str, Any]) -> Figure:
    """How the seconds of a training step grow with each size, on axes where a straight line of slope 1 is in proportion.

    Args:
        found: what `bench.growth` gives.
    """
    names = {
        "L": "places L",
        "D": "dimensions D of a place",
        "B": "captions in a batch",
        "C": "words of a caption",
        "K": "words of the vocabulary",
    }
    styles = [("#d55e00", "s", "--"), ("#0072b2", "o", "-"), ("#009e73", "^", ":"), ("#cc79a7", "D", "-.")]
    panels = found["seconds"]
    figure = Figure(figsize=(2.9 * len(panels), 2.9), layout="constrained")
    for number, (name, rows) in enumerate(panels.items()):
        axis = figure.add_subplot(1, len(panels), number + 1, sharey=figure.axes[0] if number else None)
        contestants = [key for key in rows if key != "values"]
        for contestant, (colour, marker, dash) in zip(contestants, styles, strict=False):
            axis.loglog(rows["values"], rows[contestant], dash, color=colour, marker=marker, label=contestant)
        axis.set_xlabel(names[name])
        axis.set_xticks(rows["values"], [f"{value:,}" for value in rows["values"]])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if number:
            axis.tick_params(labelleft=False)
        else:
            axis.set_ylabel("seconds of a training step")
            axis.legend(frameon=False)
    return figure
