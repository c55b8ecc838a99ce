"""What a convolutional network sees: its layers one by one, activations projected back to pixels, invariance.

After M. D. Zeiler and R. Fergus, "Visualizing and Understanding Convolutional Networks" (ECCV 2014): what they did to
understand a network, done to the encoder of section 3.1.1. Layers and projections are for encoders whose body is a plain
sequence of convolutions, ReLUs and max pools, `vgg19` and `alexnet`. Their layers are called as VGG's are: conv5_4 is the
fourth convolution of the fifth block *after its ReLU*, pool4 the pooling that ends the fourth block.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from satlib.encoders import Encoder
from satlib.errors import SatlibError
from satlib.images import centre, with_shortest

WINDOW, SHORTEST = 160, 256  # pixels of a view, and of the shortest side of the photograph that it is cut from


def layer_names(encoder: Encoder) -> dict[str, int]:
    """Name of each layer -> index in the encoder's body of the module whose output it is, from pixels upwards.

    Raises:
        SatlibError: the body is not a plain sequence of convolutions, ReLUs and max pools.
    """
    kinds = (nn.Conv2d, nn.ReLU, nn.MaxPool2d)
    if not isinstance(encoder.body, nn.Sequential) or not all(isinstance(module, kinds) for module in encoder.body):
        raise SatlibError(
            f"{encoder.name} is not a plain sequence of convolutions, ReLUs and max pools; take vgg19 or alexnet"
        )
    found, block, number = {}, 1, 0
    for index, module in enumerate(encoder.body):
        if isinstance(module, nn.ReLU):
            number += 1
            found[f"conv{block}_{number}"] = index
        elif isinstance(module, nn.MaxPool2d):
            found[f"pool{block}"] = index
            block, number = block + 1, 0
    return found


@dataclass(frozen=True)
class Trace:
    """A forward pass, with what the way back needs.

    Attributes:
        maps: name of a layer -> its output (B, C, h, w).
        switches: index of a max pool in the body -> for each of its outputs (B, C, h, w) where its maximum was, as an index
            into the flattened map that was pooled.
        sizes: for each module of the body (h, w) of what went into it.
    """

    maps: dict[str, Tensor]
    switches: dict[int, Tensor]
    sizes: list[tuple[int, int]]


def look(encoder: Encoder, images: Tensor, layers: Iterable[str]) -> Trace:
    """Run the encoder and keep the maps of the named layers, with the switches of every max pool.

    Gradients are kept as torch is told to; wrap the call in `torch.no_grad()` where none is wanted.

    Args:
        encoder: one that `layer_names` takes.
        images: (B, 3, H, W), RGB in 0..255, as `Encoder.forward` takes them.
        layers: names out of `layer_names`.

    Raises:
        SatlibError: no layer is called that.
    """
    index_of, wanted = layer_names(encoder), {}
    for layer in layers:
        if layer not in index_of:
            raise SatlibError(f"{encoder.name} has no layer {layer!r}; choose among {', '.join(index_of)}")
        wanted[index_of[layer]] = layer
    trace = Trace({}, {}, [])

    def keep(index: int) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            trace.sizes.append(tuple(inputs[0].shape[2:]))
            if isinstance(module, nn.MaxPool2d):
                geometry = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
                _, trace.switches[index] = functional.max_pool2d(inputs[0], *geometry, return_indices=True)
            if index in wanted:
                trace.maps[wanted[index]] = output

        return hook

    handles = [module.register_forward_hook(keep(index)) for index, module in enumerate(encoder.body)]
    try:
        encoder.maps(images)
    finally:
        for handle in handles:
            handle.remove()
    return trace


def unpool(values: Tensor, switches: Tensor, size: tuple[int, int]) -> Tensor:
    """Put each value where the maximum was that was pooled there, zeros elsewhere: (B, C, h, w) -> (B, C, *size).

    Where pooling windows overlap, values of one switch add up.
    """
    flat = values.new_zeros(*values.shape[:2], size[0] * size[1])
    return flat.scatter_add_(2, switches.flatten(2), values.flatten(2)).unflatten(2, size)


@torch.no_grad()
def project(encoder: Encoder, trace: Trace, layer: str, image: int, channel: int, place: tuple[int, int]) -> Tensor:
    """Project one activation down to pixels by a deconvnet (Zeiler and Fergus, section 2.1).

    All other activations of the layer are set to zero. Then, from the layer down, each max pool is undone by its switches,
    each ReLU is a ReLU of the signal that comes down, and each convolution is its transposed filters, without the bias.

    Args:
        encoder: that made the trace.
        trace: of a batch of images, with the layer among its maps.
        layer: name of the layer.
        image: which of the batch.
        channel: which feature map.
        place: (row, column) in it.

    Returns:
        (3, H, W), RGB, of either sign, in the units of what the body is fed.
    """
    maps = trace.maps[layer]
    signal = torch.zeros_like(maps[image : image + 1])
    signal[0, channel, place[0], place[1]] = maps[image, channel, place[0], place[1]]
    for index in range(layer_names(encoder)[layer], -1, -1):
        module, size = encoder.body[index], trace.sizes[index]
        if isinstance(module, nn.ReLU):
            signal = signal.relu()
        elif isinstance(module, nn.MaxPool2d):
            signal = unpool(signal, trace.switches[index][image : image + 1], size)
        else:
            signal = _transposed(module, signal, size)
    return signal[0].flip(0) if encoder.channels == "BGR" else signal[0]


def _transposed(convolution: nn.Conv2d, signal: Tensor, size: tuple[int, int]) -> Tensor:
    """The transposed convolution (B, out, h, w) -> (B, in, *size); a stride may have left rows over at the end."""
    reach = [
        (signal.shape[2 + i] - 1) * convolution.stride[i]
        + convolution.dilation[i] * (convolution.kernel_size[i] - 1)
        + 1
        for i in (0, 1)
    ]
    return functional.conv_transpose2d(
        signal,
        convolution.weight,
        stride=convolution.stride,
        padding=convolution.padding,
        output_padding=[size[i] + 2 * convolution.padding[i] - reach[i] for i in (0, 1)],
        groups=convolution.groups,
        dilation=convolution.dilation,
    )


def receptive_field(encoder: Encoder, layer: str, place: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels that can change one activation: top, left, bottom, right, the last two not included.

    Beyond the picture's border it counts on: conv5_4 of VGG-19 sees 252 x 252 pixels, more than a picture of 224 has.
    """
    first, last = list(place), list(place)
    for index in range(layer_names(encoder)[layer], -1, -1):
        module = encoder.body[index]
        if isinstance(module, nn.ReLU):
            continue
        for axis in (0, 1):
            geometry = (module.kernel_size, module.stride, module.padding, module.dilation)
            kernel, stride, padding, dilation = (value if isinstance(value, int) else value[axis] for value in geometry)
            first[axis] = first[axis] * stride - padding
            last[axis] = last[axis] * stride - padding + dilation * (kernel - 1)
    return first[0], first[1], last[0] + 1, last[1] + 1


