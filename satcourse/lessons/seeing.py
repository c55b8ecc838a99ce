"""What a convolutional network sees: the maps of each layer, what they know of an object, projections to pixels, invariance.

The methods of M. D. Zeiler and R. Fergus, "Visualizing and Understanding Convolutional Networks" (ECCV 2014), applied to the
encoder of section 3.1.1. Layers and projections need an encoder whose body is a plain sequence of convolutions, ReLUs and max
pools: `vgg19` or `alexnet`. Layers are named as in VGG: conv5_4 is the fourth convolution of the fifth block *after its ReLU*,
pool4 the max pool that ends the fourth block.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_input

from satlib.data.images import centre, with_shortest
from satlib.errors import SatlibError
from satlib.model.encoders import Encoder

WINDOW, SHORTEST = 160, 256  # pixels: side of the window, and shortest side of the photograph that it is cut from


def layer_names(encoder: Encoder) -> dict[str, int]:
    """Name of each layer -> index of its module in the encoder's body, from the pixels upwards.

    Raises:
        SatlibError: the body is not a plain sequence of convolutions, ReLUs and max pools.
    """
    kinds = (nn.Conv2d, nn.ReLU, nn.MaxPool2d)
    if not isinstance(encoder.body, nn.Sequential) or not all(isinstance(module, kinds) for module in encoder.body):
        raise SatlibError(
            f"{encoder.name} is not a plain sequence of convolutions, ReLUs and max pools; use vgg19 or alexnet"
        )
    indices, block, number = {}, 1, 0
    for index, module in enumerate(encoder.body):
        if isinstance(module, nn.ReLU):
            number += 1
            indices[f"conv{block}_{number}"] = index
        elif isinstance(module, nn.MaxPool2d):
            indices[f"pool{block}"] = index
            block, number = block + 1, 0
    return indices


@dataclass(frozen=True)
class Trace:
    """A forward pass, with the data that a projection back to pixels needs.

    Attributes:
        maps: name of a layer -> its output (B, C, h, w).
        switches: index of a max pool in the body -> the position of each output's maximum (B, C, h, w), as an index into the
            flattened input map.
        sizes: the input size (h, w) of each module of the body.
    """

    maps: dict[str, Tensor]
    switches: dict[int, Tensor]
    sizes: list[tuple[int, int]]


def look(encoder: Encoder, images: Tensor, layers: Iterable[str]) -> Trace:
    """Run the encoder and record the maps of the named layers and the switches of every max pool.

    Wrap the call in `torch.no_grad()` if no gradients are needed.

    Args:
        encoder: an encoder that `layer_names` accepts.
        images: (B, 3, H, W), RGB in 0..255, as for `Encoder.forward`.
        layers: names from `layer_names`.

    Raises:
        SatlibError: the encoder has no layer of that name.
    """
    index_of, wanted = layer_names(encoder), {}
    for layer in layers:
        if layer not in index_of:
            raise SatlibError(f"{encoder.name} has no layer {layer!r}; choose among {', '.join(index_of)}")
        wanted[index_of[layer]] = layer
    trace, x = Trace({}, {}, []), encoder.normalised(images)
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
    """Put each value back at the position of its maximum, zeros elsewhere: `(B, C, h, w) -> (B, C, *size)`.

    If pooling windows overlap, values with the same position are summed.
    """
    flat = values.new_zeros(*values.shape[:2], size[0] * size[1])
    return flat.scatter_add_(2, switches.flatten(2), values.flatten(2)).unflatten(2, size)


@torch.no_grad()
def project(encoder: Encoder, trace: Trace, layer: str, image: int, channel: int, place: tuple[int, int]) -> Tensor:
    """Project one activation back to pixels with a deconvnet (Zeiler and Fergus, section 2.1).

    All other activations of the layer are set to zero. From the layer downwards, each max pool is inverted with its switches,
    each ReLU is applied to the signal that comes down, and each convolution is replaced by its transpose, without the bias.

    Args:
        encoder: the encoder that produced the trace.
        trace: the trace of a batch of images, with the layer among its maps.
        layer: name of the layer.
        image: index of the image in the batch.
        channel: index of the feature map.
        place: (row, column) of the activation.

    Returns:
        (3, H, W), RGB, positive and negative, in the units of the body's input.
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


