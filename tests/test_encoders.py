"""Encoders give the places of their table, in order, from pixels prepared as their weights expect; the packaged weights see."""

import re

import pytest
import timm
import torch
from PIL import ImageOps
from torch import nn
from torch.nn import functional

from satcourse import demo
from satlib import recipe
from satlib.data import images
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model import encoders
from satlib.model.captioner import Captioner

# As in the table at the top of the module: h, w, D.
TABLE = {
    "vgg19": (14, 14, 512),
    "efficientnet-lite0": (7, 7, 1280),
    "small": (14, 14, 128),
}


@pytest.fixture(scope="module")
def made():
    """Each encoder once, with random weights: construction takes longer than anything else here."""
    there = {}

    def make(name):
        if name not in there:
            torch.manual_seed(0)
            there[name] = encoders.create(name, pretrained=False)
        return there[name]

    return make


def photograph(name):
    (path,) = (path for path in demo.photographs() if path.stem == name)
    return images.open_photo(path)


def batch(*photos):
    return torch.stack([images.to_tensor(images.square(photo)) for photo in photos])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (each[0] == "vgg19"))
        for each in TABLE.items()
    ],
)
def test_the_shape_of_each(made, name, shape):
    encoder = made(name)
    h, w, dim = shape
    assert (encoder.name, encoder.grid, encoder.dim) == (name, (h, w), dim)
    assert not encoder.training
    photo = torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
    before = photo.clone()
    with torch.inference_mode():
        a = encoder(photo)
    assert torch.equal(photo, before)
    assert a.shape == (1, h * w, dim)
    assert a.dtype == torch.float32
    assert a.isfinite().all()


@pytest.mark.parametrize(
    "name",
    [pytest.param("vgg19", marks=pytest.mark.slow), "efficientnet-lite0", "small"],
)
def test_places_are_in_rows_from_the_top_left(made, name):
    """What changes when a corner of the picture changes is the annotation vector of that corner."""
    # Random weights of so many layers spread a change over the whole map; trained ones do not.
    encoder = encoders.create(name) if name == "efficientnet-lite0" else made(name)
    h, w = encoder.grid
    grey = torch.full((1, 3, 224, 224), 127.0)
    corners = {(0, 0): 0, (0, 1): w - 1, (1, 0): (h - 1) * w, (1, 1): h * w - 1}
    spots = grey.repeat(4, 1, 1, 1)
    for spot, (bottom, right) in zip(spots, corners, strict=True):
        spot[:, 202 * bottom : 202 * bottom + 22, 202 * right : 202 * right + 22] = (
            255.0 * torch.rand(3, 22, 22)
        )
    with torch.inference_mode():
        change = (encoder(spots) - encoder(grey)).norm(dim=2).view(-1, h, w)
    for map, place in zip(change, corners.values(), strict=True):
        y, x = divmod(place, w)
        at = divmod(int(map.argmax()), w)
        assert abs(at[0] - y) <= 1
        assert abs(at[1] - x) <= 1
        assert map[y, x] > 3 * map[h - 1 - y, w - 1 - x]


@pytest.fixture(scope="module")
def oxford():
    return encoders.create("vgg19")


@pytest.mark.slow
class TestVGG19:
    def test_input_is_bgr_less_the_mean(self, oxford):
        """The first convolution by hand, on pixels prepared by hand."""
        photo = torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
        red, green, blue = photo[0].double()
        prepared = torch.stack([blue - 103.939, green - 116.779, red - 123.68]).unsqueeze(0)
        first = oxford.body[0]
        wanted = functional.conv2d(prepared, first.weight.double(), first.bias.double(), padding=1)
        seen = []
        handle = first.register_forward_hook(
            lambda module, inputs, output: seen.append(output.clone())
        )
        with torch.inference_mode():
            oxford(photo)
        handle.remove()
        torch.testing.assert_close(seen[0].double(), wanted, rtol=1e-4, atol=1e-2)

    def test_it_sees(self, oxford):
        """Each changed photograph is nearest, by its mean annotation vector, to the photograph that it was made from."""
        photos = [images.square(photograph(name)) for name in ("dog", "train", "cows", "telephone")]
        changed = [
            ImageOps.mirror(photo).crop((14, 14, 210, 210)).resize((224, 224)) for photo in photos
        ]
        with torch.inference_mode():
            mean = functional.normalize(oxford(batch(*photos, *changed)).mean(1), dim=1)
        near = mean[4:] @ mean[:4].T
        assert near.argmax(1).tolist() == [0, 1, 2, 3]
        assert near.diagonal().min() > near.masked_fill(torch.eye(4, dtype=torch.bool), 0).max()


