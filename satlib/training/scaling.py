"""The size of annotation vectors, and the factor `encoder.scale` that brings it to 1.

Encoders differ in the size of their vectors: the root mean square of VGG-19's values on Flickr8k is 6.4. Values that large saturate
the gates of an untrained LSTM.
"""

import math
from collections.abc import Sequence

import msgspec
import torch

from satlib.data.features import Reader
from satlib.errors import SatlibError
from satlib.model.encoders import Encoder
from satlib.recipe import Recipe

IMAGES = 64  # enough: the values of a single image already number tens of thousands


@torch.inference_mode()
def root_mean_square(encoder: Encoder, reader: Reader, image_ids: Sequence[str]) -> float:
    """The root mean square of the values in the annotation vectors of the first `IMAGES` images.

    Args:
        encoder: turns what the reader gives into vectors, where that is pixels (B, 3, 224, 224).
        reader: reads annotation vectors (B, L, D) or pixels.
        image_ids: the training images.
    """
    squares, count = 0.0, 0
    for start in range(0, min(IMAGES, len(image_ids)), 8):
        batch = reader.read(image_ids[start : min(start + 8, IMAGES)])
        a = encoder(batch.to(encoder.mean.device)) if batch.dim() == 4 else batch
        squares, count = squares + a.double().square().sum().item(), count + a.numel()
    return math.sqrt(squares / count)


def scale_of(size: float) -> float:
    """The factor that brings a root mean square to about 1, with two significant digits, so that rounding does not change it.

    Raises:
        SatlibError: the vectors are zero or not finite.
    """
    if not (math.isfinite(size) and size > 0):
        raise SatlibError(
            f"the annotation vectors have a root mean square of {size}; check the encoder's weights and the images"
        )
    return float(f"{1 / size:.2g}")


def with_scale(recipe: Recipe, encoder: Encoder, reader: Reader, image_ids: Sequence[str]) -> Recipe:
    """The recipe with `encoder.scale` measured, if it is 0; see `root_mean_square` for the arguments.

    Raises:
        SatlibError: there is no image to measure, because the training images are a stream.
    """
    if recipe.encoder.scale:
        return recipe
    if not image_ids:
        raise SatlibError(
            "encoder.scale = 0 cannot be measured on a stream of training images; give the number (satlib features prints it)"
        )
    scale = scale_of(root_mean_square(encoder, reader, image_ids))
    return msgspec.structs.replace(recipe, encoder=msgspec.structs.replace(recipe.encoder, scale=scale))
