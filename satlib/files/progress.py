"""Progress bars on a terminal and in a notebook, and lines between them."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

quiet = False  # set by the command line


def progress_bar(iterable: Iterable[Any] | None = None, show: bool = True, **options: Any) -> tqdm:
    """A bar of tqdm with these options; none where nobody watches, with --quiet, or if `show` is false."""
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return tqdm(iterable, disable=quiet or not show or not watched, **options)


def say(line: str) -> None:
    """Write a line above the bars, at once; nothing with --quiet."""
    if not quiet:
        tqdm.write(line)
        sys.stdout.flush()
