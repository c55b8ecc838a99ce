"""A button for the reader's own photographs: each is captioned, and shown with a scrubber."""

import io
from typing import Any

import ipywidgets
from IPython.display import display
from PIL import Image

from satcourse.widgets import still
from satcourse.widgets.scrubber import Scrubber
from satlib.data import images
from satlib.model.captioner import Captioner

STILL = "> **Run > Run All Cells**, and here is a button that takes your photograph."


def show_caption(captioner: Captioner, photo: Image.Image) -> None:
    """Print a photograph's greedy caption and its score, and display its scrubber."""
    caption = captioner.caption([photo], beam=1)[0]
    print(f"{caption.text} (score {caption.confidence:.2f})")
    display(Scrubber(captioner, {"your photograph": photo}))


def photographs(value: Any) -> list[Image.Image]:
    """The photographs of a FileUpload, in RGB."""
    # Its value is a tuple of files; in ipywidgets 7, which Colab has, a dict of them.
    files = value.values() if isinstance(value, dict) else value
    photographs = []
    for file in files:
        photo = Image.open(io.BytesIO(file["content"]))
        photographs.append(images.to_rgb(photo))
    return photographs


def show_upload_button(captioner: Captioner) -> None:
    """Display a button to choose photographs; what was chosen is captioned below it."""
    output = ipywidgets.Output()
    button = ipywidgets.FileUpload(accept="image/*", description="a photograph", multiple=True)

    def caption_chosen(change: dict) -> None:
        # What was chosen before is replaced.
        output.clear_output()
        with output:
            for photo in photographs(change["new"]):
                show_caption(captioner, photo)

    button.observe(caption_chosen, "value")
    still.show(ipywidgets.VBox([button, output]), STILL)
