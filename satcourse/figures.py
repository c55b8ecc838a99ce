"""How figures look on a notebook's page."""

import io

import matplotlib.pyplot as plt
from IPython.display import Image, display
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats
from PIL.Image import open as open_image


def use_page_style() -> None:
    """Draw this session's figures in the style `satcourse.page`, with two pixels per point on a
    notebook's page.
    """
    plt.style.use("satcourse.page")
    set_matplotlib_formats("retina")


def show_photographs(figure: Figure) -> None:
    """Display a pyplot figure as a JPEG and close it: of photographs, a PNG has several times the
    bytes.
    """
    buffer = io.BytesIO()
    # Cut to what is drawn, as the notebook cuts its PNGs: a title is not cut off, and no margin is
    # left over.
    figure.savefig(
        buffer,
        format="jpeg",
        dpi=2 * figure.dpi,
        bbox_inches="tight",
        pad_inches=0.1,
        pil_kwargs={"quality": 85, "subsampling": 0},
    )
    # Else the notebook would show it again, as a PNG.
    plt.close(figure)
    width = open_image(buffer).width // 2
    display(Image(buffer.getvalue(), format="jpeg", width=width))
