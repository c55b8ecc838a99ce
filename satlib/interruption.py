"""Stopping a training run on request: Ctrl-C and SIGTERM end it after the current batch, with a checkpoint."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from satlib.errors import SatlibError


class Interrupted(SatlibError):  # noqa: N818 (an event, not an error)
    """The run was asked to stop (Ctrl-C or SIGTERM) and did so after saving a checkpoint."""


@dataclass
class StopRequest:
    """Whether somebody has asked the run to stop."""

    requested: bool = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to stop after the current batch; a second Ctrl-C stops at once."""
    request = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        if request.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.requested = True

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread (a notebook's worker): it receives no signals
        previous = {}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
