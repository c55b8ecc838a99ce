"""Show, Attend and Tell (Xu et al., 2015): from photograph to caption to the map of each word.

`load` gives a trained model, `caption` the caption of one photograph, `caption_folder` those of
many. Rooms, each importing only those after it: `cli` (commands), `page` (ONNX, the web page),
`training`, `beyond` (what the paper does not have), `captioning` (many photographs), `evaluation`,
`model` (the paper), `data`, `recipe`, `files`, `errors`.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from satlib.captioning import caption_folder

# `import satlib` imports no torch: only what needs it waits for it.
if TYPE_CHECKING:
    from satlib.data.images import Given
    from satlib.model.captioner import Caption, Captioner

__version__ = "0.2.0"
__all__ = ["caption", "caption_folder", "load"]


def load(model: Path | str | None = None, device: str = "auto") -> "Captioner":
    """A trained captioner.

    Args:
        model: a model that comes with satlib by its name, a run's folder, or a model file; by
            default the one for photographs.
        device: "auto", "cpu", "cuda" or "mps".

    Raises:
        SatlibError: there is no such model or device, or the file is damaged.
    """
    from satlib.model import installed
    from satlib.model.captioner import Captioner

    return Captioner.load(model or installed.PHOTOGRAPHS, installed.device(device))


def caption(photo: "Given") -> "Caption":
    """The caption of a photograph (a path or a Pillow image) by the model for photographs.

    The model is loaded once, by the first call.

    Raises:
        SatlibError: the file is not a readable image.
    """
    return _default().caption([photo])[0]


# Loading takes seconds, and who captions one photograph often captions another.
_default = functools.cache(load)
