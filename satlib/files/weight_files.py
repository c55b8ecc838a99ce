"""Tensors with a JSON header in one safetensors file, as models and checkpoints are stored: never a pickle, always whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from satlib.errors import SatlibError
from satlib.files.atomic import replacing
from satlib.files.untrusted import decoded, matches


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON header and the tensors of a file written by `write_safetensors`.

    Raises:
        SatlibError: the file is missing, empty, truncated, a pickle, or not from satlib.
    """
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies, because reading mapped tensors would kill the process (SIGBUS) if the file were truncated later.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        if _is_pickle(path):  # checked only now: the length at the start of a safetensors file may look like a pickle
            raise SatlibError(
                f"{path} is a pickle, which could run arbitrary code; satlib reads only safetensors"
            ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(f"{path} is damaged or truncated ({reason}); copy it again or train again") from error
    if "satlib" not in metadata:
        raise SatlibError(f"{path} holds weights, but not from satlib; give a run's folder or its model.safetensors")
    what, advice = (
        f"{path} holds weights, but not from satlib: its header",
        "give a run's folder or its model.safetensors",
    )
    header = decoded(metadata["satlib"], what, advice)
    matches(header, dict[str, Any], f"{what} has another form", advice)
    return header, tensors


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write tensors and a JSON header atomically.

    Raises:
        SatlibError: the disk is full or the folder cannot be written.
    """
    # Copies, because no two tensors of a file may share memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata={"satlib": json.dumps(header)})
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
