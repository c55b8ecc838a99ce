"""Maps are what each module gives, fields are as large as by hand, and photographs move by whole pixels."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from satcourse.exercises.ex02 import receptive_field
from satcourse.lessons import seeing
from satlib.data.images import square
from satlib.model import encoders


def tiny(*modules):
    """An encoder of the given modules, in double precision, with biases that matter."""
    for module in modules:
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.bias)
    encoder = encoders.Encoder(nn.Sequential(*modules), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), channels="BGR")
    return encoder.double().requires_grad_(False)


def vgg_like():
    """Two blocks, as VGG's are."""
    first = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return tiny(*first, nn.Conv2d(6, 8, 3, padding=1), nn.ReLU())


def pictures(count=1, size=20):
    return 255 * torch.rand(count, 3, size, size, dtype=torch.double)


def test_maps_are_what_each_module_gives():
    encoder, pixels = vgg_like(), pictures(2)
    maps = seeing.look(encoder, pixels, ["conv1_2", "conv2_1"])
    assert torch.equal(maps["conv1_2"], encoder.body[:4](encoder.normalised(pixels)))
    assert torch.equal(maps["conv2_1"], encoder.maps(pixels))


def test_the_receptive_field_of_vgg19():
    """By hand: each 3x3 convolution adds 2, each pool 1, times 2 for each pool before it."""
    with torch.device("meta"):  # which gives its weights no numbers
        encoder = encoders.create("vgg19", pretrained=False)
    index_of = seeing.layer_names(encoder)
    for layer, side in (("conv1_1", 3), ("conv1_2", 5), ("conv2_2", 14), ("conv5_4", 252)):
        below = [each for each in encoder.body[: index_of[layer]] if not isinstance(each, nn.ReLU)]
        assert receptive_field([(3, 1) if isinstance(each, nn.Conv2d) else (2, 2) for each in below]) == side


def test_a_square_holds_a_share():
    weights = torch.zeros(40, 50)
    weights[10:20, 20:30] = 1.0
    assert [seeing.side_holding(weights, share) for share in (1.0, 0.63, 0.65)] == [10, 8, 10]  # 64 of 100 are in 8 x 8


def test_photographs_are_moved_by_whole_pixels_and_have_no_border():
    rows, columns = np.mgrid[0:400, 0:600]
    photo = Image.fromarray(np.stack([rows * 255 / 399, columns * 255 / 599, 0 * rows], 2).round().astype(np.uint8))
    still = np.asarray(seeing.lowered(photo, 0))
    assert (still == np.asarray(square(photo, "crop"))[32:-32, 32:-32]).all()
    assert (np.asarray(seeing.lowered(photo, 24))[24:] == still[:-24]).all()
    grey = Image.new("RGB", (256, 400), (90, 90, 90))
    assert all((np.asarray(seeing.lowered(grey, by)) == 90).all() for by in (48, -48))