class TestEfficientNetLite:
    def test_it_is_timms(self):
        """The same maps of images of any size, the same gradient and statistics: bit for bit."""
        ours = encoders.create("efficientnet-lite0").body.train()
        theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).to(
            memory_format=torch.channels_last
        )
        weights = {name.removeprefix("model."): value for name, value in ours.state_dict().items()}
        assert list(weights) == list(theirs.state_dict())
        theirs.load_state_dict(weights)
        photo = (batch(photograph("cats")).float() - 127) / 128
        for pixels in (photo, functional.interpolate(photo, size=(97, 130))):
            maps, expected = ours(pixels), theirs.forward_features(pixels)
            assert torch.equal(maps, expected)
            maps.square().sum().backward()
            expected.square().sum().backward()
        gradients = [
            [p.grad for p in network.parameters() if p.grad is not None]
            for network in (ours, theirs)
        ]
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
        states = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in states)

    def test_the_packaged_weights_classify_imagenet(self):
        """Classifier and preparation included: a cat is a cat, a telephone is one."""
        encoder = encoders.create("efficientnet-lite0")
        with torch.inference_mode():
            a = encoder(batch(photograph("cats"), photograph("telephone")))
            cat, telephone = encoder.body.model.classifier(a.mean(1)).softmax(1)
        assert 281 <= cat.argmax() <= 285
        assert telephone.argmax() == 528  # dial telephone
        assert cat[281:286].sum() > 0.5

    def test_a_frozen_encoder_takes_no_random_numbers_from_the_decoder(self):
        before = torch.get_rng_state()
        encoders.create("efficientnet-lite0")
        assert torch.equal(before, torch.get_rng_state())

    def test_an_enlarged_image_gives_a_finer_grid(self):
        encoder, photo = encoders.create("efficientnet-lite0@288"), batch(photograph("cats"))
        assert (encoder.grid, encoder.dim) == ((9, 9), 1280)
        larger = functional.interpolate(photo.float(), size=(288, 288), mode="bilinear")
        with torch.inference_mode():
            expected = encoders.create("efficientnet-lite0")(larger)
            torch.testing.assert_close(encoder(photo), expected, rtol=1e-4, atol=1e-4)


def test_a_batch_is_encoded_in_parts_unless_its_statistics_count():
    images = torch.rand(5, 3, 224, 224) * 255
    for training in (False, True):
        encoder = encoders.create("small", pretrained=False).train(training)
        whole, encoder.at_once = encoder(images), 2
        torch.testing.assert_close(encoder(images), whole)


def test_statistics_are_frozen_on_several_gpus_too():
    network = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3)))
    encoders.freeze_statistics(network)
    assert not network[0].training


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vgg", "unknown encoder 'vgg'; choose from vgg19, efficientnet-lite0, "),
        ("vgg19@0", "unknown encoder 'vgg19@0'"),
        ("small", "encoder.pretrained = false and encoder.train = true"),
    ],
)
def test_names_that_give_no_encoder(name, message):
    with pytest.raises(SatlibError, match=re.escape(message)):
        encoders.create(name)


def test_an_encoder_that_a_model_did_not_train_is_named(tmp_path):
    frozen = Captioner(
        recipe.load("flickr8k-lite0-soft"), Vocabulary(["a"]), encoders.create("efficientnet-lite0")
    )
    frozen.save(tmp_path / "model.safetensors")
    with pytest.raises(SatlibError, match="was not trained; name it: "):
        encoders.create(f"model:{tmp_path}")


@pytest.mark.parametrize(("row", "column"), [(7, 4), (0, 13), (13, 1)])
def test_the_small_encoder_sees_58_x_58_pixels_with_its_cell_in_the_middle(row, column):
    """With equal weights everywhere: a place depends on its cell of 16 pixels and on 21 more on each side, inside the image."""
    encoder = encoders.create("small", pretrained=False).eval()
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.constant_(module.weight, 1e-2)
    image = torch.full((1, 3, 224, 224), 200.0, requires_grad=True)
    encoder(image)[0, 14 * row + column].sum().backward()
    field = torch.zeros(224, 224, dtype=torch.bool)
    field[max(16 * row - 21, 0) : 16 * row + 37, max(16 * column - 21, 0) : 16 * column + 37] = True
    assert torch.equal(image.grad[0].ne(0).all(0), field)
    assert torch.equal(image.grad[0].ne(0).any(0), field)
