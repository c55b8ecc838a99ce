"""Measures of an attention map against boxes: the share of the map inside them, and whether its peak is inside.

A map (h, w) is upsampled bilinearly to the pixels of the square that the encoder sees, and normalised to sum to 1 there:

    mass    the share of the map inside the union of the boxes ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak    whether the pixel with the largest value is inside a box, with no tolerance (the pointing game of Zhang et al.,
            2016, made strict). Of several such pixels the first one in reading order counts.

Bilinear upsampling is separable: with U_h (H, h) and U_w (W, w), the interpolation of an axis, a map A becomes U_h A U_w^T.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from satlib.data.images import SIZE

Box = tuple[float, float, float, float]  # left, top, right, bottom, as fractions of the square
_ROUNDING = 1e-9  # pixels


@lru_cache
def interpolation(cells: int, pixels: int = SIZE) -> Tensor:
    """The matrix (pixels, cells) that upsamples an axis linearly, as torch does with align_corners=False; float64."""
    one_hot = torch.eye(cells, dtype=torch.float64).unsqueeze(0)
    return functional.interpolate(one_hot, size=pixels, mode="linear", align_corners=False)[0].T.contiguous()


def upsample(maps: Tensor, pixels: int = SIZE) -> Tensor:
    """Attention maps (..., h, w) as pixels (..., pixels, pixels), upsampled bilinearly; float64, each sums to 1.

    `overlay.upsample` is the paper's way of drawing a map, which blurs it; this one moves as little of it as possible.
    """
    height, width = maps.shape[-2:]
    maps = interpolation(height, pixels) @ maps.double() @ interpolation(width, pixels).T
    return maps / maps.sum((-2, -1), keepdim=True)


def peaks(maps: Tensor) -> Tensor:
    """The index, in the flattened pixels, of the largest value of each upsampled map: (..., h, w) -> (...)."""
    return upsample(maps).flatten(-2).argmax(-1)


@lru_cache
def cell_peaks(height: int, width: int) -> Tensor:
    """The peak of each cell's own map, one there and zero elsewhere: (h * w,), as `peaks`."""
    return peaks(torch.eye(height * width).view(-1, height, width))


def mask(boxes: Sequence[Box], pixels: int = SIZE) -> Tensor:
    """The pixels of the square that boxes cover wholly or in part, so that every box has some: bool (pixels, pixels)."""
    inside = torch.zeros(pixels, pixels, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        inside[_pixels(top, bottom, pixels), _pixels(left, right, pixels)] = True
    return inside


def _pixels(begin: float, end: float, pixels: int) -> slice:
    """The pixels of an interval from 0 to 1; an edge between two pixels may be off by a rounding error."""
    return slice(math.floor(begin * pixels + _ROUNDING), math.ceil(end * pixels - _ROUNDING))


class Target(NamedTuple):
    """Boxes, rasterised once for all the maps that are compared with them.

    inside: their pixels, bool (SIZE * SIZE,). cover: the share of each cell's own upsampled map that is inside, (h, w).
    total: the sum of that map over all pixels, (h, w).
    """

    inside: Tensor
    cover: Tensor
    total: Tensor

    @classmethod
    def of(cls, boxes: Sequence[Box], grid: tuple[int, int]) -> "Target":
        """The target that boxes make for maps of a grid (h, w)."""
        inside = mask(boxes)
        rows, columns = (interpolation(cells) for cells in grid)
        total = torch.outer(rows.sum(0), columns.sum(0))
        return cls(inside.flatten(), rows.T @ inside.double() @ columns / total, total)

    def mass(self, alpha: Tensor) -> float:
        """The share of a map (h, w) that is inside the boxes, 0 to 1."""
        weights = alpha.double() * self.total  # what each cell adds to the upsampled map
        return float((weights * self.cover).sum() / weights.sum())

    def area(self) -> float:
        """The share of the square inside the boxes, 0 to 1: the mass of an even map."""
        return float(self.inside.double().mean())

    def peak(self, pixel: int | Tensor) -> float:
        """1 if a pixel, an index as `peaks` gives it, is inside a box, otherwise 0."""
        return float(self.inside[pixel])

    def best_mass(self) -> float:
        """The largest mass of any map: that of the best single cell, as every map is a mean of cells."""
        return float(self.cover.max())

    def best_peak(self) -> float:
        """1 if a map that is one in a single cell can have its peak inside a box, otherwise 0."""
        return float(self.inside[cell_peaks(*self.cover.shape)].any())


CENTRE = SIZE // 2 * SIZE + SIZE // 2  # the pixel at the centre of the square, as an index of the flattened pixels
