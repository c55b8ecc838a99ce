"""Drawings of the course: captions right and wrong, forced attention."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath
from PIL import Image

from satlib.evaluation import plots
from satlib.evaluation.plots import INK

# Of Okabe and Ito; another weight or style repeats the distinction.
_CHANGED, _ELSE = "#d55e00", "#e69f00"


def gallery_figure(
    pictures: Sequence[tuple[np.ndarray, Sequence[str], Collection[int], str]], columns: int = 4
) -> plots.Photographs:
    """Draw images with their captions below, wrong words in orange italics, and a line with the
    truth below that.

    pictures: for each image (pixels (H, W, 3), words of the caption, indices of the wrong words,
    the truth or "").
    """
    rows = -(-len(pictures) // columns)  # rounded up
    # 144, as it is displayed: at another resolution words have other widths.
    figure = plots.Photographs(figsize=(10, 3.5 * rows * 4 / columns), dpi=144)

    # In units of 1 % of the figure's width.
    wide = 100 / columns
    high = 35 * 4 / columns
    axis = _canvas(figure, 100, high * rows)
    for number, (pixels, words, wrong, truth) in enumerate(pictures):
        x = wide * (number % columns) + 1
        top = high * (rows - number // columns) - 0.5
        _inside(axis, pixels, (x, top - wide + 2, wide - 2, wide - 2))

        at = x
        line = top - wide - 0.2
        for index, word in enumerate(words):
            style: dict[str, Any] = {}
            if index in wrong:
                style = {"color": _CHANGED, "style": "italic", "weight": "bold"}
            text = axis.text(at, line, word, fontsize=10, va="baseline", parse_math=False, **style)
            length = text.get_window_extent().width / figure.bbox.width * 100

            # A word that does not fit continues on the next line, unless it is the first.
            if at > x and at + length > x + wide - 2:
                at = x
                line -= 2.1
                text.set_position((at, line))
            at += length + 0.5
        axis.text(x, line - 0.8, truth, fontsize=9, va="top", color=INK, parse_math=False)
    return figure


def answers_figure(
    photo: Image.Image,
    answers: Sequence[Sequence[tuple[str, float]]],
    word: str,
    tints: Mapping[str, str] | None = None,
) -> plots.Photographs:
    """Draw what a captioner says at one step if all its attention is forced to one place: a word on
    each place.

    answers: each place's word and its probability, which is its opacity, by the rows of the
    annotation grid. word: the model's own, drawn bold.
    tints: behind each word; by default `word` is on blue, others on orange. A line below says what
    they mean.
    """
    legend = "Bold: the model's own word. Pale: less likely."
    if tints is None:
        tints = {word: "#56b4e9"}
        legend = "Blue: the model's own word. Amber: another word. Pale: less likely."
    pixels = plots.scaled(photo, 448)
    height, width = pixels.shape[:2]
    longer = max(height, width)
    below = longer / 28  # for the legend
    figure = plots.Photographs(figsize=(8.4 * width / longer, 8.4 * (height + below) / longer))
    axis = _canvas(figure, width, height)
    axis.set_ylim(-below, height)
    figure.text(0.5, 0.008, legend, fontsize=min(11, 1.8 * figure.get_figwidth()), ha="center")
    _inside(axis, pixels, (0, 0, width, height))

    high = height / len(answers)
    wide = width / len(answers[0])

    # One size for all: that at which the longest answer fits its place.
    widths = []
    for line in answers:
        for answer, _ in line:
            widths.append(TextPath((0, 0), answer, size=10).get_extents().width)
    size = min(9.0, 9.0 * 72 * figure.get_figwidth() * wide / width / (max(widths) + 4))

    for row, line in enumerate(answers):
        for column, (answer, p) in enumerate(line):
            x = wide * column
            # Rows are counted from the top, y from the bottom.
            y = height - high * (row + 1)
            axis.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=INK, linewidth=0.5))

            tint = tints.get(answer, _ELSE)
            text = axis.text(x + wide / 2, y + high / 2, answer, color="0.1", alpha=p)
            text.set(ha="center", va="center", fontsize=size, parse_math=False)
            text.set(weight="bold" if answer == word else "normal")
            text.set_bbox({"boxstyle": "round,pad=0.2", "ec": "none", "fc": tint, "alpha": p})
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
    H, W = pixels.shape[:2]
    factor = min(width / W, height / H)
    across = factor * W
    up = factor * H

    left = x + (width - across) / 2
    low = y + (height - up) / 2
    # Below everything else, whatever is drawn first.
    axis.imshow(pixels, extent=(left, left + across, low, low + up), zorder=0)
