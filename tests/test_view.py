"""An encoder sees the whole photograph, wherever satlib shows it one."""

import numpy as np
import tiny
import torch
from PIL import Image

from satlib.data import images
from satlib.data.features import Pixels


def photo_with_red_sides():
    """Red at the sides, which a crop would not see, and noise in the middle."""
    red = (255, 0, 0)
    pixels = np.random.default_rng(0).integers(0, 256, (300, 600, 3), dtype=np.uint8)
    pixels[:, :150] = red
    pixels[:, 450:] = red
    return Image.fromarray(pixels)


def test_captioning_training_and_features_see_the_same(monkeypatch):
    photo = photo_with_red_sides()
    expected = images.to_tensor(images.square(photo))

    # Captioning.
    captioner = tiny.decided()
    forward = captioner.encoder.forward
    seen = []

    def watched(batch):
        seen.append(batch)
        return forward(batch)

    monkeypatch.setattr(captioner.encoder, "forward", watched)
    captioner.caption([photo])
    first_batch = seen[0]
    assert torch.equal(first_batch[0], expected)

    # Training and computing features, which read pixels by the image's name.
    data = tiny.data()
    data.draw = lambda example: photo
    pixels = Pixels(data).read(["train-0"])
    assert torch.equal(pixels[0], expected)
