"""The way back to pixels is autograd's where nothing is rectified, and obeys switches; photographs move by whole pixels."""

import numpy as np
import pytest
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


def pull_back(picture, output):
    """Autograd's vector-Jacobian product of a function's largest output with its own value, and where that output is."""
    picture = picture.clone().requires_grad_(True)
    maps = output(picture)
    (gradient,) = torch.autograd.grad(maps.max(), picture, maps.max().detach())
    _, channel, row, column = np.unravel_index(int(maps.argmax()), maps.shape)
    return gradient[0], int(channel), (int(row), int(column))


def test_maps_are_what_each_module_gives():
    encoder, pixels = vgg_like(), pictures(2)
    maps = seeing.look(encoder, pixels, ["conv1_2", "conv2_1"]).maps
    assert torch.equal(maps["conv1_2"], encoder.body[:4](encoder.normalised(pixels)))
    assert torch.equal(maps["conv2_1"], encoder.maps(pixels))


def test_without_relu_a_projection_is_the_transposed_operator():
    """Convolutions and pools of several sizes, one after the other; the last ReLU only gives the layer its name."""
    body = [nn.Conv2d(3, 4, 5, stride=2, padding=1), nn.MaxPool2d(3, 2), nn.Conv2d(4, 5, 3, padding=1), nn.MaxPool2d(2)]
    encoder, picture = tiny(*body, nn.Conv2d(5, 6, 1), nn.ReLU()), pictures(1, 38)
    gradient, channel, place = pull_back(picture, encoder.maps)
    trace = seeing.look(encoder, picture, ["conv3_1"])
    torch.testing.assert_close(seeing.project(encoder, trace, "conv3_1", 0, channel, place), gradient)
    assert gradient.abs().max() > 0


def test_a_projection_is_autograd_with_the_relus_gate_moved():
    """Back through a ReLU the deconvnet rectifies what comes back, where a gradient asks what went forward."""

    class Rectified(torch.autograd.Function):
        @staticmethod
        def forward(context, signal):
            return signal.clamp(min=0)

        @staticmethod
        def backward(context, gradient):
            return gradient.clamp(min=0)

    def output(images):
        signal = encoder.normalised(images)
        for module in encoder.body:
            signal = Rectified.apply(signal) if isinstance(module, nn.ReLU) else module(signal)
        return signal

    encoder, batch = vgg_like(), pictures(3)
    rectified, channel, place = pull_back(batch[1:2], output)
    trace = seeing.look(encoder, batch, ["conv2_1"])
    torch.testing.assert_close(seeing.project(encoder, trace, "conv2_1", 1, channel, place), rectified)
    gradient, *_ = pull_back(batch[1:2], encoder.maps)
    assert (rectified - gradient).norm() > 0.1 * gradient.norm()  # so the two rules are told apart


def test_the_receptive_field_of_vgg19():
    """By hand: each 3x3 convolution adds 2, each pool 1, times 2 for each pool before it."""
    with torch.device("meta"):  # which gives its weights no numbers
        encoder = encoders.create("vgg19", pretrained=False)
    index_of = seeing.layer_names(encoder)
    for layer, side in (("conv1_1", 3), ("conv1_2", 5), ("conv2_2", 14), ("conv5_4", 252)):
        below = [each for each in encoder.body[: index_of[layer]] if not isinstance(each, nn.ReLU)]
        assert receptive_field([(3, 1) if isinstance(each, nn.Conv2d) else (2, 2) for each in below]) == side


def test_strongest_takes_each_photograph_once_and_a_square_holds_a_share():
    maps, weights = torch.zeros(3, 2, 4, 5), torch.zeros(40, 50)
    maps[0, 1, 2, 3], maps[0, 1, 0, 0], maps[2, 1, 3, 4], maps[1, 0, 1, 1] = 5.0, 4.0, 7.0, 9.0
    assert seeing.strongest(maps, 1, 2) == [(2, (3, 4)), (0, (2, 3))]
    weights[10:20, 20:30] = 1.0
    assert [seeing.side_holding(weights, share) for share in (1.0, 0.63, 0.65)] == [10, 8, 10]  # 64 of 100 are in 8 x 8


def test_photographs_are_moved_by_whole_pixels_turned_anticlockwise_and_have_no_border():
    rows, columns = np.mgrid[0:400, 0:600]
    photo = Image.fromarray(np.stack([rows * 255 / 399, columns * 255 / 599, 0 * rows], 2).round().astype(np.uint8))
    still = np.asarray(seeing.transformed(photo)).astype(int)
    assert (still == np.asarray(square(photo, "crop"))[32:-32, 32:-32]).all()
    assert (np.asarray(seeing.transformed(photo, shift=24))[24:] == still[:-24]).all()
    assert abs(np.asarray(seeing.transformed(photo, angle=90)).astype(int) - np.rot90(still)).max() <= 3
    grey = Image.new("RGB", (256, 400), (90, 90, 90))
    for change in ({"angle": 45}, {"shift": 48}, {"shift": -48}):
        assert (np.asarray(seeing.transformed(grey, **change)) == 90).all()


def test_a_mirror_image_keeps_the_mean_and_one_is_as_far_as_another_photograph():
    def features(images):
        return {"pixels": images.double(), "mean": images.double().mean((2, 3))}

    pixels = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    change = seeing.change(features(pixels), features(pixels.flip(3)))
    assert (change["pixels"] > 0.5).all()
    assert change["mean"].max() < 1e-12
    before = {"mean": torch.tensor([[0.0, 0], [3, 4], [6, 8]])}  # 5 from each to the next
    after = {"mean": torch.tensor([[0.0, 15], [3, 4], [6, 4]])}
    assert seeing.change(before, after)["mean"].tolist() == pytest.approx([15 / 7.5, 0, 4 / 7.5])
