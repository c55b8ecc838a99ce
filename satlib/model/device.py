"""Choosing the device and the precision."""

import torch

from satlib.errors import SatlibError


def choose(name: str = "auto") -> torch.device:
    """The named device; "auto" is CUDA if available, else Apple's MPS, else the CPU. SatlibError if it is not available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, usable in available.items() if usable))
    if not available.get(name.partition(":")[0], False):
        choices = ", ".join(kind for kind, usable in available.items() if usable)
        raise SatlibError(f"the device {name!r} is not available; choose from auto, {choices}")
    return torch.device(name)


def precision(name: str, device: torch.device, train_encoder: bool = True) -> torch.dtype:
    """The data type of matrix products for a `training.precision`: auto, float32, bf16 or fp16.

    "auto" is float32, in which the decoder is fastest, unless a GPU trains an encoder: then bf16, or fp16 on a GPU that only
    emulates bf16, slowly.
    """
    if name == "auto" and device.type == "cuda" and train_encoder:
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name, torch.float32)
