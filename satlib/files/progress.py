"""What satlib says while it works: progress bars, and lines between them, for somebody who watches.

Bars appear on a terminal and in a notebook, not in a log file. With `satlib --quiet` nothing is said but results and mistakes.
"""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

quiet = False  # set by the command line


def progress_bar(iterable: Iterable[Any] | None = None, show: bool = True, **options: Any) -> tqdm:
    """A bar of tqdm with these options, which shows nothing where nobody watches, or if `show` is false."""
    watched = (sys.stderr is not None and sys.stderr.isatty()) or _in_notebook()
    return tqdm(iterable, disable=quiet or not (show and watched), **options)


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code; it has imported IPython, so nothing is imported here."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def say(line: str) -> None:
    """Write a line above the bars; nothing with --quiet."""
    if not quiet:
        tqdm.write(line)
