"""Drawings of the course: what attention replaces, captions right and wrong, forced attention.

Like the figures of `plots`, they are made without pyplot, the same input gives the same bytes, and they are readable without
colour vision.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath
from PIL import Image
from torch import Tensor

from satlib.data.images import seen_box
from satlib.evaluation import overlay, plots
from satlib.evaluation.plots import INK

_ON_PALE = "0.1"  # text on a pale box
_ON_DARK = "1"
_CHOSEN, _OTHER, _CHANGED, _ELSE = "#0072b2", "#9ecae1", "#d55e00", "#e69f00"
_COLUMNS = 10  # maps in a row
_SMALL = 112  # pixels of a small map


def fixed_vector_figure(
    photo: Image.Image, a: Tensor, words: Sequence[str], alphas: Tensor, shown: Sequence[int] = (0, 1, 2, 3)
) -> plots.NotebookFigure:
    """Draw what attention replaces: above, a decoder with one vector for all words; below, a decoder with attention.

    Args:
        photo: RGB.
        a: its annotation vectors (L, D).
        words: a caption of it.
        alphas: the attention maps of the words (C, h, w).
        shown: the indices of the words to draw, at most four.
    """
    figure = plots.NotebookFigure(figsize=(10, 6.2))
    axis = _canvas(figure, 100, 62)
    for bottom, title in (
        (33, "Without attention: one fixed vector for all words"),
        (0, "With attention: a new context vector for each word"),
    ):
        axis.text(
            2,
            bottom + (28 if bottom else 31.5),
            title,
            fontsize=13,
            weight="bold",
            va="top",
            color=INK if bottom else _CHOSEN,
        )
        _inside(axis, overlay.scaled(photo), (2, bottom + 9, 14, 14))
        _box(axis, (20, bottom + 12, 9, 8), "encoder\n(CNN)")
        for i in range(alphas.shape[1] + 1):
            y = bottom + 11 + 10 * i / alphas.shape[1]
            axis.plot((33, 43), (y, y), color=INK, linewidth=0.7)
        for i in range(alphas.shape[2] + 1):
            x = 33 + 10 * i / alphas.shape[2]
            axis.plot((x, x), (bottom + 11, bottom + 21), color=INK, linewidth=0.7)
        axis.text(
            38,
            bottom + 10,
            f"{alphas[0].numel()} annotation\nvectors $a_i$",
            ha="center",
            va="top",
            fontsize=10,
        )
        _arrow(axis, (16.5, bottom + 16), (19.5, bottom + 16))
        _arrow(axis, (29.5, bottom + 16), (32.5, bottom + 16))
        if bottom:
            _one_vector(axis, bottom, a.mean(0), len(shown))
        else:
            _attention_per_word(axis, bottom, photo, alphas, shown)
        for place, index in enumerate(shown):
            x = _column(place)
            _box(axis, (x, bottom + 8, 9, 5), "LSTM")
            _arrow(axis, (x + 4.5, bottom + 8), (x + 4.5, bottom + 5.5))
            axis.text(x + 4.5, bottom + 5, words[index], ha="center", va="top", fontsize=12, parse_math=False)
            if place:
                _arrow(axis, (x - 2.2, bottom + 9.5), (x, bottom + 9.5))
    return figure


def _column(place: int) -> float:
    """The left edge of a word's column."""
    return 55 + 11.2 * place


def _one_vector(axis: Axes, bottom: float, mean: Tensor, words: int) -> None:
    """The mean of the annotation vectors (D,), its first numbers in shades of grey, passed to every word."""
    _arrow(axis, (43.5, bottom + 16), (46.5, bottom + 16))
    drawn = mean[:10]
    for i, shade in enumerate(((drawn - drawn.min()) / (drawn.max() - drawn.min())).tolist()):
        place, grey = (47, bottom + 11 + i), str(1 - 0.8 * shade)
        axis.add_patch(Rectangle(place, 1.6, 1, facecolor=grey, edgecolor=INK, linewidth=0.5))
    axis.text(47.8, bottom + 10, "their\nmean", ha="center", va="top", fontsize=10)
    _bus(axis, (47.8, bottom + 21), bottom + 25, bottom + 13, words)


def _attention_per_word(axis: Axes, bottom: float, photo: Image.Image, alphas: Tensor, shown: Sequence[int]) -> None:
    """Each word's attention map over all annotation vectors, and its context vector."""
    _bus(axis, (38, bottom + 21), bottom + 28, bottom + 26, len(shown))
    pictures = overlay.lit(photo, alphas[list(shown)], 2 * _SMALL)
    for place, (index, picture) in enumerate(zip(shown, pictures, strict=True)):
        x = _column(place)
        _inside(axis, picture, (x, bottom + 17, 9, 9))
        _arrow(axis, (x + 4.5, bottom + 17), (x + 4.5, bottom + 13))
        axis.text(x + 5.1, bottom + 15.2, rf"$\hat{{z}}_{{{index + 1}}}$", fontsize=12, va="center")
        if place:
            _arrow(axis, (x - 2.2, bottom + 12), (x + 0.3, bottom + 17), linestyle="--", color=_CHANGED)
    axis.text(
        2,
        bottom + 3,
        "dashed: the LSTM's state\nchooses the next look",
        fontsize=10,
        va="center",
        color=_CHANGED,
    )


