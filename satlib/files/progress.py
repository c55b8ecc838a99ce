"""What satlib says while it works: progress bars, and lines between them, for somebody who watches.

Bars appear on a terminal and in a notebook. Elsewhere, as in a log file, what takes longer says a line a minute. With
`satlib --quiet` nothing is said but results and mistakes.
"""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

MINUTE = 60.0  # seconds between two lines of a log file
quiet = False  # set by the command line
_LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class _Lines(tqdm):
    """Progress as lines of a log file, on standard error."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write a line; nothing where a bar would be erased (an empty text)."""
        if msg != "":
            print(self, file=sys.stderr, flush=True)

    def clear(self, nolock: bool = False) -> None:
        """Nothing: a line stays, whatever `say` writes."""

    def refresh(self, nolock: bool = False, lock_args: tuple[Any, ...] | None = None) -> None:
        """Say the next line; nothing where a bar is drawn again after `clear` (without the lock)."""
        if not nolock:
            super().refresh(nolock, lock_args)

    def close(self) -> None:
        """End without the last state, which the results say."""
        self.last_print_t = float("-inf")
        super().close()


def progress_bar(iterable: Iterable[Any] | None = None, show: bool = True, **options: Any) -> tqdm:
    """A bar of tqdm with these options, or a line a minute where nobody watches; nothing if `show` is false."""
    disable = quiet or not show or sys.stderr is None
    if _in_notebook() or (sys.stderr is not None and sys.stderr.isatty()):
        return tqdm(iterable, disable=disable, **options)
    rare: dict[str, Any] = {"mininterval": MINUTE, "delay": MINUTE, "miniters": 1, "bar_format": _LINE}
    return _Lines(iterable, disable=disable, **{**options, **rare})


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code; it has imported IPython, so nothing is imported here."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def say(line: str) -> None:
    """Write a line above the bars; nothing with --quiet."""
    if not quiet:
        tqdm.write(line)
