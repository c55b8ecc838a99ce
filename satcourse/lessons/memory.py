"""The memory that an action takes, on a GPU or, for the whole process, on Linux (notebook 08 and benchmarks/bench.py)."""

import ctypes
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def peak_memory(action: Callable[[], Any], device: torch.device) -> float | None:
    """Peak bytes that an action takes beyond what was in use before; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return float(torch.cuda.max_memory_allocated(device) - before)
    if not Path("/proc/self/clear_refs").exists():
        return None
    with suppress(AttributeError):  # a C library without it: freed memory may then count as in use
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    action()
    return _status("VmHWM") - before


def _status(name: str) -> float:
    """A line of /proc/self/status in bytes: VmRSS is the memory now, VmHWM its peak."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024.0 * int(match[1]) if match else 0.0
