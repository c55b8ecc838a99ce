"""Which device to compute on."""

import torch

from satlib.errors import SatlibError


def choose(name: str = "auto") -> torch.device:
    """The named device; "auto" is CUDA where there is one, else Apple's MPS, else the CPU.

    Raises:
        SatlibError: the named one is not there.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, usable in there.items() if usable))
    if not there.get(name, False):
        usable = ", ".join(kind for kind, is_there in there.items() if is_there)
        raise SatlibError(f"there is no device {name!r} here; choose among auto, {usable}")
    return torch.device(name)


def precision(name: str, device: torch.device) -> torch.dtype:
    """What matrix products are computed in, by `training.precision`: auto, float32, bf16 or fp16.

    "auto" is bf16 on a GPU that multiplies it itself, fp16 on any other GPU (older ones only emulate bf16, which is slower than
    float32), and float32 everywhere else.
    """
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
