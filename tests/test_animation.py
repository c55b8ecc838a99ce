"""A caption as one animated picture: what the file holds, read again by Pillow, and where its light is."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from satlib.errors import SatlibError
from satlib.evaluation import animation

WORDS = ["a", "dog", "runs", "on", "the", "grass"]


def noise(width: int = 300, height: int = 200) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def walk(count: int, grid: tuple[int, int] = (14, 14)) -> torch.Tensor:
    """Maps whose light is in one cell, each time further to the right and further down."""
    alphas = torch.zeros(count, *grid)
    for index in range(count):
        alphas[index, index * grid[0] // count, index * grid[1] // count] = 1
    return alphas


def read(path) -> tuple[list[np.ndarray], list[int]]:
    """The frames of a file, (H, W, 3), and how long each is shown, in milliseconds."""
    pictures, durations = [], []
    with Image.open(path) as file:
        assert file.format == "WEBP"
        assert file.info["loop"] == 0  # for ever
        for index in range(file.n_frames):
            file.seek(index)
            pictures.append(np.asarray(file.convert("RGB"), dtype=float))
            durations.append(file.info["duration"])
    return pictures, durations


def of_light(picture: np.ndarray) -> np.ndarray:
    """The centre (x, y) of what is brighter than the unlit grey."""
    weight = (picture.mean(2) - np.median(picture)).clip(20, None) - 20
    ys, xs = np.indices(weight.shape)
    return np.array([(weight * xs).sum(), (weight * ys).sum()]) / weight.sum()


@pytest.mark.parametrize(("grid", "end"), [((14, 14), 0), ((5, 9), 1)])
def test_a_frame_for_each_word_whose_light_follows_the_map(tmp_path, grid, end):
    """On an even photograph, the light's centre is in the middle of the map's cell."""
    alphas = walk(len(WORDS) + end, grid)
    animation.animate(Image.new("RGB", (640, 640), (200, 200, 200)), WORDS, alphas, tmp_path / "a.webp")
    pictures, durations = read(tmp_path / "a.webp")
    assert len(pictures) == len(WORDS)  # the end mark has none
    assert durations == [700] * 5 + [2100]
    for picture, alpha in zip(pictures, alphas, strict=False):
        row, column = np.argwhere(alpha.numpy())[0]
        middle = np.array([(column + 0.5) / grid[1], (row + 0.5) / grid[0]]) * 640
        # A Gaussian that the border mirrors has its centre further in, by up to 0.8 of its standard deviation, one cell.
        assert np.abs(of_light(picture[:640]) - middle).max() < 640 / min(grid)
        assert picture[int(middle[1]), int(middle[0])].mean() > 170  # unlit, it has 110
    centres = [of_light(picture[:640]) for picture in pictures]
    assert all((later > before).all() for before, later in itertools.pairwise(centres))


def test_the_current_word_and_no_other_is_emphasised(tmp_path):
    """A yellow box that walks along the sentence, as wide as its word."""
    animation.animate(Image.new("RGB", (640, 320)), WORDS, walk(6), tmp_path / "a.webp")
    boxes = []
    for picture in read(tmp_path / "a.webp")[0]:
        yellow = np.abs(picture - (0xFF, 0xD3, 0x4D)).max(2) < 60
        assert not yellow[:320].any()
        ys, xs = np.nonzero(yellow)
        boxes.append((xs.min(), xs.max(), ys.min(), ys.max()))
    assert len({box[2:] for box in boxes}) <= 4  # on one line or two
    widths = dict(zip(WORDS, (right - left for left, right, *_ in boxes), strict=True))
    assert sorted(widths, key=widths.get)[0] == "a"
    assert sorted(widths, key=widths.get)[-1] == "grass"
    reading = [(top, left) for left, _, top, _ in boxes]
    assert reading == sorted(reading)
    assert len(set(reading)) == len(WORDS)


@pytest.mark.parametrize(("limit", "width"), [(10**6, 160), (18_000, 160), (8_000, 96), (3_000, 64)])
def test_the_file_keeps_its_limit_whatever_the_photograph(tmp_path, monkeypatch, limit, width):
    """Noise is what costs most; the quality and then the size give way, and below the smallest nothing is written."""
    monkeypatch.setattr(animation, "LONGEST", 160)
    monkeypatch.setattr(animation, "LIMIT", limit)
    animation.animate(noise(), WORDS, walk(6), tmp_path / "a.webp")
    assert (tmp_path / "a.webp").stat().st_size <= limit
    pictures, _ = read(tmp_path / "a.webp")
    assert (len(pictures), pictures[0].shape[1]) == (6, width)
    monkeypatch.setattr(animation, "LIMIT", 1000)
    with pytest.raises(SatlibError, match=r"b.webp would have more than 1,000 bytes.*6 words"):
        animation.animate(noise(), WORDS, walk(6), tmp_path / "b.webp")
    assert not (tmp_path / "b.webp").exists()


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((900, 300), ["antidisestablishmentarianism"] * 3),
        ((300, 900), ["$5$", "|", "Ünïcödé"]),
        ((2000, 60), ["a"] * 60),
    ],
)
def test_every_frame_is_whole(size, words):
    """All frames have one size; the photograph has its shape, and no word touches the border."""
    frames = animation.frames(noise(*size), words, walk(len(words)), longest=320)
    assert len({frame.size for frame in frames}) == 1
    width, height = frames[0].size
    photo = round(320 * size[1] / max(size))
    assert width == max(round(320 * size[0] / max(size)), 160)
    for frame in (frames[0], frames[-1]):
        text = np.asarray(frame)[photo:].astype(int)
        border = np.concatenate([text[:, 0], text[:, -1], text[-1]])
        assert np.abs(border - (0x24, 0x26, 0x2B)).max() == 0
        assert text.max() > 200
    assert height > photo + 20


def test_outside_the_encoder_s_view_there_is_no_light():
    frame = animation.frames(Image.new("RGB", (640, 320), (200, 200, 200)), ["dog"], torch.ones(1, 14, 14), "crop")[0]
    row = np.asarray(frame)[160].mean(1)
    assert (row[:170] < 130).all()  # 0.55 * 200 = 110; the crop's 280 pixels lie in the middle
    assert (row[200:440] > 190).all()


def test_what_cannot_be_animated_is_refused(tmp_path):
    path = tmp_path / "a.webp"
    with pytest.raises(SatlibError, match="no words, so there is nothing to animate"):
        animation.animate(noise(), [], walk(1), path)
    with pytest.raises(SatlibError, match=r"6 words need maps of shape \(6, h, w\)"):
        animation.animate(noise(), WORDS, walk(4), path)
    assert not list(tmp_path.iterdir())
    path.mkdir()
    (path / "file").touch()
    with pytest.raises(SatlibError, match="cannot write"):
        animation.animate(noise(), WORDS, walk(6), path / "file" / "a.webp")
