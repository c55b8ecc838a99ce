"""What widgets are made of, and what stands in their place on a page that nobody runs."""

import importlib
import os
from collections.abc import Callable
from typing import Any

from satlib.errors import SatlibError

ENVIRONMENT = "SATCOURSE_STILL"  # tools/execution.py sets it: what it executes is stored, and read without a kernel


def ipywidgets() -> Any:
    """The package, which nothing but widgets needs.

    Raises:
        SatlibError: it is not installed.
    """
    try:
        return importlib.import_module("ipywidgets")
    except ImportError as error:
        raise SatlibError("this needs ipywidgets; run: pip install 'satlib[course]'") from error


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
