"""Attention drawn (section 5.4): a photograph lit by a map, figures of captions, and the curves of a training run.

A lit photograph keeps its own colours where attention is highest; elsewhere it loses them and is dimmed. Figures are made without
pyplot: the same input gives the same bytes.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satlib.data.images import SIZE, seen_box
from satlib.files import replacing

END_LABEL = "(end)"
GROUND, BRIGHT, PALE = (
    "#24262b",
    "#ffffff",
    "#a6abb5",
)  # behind lit photographs; text on it; text of less weight
INK = "#6b7080"  # lines that are no data
_PANEL = 1.6  # inches
_COLUMNS = 6
_WORD = 21.0  # points: a word above its picture, if it is not too long
_DPI = 144  # two pixels per point
_DIMMED = 0.55  # the share of their (gamma-coded) value that pixels without attention keep: 27 % of their light
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of red, green and blue (ITU-R BT.601)


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

    display_as: ClassVar[dict[str, Any]] = {
        "format": "jpeg",
        "pil_kwargs": {"quality": 85, "subsampling": 0},
    }


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
        raise ValueError(
            f"{len(words)} words need as many maps, or one more for the end mark, not {len(alphas)}"
        )
    pixels = scaled(photo, SIZE if max(photo.size) <= SIZE else 2 * SIZE)
    maps = spread(photo.size, alphas, pixels.shape[:2], view).numpy()
    rows = math.ceil((1 + len(maps)) / _COLUMNS)
    columns = math.ceil(
        (1 + len(maps)) / rows
    )  # as even as possible: no last row with a single panel
    shape = min(
        max(pixels.shape[0] / pixels.shape[1], 0.5), 1.5
    )  # a very long photograph is drawn small in its panel
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
        axis.imshow(light(pixels, alpha))
        if min(alpha.shape) > 1 and alpha.min() < alpha.max() / 2:
            axis.contour(strength(alpha), levels=[0.5], colors="white", linewidths=0.8, alpha=0.9)
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
            axis.axvline(
                line["epoch"], label=label, color=INK, linewidth=1.5, zorder=1.5, linestyle=dash
            )
        axis.set_xlabel("epoch")
        axis.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(color=INK, alpha=0.25)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    # One legend below both panels; a label that both have is named once.
    handles = {
        label: line
        for axis in (left, right)
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=9.5,
    )
    return figure


def upsample(alphas: Tensor, size: tuple[int, int] = (SIZE, SIZE)) -> Tensor:
    """Upsample attention maps (C, h, w) to pixels (C, H, W), float32, and smooth them with a Gaussian (section 5.4).

    Each weight first fills its cell: from 14x14 to 224x224 pixels the factor is the paper's 2^4 = 16. The standard deviation of the
    Gaussian is one cell. Mirrored at the border, a uniform map stays uniform.
    """
    height, width = alphas.shape[-2:]
    cells = alphas.detach().float().cpu().unsqueeze(1)
    maps = functional.interpolate(cells, size=size, mode="nearest-exact").squeeze(1)
    maps = _smooth(maps, size[1] / width)
    return _smooth(maps.transpose(1, 2), size[0] / height).transpose(1, 2)


def _smooth(maps: Tensor, sigma: float) -> Tensor:
    """Convolve the last axis of (C, H, W) with a Gaussian cut at 4 sigma, mirrored at the border (c b a | a b c)."""
    radius, width = int(4 * sigma + 0.5), maps.shape[2]
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / sigma) ** 2)
    pixels = torch.arange(-radius, width + radius) % (2 * width)
    pixels = torch.minimum(pixels, 2 * width - 1 - pixels)
    # As a matrix: row x holds the weight of each pixel in pixel x. With kernels this wide it is far faster than conv1d.
    weights = (kernel / kernel.sum()).expand(width, -1)
    matrix = torch.zeros(width, width).scatter_add_(1, pixels.unfold(0, 2 * radius + 1, 1), weights)
    return maps @ matrix.T


def lit(photo: Image.Image, alphas: Tensor, longest: int = SIZE, view: str = "whole") -> np.ndarray:
    """Draw a photograph, its longer side of `longest` pixels, lit by each of several maps: (C, h, w) -> (C, H, W, 3), uint8."""
    pixels = scaled(photo, longest)
    return np.stack(
        [
            light(pixels, alpha)
            for alpha in spread(photo.size, alphas, pixels.shape[:2], view).numpy()
        ]
    )


def scaled(photo: Image.Image, longest: int = SIZE) -> np.ndarray:
    """An RGB photograph scaled so that its longer side has `longest` pixels: (H, W, 3), values 0 to 1."""
    factor = longest / max(photo.size)
    width, height = (max(1, round(factor * side)) for side in photo.size)
    return (
        np.asarray(
            photo.convert("RGB").resize((width, height), Image.Resampling.BILINEAR),
            dtype=np.float32,
        )
        / 255
    )


def spread(
    photo: tuple[int, int], alphas: Tensor, size: tuple[int, int], view: str = "whole"
) -> Tensor:
    """Upsample maps (C, h, w) onto the part of a photograph (width, height) that the encoder saw, drawn as (H, W): (C, H, W)."""
    left, top, right, bottom = seen_box(photo, view)
    columns, rows = size[1] / photo[0], size[0] / photo[1]
    top, bottom = _pixels(top * rows, bottom * rows, size[0])
    left, right = _pixels(left * columns, right * columns, size[1])
    maps = torch.zeros(len(alphas), *size)
    maps[:, top:bottom, left:right] = upsample(alphas, (bottom - top, right - left))
    return maps


def _pixels(begin: float, end: float, size: int) -> tuple[int, int]:
    """The first pixel and the one after the last, at least one: of a very long photograph "crop" sees less."""
    first = min(max(round(begin), 0), size - 1)
    return first, max(min(round(end), size), first + 1)


def strength(alpha: np.ndarray) -> np.ndarray:
    """A map (H, W) divided by its maximum; its minimum is not subtracted, so a nearly even map stays near 1."""
    return (alpha / max(float(alpha.max()), 1e-12)).clip(0, 1)


def light(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Light a photograph (H, W, 3), values 0 to 1, by a map (H, W): unchanged at its maximum, dim and grey at 0."""
    kept = strength(alpha)[..., None]
    dim = _DIMMED * (pixels @ _LUMA)[..., None]
    return np.rint(255 * (kept * pixels + (1 - kept) * dim)).astype(np.uint8)
