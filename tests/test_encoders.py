"""Encoders give the places of their table, in order, from pixels prepared as their weights expect;
the packaged weights see.
"""

import re

import pytest
import timm
import torch
from PIL import ImageOps
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

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


def random_photo():
    return torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)


# The large one takes seconds.
LARGE = ("vgg19",)
ROWS = [
    pytest.param(name, shape, marks=[pytest.mark.slow] if name in LARGE else [])
    for name, shape in TABLE.items()
]


@pytest.mark.parametrize(("name", "shape"), ROWS)
def test_the_shape_of_each(made, name, shape):
    encoder = made(name)
    h, w, D = shape
    assert encoder.name == name
    assert encoder.grid == (h, w)
    assert encoder.dim == D
    assert not encoder.training

    photo = random_photo()
    before = photo.clone()
    with torch.inference_mode():
        a = encoder(photo)
    # Its preparation of the pixels is not in place.
    assert torch.equal(photo, before)
    assert a.shape == (1, h * w, D)
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

    # A picture for each corner, grey but for a spot in it.
    grey = torch.full((1, 3, 224, 224), 127.0)
    corners = (
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    )
    spots = grey.repeat(4, 1, 1, 1)
    for picture, (bottom, right) in zip(spots, corners, strict=True):
        rows = slice(202 * bottom, 202 * bottom + 22)
        columns = slice(202 * right, 202 * right + 22)
        picture[:, rows, columns] = 255.0 * torch.rand(3, 22, 22)

    with torch.inference_mode():
        difference = encoder(spots) - encoder(grey)  # (4, L, D)
    change = difference.norm(dim=2).view(-1, h, w)
    for map, (bottom, right) in zip(change, corners, strict=True):
        y = bottom * (h - 1)
        x = right * (w - 1)
        at_y, at_x = divmod(int(map.argmax()), w)
        assert abs(at_y - y) <= 1
        assert abs(at_x - x) <= 1
        # The opposite corner sees little of it.
        assert map[y, x] > 3 * map[h - 1 - y, w - 1 - x]


@pytest.fixture(scope="module")
def oxford():
    return encoders.create("vgg19")


@pytest.mark.slow
class TestVGG19:
    def test_input_is_bgr_less_the_mean(self, oxford):
        """The first convolution by hand, on pixels prepared by hand."""
        photo = random_photo()
        red, green, blue = photo[0].double()
        # The means of ImageNet's training images, as the authors of VGG give them.
        prepared = torch.stack([blue - 103.939, green - 116.779, red - 123.68]).unsqueeze(0)
        first = oxford.body[0]
        weight = first.weight.double()
        bias = first.bias.double()
        wanted = functional.conv2d(prepared, weight, bias, padding=1)

        seen = []

        def see(module, inputs, output):
            # A copy, because a ReLU after it may work in place.
            seen.append(output.clone())

        handle = first.register_forward_hook(see)
        with torch.inference_mode():
            oxford(photo)
        handle.remove()
        assert_close(seen[0].double(), wanted, rtol=1e-4, atol=1e-2)

    def test_it_sees(self, oxford):
        """Each changed photograph is nearest, by its mean annotation vector, to the photograph that
        it was made from.
        """
        photos = [images.square(photograph(name)) for name in ("dog", "train", "cows", "telephone")]
        changed = []
        for photo in photos:
            inner = ImageOps.mirror(photo).crop((14, 14, 210, 210))
            changed.append(inner.resize((224, 224)))

        with torch.inference_mode():
            mean = oxford(batch(*photos, *changed)).mean(1)
        unit = functional.normalize(mean, dim=1)
        near = unit[4:] @ unit[:4].T
        assert near.argmax(1).tolist() == [0, 1, 2, 3]
        # Even the least likely of the right pairs is nearer than every wrong one.
        wrong = near.masked_fill(torch.eye(4, dtype=torch.bool), 0)
        assert near.diagonal().min() > wrong.max()


