"""What stands in a widget's place on a page that nobody runs."""

import os
from collections.abc import Callable
from typing import Any

ENVIRONMENT = "SATCOURSE_STILL"  # tools/execution.py sets it: what it executes is stored, and read without a kernel


def show(widget: Any, line: str, picture: Callable[[], Any] | None = None) -> None:
    """Display a widget; in a notebook that is executed to be stored, a line and a picture in its place.

    Args:
        widget: of ipywidgets. `display` is a call that versions 7 (Colab's) and 8 both answer.
        line: what the reader will find here once the notebook runs, in Markdown.
        picture: draws what there is to see without a kernel, if there is anything.
    """
    from IPython.display import Markdown, display

    if ENVIRONMENT not in os.environ:
        display(widget)
    else:
        display(Markdown(line), *([picture()] if picture else []))
