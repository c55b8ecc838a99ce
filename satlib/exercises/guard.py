"""Calling a stranger's function so that it can do no harm: it gets copies, and limits to its time, its memory and what it prints."""

import contextlib
import copy
import inspect
import io
import linecache
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    import resource
except ImportError:  # where there is none, memory is not limited
    resource = None

MEMORY = 2_000_000_000  # bytes that a call may take beyond what the process has
PRINTED = 2_000  # characters that are shown
PATIENCE = 3  # times as long as a call may take it may wait, for other programs or asleep
STORM = 1_000_000  # characters after which a call is stopped


class Failed(Exception):  # noqa: N818  (not our mistake)
    """What is wrong with a call, in one line."""


class _TimeUp(BaseException):  # not an Exception, so that few `except` clauses stop it
    pass


class _Storm(BaseException):
    pass


class Printed(io.TextIOBase):
    """Where a call's output goes: the beginning is kept."""

    def __init__(self) -> None:
        self.text, self.total = "", 0

    def write(self, text: str) -> int:
        """Keep what there is room for.

        Raises:
            _Storm: that was far too much.
        """
        self.text += text[: PRINTED - len(self.text)]
        self.total += len(text)
        if self.total > STORM:
            raise _Storm
        return len(text)

    def __str__(self) -> str:
        return self.text + (f"\n... {self.total - PRINTED:,} characters more" if self.total > PRINTED else "")


class Spy:
    """The learner's function, watched: are its inputs as they were, and does it give one of them back?"""

    def __init__(self, answer: Callable[..., Any], names: Sequence[str]) -> None:
        self.answer, self.names = answer, names
        self.gave_back: str | None = None  # name of the input that came back as it went in
        self.gave: list[Any] = []  # what came back, call by call

    def __call__(self, *inputs: Any) -> Any:
        """Call it.

        Raises:
            Failed: an input was changed.
        """
        before = [copied(each) for each in inputs]
        result = self.answer(*inputs)
        self.gave.append(result)
        for name, was, now in zip(self.names, before, inputs, strict=False):
            if not _unchanged(was, now):
                raise Failed(f"it changes its input {name}: work on a copy (`x -= 1` and `x.add_(1)` change x itself)")
            if result is now and isinstance(now, (Tensor, list, dict)):
                self.gave_back = name
        return result


def copied(value: Any) -> Any:
    """A copy that shares nothing; a tensor that wants gradients stays a leaf that wants them."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, dict, set, np.ndarray)):
        return copy.deepcopy(value)
    return value


def _unchanged(was: Any, now: Any) -> bool:
    if isinstance(was, Tensor):
        # An element that is NaN is not equal to itself.
        return was.shape == now.shape and bool(((was == now) | ((was != was) & (now != now))).all())
    if isinstance(was, np.ndarray):
        return np.array_equal(was, now)
    if isinstance(was, (list, tuple)):
        return len(was) == len(now) and all(_unchanged(*pair) for pair in zip(was, now, strict=True))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_unchanged(was[key], now[key]) for key in was)
    return not isinstance(was, set) or was == now


def run(observe: Callable[[], Any], code: Any, seconds: float) -> tuple[Any, Printed]:
    """Call something that calls the learner's function.

    Args:
        observe: to be called.
        code: the learner's code object, to find the line that raised; or None.
        seconds: that it may take.

    Returns:
        What it gave, and what it printed.

    Raises:
        Failed: it raised, took too long, wanted too much memory, or printed without end.
    """
    printed = Printed()
    try:
        with (
            _settings(),
            _memory(),
            _time(seconds),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            return _call(observe), printed
    except Failed:
        raise
    except _TimeUp:
        raise Failed(f"it did not end within {seconds:g} s; is there a loop that never stops?") from None
    except _Storm:
        raise Failed(f"it prints without end: more than {STORM:,} characters") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        said = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "allocate memory" in said:
            raise Failed(f"it wants more than {MEMORY / 1e9:.0f} GB of memory{_line(error, code)}") from None
        if "ellipsis" in said.lower():
            raise Blank from None
        if len(said) > 160:
            said = said[:156] + " ..."
        raise Failed(f"it raises {type(error).__name__}: {said}{_line(error, code)}") from None


class Blank(Exception):  # noqa: N818
    """A line of it is still `...`."""


def _line(error: BaseException, code: Any) -> str:
    """The learner's own line that an error came from: ", in line 3: `x = y[4]`"."""
    found, trace = "", error.__traceback__
    while isinstance(trace, TracebackType):
        at = trace.tb_frame.f_code
        if code is not None and at.co_filename == code.co_filename:
            text = linecache.getline(at.co_filename, trace.tb_lineno).strip()
            found = f", in line {trace.tb_lineno - at.co_firstlineno + 1} of {at.co_name}: {text}" if text else ""
        trace = trace.tb_next
    return found


