"""How figures look on a notebook's page."""

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import set_matplotlib_formats


def use_page_style() -> None:
    """Draw this session's figures in the style `satcourse.page`, with two pixels per point on a notebook's page."""
    plt.style.use("satcourse.page")
    set_matplotlib_formats("retina")
