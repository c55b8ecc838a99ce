"""The way back to pixels is autograd's where nothing is rectified, obeys switches, and stays in what a place sees."""

import layers
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from satcourse.lessons import seeing
from satlib.data.images import square
from satlib.errors import SatlibError
from satlib.model import encoders

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def tiny(*modules, channels="RGB"):
    """An encoder of the given modules, in double precision, with biases that matter."""
    for module in modules:
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            nn.init.normal_(module.bias)
    encoder = encoders.Encoder("tiny", encoders.Network(nn.Sequential(*modules), **PLAIN, channels=channels)).double()
    return encoder.requires_grad_(False)


def vgg_like(channels="RGB"):
    """Two blocks, as VGG's are."""
    return tiny(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        channels=channels,
    )


def pictures(count=1, size=20):
    return 255 * torch.rand(count, 3, size, size, dtype=torch.double)


def pull_back(encoder, picture, output):
    """Autograd's vector-Jacobian product of a module's output with the output's own value at its maximum, elsewhere zero."""
    picture = picture.clone().requires_grad_(True)
    maps = output(picture)
    at = maps.detach().flatten().argmax()
    vector = torch.zeros(maps.numel(), dtype=maps.dtype)
    vector[at] = maps.detach().flatten()[at]
    (gradient,) = torch.autograd.grad(maps, picture, vector.view_as(maps))
    _, channel, row, column = np.unravel_index(int(at), maps.shape)
    return gradient[0], int(channel), (int(row), int(column))


class TestLayers:
    def test_maps_are_what_each_module_gives(self):
        encoder, pixels = vgg_like(), pictures(2)
        maps = seeing.look(encoder, pixels, ["conv1_1", "conv1_2", "pool1", "conv2_1"]).maps
        signal, index_of = pixels, seeing.layer_names(encoder)
        for index, module in enumerate(encoder.body):
            signal = module(signal.clone())
            for name, there in index_of.items():
                if there == index:
                    assert torch.equal(maps[name], signal)
        assert torch.equal(maps["conv2_1"], encoder.maps(pixels))

    def test_what_cannot_be_followed_is_refused(self):
        with pytest.raises(SatlibError, match="no layer 'conv9_1'; choose among conv1_1, conv1_2, pool1, conv2_1"):
            seeing.look(vgg_like(), pictures(), ["conv9_1"])
        with pytest.raises(SatlibError, match="use vgg19 or alexnet"):
            seeing.layer_names(encoders.create("small", pretrained=False))


class TestProject:
    @pytest.mark.parametrize("channels", ["RGB", "BGR"])
    def test_without_relu_it_is_the_transposed_operator(self, channels):
        """Convolutions and pools of every size, one after the other; the last ReLU only gives the layer its name."""
        body = [
            nn.Conv2d(3, 4, 5, stride=2, padding=1),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(4, 5, 3, padding=1, dilation=2),
            nn.MaxPool2d(2),
        ]
        encoder, picture = tiny(*body, nn.Conv2d(5, 6, 1), nn.ReLU(), channels=channels), pictures(1, 38)
        wanted, channel, place = pull_back(encoder, picture, lambda x: encoder.maps(x))
        trace = seeing.look(encoder, picture, ["conv3_1"])
        found = seeing.project(encoder, trace, "conv3_1", 0, channel, place)
        torch.testing.assert_close(found, wanted)
        assert found.abs().max() > 0

    def test_with_relu_it_is_autograd_with_the_gate_moved(self):
        """Back through a ReLU the deconvnet rectifies what comes back, where a gradient asks what went forward."""

        class Rectified(torch.autograd.Function):
            @staticmethod
            def forward(context, signal):
                return signal.clamp(min=0)

            @staticmethod
            def backward(context, gradient):
                return gradient.clamp(min=0)

        def output(signal):
            for module in encoder.body:
                signal = Rectified.apply(signal) if isinstance(module, nn.ReLU) else module(signal)
            return signal

        encoder, picture = vgg_like(), pictures()
        wanted, channel, place = pull_back(encoder, picture, output)
        trace = seeing.look(encoder, picture, ["conv2_1"])
        torch.testing.assert_close(seeing.project(encoder, trace, "conv2_1", 0, channel, place), wanted)
        gradient, *_ = pull_back(encoder, picture, lambda x: encoder.maps(x))
        assert (wanted - gradient).norm() > 0.1 * gradient.norm()  # so the two rules are told apart

    def test_each_image_of_a_batch_by_its_own_switches(self):
        encoder, batch = vgg_like(), pictures(3)
        together = seeing.look(encoder, batch, ["conv2_1"])
        for i in range(3):
            alone = seeing.look(encoder, batch[i : i + 1], ["conv2_1"])
            torch.testing.assert_close(
                seeing.project(encoder, together, "conv2_1", i, 2, (4, 5)),
                seeing.project(encoder, alone, "conv2_1", 0, 2, (4, 5)),
            )

    def test_stays_inside_the_receptive_field(self):
        """Of conv2_1 by hand: 3 pixels in its own map, 6 before the pool, 10 in the picture: 2 * place - 4 to 2 * place + 6."""
        encoder, picture = vgg_like(), pictures(1, 40)
        maps = seeing.look(encoder, picture, ["conv2_1"])
        for row, column in ((9, 9), (4, 14)):
            channel = int(maps.maps["conv2_1"][0, :, row, column].argmax())
            touched = seeing.project(encoder, maps, "conv2_1", 0, channel, (row, column)).abs().sum(0) > 0
            box = seeing.receptive_field(encoder, "conv2_1", (row, column))
            assert box == (2 * row - 4, 2 * column - 4, 2 * row + 6, 2 * column + 6)
            assert touched[box[0] : box[2], box[1] : box[3]].sum() == touched.sum() > 0


