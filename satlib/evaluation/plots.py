"""Figures of attention (section 5.4) and of training runs, made without pyplot: the same input gives the same bytes."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

from satlib.data.images import SIZE
from satlib.evaluation import overlay
from satlib.files.atomic import replacing

END_LABEL = "(end)"
GROUND, BRIGHT, PALE = "#24262b", "#ffffff", "#a6abb5"  # behind lit photographs; text on it; text of less weight
INK = "#6b7080"  # lines that are no data
_PANEL = 1.6  # inches
_COLUMNS = 6
_WORD = 21.0  # points: a word above its picture, if it is not too long
_DPI = 144  # two pixels per point


class NotebookFigure(Figure):
    """A figure that a notebook displays by itself."""

    display_as: ClassVar[dict[str, Any]] = {"format": "png"}

    def _ipython_display_(self) -> None:
        """Display the figure once; if pyplot is imported, IPython would otherwise display it twice."""
        from IPython.display import Image as DisplayedImage
        from IPython.display import display

        content = io.BytesIO()
        self.savefig(content, dpi=_DPI, **self.display_as)
        width = round(100 * self.get_figwidth())
        display(DisplayedImage(content.getvalue(), format=self.display_as["format"], width=width))


class Photographs(NotebookFigure):
    """A figure that a notebook displays as a JPEG, much smaller than a PNG; nbconvert does not show WebP."""

    display_as: ClassVar[dict[str, Any]] = {"format": "jpeg", "pil_kwargs": {"quality": 85, "subsampling": 0}}


class Strip(Photographs):
    """Lit photographs on a dark ground of their own, so that the light is seen first on light and on dark pages."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """Save on the dark ground, whatever the style of the page."""
        super().savefig(*args, **options | {"facecolor": GROUND})


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically; without date and version, so that the same figure gives the same bytes."""
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

    Each map of alphas (C, h, w) is scaled to its own maximum: a uniform map lights the whole photograph. A map more than there are
    words belongs to the end mark. A thin line encloses what has at least half of the maximum. The gate betas (C,) is printed below
    each map. `view` is how the encoder crops the photograph; the rest stays dark. `path` is of a PNG file.
    """
    if len(alphas) not in (len(words), len(words) + 1):
        raise ValueError(f"{len(words)} words need as many maps, or one more for the end mark, not {len(alphas)}")
    pixels = overlay.scaled(photo, SIZE if max(photo.size) <= SIZE else 2 * SIZE)
    maps = overlay.spread(photo.size, alphas, pixels.shape[:2], view).numpy()
    rows = math.ceil((1 + len(maps)) / _COLUMNS)
    columns = math.ceil((1 + len(maps)) / rows)  # as even as possible: no last row with a single panel
    shape = min(max(pixels.shape[0] / pixels.shape[1], 0.5), 1.5)  # a very long photograph is drawn small in its panel
    height = _PANEL * shape + (0.4 if betas is None else 0.62)
    figure = Strip(figsize=(_PANEL * columns, height * rows))
    figure.set_layout_engine("constrained", w_pad=0.03, h_pad=0.05, wspace=0, hspace=0)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_frame_on(False)
    axes[0].imshow(pixels)
    for axis, word, alpha in zip(axes[1:], [*words, END_LABEL], maps, strict=False):
        axis.imshow(overlay.light(pixels, alpha))
        if min(alpha.shape) > 1 and alpha.min() < alpha.max() / 2:
            axis.contour(overlay.strength(alpha), levels=[0.5], colors="white", linewidths=0.8, alpha=0.9)
        # A long word gets a smaller font, to fit its panel; "$" is a dollar, not a formula.
        width = TextPath((0, 0), word.replace("$", r"\$"), size=_WORD).get_extents().width
        size = _WORD * min(1, 0.92 * 72 * _PANEL / max(width, 1))
        axis.set_title(word, fontsize=size, pad=4, color=BRIGHT, parse_math=False)
    for axis, beta in zip(axes[1:], [] if betas is None else betas.tolist(), strict=False):
        axis.set_xlabel(f"β = {beta:.2f}", fontsize=10, labelpad=2, color=PALE)
    if path is not None:
        save(figure, path)
    return figure


def curves_figure(log: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the learning curves: train and dev NLL on the left, BLEU-4 of generated dev captions on the right.

    Both panels mark the epoch whose weights were kept and the epoch with the lowest dev NLL: late in training the two diverge
    (section 4.3). `log` has the lines of log.jsonl.
    """
    epochs = [line for line in log if line.get("event", "epoch") == "epoch"]
    numbers = [line["epoch"] for line in epochs]
    figure = NotebookFigure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    curves = (  # colours of the palette of Okabe and Ito
        (left, "train_nll", "train NLL", "s--", "#56b4e9"),
        (left, "dev_nll", "dev NLL", "o-", "#0072b2"),
        (right, "dev_bleu4", "dev BLEU-4", "D-", "#d55e00"),
    )
    for axis, key, label, style, color in curves:
        if any(key in line for line in epochs):  # training on rewards has no train NLL
            values = [line.get(key, math.nan) for line in epochs]
            axis.plot(numbers, values, style, label=label, color=color, linewidth=1.8, markersize=5)
    left.set_title("NLL in nats per word (lower is better)", fontsize=11)
    right.set_title("BLEU-4 in percent, generated captions (higher is better)", fontsize=11)
    kept = [line for line in epochs if line.get("kept")][-1]
    lowest = min(epochs, key=lambda line: (line["dev_nll"], line["epoch"]))
    for axis in (left, right):
        for dash, line, name in (("-", kept, "kept"), (":", lowest, "lowest dev NLL")):
            label = f"{name}: epoch {line['epoch']}"
            axis.axvline(line["epoch"], label=label, color=INK, linewidth=1.5, zorder=1.5, linestyle=dash)
        axis.set_xlabel("epoch")
        axis.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(color=INK, alpha=0.25)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    # One legend below both panels; a label that both have is named once.
    handles = {
        label: line for axis in (left, right) for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=9.5)
    return figure
