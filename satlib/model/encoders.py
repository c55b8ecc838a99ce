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
small                 five convolutions, to train from scratch with the decoder  7 x 7 x 128
timm:NAME             what `timm` calls forward_features                         any
A@SIDE                A, for images enlarged to SIDE x SIDE pixels               SIDE / 224 times finer
A+B                   the maps of A and B side by side, on the finer grid        D of A + D of B
====================  =========================================================  ==============

`vgg19`, `efficientnet-lite0` and `efficientnet-lite2` load weights from installed packages; the others download them from
torchvision or timm.
"""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.model import networks
from satlib.model.networks import Network

_AS_IS = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # for a body that normalises its images itself


class Encoder(nn.Module):
    """Maps images to annotation vectors, including the network's own preprocessing.

    Attributes:
        name: the argument of `create`.
        grid: (h, w) of the map; location i is in row i // w, column i % w.
        dim: D.
        weights_hash: SHA-256 of the weights, which feature stores record.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, network: Network) -> None:
        super().__init__()
        self.name = name
        self.body = network.body
        self.channels = network.channels
        self.register_buffer("mean", torch.tensor(network.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(network.std).view(1, 3, 1, 1), persistent=False)
        self.eval()
        with torch.inference_mode():
            _, self.dim, *grid = self.maps(torch.zeros(1, 3, SIZE, SIZE)).shape
        self.grid: tuple[int, int] = (grid[0], grid[1])

    def maps(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) in 0..255 -> the convolutional map (B, D, h, w)."""
        if self.channels == "BGR":
            images = images.flip(1)
        # In place on a copy: a batch has many pixels, and each pass over them takes time.
        return self.body(images.to(self.mean.dtype, copy=True).sub_(self.mean).div_(self.std))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), RGB, uint8 or float in 0..255 -> annotation vectors a (B, L, D)."""
        return self.maps(images).flatten(2).transpose(1, 2)

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the names and values of all weights (`weights_hash`)."""
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
        maps = [encoder.maps(images) for encoder in self.encoders]
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
            several of these with "+" between them.
        pretrained: load the pretrained weights; otherwise the weights are random (for training or for loading a checkpoint).

    Raises:
        SatlibError: the name is unknown, or the weights are neither installed nor downloadable.
    """
    if "+" in name:
        return Encoder(name, Network(SideBySide([create(part, pretrained) for part in name.split("+")]), *_AS_IS))
    if "@" in name:
        plain, _, side = name.rpartition("@")
        return Encoder(name, Network(Enlarging(create(plain, pretrained), _side(name, side)), *_AS_IS))
    if name.startswith("timm:"):
        network = networks.timm_network(name.removeprefix("timm:"), pretrained)
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


def register(name: str, build: Callable[[bool], Network]) -> None:
    """Make your own encoder available to `create`; `build` gets `pretrained` as its argument."""
    _BUILDERS[name] = build


def names() -> list[str]:
    """The names that `create` accepts, except timm:NAME and registered encoders."""
    return list(_OURS)


_BUILDERS = dict(networks.BUILDERS)
_OURS = tuple(_BUILDERS)
