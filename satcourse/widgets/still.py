"""What stands in place of a widget on a page that nobody runs."""

import os
from collections.abc import Callable
from typing import Any

from IPython.display import Markdown, display

# tools/notebooks.py sets it: what it executes is stored, and read without a kernel.
ENVIRONMENT = "SATCOURSE_STILL"


def show(widget: Any, line: str, picture: Callable[[], Any] | None = None) -> None:
    """Display a widget; in a notebook that is executed to be stored, a line of Markdown in its
    place, and what `picture` draws.
    """
    if ENVIRONMENT not in os.environ:
        display(widget)
    elif picture is None:
        display(Markdown(line))
    else:
        # One call, for the two belong together.
        display(Markdown(line), picture())