class TestEfficientNetLite:
    def test_it_is_timms(self):
        """The same maps of images of any size, the same gradient and statistics: bit for bit."""
        ours = encoders.create("efficientnet-lite0").body.train()
        theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False)
        # Another memory layout would sum in another order.
        theirs = theirs.to(memory_format=torch.channels_last)
        weights = {name.removeprefix("model."): value for name, value in ours.state_dict().items()}
        assert list(weights) == list(theirs.state_dict())
        theirs.load_state_dict(weights)

        photo = (batch(photograph("cats")).float() - 127) / 128
        for pixels in (photo, functional.interpolate(photo, size=(97, 130))):
            maps = ours(pixels)
            expected = theirs.forward_features(pixels)
            assert torch.equal(maps, expected)
            maps.square().sum().backward()
            expected.square().sum().backward()

        for one, other in zip(gradients(ours), gradients(theirs), strict=True):
            assert torch.equal(one, other)

        # The state has the statistics, too, which two batches have moved.
        states = zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True)
        for one, other in states:
            assert torch.equal(one, other)

    def test_the_packaged_weights_classify_imagenet(self):
        """Classifier and preparation included: a cat is a cat, a telephone is one."""
        encoder = encoders.create("efficientnet-lite0")
        with torch.inference_mode():
            a = encoder(batch(photograph("cats"), photograph("telephone")))
            cat, telephone = encoder.body.model.classifier(a.mean(1)).softmax(1)
        # ImageNet's classes 281 to 285 are cats, 528 is a dial telephone.
        assert 281 <= cat.argmax() <= 285
        assert telephone.argmax() == 528
        assert cat[281:286].sum() > 0.5

    def test_a_frozen_encoder_takes_no_random_numbers_from_the_decoder(self):
        before = torch.get_rng_state()
        encoders.create("efficientnet-lite0")
        assert torch.equal(before, torch.get_rng_state())

    def test_an_enlarged_image_gives_a_finer_grid(self):
        encoder = encoders.create("efficientnet-lite0@288")
        # A place for every 32 pixels: 288 / 32 is 9.
        assert encoder.grid == (9, 9)
        assert encoder.dim == 1280

        photo = batch(photograph("cats"))
        larger = functional.interpolate(photo.float(), size=(288, 288), mode="bilinear")
        with torch.inference_mode():
            expected = encoders.create("efficientnet-lite0")(larger)
            assert_close(encoder(photo), expected, rtol=1e-4, atol=1e-4)


def gradients(network):
    return [weight.grad for weight in network.parameters() if weight.grad is not None]


def test_a_batch_is_encoded_in_parts_unless_its_statistics_count():
    pixels = torch.rand(5, 3, 224, 224) * 255
    for training in (False, True):
        encoder = encoders.create("small", pretrained=False).train(training)
        whole = encoder(pixels)
        # In parts of 2, 2 and 1; in training, that would be another mean and variance for each.
        encoder.at_once = 2
        assert_close(encoder(pixels), whole)


def test_statistics_are_frozen_on_several_gpus_too():
    network = nn.Sequential(nn.BatchNorm2d(3))
    network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    encoders.freeze_statistics(network)
    assert not network[0].training


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vgg", "unknown encoder 'vgg'; choose from vgg19, efficientnet-lite0, "),
        ("vgg19@0", "the encoder 'vgg19@0' needs a side of 1 to 1,999 pixels"),
        ("small", "encoder.pretrained = false and encoder.train = true"),
    ],
)
def test_names_that_give_no_encoder(name, message):
    with pytest.raises(SatlibError, match=re.escape(message)):
        encoders.create(name)


def test_an_encoder_that_a_model_did_not_train_is_named(tmp_path):
    chosen = recipe.load("flickr8k-lite0-soft")
    encoder = encoders.create("efficientnet-lite0")
    Captioner(chosen, Vocabulary(["a"]), encoder).save(tmp_path / "model.safetensors")
    with pytest.raises(SatlibError, match="was not trained; name it: "):
        encoders.create(f"model:{tmp_path}")


# Inside, in a corner, and at an edge.
@pytest.mark.parametrize(
    ("row", "column"),
    [
        (7, 4),
        (0, 13),
        (13, 1),
    ],
)
def test_the_small_encoder_sees_58_x_58_pixels_with_its_cell_in_the_middle(row, column):
    """With equal weights everywhere: a place depends on its cell of 16 pixels and on 21 more on
    each side, inside the image.
    """
    encoder = encoders.create("small", pretrained=False).eval()
    # With random weights, a gradient could be 0 by chance.
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.constant_(module.weight, 1e-2)

    image = torch.full((1, 3, 224, 224), 200.0, requires_grad=True)
    encoder(image)[0, 14 * row + column].sum().backward()
    gradient = image.grad[0]

    rows = slice(max(16 * row - 21, 0), 16 * row + 37)
    columns = slice(max(16 * column - 21, 0), 16 * column + 37)
    field = torch.zeros(224, 224, dtype=torch.bool)
    field[rows, columns] = True
    # In every colour, or in none.
    assert torch.equal(gradient.ne(0).all(0), field)
    assert torch.equal(gradient.ne(0).any(0), field)
