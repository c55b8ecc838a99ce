"""Stopping a training run on request: Ctrl-C and SIGTERM end it after the current batch, with a checkpoint.

While an epoch is judged, which may take minutes, they end it at once: the state is then that of the epoch's last batch.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from satlib.errors import Interrupted
from satlib.files import progress
from satlib.training import distributed


@dataclass
class StopRequest:
    """Whether somebody has asked the run to stop."""

    requested: bool = False
    _at_once: bool = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within a `with` block, a request raises `Interrupted` right away."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        first, self.requested = not self.requested, True
        if self._at_once:
            raise Interrupted("stopped")
        if first and distributed.current().first and not progress.quiet:  # not print, which may be what was interrupted
            os.write(
                2,
                b"stopping after this batch; Ctrl-C once more stops at once, and loses what came after the last checkpoint\n",
            )


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to stop after the current batch; a second Ctrl-C stops at once."""
    request = StopRequest()

    try:
        previous = {number: signal.signal(number, request.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread (a notebook's worker): it receives no signals
        previous = {}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
