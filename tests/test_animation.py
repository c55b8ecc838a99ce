"""An animated caption: a frame for each word, its light where the map is, and the sentence whole below it."""

import numpy as np
import pytest
import torch
from PIL import Image

from satlib.evaluation import animation


@pytest.mark.parametrize(
    ("size", "words"), [((640, 320), "a dog runs"), ((200, 600), "a brown dog runs over the wet grass")]
)
def test_the_light_walks_along_the_sentence(tmp_path, monkeypatch, size, words):
    """At word t the light is on the t-th column; the frames show each word for its time, all of one size."""
    monkeypatch.setattr(animation, "LONGEST", 320)
    words = words.split()
    alphas = torch.zeros(len(words) + 1, 14, 14)
    for t in range(len(words)):
        alphas[t, :, t : t + 1] = 1
    animation.animate(Image.new("RGB", size, (200, 200, 200)), words, alphas, tmp_path / "a.webp")
    with Image.open(tmp_path / "a.webp") as walk:
        assert walk.n_frames == len(words)
        frames, durations = [], []
        for number in range(walk.n_frames):
            walk.seek(number)
            walk.load()
            durations.append(walk.info["duration"])
            frames.append(np.asarray(walk.convert("RGB")).astype(int))
    assert durations == [700] * (len(words) - 1) + [2100]
    scale = 320 / max(size)
    height, left = round(size[1] * scale), (frames[0].shape[1] - round(size[0] * scale)) // 2
    cell = size[0] * scale / 14
    for t, frame in enumerate(frames):
        columns = frame[5 : height - 5, left : left + round(size[0] * scale)].mean((0, 2))
        assert abs(columns.argmax() / cell - t - 0.5) < 1.5
        text = frame[height + 4 :]
        assert np.abs(text[:, [0, -1]] - (0x24, 0x26, 0x2B)).max() < 20  # no word touches the border
        assert text.max() > 200


def test_what_the_encoder_does_not_see_stays_dark(tmp_path):
    photo = Image.new("RGB", (640, 320), (200, 200, 200))
    animation.animate(photo, ["dog"], torch.ones(1, 14, 14), tmp_path / "a.webp", "crop")
    with Image.open(tmp_path / "a.webp") as walk:
        row = np.asarray(walk.convert("RGB"))[160].mean(1)
    assert (row[:170] < 130).all()  # 0.55 * 200 = 110; the crop's 280 pixels lie in the middle
    assert (row[200:440] > 190).all()
