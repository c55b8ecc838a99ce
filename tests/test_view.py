"""What an encoder sees of a photograph is the recipe's choice, and every part of satlib sees the same of it."""

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from satlib.data import images
from satlib.data.features import Pixels


@pytest.fixture
def photo():
    """Red at the sides, which the crop does not see, and noise in the middle."""
    pixels = np.random.default_rng(0).integers(0, 256, (300, 600, 3), dtype=np.uint8)
    pixels[:, :150] = pixels[:, 450:] = (255, 0, 0)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("view", ["whole", "crop"])
def test_captioning_training_and_features_see_the_same(photo, view, monkeypatch):
    right, seen = images.to_tensor(images.square(photo, view)), []
    captioner = tiny.decided(changes=[f"encoder.view={view}"])
    true = captioner.encoder.forward
    monkeypatch.setattr(
        captioner.encoder, "forward", lambda batch: seen.append(batch) or true(batch)
    )
    captioner.caption([photo])
    assert torch.equal(seen[0][0], right)
    data = tiny.data()
    data.draw = lambda example: photo
    assert torch.equal(Pixels(data, view).read(["train-0"])[0], right)
