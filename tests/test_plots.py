import io
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib import colors
from matplotlib.figure import Figure
from PIL import Image

from satlib.evaluation import overlay, plots


def photo(width: int = 320, height: int = 240) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def maps(count: int, grid: tuple[int, int] = (14, 14)) -> torch.Tensor:
    energies = torch.randn(count, grid[0] * grid[1], generator=torch.Generator().manual_seed(0))
    return energies.softmax(1).view(count, *grid)


def titles(figure: Figure) -> list[str]:
    return [axis.get_title() for axis in figure.axes if axis.images]


@pytest.mark.parametrize("grid", [(14, 14), (7, 7), (5, 9)])
def test_upsampled_maps_keep_mean_and_evenness(grid):
    alphas = maps(3, grid)
    large = overlay.upsample(alphas)
    assert large.shape == (3, 224, 224)
    if grid != (5, 9):  # 224 is no multiple of 5 and 9: some cells are a pixel larger there
        assert torch.allclose(large.mean((1, 2)), alphas.mean((1, 2)), rtol=1e-4)
    even = overlay.upsample(torch.full((1, *grid), 0.25))
    assert torch.allclose(even, torch.tensor(0.25), atol=1e-6)


def test_upsampled_maps_equal_scipys_gaussian():
    ndimage = pytest.importorskip("scipy.ndimage", reason="scipy comes with the extra `course`")
    alphas = maps(2)
    expected = [
        ndimage.gaussian_filter(np.kron(alpha, np.ones((16, 16))), sigma=16, mode="reflect") for alpha in alphas.numpy()
    ]
    assert np.allclose(overlay.upsample(alphas), expected, rtol=1e-4, atol=1e-7)


def test_each_word_has_its_map_and_the_end_too():
    words = ["a", "dog", "runs", "on", "the", "green", "grass"]
    figure = plots.attention_figure(photo(), words, maps(8), torch.linspace(0, 1, 8))
    assert titles(figure) == ["", *words, "(end)"]
    assert [axis.get_xlabel() for axis in figure.axes if axis.images][1:3] == ["β = 0.00", "β = 0.14"]
    assert titles(plots.attention_figure(photo(), words, maps(7))) == ["", *words]


def test_light_by_hand():
    """Unchanged at the maximum; at 0 grey, with 0.55 of the value; the mean of both at half."""
    orange, dim = np.array([0.9, 0.5, 0.1]), 0.55 * (0.299 * 0.9 + 0.587 * 0.5 + 0.114 * 0.1)
    made = overlay.light(np.broadcast_to(orange, (1, 3, 3)), np.array([[0.04, 0.02, 0.0]]))
    assert np.abs(made[0] - 255 * np.stack([orange, (orange + dim) / 2, [dim] * 3])).max() <= 0.5


def test_light_keeps_every_pixel_under_a_uniform_map_and_never_brightens():
    pixels = np.asarray(photo(40, 30), dtype=np.float32) / 255
    assert np.array_equal(overlay.light(pixels, np.full((30, 40), 1 / 49)), np.asarray(photo(40, 30)))
    dimmed = overlay.light(pixels, np.random.default_rng(1).random((30, 40))).astype(int)
    luma = np.array([0.299, 0.587, 0.114])
    assert (dimmed @ luma <= np.asarray(photo(40, 30)) @ luma + 1).all()


def test_a_line_encloses_what_has_half_of_the_maximum():
    """On black, where dimming cannot be seen: the left of two halves, whose border is the middle of the picture."""
    alphas = torch.zeros(2, 14, 14)
    alphas[0, :, :7] = 1 / 98
    alphas[1] = 1 / 196  # an even map has no border
    axes = plots.attention_figure(Image.new("RGB", (224, 224)), ["left", "all"], alphas).axes
    _, left, even = ([path for line in axis.collections for path in line.get_paths()] for axis in axes[:3])
    assert np.allclose(left[0].vertices[:, 0], 111.5, atol=0.6)
    assert not even