def receptive_field(encoder: Encoder, layer: str, place: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels that can change one activation: top, left, bottom, right, the last two exclusive.

    The field may extend beyond the image: conv5_4 of VGG-19 sees 252 x 252 pixels, more than the 224 of an image.
    """
    modules: list[Any] = list(encoder.body.children())
    first, last = list(place), list(place)
    for index in range(layer_names(encoder)[layer], -1, -1):
        module = modules[index]
        if isinstance(module, nn.ReLU):
            continue
        for axis in (0, 1):
            geometry = (module.kernel_size, module.stride, module.padding, module.dilation)
            kernel, stride, padding, dilation = (value if isinstance(value, int) else value[axis] for value in geometry)
            first[axis] = first[axis] * stride - padding
            last[axis] = last[axis] * stride - padding + dilation * (kernel - 1)
    return first[0], first[1], last[0] + 1, last[1] + 1


def strongest(maps: Tensor, channel: int, count: int) -> list[tuple[int, tuple[int, int]]]:
    """The peak of a feature map in each of the `count` images where it is largest: (image, (row, column)), the largest first.

    Args:
        maps: (B, C, h, w).
        channel: index of the feature map.
        count: the number of images.
    """
    peaks, places = maps[:, channel].flatten(1).max(1)
    width = maps.shape[3]
    order = peaks.argsort(descending=True, stable=True)[:count].tolist()
    return [(image, divmod(int(places[image]), width)) for image in order]


def side_holding(weights: Tensor, share: float) -> int:
    """Side of the smallest square around the centre of mass that contains a share of the weight: (H, W), non-negative."""
    weights = weights.double() / weights.double().sum()
    rows, columns = (torch.arange(size, dtype=weights.dtype, device=weights.device) for size in weights.shape)
    y, x = weights.sum(1) @ rows, weights.sum(0) @ columns
    distances, order = torch.maximum((rows - y).abs().unsqueeze(1), (columns - x).abs()).flatten().sort()
    held = weights.flatten()[order].cumsum(0)
    return int(2 * distances[(held >= share - 1e-9).int().argmax()]) + 1


def transformed(photo: Image.Image, shift: int = 0, scale: float = 1.0, angle: float = 0.0) -> Image.Image:
    """A photograph shifted, enlarged or rotated, cropped to a window of 160 x 160 (Zeiler and Fergus, figure 5).

    The photograph is scaled as for the view "crop" (`images.square`), its shortest side to 256. The window is smaller than the
    encoder's square, so the crop contains pixels of the photograph only and no black border.

    Args:
        photo: RGB.
        shift: pixels downwards, -48 to 48.
        scale: enlargement about the centre, at least 1.
        angle: rotation about the centre in degrees, anticlockwise.

    Raises:
        SatlibError: the window would leave the photograph.
    """
    farthest = (SHORTEST - WINDOW) // 2
    if abs(shift) > farthest or scale < 1 or (shift and (angle or scale > 1)):
        raise SatlibError(f"shift by at most {farthest} pixels; or, without a shift, scale by at least 1 or rotate")
    wide = photo.resize(with_shortest(photo.size, SHORTEST), Image.Resampling.BILINEAR)
    wide = centre(wide, SHORTEST, SHORTEST)
    if angle:
        wide = wide.rotate(angle, Image.Resampling.BICUBIC)
    low, high = SHORTEST / 2 - WINDOW / 2 / scale, SHORTEST / 2 + WINDOW / 2 / scale
    return wide.resize((WINDOW, WINDOW), Image.Resampling.BICUBIC, box=(low, low - shift, high, high - shift))


def change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The change of features under a transformation: the Euclidean distance between before and after, layer by layer.

    The unit is the photograph's mean distance to the other photographs before the transformation: 0 is no change, 1 as far
    as another photograph. Layers of different sizes can therefore share an axis.

    Args:
        before: name of a layer -> features (B, ...) of at least two photographs.
        after: the same for the transformed photographs.

    Returns:
        Name of a layer -> distances (B,).

    Raises:
        SatlibError: there is only one photograph.
    """
    distances = {}
    for name, features in before.items():
        if len(features) < 2:
            raise SatlibError("the change is measured relative to other photographs; give at least two photographs")
        flat = features.flatten(1)
        others = torch.stack([(flat - one).norm(dim=1).sum() for one in flat]) / (len(flat) - 1)
        distances[name] = (after[name].flatten(1) - flat).norm(dim=1) / others
    return distances
