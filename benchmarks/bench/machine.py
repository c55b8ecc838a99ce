"""What a machine can do at its best, and what a measurement takes of it: seconds, memory, the processor's name."""

import ctypes
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def synchronise(device: torch.device) -> None:
    """Wait for what the device has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def ceiling(n: int, K: int, device: torch.device, bf16: bool = False, turns: int = 5) -> tuple[float, float]:
    """The machine's peak rates: operations per second of a large matrix product, bytes per second of a copy."""
    x = torch.randn(768, n, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    y = torch.randn(n, K, device=device, dtype=x.dtype)
    source = torch.randn(2**25, device=device)
    target, scores, rate, bandwidth = torch.empty_like(source), x @ y, 0.0, 0.0
    repeats = 50 if device.type == "cuda" else 1
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    for _ in range(turns):
        synchronise(device)
        start = clock()
        for _ in range(repeats):
            torch.mm(x, y, out=scores)
        synchronise(device)
        middle = clock()
        for _ in range(repeats):
            target.copy_(source)
        synchronise(device)
        end = clock()
        rate = max(rate, repeats * 2 * x.numel() * K / (middle - start))
        bandwidth = max(bandwidth, repeats * 2 * 4 * source.numel() / (end - middle))
    return rate, bandwidth


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
    before = status("VmRSS")
    action()
    return status("VmHWM") - before


def status(name: str) -> float:
    """A line of /proc/self/status in bytes: VmRSS now, VmHWM the peak, RssAnon and RssFile its parts."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024.0 * int(match[1]) if match else 0.0


def machine(device: torch.device) -> dict[str, Any]:
    """The machine that figures were measured on."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = match[1] if match else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "busy": os.getloadavg()[0],
        "bf16": bf16_on_cpu(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
    }


def bf16_on_cpu() -> bool:
    """Whether the CPU has bf16 instructions."""
    path = Path("/proc/cpuinfo")
    return path.exists() and re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", path.read_text()) is not None
