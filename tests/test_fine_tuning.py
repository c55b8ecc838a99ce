"""An encoder tuned by the shipped recipe: its batch normalisation keeps its bits, its other weights move, at their own rates."""

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
    "data.name=scenes", "data.min_count=1", "decoder.embedding=16", "decoder.hidden=16", "decoder.attention_hidden=8",
    "training.batch_size=4", "training.epochs=1", "decoding.max_length=8",
)  # fmt: skip


def test_tuned_by_the_recipe(tmp_path):

    chosen, data = recipe.load("flickr8k-lite0-tuned", SMALL), scenes.load(1, 1, 0)
    captioner = loop.train(chosen, data, Pixels(data), tmp_path, progress=False).train()
    decoder, encoder = checkpoint.create_optimiser(captioner).param_groups
    assert (decoder["lr"], encoder["lr"]) == (8e-4, 2e-4)
    modules = captioner.encoder.named_modules()
    normalisations = {
        name: module for name, module in modules if isinstance(module, nn.BatchNorm2d)
    }
    assert captioner.encoder.training
    assert not any(module.training for module in normalisations.values())
    inside = {id(p) for module in normalisations.values() for p in module.parameters()}
    assert inside
    assert not inside & {id(p) for p in encoder["params"]}
    assert len(encoder["params"]) + len(inside) == len(list(captioner.encoder.parameters()))
    before, after = (
        encoders.create(captioner.encoder.name).state_dict(),
        captioner.encoder.state_dict(),
    )
    frozen = {
        f"{name}.{key}" for name, module in normalisations.items() for key in module.state_dict()
    }
    assert {key.rpartition(".")[2] for key in frozen} >= {
        "running_mean",
        "running_var",
        "weight",
        "bias",
    }
    for name, value in before.items():
        if "classifier" not in name:  # which nothing uses
            assert torch.equal(value, after[name]) == (name in frozen), name


def test_random_views_of_a_ramp_show_where_each_part_lies():
    """`training.augment`: the image's own coordinates are its pixels, so a part's corners can be read off its view."""
    torch.manual_seed(0)
    size, count = 64, 400
    centres = (torch.arange(size) + 0.5) / size
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    views = random_views(torch.stack([x, y, x]).expand(count, 3, size, size))
    # A view's pixels step evenly, so its edges lie half a step beyond its first and last pixels' centres. The image's own
    # edges are half a pixel beyond what can be interpolated, so the inner pixels tell the step.
    across, down = views[:, 0, 32], views[:, 1, :, 32]
    steps_x, steps_y = across[:, 33] - across[:, 32], down[:, 33] - down[:, 32]
    mirrored = steps_x < 0
    assert 150 < mirrored.sum() < 250
    assert torch.allclose(steps_x.abs(), steps_y, atol=1e-6)  # the proportions are the image's
    area = (steps_y * size) ** 2
    assert 0.7 - 1e-4 <= area.min() < 0.75
    assert 0.95 < area.max() <= 1 + 1e-4
    for middle, step in (
        (across[:, 31:33].mean(1), steps_x.abs()),
        (down[:, 31:33].mean(1), steps_y),
    ):
        assert (middle - step * size / 2).min() >= -1e-4
        assert (middle + step * size / 2).max() <= 1 + 1e-4
