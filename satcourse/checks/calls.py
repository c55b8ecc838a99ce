"""One call of a learner's function: in a fresh notebook's settings, within a time limit.

Whatever goes wrong in it, but for Ctrl-C, ends as one line of text, or as "not written yet".
"""

import contextlib
import linecache
import signal
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch


class Failed(Exception):  # noqa: N818  (not our mistake)
    """A call failed; the message says why in one line."""


class Raised(Failed):
    """A call raised an exception, whose words do not say what to do."""


class Blank(Exception):  # noqa: N818
    """The learner's function, or a line of it, is not written yet."""


# Not an Exception, so that few `except` clauses of a learner's stop it.
class _TimeUp(BaseException):
    pass


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Run a block with torch's settings as in a fresh notebook, and restore them afterwards.

    These are the dtype, the device and the gradient mode; the seed is 0.
    """
    with (
        _on_the_cpu(),
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        torch.default_generator.manual_seed(0)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


@contextlib.contextmanager
def _on_the_cpu() -> Iterator[None]:
    """Run a block with the CPU as the default device, and restore the device afterwards."""
    # A new tensor's device: in torch 2.6, get_default_device raises an AttributeError as soon as
    # somebody has called set_default_device(None).
    device = torch.empty(0).device
    # Not set where nothing would change: a default device slows down every call of torch.
    if device.type != "cpu":
        torch.set_default_device("cpu")
    try:
        yield
    finally:
        if torch.empty(0).device != device:
            torch.set_default_device(None if device.type == "cpu" else device)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TimeUp when a block has computed for so long, however busy the machine is.

    There is no limit outside the main thread, nor on a system without such a timer.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not hasattr(signal, "setitimer"):
        yield
        return

    def alarm(number: int, frame: Any) -> None:
        raise _TimeUp

    # The profiling timer counts processor time, so a busy machine makes no right answer late.
    before = signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(function: Callable[[], Any], seconds: float, code: CodeType | None = None) -> Any:
    """Call a function that calls the learner's, and return its result.

    `code` is the learner's, and tells in which of its lines an exception was raised. Raises Blank
    where the learner has left a line as `...` or `raise NotImplementedError`, and Failed for any
    other exception but Ctrl-C, and after `seconds` of processor time.
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
        # What Python says of `...` where a value should be: "unsupported operand ... 'ellipsis'".
        if "ellipsis" in message.lower() or _is_stub(error):
            raise Blank from None
        raise Raised(f"it raises {type(error).__name__}: {message}{_line(error, code)}") from None


def _is_stub(error: BaseException) -> bool:
    """`raise NotImplementedError`, which says nothing; PyTorch's own says what it cannot do."""
    return isinstance(error, NotImplementedError) and not error.args


def _line(error: BaseException, code: CodeType | None) -> str:
    """The last line of the learner's code in a traceback, or "".

    For example ", in line 3 of weights: x = y[4]".
    """
    if code is None:
        return ""

    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        at = frame.f_code
        # torch's lines and ours are no help; of the learner's, those of the same cell are.
        if at.co_filename != code.co_filename:
            continue
        text = linecache.getline(at.co_filename, number).strip()
        # Counted from the `def`, since a cell's lines have no numbers on the screen.
        place = number - at.co_firstlineno + 1
        line = f", in line {place} of {at.co_name}: {text}" if text else ""
    return line