@pytest.mark.parametrize("size", [(512, 256), (300, 900), (640, 480), (2000, 100)])
def test_the_photograph_is_drawn_whole_in_its_own_shape(size):
    given = photo(*size)
    drawn = plots.attention_figure(given, [], maps(1)).axes[0].images[0].get_array()
    assert max(drawn.shape[:2]) == 448
    assert drawn.shape[1] / drawn.shape[0] == pytest.approx(size[0] / size[1], rel=0.02)
    assert drawn.mean() == pytest.approx(np.asarray(given).mean() / 255, abs=0.01)


def test_a_map_lies_where_the_encoder_looked():
    """A photograph of 512 x 256: whole, the right half of the map is its right half; cropped, the middle 224 of 256 columns
    (144 to 368) and rows (16 to 240), and nothing lies outside of them."""
    right = torch.zeros(1, 14, 14)
    right[0, :, 7:] = 1
    whole = overlay.spread((512, 256), right, (256, 512), "whole")[0]
    assert whole[:, 256 + 120 :].min() > 0.99
    assert whole[:, : 256 - 120].max() < 0.01
    assert torch.allclose(whole[:, 256:].mean() + whole[:, :256].mean(), torch.tensor(1.0), atol=1e-4)
    crop = overlay.spread((512, 256), torch.ones(1, 14, 14), (256, 512), "crop")[0]
    assert torch.allclose(crop[16:240, 144:368], torch.tensor(1.0), atol=1e-5)
    assert (crop > 0).sum() == 224 * 224
    crop = overlay.spread((512, 256), right, (256, 512), "crop")[0]
    assert crop[16:240, 350:368].min() > 0.99
    assert crop[:, 368:].max() == 0
    narrow = overlay.spread((512, 256), torch.ones(1, 14, 14), (256, 128), "crop")[0]  # drawn a quarter as wide
    assert (narrow > 0).sum() == 224 * 56
    assert narrow[16:240, 36:92].min() > 0.99


@pytest.mark.parametrize(("count", "size"), [(0, (320, 240)), (1, (900, 300)), (6, (300, 900)), (12, (320, 240))])
def test_nothing_is_cut_off_and_no_words_or_pictures_overlap(count, size):
    words = ["antidisestablishmentarianism", "$5$", "skateboarding"][:count] + ["grasshoppers"] * max(count - 3, 0)
    figure = plots.attention_figure(photo(*size), words, maps(count + 1), torch.ones(count + 1))
    figure.draw_without_rendering()
    pictures = [axis.get_tightbbox() for axis in figure.axes if axis.images]
    assert not any(box.overlaps(other) for box, other in itertools.combinations(pictures, 2))
    boxes = [axis.title.get_window_extent() for axis in figure.axes if axis.get_title()]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_captions_stand_one_below_the_other():
    captions = [
        ("soft", ["a", "dog", "runs", "on", "the", "grass"], maps(7)),
        ("none", ["a", "dog"], maps(3, (7, 7))),
    ]
    figure = plots.compare_figure(photo(), captions)
    assert titles(figure) == ["soft", *["a", "dog", "runs", "on", "the", "grass"], "(end)", "none", "a", "dog", "(end)"]
    figure.draw_without_rendering()
    left = {axis.get_title(): axis.get_position().x0 for axis in figure.axes if axis.images}
    assert left["soft"] == pytest.approx(left["none"])
    assert left["soft"] < min(x for title, x in left.items() if title not in ("soft", "none"))


