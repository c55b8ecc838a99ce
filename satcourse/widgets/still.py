"""What stands in place of a widget on a page that nobody runs."""

import os
from collections.abc import Callable
from typing import Any

from IPython.display import Markdown, display

ENVIRONMENT = "SATCOURSE_STILL"  # tools/notebooks.py sets it: what it executes is stored, and read without a kernel


def show(widget: Any, line: str, picture: Callable[[], Any] | None = None) -> None:
    """Display a widget; in a notebook that is executed to be stored, a line of Markdown in its place, and what `picture` draws."""
    if ENVIRONMENT not in os.environ:
        display(widget)
    else:
        display(Markdown(line), *([picture()] if picture else []))
