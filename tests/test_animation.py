"""An animated caption: a frame for each word, lit where its map is, beside the whole sentence."""

import numpy as np
import pytest
import torch
from PIL import Image

from satlib.evaluation import animation


@pytest.mark.parametrize(
    ("size", "words"),
    [
        # Wide, and so tall that the sentence has to be broken.
        ((320, 160), "a dog runs"),
        ((120, 320), "a brown dog runs over the wet grass"),
    ],
)
def test_the_light_walks_along_the_sentence(tmp_path, monkeypatch, size, words):
    """At word t the light is on the t-th column; the frames show each word for its time."""
    monkeypatch.setattr(animation, "LONGER_SIDE", 320)
    words = words.split()
    # The map of word t is its column t.
    columns = torch.eye(len(words) + 1, 14)
    alphas = columns.unsqueeze(1).expand(-1, 14, -1)
    photo = Image.new("RGB", size, (200, 200, 200))
    animation.animate(photo, words, alphas, tmp_path / "a.webp", title="it says")

    frames = []
    durations = []
    with Image.open(tmp_path / "a.webp") as walk:
        assert walk.info["loop"] == 3, "then it rests"
        for number in range(walk.n_frames):
            walk.seek(number)
            walk.load()
            durations.append(walk.info["duration"])
            frames.append(np.asarray(walk.convert("RGB")).astype(int))
    assert durations == [700] * (len(words) - 1) + [2100]

    width, height = size
    ground = (0x24, 0x26, 0x2B)
    for t, frame in enumerate(frames):
        brightness = frame[5 : height - 5, :width].mean((0, 2))
        assert abs(brightness.argmax() * 14 / width - t - 0.5) < 1.5

        # No word touches the border above, below or at the right.
        text = frame[:, width + 4 :]
        assert np.abs(text[[0, -1]] - ground).max() < 20
        assert np.abs(text[:, -1] - ground).max() < 20
        assert text.max() > 200