def _bus(axis: Axes, start: tuple[float, float], height: float, end: float, words: int) -> None:
    """A line from `start` up to a height, along it, and down to every word's column."""
    last = _column(words - 1) + 4.5
    axis.plot((start[0], start[0], last), (start[1], height, height), color=INK, linewidth=1.5)
    for place in range(words):
        _arrow(axis, (_column(place) + 4.5, height), (_column(place) + 4.5, end))


def gallery_figure(
    pictures: Sequence[tuple[np.ndarray, Sequence[str], Collection[int], str]], columns: int = 4
) -> plots.Photographs:
    """Draw images with their captions below, wrong words in orange italics, and a line with the truth below that.

    Args:
        pictures: for each image (pixels (H, W, 3), words of the caption, indices of the wrong words, the truth or "").
        columns: images per row.
    """
    rows = -(-len(pictures) // columns)
    # 144, as it is displayed: at another resolution words have other widths.
    figure = plots.Photographs(figsize=(10, 3.5 * rows * 4 / columns), dpi=144)
    wide, high = 100 / columns, 35 * 4 / columns
    axis = _canvas(figure, 100, high * rows)
    for number, (pixels, words, wrong, truth) in enumerate(pictures):
        x, top = wide * (number % columns) + 1, high * (rows - number // columns) - 0.5
        _inside(axis, pixels, (x, top - wide + 2, wide - 2, wide - 2))
        line = top - wide - 0.2
        at = x
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
    answers: Sequence[Sequence[str]],
    word: str,
    view: str = "whole",
    tints: Mapping[str, str] | None = None,
) -> plots.Photographs:
    """Draw what a captioner says at one step if all its attention is forced to one place: a word on each place of the grid.

    Args:
        photo: RGB.
        answers: the words, a row of the annotation grid after the other.
        word: the model's own word, drawn bold.
        view: the encoder's view of the photograph (`images.square`).
        tints: the colour behind each answer, so that a colour's name stands on that colour; by default, `word` is on blue, and
            every other answer on orange.
    """
    tints = tints or {word: _CHOSEN}
    pixels = overlay.scaled(photo, 448)
    height, width = pixels.shape[:2]
    figure = plots.Photographs(figsize=(8.4 * width / max(height, width), 8.4 * height / max(height, width)))
    axis = _canvas(figure, width, height)
    _inside(axis, pixels, (0, 0, width, height))
    left, top, right, bottom = (edge * width / photo.width for edge in seen_box(photo.size, view))
    high, wide = (bottom - top) / len(answers), (right - left) / len(answers[0])
    # One size for all: that at which the longest answer fits its place.
    every = {answer for line in answers for answer in line}
    widest = max(TextPath((0, 0), answer, size=10).get_extents().width for answer in every)
    size = min(9.0, 9.0 * 72 * figure.get_figwidth() * wide / width / (widest + 4))
    for row, line in enumerate(answers):
        for column, answer in enumerate(line):
            x, y = left + wide * column, height - top - high * (row + 1)
            axis.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=INK, linewidth=0.5))
            tint = tints.get(answer, _ELSE)
            box = {"boxstyle": "round,pad=0.2", "edgecolor": "none", "facecolor": tint}
            ink = {"color": _ON_DARK if _dark(tint) else _ON_PALE, "weight": "bold" if answer == word else "normal"}
            axis.text(
                x + wide / 2,
                y + high / 2,
                answer,
                ha="center",
                va="center",
                fontsize=size,
                bbox=box,
                parse_math=False,
                **ink,
            )
    return figure


def _dark(colour: str) -> bool:
    """Whether white text reads better on a colour than black: its luma is below a half."""
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) < 0.5


def _canvas(figure: plots.NotebookFigure, width: float, height: float) -> Axes:
    """One axis over the whole figure, without a frame, with equal units."""
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.set_aspect("equal")
    axis.set(xlim=(0, width), ylim=(0, height), autoscale_on=False)
    return axis


def _inside(
    axis: Axes, pixels: np.ndarray, place: tuple[float, float, float, float], zorder: int = 0, downwards: bool = False
) -> None:
    """An image in its own aspect ratio, centred in (left, lowest y, width, height); `downwards` if y grows downwards."""
    x, y, width, height = place
    factor = min(width / pixels.shape[1], height / pixels.shape[0])
    across, up = factor * pixels.shape[1], factor * pixels.shape[0]
    left, low = x + (width - across) / 2, y + (height - up) / 2
    edges = (low + up, low) if downwards else (low, low + up)
    axis.imshow(pixels, extent=(left, left + across, *edges), zorder=zorder)


def _box(axis: Axes, place: tuple[float, float, float, float], text: str) -> None:
    """A rounded box (left, bottom, width, height) with centred text."""
    x, y, width, height = place
    style = {"boxstyle": "round,pad=0,rounding_size=0.8", "edgecolor": INK, "facecolor": "0.93"}
    axis.add_patch(FancyBboxPatch((x, y), width, height, **style))
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=11, color=_ON_PALE)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], **style: str) -> None:
    look = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0, **style}
    axis.annotate("", end, start, arrowprops=look)
