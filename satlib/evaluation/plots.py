"""Attention drawn (section 5.4): lit photographs, figures of captions, and learning curves.

A lit photograph keeps its own colours where attention is highest; elsewhere it loses them and is
dimmed. Figures are made without pyplot: the same input gives the same bytes.
"""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib import font_manager, get_cachedir
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satlib.data.images import SIZE
from satlib.files import note, replacing

END_LABEL = "(end)"
GROUND = "#24262b"  # behind lit photographs
BRIGHT = "#ffffff"  # text on it
PALE = "#a6abb5"  # text of less weight
INK = "#6b7080"  # axes and other lines beside the data
_PANEL = 1.6  # inches
_COLUMNS = 6
_WORD = 21.0  # points: a word above its picture, if it is not too long
_DPI = 144  # two pixels per point
# The share of their (gamma-coded) value that pixels without attention keep: 27 % of their light.
_DIMMED = 0.55
# The brightness of red, green and blue (ITU-R BT.601).
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)

# Fonts of scripts that matplotlib's own font lacks, as Linux, Windows and macOS call them.
_OTHER_SCRIPTS = {
    "Arial Unicode MS",
    "Microsoft YaHei",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans Khmer",
    "Noto Sans Lao",
    "Noto Sans Myanmar",
    "Noto Sans Thai",
    "PingFang SC",
}
# It warns of each character that none of the fonts has, each time: `_fonts_for` says it once.
warnings.filterwarnings("ignore", r"Glyph .* missing from")


class NotebookFigure(Figure):
    """A figure that a notebook displays by itself."""

    display_as: ClassVar[dict[str, Any]] = {"format": "png"}

    def _ipython_display_(self) -> None:
        """Display the figure once; with pyplot, IPython would otherwise display it twice."""
        # Only a notebook is sure to have IPython.
        from IPython.display import Image as DisplayedImage
        from IPython.display import display

        content = io.BytesIO()
        self.savefig(content, dpi=_DPI, **self.display_as)
        # An inch has 144 pixels and takes 100 of the page's: sharp on dense screens.
        picture = DisplayedImage(
            content.getvalue(),
            format=self.display_as["format"],
            width=round(100 * self.get_figwidth()),
        )
        display(picture)


class Photographs(NotebookFigure):
    """A figure that a notebook displays as a JPEG, which is much smaller than a PNG.

    WebP would be smaller still, but nbconvert does not show it.
    """

    display_as: ClassVar[dict[str, Any]] = {
        "format": "jpeg",
        "pil_kwargs": {"quality": 85, "subsampling": 0},
    }


