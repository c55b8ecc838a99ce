"""The search tree of beam search (notebook 08): which prefixes it keeps, which it drops, and where
the best caption is.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from satlib.evaluation.plots import END_LABEL, INK, NotebookFigure

Prefix = tuple[str, ...]

# From the palette of Okabe and Ito; line widths and dashes repeat the distinction.
_BEST: dict[str, Any] = {"color": "#d55e00", "linewidth": 3.0, "linestyle": "-", "zorder": 3}
_KEPT: dict[str, Any] = {"color": "#0072b2", "linewidth": 1.8, "linestyle": "-", "zorder": 2}
_DROPPED: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": ":", "zorder": 1}
# Above the lines.
_TEXT: dict[str, Any] = {"ha": "center", "va": "center", "color": "0.1", "zorder": 4}


def tree_figure(
    next_words: Callable[[Prefix], Mapping[str, float]],
    kept: Collection[Prefix] = (),
    best: Prefix = (),
) -> NotebookFigure:
    """Draw every caption of a small model as a path from left to right, with the probability of
    each word.

    next_words: maps a prefix to p(y_t) by word; a caption ends with the word `plots.END_LABEL`.
    kept: what the search kept, including complete captions. best: the words of the best caption,
    which is drawn thick.
    """
    figure = NotebookFigure(layout="constrained")
    axis = figure.subplots()
    captions: list[tuple[Prefix, float]] = []

    def style(prefix: Prefix) -> dict[str, Any]:
        # Every search keeps the empty prefix, and it has no line.
        if not prefix:
            return _KEPT
        if prefix == best[: len(prefix)]:
            return _BEST
        return _KEPT if prefix in kept else _DROPPED

    def grow(prefix: Prefix, p: float) -> float:
        """Draw a prefix of probability p and what follows it; return its height, the middle of what
        follows.
        """
        x = len(prefix)
        y = float(len(captions))
        if prefix[-1:] == (END_LABEL,):
            captions.append((prefix, p))
        else:
            # What follows is drawn first: its height is known only then.
            grown = [((*prefix, word), chance) for word, chance in next_words(prefix).items()]
            heights = [grow(longer, p * chance) for longer, chance in grown]
            y = sum(heights) / len(heights)
            for (longer, chance), height in zip(grown, heights, strict=True):
                axis.plot([x, x + 1], [y, height], **style(longer))
                # On its line, near the word: there the lines to a prefix's words are farthest
                # apart.
                at = (x + 0.58, y + 0.58 * (height - y))
                axis.text(*at, f"{chance:.2f}", fontsize=8, bbox=_box(0.1), **_TEXT)

        word = prefix[-1] if prefix else "(start)"
        own = style(prefix)
        box = _box(0.25, edgecolor=own["color"], linestyle=own["linestyle"])
        axis.text(x, y, word, fontsize=9, bbox=box, **_TEXT)
        return y

    grow((), 1.0)
    depth = max(len(prefix) for prefix, _ in captions)
    for y, (prefix, p) in enumerate(captions):
        # To the right of the longest caption, so that all of them stand below each other.
        weight = "bold" if prefix == best else "normal"
        axis.text(depth + 0.45, y, f"p = {p:.3f}", va="center", fontsize=9, fontweight=weight)
    axis.set(xlim=(-0.3, depth + 1.0), ylim=(len(captions) - 0.4, -0.6))
    axis.set_axis_off()
    figure.set_size_inches(8.6, 0.5 + 0.34 * len(captions))
    return figure


def _box(pad: float, edgecolor: str = "none", **line: str) -> dict[str, str]:
    return {"boxstyle": f"round,pad={pad}", "facecolor": "0.95", "edgecolor": edgecolor, **line}
