"""From attention weights to pixels: a photograph lit by an attention map, as in the paper's figures (section 5.4).

The photograph keeps its own colours where attention is highest; elsewhere it loses them and is dimmed.
"""

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from satlib.data.images import SIZE, seen_box

_DIMMED = 0.55  # the share of their (gamma-coded) value that pixels without attention keep: 27 % of their light
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # of red, green and blue (ITU-R BT.601)


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
    return np.stack([light(pixels, alpha) for alpha in spread(photo.size, alphas, pixels.shape[:2], view).numpy()])


def scaled(photo: Image.Image, longest: int = SIZE) -> np.ndarray:
    """An RGB photograph scaled so that its longer side has `longest` pixels: (H, W, 3), values 0 to 1."""
    factor = longest / max(photo.size)
    width, height = (max(1, round(factor * side)) for side in photo.size)
    return np.asarray(photo.convert("RGB").resize((width, height), Image.Resampling.BILINEAR), dtype=np.float32) / 255


def spread(photo: tuple[int, int], alphas: Tensor, size: tuple[int, int], view: str = "whole") -> Tensor:
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