class Strip(Photographs):
    """Lit photographs on a dark ground of their own: the light stands out on every page."""

    def savefig(self, *args: Any, **options: Any) -> None:
        """Save on the dark ground, whatever the style of the page."""
        super().savefig(*args, **options | {"facecolor": GROUND})


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically.

    It has no date and no version, so that the same figure gives the same bytes.
    """
    with replacing(path) as partial:
        figure.savefig(
            partial,
            format="png",
            dpi=_DPI,
            metadata={"Software": None},
        )


def attention_figure(
    photo: Image.Image,
    words: Sequence[str],
    alphas: Tensor,
    path: Path | None = None,
) -> Figure:
    """Draw the photograph, then for each word the photograph lit where alpha is high.

    Each map of alphas (C, h, w) is scaled to its own maximum: a uniform map lights the whole
    photograph. A map more than there are words belongs to the end mark. A thin line encloses what
    has at least half of the maximum. `path` is of a PNG file.
    """
    if len(alphas) not in (len(words), len(words) + 1):
        raise ValueError(
            f"{len(words)} words need as many maps, or one more for the end mark, not {len(alphas)}"
        )
    # A small photograph is not enlarged beyond what the encoder sees.
    pixels = scaled(photo, SIZE if max(photo.size) <= SIZE else 2 * SIZE)
    height, width = pixels.shape[:2]
    maps = upsample(alphas, (height, width)).numpy()

    figure = _strip(1 + len(maps), height / width)
    first, *others = figure.axes
    first.imshow(pixels)
    fonts = _fonts_for("".join(words))
    # The label of the end mark is used only if there is a map for it.
    labels = [*words, END_LABEL]
    for axis, word, alpha in zip(others, labels, maps, strict=False):
        axis.imshow(light(pixels, alpha))
        # A nearly even map has no region to enclose.
        if min(alpha.shape) > 1 and alpha.min() < alpha.max() / 2:
            axis.contour(
                strength(alpha),
                levels=[0.5],
                colors="white",
                linewidths=0.8,
                alpha=0.9,
            )
        axis.set_title(
            word,
            fontfamily=fonts,
            fontsize=_fitted(word, fonts),
            pad=4,
            color=BRIGHT,
            parse_math=False,
        )

    if path is not None:
        save(figure, path)
    return figure


def _strip(panels: int, shape: float) -> Strip:
    """An empty figure for pictures of a shape (height by width)."""
    # Rows as even as possible: no last row with a single panel.
    rows = math.ceil(panels / _COLUMNS)
    columns = math.ceil(panels / rows)

    # A very long photograph is drawn small in its panel.
    shape = min(max(shape, 0.5), 1.5)
    height = _PANEL * shape + 0.4
    figure = Strip(figsize=(_PANEL * columns, height * rows))
    figure.set_layout_engine(
        "constrained",
        w_pad=0.03,
        h_pad=0.05,
        wspace=0,
        hspace=0,
    )

    for axis in figure.subplots(rows, columns, squeeze=False).flatten():
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_frame_on(False)
    return figure


def _fonts_for(text: str) -> list[str]:
    """Matplotlib's own font, and those of other scripts that are installed."""
    names = ["DejaVu Sans"]
    if not text.isascii():
        names += sorted(_OTHER_SCRIPTS & {*font_manager.get_font_names()})
        fonts = [font_manager.get_font(font_manager.findfont(name)) for name in names]
        for character in text:
            if not any(font.get_char_index(ord(character)) for font in fonts):
                _say_that_a_font_is_missing()
    return names


@cache  # once
def _say_that_a_font_is_missing() -> None:
    note(
        "pictures: matplotlib knows no font for some of the characters; install one, such as Noto "
        f"Sans CJK, and delete {get_cachedir()}, where it keeps its list of fonts"
    )


def _fitted(word: str, fonts: list[str]) -> float:
    """The size of a word's font in points: smaller for a long word, to fit its panel."""
    text = word.replace("$", r"\$")  # a dollar, not a formula
    path = TextPath((0, 0), text, size=_WORD, prop=font_manager.FontProperties(family=fonts))
    width = path.get_extents().width
    room = 0.92 * 72 * _PANEL  # points
    return _WORD * min(1, room / max(width, 1))


