"""Number formats of a model's weights: float32, float16, or int8 (matrices as 8-bit integers with one scale per row)."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from satlib.errors import SatlibError

# float64: a model in double precision, as it is; 64-bit integers: counters of a trained encoder
_FORMATS = (torch.float64, torch.float32, torch.float16, torch.int8, torch.int64)
STORAGE = ("float32", "float16", "int8")


def packed(tensors: dict[str, Tensor], storage: str) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors as they are written; an int8 matrix is followed by its scales, "NAME:scale"."""
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if storage == "float32" or not value.is_floating_point():
            yield name, value
        elif storage == "float16" or value.dim() < 2:
            yield name, value.half()
        else:
            scale = value.flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            yield name, (value / scale.view(-1, *[1] * (value.dim() - 1))).round().to(torch.int8)
            yield name + ":scale", scale


def unpacked(tensors: dict[str, Tensor], path: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and float32 tensors from what `packed` gave; `path` is the file's, for messages.

    Raises:
        SatlibError: a tensor has a number format that `packed` does not write, or its scales are missing or do not fit.
    """
    for name, value in tensors.items():
        if name.endswith(":scale"):
            continue
        if value.dtype not in _FORMATS:
            raise SatlibError(
                f"{path}: {name} is stored as {value.dtype}, which satlib does not write; copy the file again"
            )
        if value.dtype == torch.int8:
            scale = tensors.get(name + ":scale")
            if scale is None or value.dim() < 2 or scale.shape != value.shape[:1] or not scale.is_floating_point():
                raise SatlibError(
                    f"{path}: {name} is stored in 8 bits, but its scales are missing or do not fit; copy the file again"
                )
            value = value.float() * scale.view(-1, *[1] * (value.dim() - 1))
        yield name, value.float() if value.dtype == torch.float16 else value
