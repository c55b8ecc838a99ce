"""How figures look on a notebook's page."""

import io

import matplotlib.pyplot as plt
from IPython.display import Image, display
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats


def use_page_style() -> None:
    """Draw this session's figures in the style `satcourse.page`, with two pixels per point on a notebook's page."""
    plt.style.use("satcourse.page")
    set_matplotlib_formats("retina")


def show_photographs(figure: Figure) -> None:
    """Display a pyplot figure as a JPEG and close it: of photographs, a PNG has several times the bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="jpeg", dpi=2 * figure.dpi, pil_kwargs={"quality": 85, "subsampling": 0})
    plt.close(figure)
    display(Image(buffer.getvalue(), format="jpeg", width=round(figure.dpi * figure.get_figwidth())))