class TestReceptiveField:
    def test_vgg19(self):
        """By hand: each 3x3 convolution adds 2, each pool 1, times 2 for each pool before it."""
        with torch.device("meta"):  # which gives its weights no numbers
            encoder = encoders.create("vgg19", pretrained=False)
        for layer, side in (("conv1_1", 3), ("conv1_2", 5), ("conv2_2", 14), ("conv5_4", 252)):
            top, left, bottom, right = seeing.receptive_field(encoder, layer, (7, 7))
            assert (bottom - top, right - left) == (side, side)

    def test_is_where_a_pixel_can_make_a_difference(self):
        """A gradient through weights that are all one, and a mean in place of each maximum, reaches every pixel of it."""
        encoder = vgg_like()
        for module in encoder.body:
            for parameter in module.parameters():
                parameter.fill_(1.0)
        picture = torch.ones(1, 3, 40, 40, dtype=torch.double, requires_grad=True)
        signal = picture
        for module in encoder.body:
            signal = functional.avg_pool2d(signal, 2) if isinstance(module, nn.MaxPool2d) else module(signal)
        (gradient,) = torch.autograd.grad(signal[0, 0, 9, 7], picture)
        rows, columns = gradient[0, 0].nonzero(as_tuple=True)
        found = (int(rows.min()), int(columns.min()), int(rows.max()) + 1, int(columns.max()) + 1)
        assert found == seeing.receptive_field(encoder, "conv2_1", (9, 7))


def test_strongest_takes_each_photograph_once():
    maps = torch.zeros(3, 2, 4, 5)
    maps[0, 1, 2, 3], maps[0, 1, 0, 0], maps[2, 1, 3, 4], maps[1, 0, 1, 1] = 5.0, 4.0, 7.0, 9.0
    assert seeing.strongest(maps, 1, 2) == [(2, (3, 4)), (0, (2, 3))]


class TestSideHolding:
    def test_of_a_square(self):
        weights = torch.zeros(40, 50)
        weights[10:20, 20:30] = 1.0
        assert seeing.side_holding(weights, 1.0) == 10
        assert seeing.side_holding(weights, 0.63) == 8  # 64 of 100
        assert seeing.side_holding(weights, 0.65) == 10