def curves_figure(log: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the learning curves: NLL of train and dev on the left, BLEU-4 of dev on the right.

    Both panels mark the epoch whose weights were kept and the epoch with the lowest dev NLL: late
    in training the two diverge (section 4.3). `log` has the lines of log.jsonl.
    """
    numbers = [line["epoch"] for line in log]
    figure = NotebookFigure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set_title("NLL in nats per word (lower is better)", fontsize=11)
    right.set_title("BLEU-4 in percent, generated captions (higher is better)", fontsize=11)

    curves = (  # colours of the palette of Okabe and Ito
        (left, "train_nll", "train NLL", "s--", "#56b4e9"),
        (left, "dev_nll", "dev NLL", "o-", "#0072b2"),
        (right, "dev_bleu4", "dev BLEU-4", "D-", "#d55e00"),
    )
    for axis, key, label, style, color in curves:
        if key in log[0]:  # training on rewards has no train NLL
            values = [line[key] for line in log]
            axis.plot(
                numbers,
                values,
                style,
                label=label,
                color=color,
                linewidth=1.8,
                markersize=5,
            )

    # The last epoch that was kept is the best one.
    kept = [line for line in log if line["kept"]][-1]
    lowest = min(log, key=lambda line: line["dev_nll"])  # of equal ones the first
    marks = (
        (kept["epoch"], "kept", "-"),
        (lowest["epoch"], "lowest dev NLL", ":"),
    )
    for axis in (left, right):
        for epoch, name, dash in marks:
            # The legend names the lines of the left panel, which are those of both.
            label = f"{name}: epoch {epoch}" if axis is left else None
            axis.axvline(
                epoch,
                label=label,
                color=INK,
                linewidth=1.5,
                zorder=1.5,
                linestyle=dash,
            )

        axis.set_xlabel("epoch")
        axis.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(color=INK, alpha=0.25)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)

    figure.legend(
        loc="outside lower center",
        ncols=5,
        frameon=False,
        fontsize=9.5,
    )
    return figure


def upsample(alphas: Tensor, size: tuple[int, int] = (SIZE, SIZE)) -> Tensor:
    """Upsample attention maps (C, h, w) to pixels (C, H, W) and smooth them (section 5.4).

    Each weight first fills its cell: from 14x14 to 224x224 pixels the factor is the paper's
    2^4 = 16. The standard deviation of the Gaussian is one cell. Mirrored at the border, a uniform
    map stays uniform. The result is float32.
    """
    height, width = alphas.shape[-2:]
    cells = alphas.detach().float().cpu().unsqueeze(1)  # (C, 1, h, w)
    maps = functional.interpolate(cells, size=size, mode="nearest-exact").squeeze(1)  # (C, H, W)

    # A Gaussian of two dimensions is the product of one along each axis.
    maps = _smooth(maps, size[1] / width)
    maps = _smooth(maps.transpose(1, 2), size[0] / height)  # (C, W, H)
    return maps.transpose(1, 2)


def _smooth(maps: Tensor, sigma: float) -> Tensor:
    """Convolve the last axis of (C, H, W) with a Gaussian cut at 4 sigma.

    It is mirrored at the border (c b a | a b c).
    """
    width = maps.shape[2]
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = kernel / kernel.sum()  # (2 * radius + 1,)

    # For every pixel and every place beyond the border, the pixel that is seen there.
    pixels = torch.arange(-radius, width + radius) % (2 * width)
    pixels = torch.minimum(pixels, 2 * width - 1 - pixels)
    neighbours = pixels.unfold(0, 2 * radius + 1, 1)  # (W, 2 * radius + 1)

    # As a matrix: row x holds the weight of each pixel in pixel x. With kernels this wide it is far
    # faster than conv1d.
    weights = kernel.expand(width, -1)
    matrix = torch.zeros(width, width).scatter_add_(1, neighbours, weights)
    return maps @ matrix.T


def lit(photo: Image.Image, alphas: Tensor, longest: int = SIZE) -> np.ndarray:
    """Draw a photograph lit by each of several maps: (C, h, w) -> (C, H, W, 3), uint8.

    Its longer side has `longest` pixels.
    """
    pixels = scaled(photo, longest)
    maps = upsample(alphas, pixels.shape[:2]).numpy()
    return np.stack([light(pixels, alpha) for alpha in maps])


def scaled(photo: Image.Image, longest: int = SIZE) -> np.ndarray:
    """A photograph scaled so that its longer side has `longest` pixels: RGB (H, W, 3), 0 to 1."""
    factor = longest / max(photo.size)
    width = max(1, round(factor * photo.width))
    height = max(1, round(factor * photo.height))
    rgb = photo.convert("RGB")
    resized = rgb.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.float32) / 255


def strength(alpha: np.ndarray) -> np.ndarray:
    """A map (H, W) divided by its maximum.

    Its minimum is not subtracted, so a nearly even map stays near 1.
    """
    maximum = max(float(alpha.max()), 1e-12)
    return (alpha / maximum).clip(0, 1)


def light(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Light a photograph (H, W, 3), values 0 to 1, by a map (H, W): -> uint8.

    It is unchanged at the map's maximum, and dim and grey at 0.
    """
    kept = strength(alpha)[..., None]  # (H, W, 1)
    dim = _DIMMED * (pixels @ _LUMA)[..., None]  # (H, W, 1)
    mixed = kept * pixels + (1 - kept) * dim
    return np.rint(255 * mixed).astype(np.uint8)
