"""The hull without a browser: its context vector is the mean by hand, and its picture shows where that lies."""

import re

import pytest
import torch

from satcourse.widgets.hull import Hull

CORNERS = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.5]])


def attend(e, a):
    alpha = e.exp() / e.exp().sum(1, keepdim=True)
    return (alpha[:, :, None] * a).sum(1), alpha


@pytest.fixture
def hull():
    pytest.importorskip("ipywidgets", reason="ipywidgets comes with the extra `course`")
    return Hull(attend, CORNERS)


def way(hull):
    """The points of the line, in the plane of the vectors."""
    (points,) = re.findall(r'<polyline points="([^"]*)"', hull.picture.value)
    return [((float(x) - 45) / 110 - 1, 2 - (float(y) - 45) / 110) for x, y in (p.split(",") for p in points.split())]


def test_it_begins_with_the_plain_mean_and_follows_each_slider(hull):
    torch.testing.assert_close(hull.z, CORNERS.mean(0))
    hull.energies[2].value = 6
    assert hull.alpha[2] > 0.99
    torch.testing.assert_close(hull.z, CORNERS[2], atol=0.02, rtol=0)
    for point, expected in zip(way(hull), (CORNERS.mean(0), hull.z), strict=True):
        assert point == pytest.approx(expected.tolist(), abs=0.001)


def test_another_map_gives_the_same_vector(hull):
    hull.energies[3].value = 6
    sharp = hull.z
    for slider, energy in zip(hull.energies, (0.4, 0.4, 0, -6), strict=True):
        slider.value = energy
    assert hull.alpha[3] < 0.01
    torch.testing.assert_close(hull.z, sharp, atol=0.02, rtol=0)


def test_it_says_its_weights_and_starts_over(hull):
    hull.energies[0].value = 2
    assert f"place 1 {hull.alpha[0]:.2f}" in hull.picture.value
    hull.even.click()
    assert [slider.value for slider in hull.energies] == [0] * 4
    torch.testing.assert_close(hull.z, CORNERS.mean(0))
    assert len(way(hull)) == 1