def _call(observe: Callable[[], Any]) -> Any:
    """Call it. _TimeUp is raised while this function is on the stack and never outside of it."""
    return observe()


def _inside(frame: FrameType | None) -> bool:
    """Whether a frame belongs to `_call` or to something that it called."""
    while frame is not None and frame.f_code is not _call.__code__:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def _time(seconds: float) -> Iterator[None]:
    """Raise _TimeUp inside `_call` when its time is up, again and again until the call ends.

    A loop around `try: ... except: pass` swallows most of these, but not one that comes between two rounds. Once `_call` has
    been left, a late alarm does nothing: raised there, it would break the clean-up, or whatever runs next. Only in the main
    thread of a system with signals; a timer that was running before (pytest-timeout's) is set again.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    # The alarm rings after `seconds`, then every quarter of that. The limit counts rings, not seconds of the clock: a process that
    # was stopped (a computer that slept, a busy server) gets one ring for all the time that it lost.
    rings, most = 0, 1 + 4 * (PATIENCE - 1)

    def alarm(number: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        # On a busy machine a second of the clock is not a second of work.
        if (time.process_time() - worked >= 0.9 * seconds or rings >= most) and _inside(frame):
            signal.setitimer(signal.ITIMER_REAL, 2e-4)
            raise _TimeUp

    began, worked = time.monotonic(), time.process_time()
    before = signal.signal(signal.SIGALRM, alarm)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, seconds / 4)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        # One more alarm may be on its way, through another thread. The default action would let it end the whole process, so
        # `alarm`, which does nothing from here on, stays where no other handler was.
        if before != signal.SIG_DFL:
            signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 0.001), interval)


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    """No more than MEMORY beyond what the process has; on Linux, where the kernel says what it has."""
    try:
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = now + MEMORY
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    except (OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _put_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


# What a call must leave as it is: a name, how to look at it, how to put it back.
_SETTINGS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("default device", torch.get_default_device, _put_device),
    ("gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
    ("anomaly mode", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    ("number of threads", torch.get_num_threads, torch.set_num_threads),
)


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """The same random numbers for each call; afterwards everything as it was.

    Raises:
        Failed: the call has changed a setting of torch for everyone.
    """
    python, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    settings, out, err = [get() for _, get, _ in _SETTINGS], sys.stdout, sys.stderr
    depth, folder, complaints = sys.getrecursionlimit(), os.getcwd(), np.geterr()
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    began = [get() for _, get, _ in _SETTINGS]
    try:
        with warnings.catch_warnings():
            yield
        for (what, get, _), was in zip(_SETTINGS, began, strict=True):
            if get() != was:
                raise Failed(f"it changes torch's {what} for everyone; it has been put back")
    finally:
        for (_, get, put), was in zip(_SETTINGS, settings, strict=True):
            if get() != was:
                put(was)
        sys.setrecursionlimit(depth)
        os.chdir(folder)
        np.seterr(**complaints)
        random.setstate(python)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        sys.stdout, sys.stderr = out, err


def names(reference: Callable[..., Any]) -> list[str]:
    """The names of a function's inputs."""
    return list(inspect.signature(reference).parameters)
