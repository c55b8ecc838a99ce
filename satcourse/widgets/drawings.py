"""Drawings of the course: what attention replaces, captions right and wrong, forced attention."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath
from PIL import Image
from torch import Tensor

from satlib.data.images import seen_box
from satlib.evaluation import overlay, plots
from satlib.evaluation.plots import INK

# Of Okabe and Ito; another weight or style repeats the distinction.
_CHOSEN, _CHANGED, _ELSE = "#0072b2", "#d55e00", "#e69f00"


def fixed_vector_figure(
    photo: Image.Image, a: Tensor, words: Sequence[str], alphas: Tensor, shown: Sequence[int]
) -> plots.NotebookFigure:
    """Draw what attention replaces: above, a decoder with one vector for all words; below, a decoder with attention.

    a: annotation vectors (L, D). words, alphas (C, h, w): a caption and its maps. shown: the indices of at most four words to draw.
    """
    figure = plots.NotebookFigure(figsize=(10, 6.2))
    axis = _canvas(figure, 100, 62)
    heading: dict[str, Any] = {"fontsize": 13, "weight": "bold", "va": "top"}
    axis.text(2, 61, "Without attention: one fixed vector for all words", color=INK, **heading)
    axis.text(2, 31.5, "With attention: a new context vector for each word", color=_CHOSEN, **heading)
    columns = [55 + 11.2 * place for place in range(len(shown))]  # the left edge of each word's column

    def bus(x: float, bottom: float, height: float, end: float) -> None:
        """A line from (x, bottom) up to a height, along it, and down to every word's column."""
        axis.plot((x, x, columns[-1] + 4.5), (bottom, height, height), color=INK, linewidth=1.5)
        for column in columns:
            _arrow(axis, (column + 4.5, height), (column + 4.5, end))

    for bottom in (33, 0):
        _inside(axis, overlay.scaled(photo), (2, bottom + 9, 14, 14))
        _box(axis, (20, bottom + 12, 9, 8), "encoder\n(CNN)")
        low, high = bottom + 11, bottom + 21
        axis.hlines(np.linspace(low, high, alphas.shape[1] + 1), 33, 43, color=INK, linewidth=0.7)
        axis.vlines(np.linspace(33, 43, alphas.shape[2] + 1), low, high, color=INK, linewidth=0.7)
        label = f"{alphas[0].numel()} annotation\nvectors $a_i$"
        axis.text(38, bottom + 10, label, ha="center", va="top", fontsize=10)
        _arrow(axis, (16.5, bottom + 16), (19.5, bottom + 16))
        _arrow(axis, (29.5, bottom + 16), (32.5, bottom + 16))
        for x, index in zip(columns, shown, strict=True):
            _box(axis, (x, bottom + 8, 9, 5), "LSTM")
            _arrow(axis, (x + 4.5, bottom + 8), (x + 4.5, bottom + 5.5))
            axis.text(x + 4.5, bottom + 5, words[index], ha="center", va="top", fontsize=12, parse_math=False)
        for x in columns[1:]:
            _arrow(axis, (x - 2.2, bottom + 9.5), (x, bottom + 9.5))

    # Above: the first numbers of the mean vector in shades of grey, passed to every word.
    _arrow(axis, (43.5, 49), (46.5, 49))
    mean = a.mean(0)[:10]
    for i, shade in enumerate(((mean - mean.min()) / (mean.max() - mean.min())).tolist()):
        axis.add_patch(Rectangle((47, 44 + i), 1.6, 1, facecolor=str(1 - 0.8 * shade), edgecolor=INK, linewidth=0.5))
    axis.text(47.8, 43, "their\nmean", ha="center", va="top", fontsize=10)
    bus(47.8, 54, 58, 46)

    # Below: each word's map over all annotation vectors, and its context vector.
    bus(38, 21, 28, 26)
    for x, index, picture in zip(columns, shown, overlay.lit(photo, alphas[list(shown)], 224), strict=True):
        _inside(axis, picture, (x, 17, 9, 9))
        _arrow(axis, (x + 4.5, 17), (x + 4.5, 13))
        axis.text(x + 5.1, 15.2, rf"$\hat{{z}}_{{{index + 1}}}$", fontsize=12, va="center")
    for x in columns[1:]:
        _arrow(axis, (x - 2.2, 12), (x + 0.3, 17), linestyle="--", color=_CHANGED)
    axis.text(2, 3, "dashed: the LSTM's state\nchooses the next look", fontsize=10, va="center", color=_CHANGED)
    return figure


