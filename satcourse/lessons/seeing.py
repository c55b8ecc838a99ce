"""What a convolutional network sees: the maps of each layer, projections to pixels, invariance (notebook 02).

The methods of M. D. Zeiler and R. Fergus, "Visualizing and Understanding Convolutional Networks" (ECCV 2014), for encoders whose
body is a plain sequence of convolutions, ReLUs and max pools: vgg19 and alexnet. Layers are named as in VGG: conv5_4 is the fourth
convolution of the fifth block *after its ReLU*, pool4 the max pool that ends the fourth block.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from satlib.data.images import centre, with_shortest
from satlib.model.encoders import Encoder

WINDOW, SHORTEST = 160, 256  # pixels: side of the window, and shortest side of the photograph that it is cut from


def layer_names(encoder: Encoder) -> dict[str, int]:
    """Name of each layer -> index of its module in the encoder's body, from the pixels upwards."""
    indices, block, number = {}, 1, 0
    for index, module in enumerate(encoder.body.children()):
        if isinstance(module, nn.ReLU):
            number += 1
            indices[f"conv{block}_{number}"] = index
        elif isinstance(module, nn.MaxPool2d):
            indices[f"pool{block}"] = index
            block, number = block + 1, 0
    return indices


@dataclass
class Trace:
    """A forward pass, with what a projection back to pixels needs.

    maps: name of a layer -> its output (B, C, h, w). switches: index of a max pool in the body -> position of each output's maximum
    in the flattened input map (B, C, h, w). sizes: the input size (h, w) of each module of the body.
    """

    maps: dict[str, Tensor] = field(default_factory=dict)
    switches: dict[int, Tensor] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)


def look(encoder: Encoder, images: Tensor, layers: Iterable[str]) -> Trace:
    """Run the encoder on images (B, 3, H, W), RGB in 0..255; record the named layers' maps and the switches of every max pool."""
    index_of = layer_names(encoder)
    wanted = {index_of[layer]: layer for layer in layers}
    trace, x = Trace(), encoder.normalised(images)
    for index, module in enumerate(encoder.body.children()):
        trace.sizes.append((x.shape[2], x.shape[3]))
        if isinstance(module, nn.MaxPool2d):
            geometry = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
            x, trace.switches[index] = functional.max_pool2d(x, *geometry, return_indices=True)
        else:
            x = module(x)
        if index in wanted:
            trace.maps[wanted[index]] = x
    return trace


def unpool(values: Tensor, switches: Tensor, size: tuple[int, int]) -> Tensor:
    """Put each value back at the position of its maximum, zeros elsewhere: (B, C, h, w) -> (B, C, H, W).

    If pooling windows overlap, values with the same position are summed.
    """
    flat = values.new_zeros(*values.shape[:2], size[0] * size[1])
    return flat.scatter_add_(2, switches.flatten(2), values.flatten(2)).unflatten(2, size)


@torch.no_grad()
def project(encoder: Encoder, trace: Trace, layer: str, image: int, channel: int, place: tuple[int, int]) -> Tensor:
    """Project one activation, at a place (row, column), back to pixels with a deconvnet (Zeiler and Fergus, section 2.1).

    Downwards, each max pool is inverted with its switches, each ReLU is applied to the signal that comes down, and each convolution is
    replaced by its transpose, without the bias: (3, H, W), RGB, positive and negative, in the units of the body's input.
    """
    maps = trace.maps[layer]
    signal = torch.zeros_like(maps[image : image + 1])
    signal[0, channel, place[0], place[1]] = maps[image, channel, place[0], place[1]]
    modules: list[Any] = list(encoder.body.children())
    for index in range(layer_names(encoder)[layer], -1, -1):
        module, size = modules[index], trace.sizes[index]
        if isinstance(module, nn.ReLU):
            signal = signal.relu()
        elif isinstance(module, nn.MaxPool2d):
            signal = unpool(signal, trace.switches[index][image : image + 1], size)
        else:
            geometry = (module.stride, module.padding, module.dilation, module.groups)
            signal = conv2d_input((1, module.in_channels, *size), module.weight, signal, *geometry)
    return signal[0].flip(0) if encoder.channels == "BGR" else signal[0]


def strongest(maps: Tensor, channel: int, count: int) -> list[tuple[int, tuple[int, int]]]:
    """The peak (image, (row, column)) of a feature map in the `count` images where it is largest, the largest first: maps (B, C, h, w)."""
    peaks, places = maps[:, channel].flatten(1).max(1)
    order = peaks.argsort(descending=True, stable=True)[:count].tolist()
    return [(image, divmod(int(places[image]), maps.shape[3])) for image in order]


def side_holding(weights: Tensor, share: float) -> int:
    """Side of the smallest square around the centre of mass that contains a share of the weight: (H, W), non-negative."""
    weights = weights.double() / weights.double().sum()
    rows, columns = (torch.arange(size, dtype=weights.dtype) for size in weights.shape)
    y, x = weights.sum(1) @ rows, weights.sum(0) @ columns
    distances, order = torch.maximum((rows - y).abs().unsqueeze(1), (columns - x).abs()).flatten().sort()
    held = weights.flatten()[order].cumsum(0)
    return int(2 * distances[(held >= share - 1e-9).int().argmax()]) + 1


def transformed(photo: Image.Image, shift: int = 0, scale: float = 1.0, angle: float = 0.0) -> Image.Image:
    """A photograph shifted down (pixels), enlarged or rotated (degrees anticlockwise), cut to 160 x 160 (Zeiler and Fergus, figure 5).

    It is scaled as for the view "crop", its shortest side to 256. The window is smaller than the encoder's square, so there is no black
    border: shift by at most 48, or, without a shift, scale by at least 1 or rotate.
    """
    square = centre(photo.resize(with_shortest(photo.size, SHORTEST), Image.Resampling.BILINEAR), SHORTEST, SHORTEST)
    if angle:
        square = square.rotate(angle, Image.Resampling.BICUBIC)
    low, high = SHORTEST / 2 - WINDOW / 2 / scale, SHORTEST / 2 + WINDOW / 2 / scale
    return square.resize((WINDOW, WINDOW), Image.Resampling.BICUBIC, box=(low, low - shift, high, high - shift))


def change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The distance between features (B, ...) before and after a transformation, layer by layer: name -> (B,).

    The unit is the photograph's mean distance to the other photographs before: 0 is no change, 1 as far as another photograph.
    So layers of different sizes can share an axis.
    """
    distances = {}
    for name, features in before.items():
        flat = features.flatten(1)
        others = torch.stack([(flat - one).norm(dim=1).sum() for one in flat]) / (len(flat) - 1)
        distances[name] = (after[name].flatten(1) - flat).norm(dim=1) / others
    return distances
