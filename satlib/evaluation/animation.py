"""A caption as one animated picture: the light walks along the sentence, with a frame for each word.

The file is an animated WebP. GitHub, Jupyter and browsers show it as they show a GIF, which has only 256 colours, too few for a
photograph.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from satlib.errors import SatlibError
from satlib.evaluation import overlay, plots
from satlib.files.atomic import replacing

LIMIT = 1_000_000  # bytes
LONGEST = 640  # pixels of the photograph's longer side, if the file does not become too large
PAUSE, LAST = 700, 2100  # milliseconds that a word is shown, and the last one
_SMALLER = ((1.0, 85), (1.0, 60), (0.6, 60), (0.4, 40))  # size and WebP quality: the first within the limit is written
_LINE = 3  # pixels
_LIGHT, _ON_LIGHT = "#ffd34d", "#1b1c1f"  # behind the current word, and the word


def animate(photo: Image.Image, words: Sequence[str], alphas: Tensor, path: Path, view: str = "whole") -> None:
    """Write an animated WebP: for each word the photograph lit by its map, above the sentence with the word emphasised.

    Args:
        photo: RGB; drawn whole, in its own aspect ratio.
        words: the caption, without the end mark.
        alphas: (C, h, w), one map per word; that of the end mark is not drawn.
        path: the file; it has at most LIMIT bytes.
        view: the encoder's view of the photograph (`Captioner.view`); the rest stays dark.

    Raises:
        SatlibError: the caption has no words, the maps do not match them, the file is above the limit at every size, or it
            cannot be written.
    """
    for scale, quality in _SMALLER:
        first, *rest = frames(photo, words, alphas, view, round(scale * LONGEST))
        durations, buffer = [PAUSE] * len(rest) + [LAST], io.BytesIO()
        first.save(buffer, "WEBP", save_all=True, append_images=rest, duration=durations, loop=0, quality=quality)
        if buffer.tell() <= LIMIT:
            with replacing(path) as partial:
                partial.write_bytes(buffer.getvalue())
            return
    raise SatlibError(
        f"{path} would have more than {LIMIT:,} bytes: the caption has {len(words)} words; animate a shorter one"
    )


def frames(
    photo: Image.Image, words: Sequence[str], alphas: Tensor, view: str = "whole", longest: int = LONGEST
) -> list[Image.Image]:
    """The frames of `animate`, one per word; `longest` is in pixels, of the photograph's longer side."""
    plots.require_maps(words, alphas)
    if not words:
        raise SatlibError("the caption has no words, so there is nothing to animate")
    pixels = overlay.scaled(photo, longest)
    height, width = pixels.shape[:2]
    maps = overlay.spread(photo.size, alphas[: len(words)], (height, width), view).numpy()
    across = max(width, longest // 2)  # a sentence needs more room than a narrow photograph has
    font, places, below = _layout(words, across, longest // 17)
    ascent, descent = font.getmetrics()
    drawn = []
    for current, alpha in enumerate(maps):
        line = _outline(alpha)[..., None]
        picture = ((1 - line) * overlay.light(pixels, alpha) + line * 255).astype(np.uint8)
        frame = Image.new("RGB", (across, height + below), plots.GROUND)
        frame.paste(Image.fromarray(picture), ((across - width) // 2, 0))
        draw = ImageDraw.Draw(frame)
        for index, (word, (x, y)) in enumerate(zip(words, places, strict=True)):
            colour, y = plots.PALE, height + y
            if index == current:
                pad, colour = font.size // 5, _ON_LIGHT
                box = (x - pad, y, x + font.getlength(word) + pad, y + ascent + descent)
                draw.rounded_rectangle(box, pad, fill=_LIGHT)
            draw.text((x, y), word, colour, font)
        drawn.append(frame)
    return drawn


def _outline(alpha: np.ndarray) -> np.ndarray:
    """How much of each pixel the line covers that encloses what has at least half of the maximum, as in the strip: (H, W), 0 to 1."""
    strength = overlay.strength(alpha)
    if min(strength.shape) < 2:  # a photograph of one row of pixels has no room for a line
        return np.zeros_like(strength)
    # per pixel, so that the line has the same width everywhere
    slope = np.maximum(np.hypot(*np.gradient(strength)), 1e-6)
    return 0.9 * (_LINE / 2 + 0.5 - np.abs(strength - 0.5) / slope).clip(0, 1)


def _layout(
    words: Sequence[str], across: int, size: float
) -> tuple[ImageFont.FreeTypeFont, list[tuple[float, float]], int]:
    """The words in centred lines of at most `across` pixels: the font, each word's left upper corner, the height of all lines."""
    bold = findfont(FontProperties(weight="bold"))
    font = ImageFont.truetype(bold, size)
    margin = size / 2
    widest = max(map(font.getlength, words))
    if widest > across - 2 * margin:  # a long word decides the size
        font = ImageFont.truetype(bold, size * (across - 2 * margin) / widest)
    space, step = font.size / 2, 1.35 * font.size
    lines: list[list[str]] = [[]]

    def length(line: list[str]) -> float:
        return sum(map(font.getlength, line)) + space * (len(line) - 1)

    for word in words:
        if lines[-1] and length([*lines[-1], word]) > across - 2 * margin:
            lines.append([])
        lines[-1].append(word)
    places = []
    for row, line in enumerate(lines):
        x = (across - length(line)) / 2
        for word in line:
            places.append((x, margin / 2 + step * row))
            x += font.getlength(word) + space
    return font, places, round(margin + step * len(lines))
