"""An encoder tuned by the shipped recipe: its batch normalisation keeps its bits, its other weights
move, at their own rates.
"""

import tiny  # noqa: F401 (draws no curves)
import torch
from torch import nn

from satlib import recipe
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.model import encoders
from satlib.training import checkpoint, loop
from satlib.training.losses import random_views

SMALL = (
    "data.name=scenes",
    "data.min_count=1",
    "decoder.embedding=16",
    "decoder.hidden=16",
    "decoder.attention_hidden=8",
    "training.batch_size=4",
    "training.epochs=1",
    "decoding.max_length=8",
)


def test_tuned_by_the_recipe(tmp_path):
    chosen = recipe.load("flickr8k-lite0-tuned", SMALL)
    data = scenes.load(1, 1, 0)
    captioner = loop.train(chosen, data, Pixels(data), tmp_path, progress=False).train()
    encoder = captioner.encoder

    # The rates of the recipe.
    of_decoder, of_encoder = checkpoint.create_optimiser(captioner).param_groups
    assert of_decoder["lr"] == 8e-4
    assert of_encoder["lr"] == 2e-4

    # Batch normalisation is in no group, and all other weights of the encoder are in its group.
    normalisations = {}
    for name, module in encoder.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            normalisations[name] = module
    assert encoder.training
    assert not any(module.training for module in normalisations.values())
    still = {id(p) for module in normalisations.values() for p in module.parameters()}
    moving = {id(p) for p in of_encoder["params"]}
    assert still
    assert not still & moving
    assert len(of_encoder["params"]) + len(still) == len(list(encoder.parameters()))

    frozen = set()
    for name, module in normalisations.items():
        frozen |= {f"{name}.{key}" for key in module.state_dict()}
    kinds = {key.rpartition(".")[2] for key in frozen}
    assert kinds >= {"running_mean", "running_var", "weight", "bias"}

    after = encoder.state_dict()
    for name, value in encoders.create(encoder.name).state_dict().items():
        # Nothing uses the classifier, so it has no gradient.
        if "classifier" not in name:
            assert torch.equal(value, after[name]) == (name in frozen), name


def test_random_views_of_a_ramp_show_where_each_part_lies():
    """`training.augment`: the image's own coordinates are its pixels, so a part's corners can be
    read off its view.
    """
    torch.manual_seed(0)
    size, count = 64, 400
    centres = (torch.arange(size) + 0.5) / size
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    ramp = torch.stack([x, y, x])  # (3, size, size)
    views = random_views(ramp.expand(count, 3, size, size))

    # A view's pixels step evenly, so its edges lie half a step beyond its first and last pixels'
    # centres. The image's own edges are half a pixel beyond what can be interpolated, so the inner
    # pixels tell the step.
    across = views[:, 0, 32]
    down = views[:, 1, :, 32]
    steps_x = across[:, 33] - across[:, 32]
    steps_y = down[:, 33] - down[:, 32]

    # Half of them are mirrored: 200, with a standard deviation of 10.
    mirrored = steps_x < 0
    assert 150 < mirrored.sum() < 250
    # The proportions are the image's.
    assert torch.allclose(steps_x.abs(), steps_y, atol=1e-6)

    area = (steps_y * size) ** 2
    assert 0.7 - 1e-4 <= area.min() < 0.75
    assert 0.95 < area.max() <= 1 + 1e-4

    # No view leaves the image, whose coordinates go from 0 to 1.
    for line, step in ((across, steps_x.abs()), (down, steps_y)):
        middle = line[:, 31:33].mean(1)
        assert (middle - step * size / 2).min() >= -1e-4
        assert (middle + step * size / 2).max() <= 1 + 1e-4
