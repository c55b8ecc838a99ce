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
# float64: a model in double precision, as it is; 64-bit integers: counters of a trained encoder
_FORMATS = (torch.float64, torch.float32, torch.float16, torch.int8, torch.int64)
STORAGE = ("float32", "float16", "int8")


def contents(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of any safetensors file; errors are those of the library and of the operating system."""
    with safetensors.safe_open(path, framework="pt") as file:
        # Copies, because reading mapped tensors would kill the process (SIGBUS) if the file were truncated later.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
        return file.metadata() or {}, tensors


def read_safetensors(
    path: Path, kind: type[Header] = dict[str, Any], what: str = "from satlib", advice: str = "copy the file again"
) -> tuple[Header, dict[str, Tensor]]:
    """The JSON header and the tensors of a file written by `write_safetensors`.

    Args:
        path: the file.
        kind: the type of the header, a msgspec Struct.
        what: completes "the header of FILE is not ...", for the message.
        advice: what to do next, its end.

    Raises:
        SatlibError: the file is missing, empty, truncated, a pickle, not from satlib, or its header has another form.
    """
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")
    try:
        metadata, tensors = contents(path)
    except (safetensors.SafetensorError, OSError) as error:
        if _is_pickle(path):  # checked only now: the length at the start of a safetensors file may look like a pickle
            raise SatlibError(
                f"{path} is a pickle, which could run arbitrary code; satlib reads only safetensors"
            ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(f"{path} is damaged or truncated ({reason}); copy it again or train again") from error
    if "satlib" not in metadata:
        raise SatlibError(f"{path} holds weights, but not from satlib; give a run's folder or its model.safetensors")
    return decode(metadata["satlib"], kind, f"the header of {path}", what, advice), tensors


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: msgspec.Struct | dict[str, Any]) -> None:
    """Write tensors and a JSON header atomically.

    Raises:
        SatlibError: the disk is full or the folder cannot be written.
    """
    # Copies, because no two tensors of a file may share memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata={"satlib": msgspec.json.encode(header).decode()})
        except safetensors.SafetensorError as error:  # safetensors does not raise an OSError for a full disk
            reason = " ".join(str(error).split())
            raise SatlibError(f"cannot write {path}: {reason}; free some space or choose another folder") from error


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors that contain NaN or infinity."""
    return [name for name, value in tensors.items() if not torch.isfinite(value).all()]


def require_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Check the tensors of a file for NaN and infinity.

    Raises:
        SatlibError: a tensor contains NaN or infinity; the message names the first one.
    """
    for name in not_finite(tensors):
        raise SatlibError(f"{path}: {name} holds values that are not finite; copy the file again or train again")


def _is_pickle(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            start = file.read(2)
    except OSError:
        return False
    return start == b"PK" or (start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05"))


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
