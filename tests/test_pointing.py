"""Maps against boxes: by hand, and by loops over pixels with bilinear interpolation written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from satlib.evaluation import pointing
from satlib.evaluation.pointing import Target


def test_interpolation_by_hand():
    """Four pixels over two cells: their centres lie at -0.25, 0.25, 0.75 and 1.25 cells, the first and last beyond the cells'."""
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
    torch.testing.assert_close(pointing.interpolation(2, 4), expected)


def test_measures_by_hand():
    """A map of 2x2 whose left column has all the weight.

    Upsampled to 224 pixels, each row is 1 for 56 pixels, falls to 0 over 112, and is 0 for 56: it sums to 56 + 112 / 2 = 112. The
    left half has 56 + 56 * (1 + 0.5) / 2 = 98 of that, which is 7/8; the first quarter has 56, which is 1/2.
    """
    alpha = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    left, quarter, right = (Target.of([box], (2, 2)) for box in ((0, 0, 0.5, 1), (0, 0, 0.25, 1), (0.5, 0, 1, 1)))
    assert [target.mass(alpha) for target in (left, quarter, right)] == pytest.approx([7 / 8, 1 / 2, 1 / 8])
    assert [target.area() for target in (left, quarter, right)] == [0.5, 0.25, 0.5]
    assert [target.best_mass() for target in (left, quarter, right)] == pytest.approx([7 / 8, 1 / 2, 7 / 8])
    assert pointing.peaks(alpha) == 0  # the first of the pixels that are 1
    assert [target.peak(pointing.peaks(alpha)) for target in (left, quarter, right)] == [1, 1, 0]
    assert [target.peak(pointing.CENTRE) for target in (left, quarter, right)] == [
        0,
        0,
        1,
    ]  # its pixel is right of the middle
    torch.testing.assert_close(
        pointing.upsample(alpha)[0, [0, 55, 223]] * 112 * 224, torch.tensor([1.0, 1, 0]).double()
    )


def test_the_best_cell_by_hand():
    """The cells of 2x2 have their first largest pixel in rows and columns 0 and 168."""
    assert pointing.cell_peaks(2, 2).tolist() == [0, 168, 168 * 224, 168 * 224 + 168]
    assert Target.of([(168 / 224, 0.5, 1, 1)], (2, 2)).best_peak() == 1
    assert Target.of([(169 / 224, 0.5, 1, 1)], (2, 2)).best_peak() == 0


def test_a_union_counts_a_pixel_once():
    target = Target.of([(0, 0, 0.5, 1), (0.25, 0, 0.5, 0.5), (0, 0, 1, 0.25)], (7, 7))
    assert target.area() == 0.5 + 0.5 * 0.25


@pytest.mark.parametrize(
    ("box", "pixels"), [((0.3, 0, 0.30001, 1), 224), ((0.5, 0.5, 0.75, 0.75), 56**2), ((0, 0, 1, 1), 224**2)]
)
def test_pixels_of_a_box(box, pixels):
    """A box has each pixel that it touches: a thin one has a column, and one along the edges of pixels has no more than it covers."""
    assert pointing.mask([box]).sum() == pixels


shares = st.integers(0, 97).flatmap(
    lambda low: st.tuples(st.just(low / 97), st.integers(low + 1, 98).map(lambda high: high / 98))
)
boxes = (
    st.tuples(shares, shares)
    .filter(lambda axes: all(low < high for low, high in axes))
    .map(lambda axes: (axes[0][0], axes[1][0], axes[0][1], axes[1][1]))
)


def by_loops(alpha, boxes):
    """(mass, area, peak) with every pixel visited."""
    height, width = len(alpha), len(alpha[0])

    def around(pixel, cells):
        at = min(max((pixel + 0.5) * cells / 224 - 0.5, 0.0), cells - 1.0)
        low = min(int(at), max(cells - 2, 0))
        return low, min(low + 1, cells - 1), at - low

    total = inside = count = 0.0
    best, hit = -1.0, False
    for y in range(224):
        above, below, down = around(y, height)
        for x in range(width and 224):
            before, after, right = around(x, width)
            upper = (1 - right) * alpha[above][before] + right * alpha[above][after]
            lower = (1 - right) * alpha[below][before] + right * alpha[below][after]
            value = (1 - down) * upper + down * lower
            within = any(
                left * 224 < x + 1 - 1e-9
                and x + 1e-9 < end * 224
                and top * 224 < y + 1 - 1e-9
                and y + 1e-9 < bottom * 224
                for left, top, end, bottom in boxes
            )
            total, inside, count = total + value, inside + value * within, count + within
            if value > best + 1e-12:
                best, hit = value, within
    return inside / total, count / 224**2, hit


@settings(max_examples=12, deadline=None, phases=(Phase.generate,))  # shrinking would take minutes
@given(st.integers(1, 5), st.integers(1, 5), st.lists(boxes, min_size=1, max_size=3), st.integers(0, 10**6))
def test_against_loops_over_pixels(height, width, boxes, seed):
    alpha = np.random.default_rng(seed).dirichlet(np.ones(height * width)).reshape(height, width)
    target, map_ = Target.of(boxes, (height, width)), torch.tensor(alpha)
    mass, area, hit = by_loops(alpha.tolist(), boxes)
    assert target.mass(map_) == pytest.approx(mass)
    assert target.area() == pytest.approx(area)
    if height > 1 or width > 1:  # otherwise all pixels are equal, but for rounding
        assert target.peak(pointing.peaks(map_)) == hit
    direct = functional.interpolate(map_[None, None], size=(224, 224), mode="bilinear", align_corners=False)[0, 0]
    torch.testing.assert_close(pointing.upsample(map_), direct / direct.sum())
    cells = [target.mass(cell) for cell in torch.eye(height * width).view(-1, height, width)]
    assert target.best_mass() == pytest.approx(max(cells))
    assert mass <= max(cells) + 1e-9
    assert math.isclose(Target.of([(0, 0, 1, 1)], (height, width)).mass(map_), 1)
