"""An animated caption: a frame for each word, its light where the map is, and the sentence whole beside it."""

import numpy as np
import pytest
import torch
from PIL import Image

from satlib.evaluation import animation


@pytest.mark.parametrize(
    ("size", "words"),
    [((320, 160), "a dog runs"), ((120, 320), "a brown dog runs over the wet grass")],
)
def test_the_light_walks_along_the_sentence(tmp_path, monkeypatch, size, words):
    """At word t the light is on the t-th column; the frames show each word for its time, all of one size."""
    monkeypatch.setattr(animation, "LONGER_SIDE", 320)
    count = len(words.split())
    alphas = (
        torch.eye(count + 1, 14).unsqueeze(1).expand(-1, 14, -1)
    )  # the map of word t is its column t
    animation.animate(
        Image.new("RGB", size, (200, 200, 200)), words.split(), alphas, tmp_path / "a.webp"
    )
    frames, durations = [], []
    with Image.open(tmp_path / "a.webp") as walk:
        for number in range(walk.n_frames):
            walk.seek(number)
            walk.load()
            durations.append(walk.info["duration"])
            frames.append(np.asarray(walk.convert("RGB")).astype(int))
    assert durations == [700] * (count - 1) + [2100]
    for t, frame in enumerate(frames):
        columns = frame[5 : size[1] - 5, : size[0]].mean((0, 2))
        assert abs(columns.argmax() * 14 / size[0] - t - 0.5) < 1.5
        text = frame[:, size[0] + 4 :]
        assert (
            np.abs(text[[0, -1]] - (0x24, 0x26, 0x2B)).max() < 20
        )  # no word touches the border above or below
        assert np.abs(text[:, -1] - (0x24, 0x26, 0x2B)).max() < 20  # or at the right
        assert text.max() > 200
