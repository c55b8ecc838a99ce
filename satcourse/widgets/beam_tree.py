"""The search tree of beam search (notebook 07): which prefixes it keeps, which it drops, and where the best caption is."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from satlib.evaluation.plots import END_LABEL, INK, NotebookFigure

Prefix = tuple[str, ...]

# From the palette of Okabe and Ito; line widths and dashes repeat the distinction.
_BEST: dict[str, Any] = {"color": "#d55e00", "linewidth": 3.0, "linestyle": "-", "zorder": 3}
_KEPT: dict[str, Any] = {"color": "#0072b2", "linewidth": 1.8, "linestyle": "-", "zorder": 2}
_DROPPED: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": ":", "zorder": 1}
_TEXT: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.1", "zorder": 4}  # above the lines


def tree_figure(
    next_words: Callable[[Prefix], Mapping[str, float]], kept: Collection[Prefix] = (), best: Prefix = ()
) -> NotebookFigure:
    """Draw every caption of a small model as a path from left to right, with the probability of each word.

    next_words: maps a prefix to p(y_t) by word; a caption ends with the word `plots.END_LABEL`. kept: what the search kept, including
    complete captions. best: the words of the best caption, which is drawn thick.
    """
    places = _places(next_words)
    captions = [prefix for prefix in places if prefix and prefix[-1] == END_LABEL]
    depth = max(map(len, places))
    figure = NotebookFigure(figsize=(8.6, 0.5 + 0.34 * len(captions)), layout="constrained")
    axis = figure.subplots()
    for prefix, y in places.items():
        x = len(prefix)
        style = _BEST if prefix and prefix == best[:x] else _KEPT if prefix in kept or not prefix else _DROPPED
        if prefix:
            before = places[prefix[:-1]]
            axis.plot([x - 1, x], [before, y], **style)
            p = next_words(prefix[:-1])[prefix[-1]]
            # On its line, near the word: there the lines to a prefix's words are farthest apart.
            box = {"boxstyle": "round,pad=0.1", "facecolor": "0.95", "edgecolor": "none"}
            axis.text(x - 0.42, before + 0.58 * (y - before), f"{p:.2f}", fontsize=8, bbox=box, **_TEXT)
        box = {"boxstyle": "round,pad=0.25", "facecolor": "0.95"}
        box |= {"edgecolor": style["color"], "linestyle": style["linestyle"]}
        axis.text(x, y, prefix[-1] if prefix else "(start)", fontsize=9, bbox=box, **_TEXT)
    for prefix in captions:
        p = math.prod(next_words(prefix[:t])[prefix[t]] for t in range(len(prefix)))
        weight = "bold" if prefix == best else "normal"
        axis.text(depth + 0.45, places[prefix], f"p = {p:.3f}", va="center", fontsize=9, fontweight=weight)
    axis.set(xlim=(-0.3, depth + 1.0), ylim=(len(captions) - 0.4, -0.6))
    axis.set_axis_off()
    return figure


def _places(next_words: Callable[[Prefix], Mapping[str, float]]) -> dict[Prefix, float]:
    """The height of each prefix: complete captions below each other, other prefixes in the middle of their continuations."""
    places: dict[Prefix, float] = {}
    captions = 0

    def place(prefix: Prefix) -> float:
        nonlocal captions
        if prefix and prefix[-1] == END_LABEL:
            places[prefix], captions = float(captions), captions + 1
        else:
            heights = [place((*prefix, word)) for word in next_words(prefix)]
            places[prefix] = sum(heights) / len(heights)
        return places[prefix]

    place(())
    return places
