"""Pictures of attention: maps upsampled, light by hand, and what a figure shows."""

import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from satlib.evaluation import plots


def photo(width=320, height=240):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def maps(count, grid=(14, 14)):
    random = torch.Generator().manual_seed(0)
    height, width = grid
    energies = torch.randn(count, height * width, generator=random)
    return energies.softmax(1).view(count, height, width)


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.images]


@pytest.mark.parametrize("grid", [(14, 14), (7, 7), (5, 9)])
def test_upsampled_maps_keep_mean_and_evenness(grid):
    alphas = maps(3, grid)
    large = plots.upsample(alphas)
    assert large.shape == (3, 224, 224)

    # 224 is no multiple of 5 and 9: some cells are a pixel larger there.
    if grid != (5, 9):
        expected = alphas.mean((1, 2))
        found = large.mean((1, 2))
        assert torch.allclose(found, expected, rtol=1e-4)

    # An even map stays even.
    value = torch.tensor(0.25)
    even = plots.upsample(value.expand(1, *grid))
    assert torch.allclose(even, value, atol=1e-6)


def test_upsampled_maps_equal_scipys_gaussian():
    ndimage = pytest.importorskip("scipy.ndimage", reason="scipy comes with the extra `course`")
    alphas = maps(2)
    found = plots.upsample(alphas)

    # Each cell becomes 16 x 16 pixels, and the blur is as wide as a cell.
    cells = np.kron(alphas, np.ones((16, 16)))
    expected = []
    for pixels in cells:
        expected.append(ndimage.gaussian_filter(pixels, sigma=16, mode="reflect"))
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_each_word_has_its_map_and_the_end_too():
    words = ["a", "dog", "runs", "on", "the", "green", "grass"]
    figure = plots.attention_figure(photo(), words, maps(8))
    # The photograph itself, which comes first, has no title.
    assert titles(figure) == ["", *words, "(end)"]

    # A map fewer: the end has none.
    without_end = plots.attention_figure(photo(), words, maps(7))
    assert titles(without_end) == ["", *words]


@pytest.mark.filterwarnings("ignore:Glyph")
def test_what_no_font_has_is_said_once(tmp_path, capsys):
    """A letter of the private use area, which no font has."""
    for _ in range(2):
        plots.attention_figure(photo(), ["a", "\ue123\ue124"], maps(2), tmp_path / "a.png")
    assert capsys.readouterr().err.count("install one") == 1


def test_light_by_hand():
    """Unchanged at the maximum; at 0 grey, with 0.55 of the value; the mean of both at half.

    An even map changes nothing.
    """
    orange = np.array([0.9, 0.5, 0.1])
    # The luma of ITU-R BT.601.
    grey = 0.299 * 0.9 + 0.587 * 0.5 + 0.114 * 0.1
    dim = 0.55 * grey
    pixels = np.broadcast_to(orange, (1, 3, 3))  # three orange pixels in a row

    falling = np.array([[0.04, 0.02, 0.0]])
    lit = plots.light(pixels, falling)
    half = (orange + dim) / 2
    expected = np.stack([orange, half, [dim] * 3])
    # The values are rounded to whole numbers.
    differences = np.abs(lit[0] - 255 * expected)
    assert differences.max() <= 0.5

    even = np.full((1, 3), 1 / 49)
    lit = plots.light(pixels, even)
    differences = np.abs(lit - 255 * pixels)
    assert differences.max() <= 0.5


def test_a_line_encloses_what_has_half_of_the_maximum():
    """On black, where dimming cannot be seen: the left of two halves.

    Its border is the middle of the picture.
    """
    alphas = torch.zeros(2, 14, 14)
    alphas[0, :, :7] = 1 / 98
    alphas[1] = 1 / 196
    black = Image.new("RGB", (224, 224))
    figure = plots.attention_figure(black, ["left", "all"], alphas)

    # The photograph's own axis comes first.
    borders = []
    for axis in figure.axes[1:3]:
        paths = []
        for line in axis.collections:
            paths += line.get_paths()
        borders.append(paths)
    left, even = borders
    across = left[0].vertices[:, 0]
    assert np.allclose(across, 111.5, atol=0.6)
    # An even map has no border.
    assert not even