def test_the_same_input_gives_the_same_file(tmp_path):
    for name in ("one.png", "two.png"):
        plots.attention_figure(photo(), ["dog"], maps(2), path=tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with Image.open(tmp_path / "one.png") as image:
        assert image.format == "PNG"
        assert image.width > 300
        assert not {"Software", "Creation Time"} & image.info.keys()
    assert len(list(tmp_path.iterdir())) == 2
    plots.compare_figure(photo(), [("x", ["dog"], maps(2))], path=tmp_path / "three.png")
    assert (tmp_path / "three.png").stat().st_size > 1000


def displayed(monkeypatch, figure: Figure) -> tuple[Image.Image, dict]:
    """The one picture that a notebook shows of a figure, and its metadata."""
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    figure._ipython_display_()
    (picture,) = shown
    return Image.open(io.BytesIO(picture.data)), {"format": picture.format, "width": picture.width}


@pytest.mark.parametrize("style", ["default", "satcourse.page"])
def test_a_notebook_shows_a_strip_in_all_its_colours_on_its_own_ground(monkeypatch, style):
    x, y = np.meshgrid(np.linspace(0, 255, 240), np.linspace(0, 255, 240))
    smooth = Image.fromarray(np.stack([x, y, 255 - x], axis=2).astype(np.uint8))
    with plt.style.context(style):
        image, shown = displayed(monkeypatch, plots.attention_figure(smooth, ["dog"], maps(2)))
    assert (image.format, shown["format"]) == ("JPEG", "jpeg")  # a palette's 256 colours would not do
    assert len(image.getcolors(10**6)) > 10_000
    assert image.width == int(3 * 1.6 * 144)  # two pixels per point
    assert np.abs(np.subtract(image.getpixel((image.width // 2, image.height - 2)), (0x24, 0x26, 0x2B))).max() < 6


def test_on_a_page_figures_are_white_cards_with_dark_ink_and_two_pixels_per_point():
    def luminance(colour):  # WCAG 2.2, relative luminance
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colors.to_rgb(colour)]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(colour):
        return 1.05 / (luminance(colour) + 0.05)

    with plt.style.context("satcourse.page"):
        figure = plots.NotebookFigure(figsize=(2, 2))
        figure.subplots().plot([0, 1])
        with Image.open(io.BytesIO(figure._repr_png_())) as image:
            assert image.getpixel((1, 1)) == (255, 255, 255, 255)
            assert image.size == (288, 288)
        inks = [plt.rcParams[key] for key in ("text.color", "axes.labelcolor", "xtick.labelcolor")]
        lines = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    assert min(map(contrast, inks)) > 12
    assert contrast(plots.INK) > 4.5
    assert min(map(contrast, lines)) > 2


# From the third epoch on the two measures part: NLL rises, BLEU goes on to rise.
LOG = [
    {"event": "start"},
    {"event": "epoch", "epoch": 1, "train_nll": 4.0, "dev_nll": 3.9, "dev_bleu4": 8.0},
    {"event": "epoch", "epoch": 2, "train_nll": 3.0, "dev_nll": 3.2, "dev_bleu4": 15.0},
    {"event": "epoch", "epoch": 3, "train_nll": 2.5, "dev_nll": 3.3, "dev_bleu4": 17.0},
    {"event": "epoch", "epoch": 4, "train_nll": 2.2, "dev_nll": 3.5, "dev_bleu4": 17.0},
]


def test_curves_show_the_log_and_both_choices():
    left, right = plots.curves_figure(LOG).axes
    drawn = {line.get_label(): line for axis in (left, right) for line in axis.lines}
    assert list(drawn["dev NLL"].get_ydata()) == [3.9, 3.2, 3.3, 3.5]
    assert list(drawn["train NLL"].get_ydata()) == [4.0, 3.0, 2.5, 2.2]
    assert list(drawn["dev BLEU-4"].get_ydata()) == [8.0, 15.0, 17.0, 17.0]
    assert list(drawn["dev BLEU-4"].get_xdata()) == [1, 2, 3, 4]
    for axis in (left, right):
        assert {"kept: epoch 3", "lowest dev NLL: epoch 2"} <= {line.get_label() for line in axis.lines}
    styles = [(drawn[label].get_linestyle(), drawn[label].get_marker()) for label in ("train NLL", "dev NLL")]
    assert styles[0] != styles[1]


@pytest.mark.parametrize("view", ["whole", "crop"])
@pytest.mark.parametrize("size", [(30000, 1), (1, 20000)])
def test_a_photograph_of_one_pixel_by_thousands(size, view):
    photo = Image.new("RGB", size)
    figure = plots.attention_figure(photo, ["line"], maps(2), view=view)
    assert titles(figure)[1:3] == ["line", plots.END_LABEL]
