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
