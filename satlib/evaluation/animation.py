"""A caption as one animated picture, a WebP: the light walks along the sentence word by word."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from satlib.evaluation import plots
from satlib.files import replacing

LONGER_SIDE = 640  # pixels of the photograph; the sentence beside it is 3/5 as wide
PAUSE = 700  # milliseconds that a word is shown
LAST = 2100  # milliseconds that the last word is shown
ROUNDS = 3  # then it rests: what moves for ever keeps a reader from the text beside it
_LIGHT = "#ffd34d"  # behind the current word
_ON_LIGHT = "#1b1c1f"  # the current word


def animate(
    photo: Image.Image, words: Sequence[str], alphas: Tensor, path: Path, title: str = ""
) -> None:
    """Write a frame for each word: the photograph lit by its map, and the sentence beside it.

    The maps are alphas (C, h, w). The frame's own word is emphasised in the sentence. The words
    of `title` stand before it and have no frames.
    """
    # The end mark may have a map, but it has no frame.
    pictures = plots.lit(photo, alphas[: len(words)], LONGER_SIDE)  # (C, H, W, 3)
    height, width = pictures.shape[1:3]

    font = ImageFont.truetype(findfont(FontProperties(weight="bold")), LONGER_SIDE // 16)
    margin = font.size
    pad = font.size // 5
    step = 1.35 * font.size  # from line to line
    across = width + 3 * LONGER_SIDE // 5
    before = title.split()
    said = [*before, *words]
    places = _places(said, font, width + margin, across - margin / 2, step)
    # All frames have one size: a sentence may be higher than the photograph.
    bottom = places[-1][1] + step
    size = (across, max(height, round(bottom + margin)))

    frames = []
    for current, picture in enumerate(pictures, len(before)):
        frame = Image.new("RGB", size, plots.GROUND)
        frame.paste(Image.fromarray(picture))
        draw = ImageDraw.Draw(frame)

        left, top, right = places[current]
        draw.rounded_rectangle((left - pad, top, right + pad, top + step), pad, fill=_LIGHT)
        for index, word in enumerate(said):
            left, top, _ = places[index]
            color = _ON_LIGHT if index == current else plots.PALE
            draw.text((left, top), word, color, font)
        frames.append(frame)

    with replacing(path) as partial:
        frames[0].save(
            partial,
            "WEBP",
            save_all=True,
            append_images=frames[1:],
            duration=[PAUSE] * (len(frames) - 1) + [LAST],
            loop=ROUNDS,
            quality=75,
        )


def _places(
    words: Sequence[str],
    font: ImageFont.FreeTypeFont,
    begin: float,
    end: float,
    step: float,
) -> list[tuple[float, float, float]]:
    """The left edge, top and right edge of each word, in lines from `begin` to `end`."""
    places: list[tuple[float, float, float]] = []
    x = begin
    y: float = font.size  # the margin above
    for word in words:
        length = font.getlength(word)
        # A word too long for any line stands alone in its own.
        if places and x + length > end:
            x = begin
            y += step
        places.append((x, y, x + length))
        x += length + font.size / 2
    return places