def gallery_figure(
    pictures: Sequence[tuple[np.ndarray, Sequence[str], Collection[int], str]], columns: int = 4
) -> plots.Photographs:
    """Draw images with their captions below, wrong words in orange italics, and a line with the truth below that.

    pictures: for each image (pixels (H, W, 3), words of the caption, indices of the wrong words, the truth or "").
    """
    rows = -(-len(pictures) // columns)
    # 144, as it is displayed: at another resolution words have other widths.
    figure = plots.Photographs(figsize=(10, 3.5 * rows * 4 / columns), dpi=144)
    wide, high = 100 / columns, 35 * 4 / columns
    axis = _canvas(figure, 100, high * rows)
    for number, (pixels, words, wrong, truth) in enumerate(pictures):
        x, top = wide * (number % columns) + 1, high * (rows - number // columns) - 0.5
        _inside(axis, pixels, (x, top - wide + 2, wide - 2, wide - 2))
        at, line = x, top - wide - 0.2
        for index, word in enumerate(words):
            style: dict[str, Any] = {"color": _CHANGED, "style": "italic", "weight": "bold"} if index in wrong else {}
            text = axis.text(at, line, word, fontsize=10, va="baseline", parse_math=False, **style)
            length = text.get_window_extent().width / figure.bbox.width * 100
            if at > x and at + length > x + wide - 2:  # does not fit: continue on the next line
                at, line = x, line - 2.1
                text.set_position((at, line))
            at += length + 0.5
        axis.text(x, line - 0.8, truth, fontsize=9, va="top", color=INK, parse_math=False)
    return figure


def answers_figure(
    photo: Image.Image,
    answers: Sequence[Sequence[tuple[str, float]]],
    word: str,
    view: str = "whole",
    tints: Mapping[str, str] | None = None,
) -> plots.Photographs:
    """Draw what a captioner says at one step if all its attention is forced to one place: a word on each place.

    answers: each place's word and its probability, which is its opacity, by the rows of the annotation grid. word: the model's own,
    drawn bold. view: how the encoder crops the photograph. tints: behind each word; by default `word` is on blue, others on orange.
    """
    tints = tints or {word: "#56b4e9"}
    pixels = overlay.scaled(photo, 448)
    height, width = pixels.shape[:2]
    figure = plots.Photographs(figsize=(8.4 * width / max(height, width), 8.4 * height / max(height, width)))
    axis = _canvas(figure, width, height)
    _inside(axis, pixels, (0, 0, width, height))
    left, top, right, bottom = (edge * width / photo.width for edge in seen_box(photo.size, view))
    high, wide = (bottom - top) / len(answers), (right - left) / len(answers[0])
    # One size for all: that at which the longest answer fits its place.
    widest = max(TextPath((0, 0), answer, size=10).get_extents().width for line in answers for answer, _ in line)
    size = min(9.0, 9.0 * 72 * figure.get_figwidth() * wide / width / (widest + 4))
    for row, line in enumerate(answers):
        for column, (answer, p) in enumerate(line):
            x, y = left + wide * column, height - top - high * (row + 1)
            axis.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=INK, linewidth=0.5))
            style: dict[str, Any] = {"color": "0.1", "weight": "bold" if answer == word else "normal", "alpha": p}
            style["bbox"] = {"boxstyle": "round,pad=0.2", "ec": "none", "fc": tints.get(answer, _ELSE), "alpha": p}
            x, y = x + wide / 2, y + high / 2
            axis.text(x, y, answer, ha="center", va="center", fontsize=size, parse_math=False, **style)
    return figure


def _canvas(figure: plots.NotebookFigure, width: float, height: float) -> Axes:
    """One axis over the whole figure, without a frame, with equal units."""
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.set_aspect("equal")
    axis.set(xlim=(0, width), ylim=(0, height), autoscale_on=False)
    return axis


def _inside(axis: Axes, pixels: np.ndarray, place: tuple[float, float, float, float]) -> None:
    """An image in its own aspect ratio, centred in (left, bottom, width, height)."""
    x, y, width, height = place
    factor = min(width / pixels.shape[1], height / pixels.shape[0])
    across, up = factor * pixels.shape[1], factor * pixels.shape[0]
    left, low = x + (width - across) / 2, y + (height - up) / 2
    axis.imshow(pixels, extent=(left, left + across, low, low + up), zorder=0)


def _box(axis: Axes, place: tuple[float, float, float, float], text: str) -> None:
    """A rounded box (left, bottom, width, height) with centred text."""
    x, y, width, height = place
    style = {"boxstyle": "round,pad=0,rounding_size=0.8", "edgecolor": INK, "facecolor": "0.93"}
    axis.add_patch(FancyBboxPatch((x, y), width, height, **style))
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=11, color="0.1")


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], **style: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0, **style}
    axis.annotate("", end, start, arrowprops=arrow)
