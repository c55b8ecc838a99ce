"""Pictures that are drawn beforehand, and a slider that moves between them.

The slider is plain HTML and JavaScript in a cell's output: it works without a kernel, in
JupyterLab, in Colab and on the site. Where scripts do not run, as on GitHub, all pictures stand
below each other.
"""

import base64
import hashlib
import html
import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

WIDTH = 680  # pixels that a picture takes on the page; it has twice as many
SCRIPT = """\
const box = document.getElementById("NAME");
const figures = [...box.querySelectorAll("figure")];
const slider = document.createElement("input");
Object.assign(slider, {type: "range", min: 0, max: figures.length - 1, value: START});
slider.setAttribute("aria-label", box.getAttribute("aria-label"));
slider.style.width = "min(100%, 340px)";
const show = () => {
    figures.forEach((figure, i) => { figure.hidden = i !== Number(slider.value); });
    slider.setAttribute("aria-valuetext", figures[slider.value].innerText.trim());
};
slider.addEventListener("input", show);
// An arrow key would otherwise choose another cell in JupyterLab.
slider.addEventListener("keydown", event => event.stopPropagation());
box.prepend(slider);
show();
"""


class Slides:
    """A picture for each value of something, to be moved through by hand.

    Slides(draw, [0, 0.5, 1], "temperature", lambda T: f"T = {T}"), where draw(T) gives a Figure.
    """

    def __init__(
        self,
        draw: Callable[[Any], Figure],
        values: Sequence[Any],
        about: str,
        label: Callable[[Any], str] = str,
        start: int = 0,
    ) -> None:
        """Draw all of them, and close their figures.

        about: what the slider moves. label: what is said of a value. start: the first to be shown.
        """
        shown = []
        for value in values:
            text = html.escape(f"{about}: {label(value)}")
            image = f'<img src="{_address(draw(value))}" alt="{text}" width="{WIDTH}">'
            shown.append(f"<figure><figcaption>{text}</figcaption>{image}</figure>")

        body = "".join(shown)
        # By its content: of two sliders on a page, each finds its own pictures.
        name = "slides-" + hashlib.sha256(body.encode()).hexdigest()[:12]
        script = SCRIPT.replace("NAME", name).replace("START", str(start))
        # In a block: names of two scripts on a page do not meet.
        self._html = (
            f'<div id="{name}" role="group" aria-label="{html.escape(about)}">{body}</div>'
            f"<script>{{ {script} }}</script>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self._html


def _address(figure: Figure) -> str:
    """A figure as the address of its own bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=2 * figure.dpi)
    plt.close(figure)

    # Of a drawing, WebP takes a fraction of a PNG's bytes.
    packed = io.BytesIO()
    with Image.open(buffer) as picture:
        picture.save(packed, format="webp", quality=80)
    return "data:image/webp;base64," + base64.b64encode(packed.getvalue()).decode()
