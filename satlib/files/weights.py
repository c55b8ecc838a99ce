"""Tensors with a JSON header in one safetensors file, as models and checkpoints are stored: never a pickle, always whole.

Weights are stored as float32, float16 or int8 (matrices as 8-bit integers with one scale per row).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from satlib.errors import SatlibError
from satlib.files.atomic import replacing
from satlib.files.reading import decode

Header = TypeVar("Header")


def read_safetensors(
    path: Path, kind: type[Header] = dict[str, Any], what: str = "from satlib", advice: str = "copy the file again"
) -> tuple[Header, dict[str, Tensor]]:
    """The JSON header, of the type `kind`, and the tensors of a file written by `write_safetensors`; any other is a SatlibError."""
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies, because reading mapped tensors would kill the process (SIGBUS) if the file were truncated later.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        with open(path, "rb") as raw:  # only now: the length at the start of a safetensors file may look like a pickle
            if raw.read(2) in (b"PK", b"\x80\x02", b"\x80\x04"):
                raise SatlibError(
                    f"{path} is a pickle, which could run arbitrary code; satlib reads only safetensors"
                ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(f"{path} is damaged or truncated ({reason}); copy it again or train again") from error
    if "satlib" not in metadata:
        raise SatlibError(f"{path} holds weights, but not from satlib; give a run's folder or its model.safetensors")
    return decode(metadata["satlib"], kind, f"the header of {path}", what, advice), tensors


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: msgspec.Struct | dict[str, Any]) -> None:
    """Write tensors and a JSON header atomically (`replacing`)."""
    # Copies, because no two tensors of a file may share memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata={"satlib": msgspec.json.encode(header).decode()})
        except safetensors.SafetensorError as error:  # safetensors does not raise an OSError for a full disk
            reason = " ".join(str(error).split())
            raise SatlibError(f"cannot write {path}: {reason}; free some space or choose another folder") from error


def require_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors of a file that hold NaN or infinity."""
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise SatlibError(f"{path}: {name} holds values that are not finite, or beyond its number format")


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


def unpacked(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Names and float32 tensors from what `packed` gave."""
    for name, value in tensors.items():
        if name.endswith(":scale"):
            continue
        if value.dtype == torch.int8:
            value = value.float() * tensors[name + ":scale"].view(-1, *[1] * (value.dim() - 1))
        yield name, value.float() if value.dtype == torch.float16 else value