@pytest.mark.parametrize("size", [(512, 256), (300, 900), (2000, 100)])
def test_the_photograph_is_drawn_whole_in_its_own_shape(size):
    whole = photo(*size)
    figure = plots.attention_figure(whole, [], maps(1))
    first_axis = figure.axes[0]
    drawn = first_axis.images[0].get_array()

    height, width, _ = drawn.shape
    assert max(height, width) == 448
    own_width, own_height = size
    own_shape = own_width / own_height
    assert width / height == pytest.approx(own_shape, rel=0.02)
    # A part of the noise would have another mean.
    mean = np.asarray(whole).mean() / 255
    assert drawn.mean() == pytest.approx(mean, abs=0.01)


def test_a_map_lies_where_the_encoder_looked():
    """A photograph of 512 x 256: the right half of the map is its right half."""
    right = torch.zeros(1, 14, 14)
    right[0, :, 7:] = 1
    (whole,) = plots.upsample(right, (256, 512))
    # 120 pixels from the middle, the blur is below 1 %.
    assert whole[:, 256 + 120 :].min() > 0.99
    assert whole[:, : 256 - 120].max() < 0.01


@pytest.mark.parametrize(("count", "size"), [(1, (900, 300)), (6, (300, 900))])
def test_nothing_is_cut_off_and_no_words_or_pictures_overlap(count, size):
    # Long words, and one that matplotlib could take for a formula.
    words = ["antidisestablishmentarianism", "$5$", "skateboarding"][:count]
    words += ["grasshoppers"] * (count - len(words))
    alphas = maps(count + 1)
    figure = plots.attention_figure(photo(*size), words, alphas)
    # Only drawing says where everything lies.
    figure.draw_without_rendering()

    pictures = [axis.get_tightbbox() for axis in figure.axes if axis.images]
    labels = [axis.title.get_window_extent() for axis in figure.axes if axis.get_title()]
    for boxes in (pictures, labels):
        for box, other in itertools.combinations(boxes, 2):
            assert not box.overlaps(other)

    paper = figure.bbox
    for box in labels:
        assert paper.x0 <= box.x0
        assert box.x1 <= paper.x1 + 1
        assert box.y1 <= paper.y1 + 1


def test_the_same_input_gives_the_same_file(tmp_path):
    one = tmp_path / "one.png"
    two = tmp_path / "two.png"
    for path in (one, two):
        alphas = maps(2)
        plots.attention_figure(photo(), ["dog"], alphas, path=path)

    assert one.read_bytes() == two.read_bytes()
    with Image.open(one) as image:
        assert image.format == "PNG"
        assert image.width > 300
    # No temporary file is left behind.
    assert set(tmp_path.iterdir()) == {one, two}


@pytest.mark.parametrize("style", ["default", "satcourse.page"])
def test_a_notebook_shows_a_strip_in_all_its_colours_on_its_own_ground(monkeypatch, style):
    # More colours than a palette has.
    ramp = np.linspace(0, 255, 240)
    x, y = np.meshgrid(ramp, ramp)
    colours = np.stack([x, y, 255 - x], axis=2)
    smooth = Image.fromarray(colours.astype(np.uint8))

    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    with plt.style.context(style):
        figure = plots.attention_figure(smooth, ["dog"], maps(2))
        figure._ipython_display_()
    (picture,) = shown
    image = Image.open(io.BytesIO(picture.data))

    assert image.format == "JPEG"
    assert picture.format == "jpeg"
    # A palette's 256 colours would not do.
    colours = image.getcolors(10**6)
    assert len(colours) > 10_000
    # Three pictures of 1.6 inches, with two pixels per point.
    assert image.width == int(3 * 1.6 * 144)

    # The lower edge shows the ground, whatever the style.
    middle = image.width // 2
    ground = image.getpixel((middle, image.height - 2))
    distance = np.subtract(ground, (0x24, 0x26, 0x2B))
    assert np.abs(distance).max() < 6


@pytest.mark.parametrize("size", [(30000, 1), (1, 20000)])
def test_a_photograph_of_one_pixel_by_thousands(size):
    line = Image.new("RGB", size)
    figure = plots.attention_figure(line, ["line"], maps(2))
    assert titles(figure)[1:] == ["line", plots.END_LABEL]
