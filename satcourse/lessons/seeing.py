"""What a convolutional network sees: the maps of each layer, how far a place sees, photographs that move (notebook 02).

For encoders whose body is a plain sequence of convolutions, ReLUs and max pools: vgg19 and alexnet. Layers are named as in VGG: conv5_4
is the fourth convolution of the fifth block *after its ReLU*.
"""

from collections.abc import Iterable

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms

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
            block, number = block + 1, 0
    return indices


def look(encoder: Encoder, images: Tensor, layers: Iterable[str]) -> dict[str, Tensor]:
    """Run the encoder on images (B, 3, H, W), RGB in 0..255: name of each layer -> its output (B, C, h, w)."""
    maps, x = [], encoder.normalised(images)
    for module in encoder.body.children():
        x = module(x)
        maps.append(x)
    return {layer: maps[layer_names(encoder)[layer]] for layer in layers}


def side_holding(weights: Tensor, share: float) -> int:
    """Side of the smallest square around the centre of mass that contains a share of the weight: (H, W), non-negative."""
    weights = weights.double() / weights.double().sum()
    rows, columns = (torch.arange(size, dtype=weights.dtype) for size in weights.shape)
    y, x = weights.sum(1) @ rows, weights.sum(0) @ columns
    distances, order = torch.maximum((rows - y).abs().unsqueeze(1), (columns - x).abs()).flatten().sort()
    held = weights.flatten()[order].cumsum(0)
    return int(2 * distances[(held >= share - 1e-9).int().argmax()]) + 1


def lowered(photo: Image.Image, by: int) -> Image.Image:
    """A photograph scaled as for the view "crop" and shifted down by at most 48 pixels, cut to 160 x 160: without a border."""
    square = transforms.CenterCrop(SHORTEST)(transforms.Resize(SHORTEST)(photo))
    low, high = (SHORTEST - WINDOW) // 2, (SHORTEST + WINDOW) // 2
    return square.crop((low, low - by, high, high - by))
