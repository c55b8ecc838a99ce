"""One call of a learner's function: with the settings of a fresh notebook, within a time limit, and errors in one line."""

import contextlib
import linecache
import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch


class Failed(Exception):  # noqa: N818  (not our mistake)
    """A call failed; the message says why in one line."""


class Blank(Exception):  # noqa: N818
    """A line of the learner's function is still `...`."""


class _TimeUp(BaseException):  # not an Exception, so that few `except` clauses stop it
    pass


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Run a block with torch's dtype, device, gradient mode and seed as in a fresh notebook, and put all back."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.default_generator.manual_seed(0)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_default_device(None if device.type == "cpu" else device)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TimeUp when a block has computed for so long, whatever the clock says on a busy machine.

    There is no limit outside the main thread, nor on a system without such a timer.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
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


def run(function: Callable[[], Any], seconds: float, code: CodeType | None = None) -> Any:
    """Call a function that calls the learner's, whose `code` finds the line that raised.

    An exception, or more than `seconds`, raises Failed; a line that is still `...` raises Blank.
    """
    try:
        with fresh(), _limited(seconds):
            return function()
    except (Failed, KeyboardInterrupt):
        raise
    except _TimeUp:
        raise Failed(
            f"it did not end within {seconds:g} s; is there a loop that never stops?"
        ) from None
    except BaseException as error:  # SystemExit too
        message = textwrap.shorten(str(error), 160, placeholder=" ...")
        if "ellipsis" in message.lower() or isinstance(error, NotImplementedError):
            raise Blank from None
        raise Failed(f"it raises {type(error).__name__}: {message}{_line(error, code)}") from None


def _line(error: BaseException, code: CodeType | None) -> str:
    """The last line of the learner's code in a traceback: ", in line 3 of weights: x = y[4]"; "" if there is none."""
    line, trace = "", error.__traceback__
    while trace is not None:
        at = trace.tb_frame.f_code
        if code is not None and at.co_filename == code.co_filename:
            text = linecache.getline(at.co_filename, trace.tb_lineno).strip()
            line = (
                f", in line {trace.tb_lineno - at.co_firstlineno + 1} of {at.co_name}: {text}"
                if text
                else ""
            )
        trace = trace.tb_next
    return line
