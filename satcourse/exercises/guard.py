"""Call a learner's function safely: on copies of the inputs, with limits on its time, its memory and its output."""

import contextlib
import copy
import inspect
import io
import linecache
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from torch import Tensor

from satcourse.exercises import settings

try:
    import resource
except ImportError:  # on systems without it, memory is not limited
    resource = None

MEMORY = 2_000_000_000  # bytes that a call may allocate in addition to what the process has
PRINTED = 2_000  # characters of output that are shown
PATIENCE = 3  # factor by which wall time may exceed the limit on processor time, while a call waits or sleeps
STORM = 1_000_000  # characters of output after which a call is stopped


class Failed(Exception):  # noqa: N818  (not our mistake)
    """A call failed; the message says why in one line."""


class _TimeUp(BaseException):  # not an Exception, so that few `except` clauses stop it
    pass


class _Storm(BaseException):
    pass


class Printed(io.TextIOBase):
    """Captures a call's output and keeps its beginning."""

    def __init__(self) -> None:
        self.text, self.total = "", 0

    def write(self, text: str) -> int:
        """Keep the text as far as there is room.

        Raises:
            _Storm: there have been more than STORM characters.
        """
        self.text += text[: PRINTED - len(self.text)]
        self.total += len(text)
        if self.total > STORM:
            raise _Storm
        return len(text)

    def __str__(self) -> str:
        return self.text + (f"\n... {self.total - PRINTED:,} characters more" if self.total > PRINTED else "")


class Spy:
    """Wraps the learner's function to detect whether it changes its inputs or returns one of them."""

    def __init__(self, answer: Callable[..., Any], names: Sequence[str]) -> None:
        self.answer, self.names = answer, names
        self.gave_back: str | None = None  # name of the input that was returned
        self.gave: list[Any] = []  # the results, call by call

    def __call__(self, *inputs: Any) -> Any:
        """Call the function.

        Raises:
            Failed: it changed an input.
        """
        before = [copied(value) for value in inputs]
        result = self.answer(*inputs)
        self.gave.append(result)
        for name, was, now in zip(self.names, before, inputs, strict=False):
            if not _unchanged(was, now):
                raise Failed(f"it changes its input {name}: work on a copy (`x -= 1` and `x.add_(1)` change x itself)")
            if result is now and isinstance(now, (Tensor, list, dict)):
                self.gave_back = name
        return result


def copied(value: Any) -> Any:
    """A copy that shares no memory; a tensor stays a leaf and keeps `requires_grad`."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, dict, set, np.ndarray)):
        return copy.deepcopy(value)
    return value


def _unchanged(was: Any, now: Any) -> bool:
    if isinstance(was, Tensor):
        # NaN does not equal itself.
        return was.shape == now.shape and bool(((was == now) | ((was != was) & (now != now))).all())
    if isinstance(was, np.ndarray):
        return np.array_equal(was, now)
    if isinstance(was, (list, tuple)):
        return len(was) == len(now) and all(_unchanged(*pair) for pair in zip(was, now, strict=True))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_unchanged(was[key], now[key]) for key in was)
    return not isinstance(was, set) or was == now


def run(observe: Callable[[], Any], code: Any, seconds: float) -> tuple[Any, Printed]:
    """Call `observe`, which calls the learner's function.

    Args:
        observe: the function to call.
        code: the learner's code object, to find the line that raised; or None.
        seconds: the time limit.

    Returns:
        The result and the printed output.

    Raises:
        Failed: the call raised, took too long, needed too much memory, or printed too much.
        Blank: a line of the function is still `...`.
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
        raise Failed(f"it prints too much: more than {STORM:,} characters") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        said = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "allocate memory" in said:
            raise Failed(f"it needs more than {MEMORY / 1e9:.0f} GB of memory{_line(error, code)}") from None
        if "ellipsis" in said.lower():
            raise Blank from None
        if len(said) > 160:
            said = said[:156] + " ..."
        raise Failed(f"it raises {type(error).__name__}: {said}{_line(error, code)}") from None


class Blank(Exception):  # noqa: N818
    """A line of the learner's function is still `...`."""


def _line(error: BaseException, code: Any) -> str:
    """The last line of the learner's code in a traceback: ", in line 3 of weights: x = y[4]"; "" if there is none."""
    line, trace = "", error.__traceback__
    while isinstance(trace, TracebackType):
        at = trace.tb_frame.f_code
        if code is not None and at.co_filename == code.co_filename:
            text = linecache.getline(at.co_filename, trace.tb_lineno).strip()
            line = f", in line {trace.tb_lineno - at.co_firstlineno + 1} of {at.co_name}: {text}" if text else ""
        trace = trace.tb_next
    return line


def _call(observe: Callable[[], Any]) -> Any:
    """Call `observe`; _TimeUp is raised only while this function is on the stack."""
    return observe()


def _inside(frame: FrameType | None) -> bool:
    """Whether a frame belongs to `_call` or to a function called by it."""
    while frame is not None and frame.f_code is not _call.__code__:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def _time(seconds: float) -> Iterator[None]:
    """Raise _TimeUp inside `_call` when its time is up, repeatedly until the call ends.

    A loop around `try: ... except: pass` swallows most of these exceptions, but not one that is raised between two rounds. A
    late alarm, after `_call` has been left, does nothing: raised there, it would break the clean-up or whatever runs next.
    There is no limit outside the main thread or on a system without signals. A timer that was running before
    (pytest-timeout's) is set again.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    # The alarm rings after `seconds`, then every quarter of that. The limit counts rings, not seconds of the clock: a process that
    # was stopped (a computer that slept, a busy server) gets one ring for all the time that it lost.
    rings, most = 0, 1 + 4 * (PATIENCE - 1)
    answering = False

    def alarm(number: int, frame: FrameType | None) -> None:
        nonlocal rings, answering
        rings += 1
        # A ring may come while the one before is being answered; on a slow machine that could go on without end.
        if answering:
            return
        answering = True
        try:
            # On a busy machine a second of the clock is not a second of work.
            if (time.process_time() - worked >= 0.9 * seconds or rings >= most) and _inside(frame):
                signal.setitimer(signal.ITIMER_REAL, 2e-4)
                raise _TimeUp
        finally:
            answering = False

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
    """Limit memory to MEMORY in addition to what the process has; only on Linux, where the kernel reports its size."""
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


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Run a call with fresh seeds; undo what it changes of Python's and torch's global settings.

    Raises:
        Failed: the call has changed one of the global settings.
    """
    before, out, err = settings.values(), sys.stdout, sys.stderr
    settings.seed()
    try:
        with warnings.catch_warnings():
            yield
        changed = settings.put_back(before)
        if changed:
            raise Failed(f"it changes {changed[0]} globally; it has been restored")
    finally:
        settings.put_back(before)
        sys.stdout, sys.stderr = out, err


def names(reference: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters."""
    return list(inspect.signature(reference).parameters)
