"""Global settings that can change a result: a check sets them all, and puts back what the learner had."""

import contextlib
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


def _put_device(device: torch.device) -> None:
    with contextlib.suppress(AssertionError):  # within `with torch.device(...)` torch refuses to change the default
        torch.set_default_device(None if device.type == "cpu" else device)


def _put_deterministic(mode: int) -> None:
    torch.set_deterministic_debug_mode(mode)


# Name, getter, setter, and the value in a check (KEEP: the learner's own).
KEEP = object()
SETTINGS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any], Any], ...] = (
    ("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    ("torch's default device", torch.get_default_device, _put_device, torch.device("cpu")),
    ("torch's gradient mode", torch.is_grad_enabled, torch.set_grad_enabled, True),
    ("torch's anomaly mode", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    ("torch's number of threads", torch.get_num_threads, torch.set_num_threads, KEEP),
    ("torch's deterministic mode", torch.get_deterministic_debug_mode, _put_deterministic, 0),
    (
        "torch's precision of matrix products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    ),
    (
        "torch's autocast on the CPU",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        False,
    ),
    ("Python's recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, KEEP),
    ("the working directory", os.getcwd, os.chdir, KEEP),
    ("numpy's handling of errors", np.geterr, lambda modes: np.seterr(**modes), KEEP),
)


@contextlib.contextmanager
def neutral() -> Iterator[None]:
    """Run a block with fixed seeds and with the settings of a fresh notebook, whatever has been set before.

    Afterwards all settings, the states of the random generators, the filters of warnings and the standard streams are as
    they were. A surrounding `torch.no_grad()`, `torch.inference_mode()` or `with torch.device(...)` has no effect inside.
    """
    python, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    before = [get() for _, get, _, _ in SETTINGS]
    out, err = sys.stdout, sys.stderr
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), contextlib.ExitStack() as inner:
            for _, _, put, value in SETTINGS:  # within inference_mode, which sets the gradient mode too
                if value is not KEEP:
                    put(value)
            if torch.get_default_device().type != "cpu":  # the check is within `with torch.device(...)`
                inner.enter_context(torch.device("cpu"))
            seed()
            yield
    finally:
        put_back(before)
        random.setstate(python)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        sys.stdout, sys.stderr = out, err


def seed() -> None:
    """Seed the generators of Python, numpy and torch: every call of a function gets the same random numbers."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)


def values() -> list[Any]:
    """The current value of each setting."""
    return [get() for _, get, _, _ in SETTINGS]


def put_back(before: list[Any]) -> list[str]:
    """Set all settings to values of `values`; return the names of those that were different."""
    changed = []
    for (name, get, put, _), was in zip(SETTINGS, before, strict=True):
        if get() != was:
            put(was)
            changed.append(name)
    return changed