def strongest(maps: Tensor, channel: int, count: int) -> list[tuple[int, tuple[int, int]]]:
    """Where a feature map is largest, each image once: (image, (row, column)) from the strongest on; maps (B, C, h, w)."""
    peaks, places = maps[:, channel].flatten(1).max(1)
    width = maps.shape[3]
    order = peaks.argsort(descending=True, stable=True)[:count].tolist()
    return [(image, divmod(int(places[image]), width)) for image in order]


def side_holding(weights: Tensor, share: float) -> int:
    """Side of the smallest square about the centre of mass that holds a share of all weight: (H, W), none negative."""
    weights = weights.double() / weights.double().sum()
    rows, columns = (torch.arange(size, dtype=weights.dtype, device=weights.device) for size in weights.shape)
    y, x = weights.sum(1) @ rows, weights.sum(0) @ columns
    away, order = torch.maximum((rows - y).abs().unsqueeze(1), (columns - x).abs()).flatten().sort()
    held = weights.flatten()[order].cumsum(0)
    return int(2 * away[(held >= share - 1e-9).int().argmax()]) + 1


def transformed(photo: Image.Image, shift: int = 0, scale: float = 1.0, angle: float = 0.0) -> Image.Image:
    """A photograph moved, enlarged or turned, seen through a window of 160 x 160 (Zeiler and Fergus, figure 5).

    The photograph is scaled as for the view "crop" (`images.square`), its shortest side to 256, and the window is smaller than the encoder's, so
    that what comes in at its border is the photograph's own and never a black edge.

    Args:
        photo: RGB.
        shift: pixels downwards, at most 48 either way.
        scale: enlarged about the middle.
        angle: degrees, anticlockwise about the middle.

    Raises:
        SatlibError: that would show what the photograph does not have.
    """
    farthest = (SHORTEST - WINDOW) // 2
    if abs(shift) > farthest or scale < 1 or (shift and (angle or scale > 1)):
        raise SatlibError(f"shift by at most {farthest} pixels, or scale by at least 1 or turn, with no shift then")
    wide = photo.resize(with_shortest(photo.size, SHORTEST), Image.Resampling.BILINEAR)
    wide = centre(wide, SHORTEST, SHORTEST)
    if angle:
        wide = wide.rotate(angle, Image.Resampling.BICUBIC)
    low, high = SHORTEST / 2 - WINDOW / 2 / scale, SHORTEST / 2 + WINDOW / 2 / scale
    return wide.resize((WINDOW, WINDOW), Image.Resampling.BICUBIC, box=(low, low - shift, high, high - shift))


def change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How far features have moved: the Euclidean distance of each photograph's from before to after, layer by layer.

    In units of the mean distance from that photograph to the others before: 0 is no change, 1 as far as another photograph.
    So layers of different sizes share an axis.

    Args:
        before: name of a layer -> features (B, ...) of at least two photographs.
        after: the same of the same photographs, transformed.

    Returns:
        Name of a layer -> (B,).

    Raises:
        SatlibError: there is but one photograph.
    """
    found = {}
    for name, features in before.items():
        if len(features) < 2:
            raise SatlibError("one photograph has no other to compare its change with; give at least two photographs")
        flat = features.flatten(1)
        others = torch.stack([(flat - one).norm(dim=1).sum() for one in flat]) / (len(flat) - 1)
        found[name] = (after[name].flatten(1) - flat).norm(dim=1) / others
    return found