class TestTransformed:
    @pytest.fixture
    def photo(self):
        """Its row and column stand in red and green."""
        rows, columns = np.mgrid[0:400, 0:600]
        pixels = np.stack([rows * 255 / 399, columns * 255 / 599, 0 * rows], 2)
        return Image.fromarray(pixels.round().astype(np.uint8))

    def test_as_it_is_it_is_the_middle_of_the_crop(self, photo):
        seen = np.asarray(square(photo, "crop"))
        assert (np.asarray(seeing.transformed(photo)) == seen[32:-32, 32:-32]).all()

    def test_a_shift_moves_the_picture_down_by_whole_pixels(self, photo):
        still, moved = np.asarray(seeing.transformed(photo)), np.asarray(seeing.transformed(photo, shift=24))
        assert still.shape == (160, 160, 3)
        assert (moved[24:] == still[:-24]).all()

    def test_a_rotation_turns_anticlockwise(self, photo):
        still = np.asarray(seeing.transformed(photo)).astype(int)
        quarter = np.asarray(seeing.transformed(photo, angle=90)).astype(int)
        assert abs(quarter - np.rot90(still)).max() <= 3

    @pytest.mark.parametrize("change", [{"angle": 45}, {"angle": 225}, {"shift": 48}, {"shift": -48}])
    def test_no_border_comes_in(self, change):
        grey = Image.new("RGB", (256, 400), (90, 90, 90))
        assert (np.asarray(seeing.transformed(grey, **change)) == 90).all()

    @pytest.mark.parametrize("change", [{"shift": 49}, {"scale": 0.9}, {"shift": 8, "angle": 5}])
    def test_what_the_photograph_does_not_have_is_refused(self, photo, change):
        with pytest.raises(SatlibError, match="at most 48 pixels"):
            seeing.transformed(photo, **change)


class TestChange:
    @staticmethod
    def features(images):
        return {"pixels": images.double(), "mean": images.double().mean((2, 3))}

    def test_an_image_and_itself_are_no_distance_apart(self):
        before = self.features(torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8))
        found = seeing.change(before, before)
        assert {name: value.tolist() for name, value in found.items()} == {"pixels": [0, 0, 0], "mean": [0, 0, 0]}

    def test_a_mirror_image_keeps_the_mean_and_nothing_else(self):
        pixels = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
        found = seeing.change(self.features(pixels), self.features(pixels.flip(3)))
        assert (found["pixels"] > 0.5).all()
        assert found["mean"].max() < 1e-12

    def test_one_is_as_far_as_another_photograph(self):
        before = {"mean": torch.tensor([[0.0, 0], [3, 4], [6, 8]])}  # 5 from each to the next
        after = {"mean": torch.tensor([[0.0, 15], [3, 4], [6, 4]])}
        assert seeing.change(before, after)["mean"].tolist() == pytest.approx([15 / 7.5, 0, 4 / 7.5])

    def test_one_photograph_has_nothing_to_compare_with(self):
        with pytest.raises(SatlibError, match="two photographs"):
            seeing.change({"mean": torch.zeros(1, 3)}, {"mean": torch.zeros(1, 3)})


class TestObjects:
    def test_an_object_s_vector_is_the_mean_over_its_pixels(self):
        maps = torch.rand(2, 3, 2, 2)
        masks = torch.zeros(2, 2, 4, 4)
        masks[0, 0, :2, :2] = 1  # the first cell
        masks[0, 1, :, 2:] = 1  # the cells on the right
        masks[1, 0, 0, 1:3] = 1  # half of each upper cell
        masks[1, 1, 3, 3] = 1
        expected = [maps[0, :, 0, 0], maps[0, :, :, 1].mean(1), maps[1, :, 0].mean(1), maps[1, :, 1, 1]]
        torch.testing.assert_close(layers.object_vectors(maps, masks), torch.stack(expected))

    def test_the_nearest_is_of_another_scene_whatever_the_length(self):
        vectors = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [9.0, 3.0]])
        assert layers.nearest_elsewhere(vectors, torch.tensor([0, 0, 1, 1])).tolist() == [3, 3, 1, 1]


class TestUnpool:
    @pytest.mark.parametrize(("kernel", "stride", "size"), [(2, 2, 8), (2, 2, 9), (3, 2, 13)])
    def test_is_autograds_way_back_through_a_pool(self, kernel, stride, size):
        maps = torch.randn(2, 3, size, size, dtype=torch.double, requires_grad=True)
        pooled, switches = functional.max_pool2d(maps, kernel, stride, return_indices=True)
        values = torch.randn_like(pooled)
        (wanted,) = torch.autograd.grad(pooled, maps, values)
        torch.testing.assert_close(seeing.unpool(values, switches, (size, size)), wanted)
