"""One call of a learner's function: on copies of its inputs, with the settings of a fresh notebook, within a time limit."""

import contextlib
import copy
import inspect
import io
import linecache
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

PRINTED = 2_000  # characters of a call's output that are shown


class Failed(Exception):  # noqa: N818  (not our mistake)
    """A call failed; the message says why in one line."""


class Blank(Exception):  # noqa: N818
    """A line of the learner's function is still `...`."""


class _TimeUp(BaseException):  # not an Exception, so that few `except` clauses stop it
    pass


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Run a block with torch's dtype, gradient mode and device as they are at first, and fixed seeds; afterwards all are as before."""
    states = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    try:
        with torch.inference_mode(False), torch.enable_grad(), contextlib.ExitStack() as stack:
            if device.type != "cpu":
                stack.enter_context(torch.device("cpu"))
            torch.set_default_dtype(torch.float32)
            random.seed(0)
            np.random.seed(0)
            torch.default_generator.manual_seed(0)
            yield
    finally:
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.default_generator.set_state(states[2])


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TimeUp when a block has computed for so long: on a busy machine a second of the clock is not a second of work.

    There is no limit outside the main thread, nor on a system without such a timer.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def alarm(number: int, frame: Any) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(function: Callable[[], Any], code: CodeType | None, seconds: float) -> tuple[Any, str]:
    """Call `function`, which calls the learner's.

    Args:
        function: takes nothing.
        code: the learner's code, to find the line that raised; or None.
        seconds: the time limit.

    Returns:
        The result, and what was printed.

    Raises:
        Failed: the call raised an exception, or took too long.
        Blank: a line of the learner's function is still `...`.
    """
    printed = io.StringIO()
    try:
        with fresh(), _limited(seconds), contextlib.redirect_stdout(printed):
            result = function()
    except (Failed, KeyboardInterrupt):
        raise
    except _TimeUp:
        raise Failed(f"it did not end within {seconds:g} s; is there a loop that never stops?") from None
    except BaseException as error:  # SystemExit too
        message = " ".join(str(error).split())
        if "ellipsis" in message.lower():
            raise Blank from None
        if len(message) > 160:
            message = message[:156] + " ..."
        raise Failed(f"it raises {type(error).__name__}: {message}{_line(error, code)}") from None
    text = printed.getvalue()
    return result, text if len(text) <= PRINTED else f"{text[:PRINTED]}\n... {len(text) - PRINTED:,} characters more"


def _line(error: BaseException, code: CodeType | None) -> str:
    """The last line of the learner's code in a traceback: ", in line 3 of weights: x = y[4]"; "" if there is none."""
    line, trace = "", error.__traceback__
    while isinstance(trace, TracebackType):
        at = trace.tb_frame.f_code
        if code is not None and at.co_filename == code.co_filename:
            text = linecache.getline(at.co_filename, trace.tb_lineno).strip()
            line = f", in line {trace.tb_lineno - at.co_firstlineno + 1} of {at.co_name}: {text}" if text else ""
        trace = trace.tb_next
    return line


class Spy:
    """Wraps the learner's function to detect whether it changes its inputs or returns one of them."""

    def __init__(self, answer: Callable[..., Any], names: Sequence[str]) -> None:
        self.answer, self.names = answer, names
        self.returned_input: str | None = None  # the name of the input that was returned
        self.results: list[Any] = []  # call by call

    def __call__(self, *inputs: Any) -> Any:
        """Call the function.

        Raises:
            Failed: it changed an input.
        """
        before = [copied(value) for value in inputs]
        result = self.answer(*inputs)
        self.results.append(result)
        for name, was, now in zip(self.names, before, inputs, strict=False):
            if not _unchanged(was, now):
                raise Failed(f"it changes its input {name}: work on a copy (`x -= 1` and `x.add_(1)` change x itself)")
            if result is now and isinstance(now, (Tensor, list, dict)):
                self.returned_input = name
        return result


def copied(value: Any) -> Any:
    """A copy that shares no memory; a tensor stays a leaf and keeps `requires_grad`."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value) if isinstance(value, (list, dict, set, np.ndarray)) else value


def _unchanged(was: Any, now: Any) -> bool:
    if isinstance(was, Tensor):
        return (
            was.shape == now.shape
            and torch.equal(was.isnan(), now.isnan())
            and torch.equal(was[was == was], now[now == now])
        )
    if isinstance(was, np.ndarray):
        return np.array_equal(was, now)
    if isinstance(was, (list, tuple)):
        return len(was) == len(now) and all(_unchanged(*pair) for pair in zip(was, now, strict=True))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(_unchanged(was[key], now[key]) for key in was)
    return not isinstance(was, set) or was == now


def names(function: Callable[..., Any]) -> list[str]:
    """The names of a function's parameters, without those that are given by name alone."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
