"""A caption as one animated picture, a WebP: the light walks along the sentence, with a frame for each word."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from satlib.evaluation import plots
from satlib.files import replacing

LONGEST = 640  # pixels of the photograph's longer side; the sentence beside it takes 3/5 of that
PAUSE, LAST = 700, 2100  # milliseconds that a word is shown, and the last one
_LIGHT, _ON_LIGHT = "#ffd34d", "#1b1c1f"  # behind the current word, and the word


def animate(
    photo: Image.Image, words: Sequence[str], alphas: Tensor, path: Path, view: str = "whole"
) -> None:
    """Write, for each word, the photograph lit by its map of alphas (C, h, w), beside the sentence with the word emphasised."""
    pixels = plots.scaled(photo, LONGEST)
    height, width = pixels.shape[:2]
    font = ImageFont.truetype(findfont(FontProperties(weight="bold")), LONGEST // 16)
    margin, pad, step = font.size, font.size // 5, 1.35 * font.size
    across = width + 3 * LONGEST // 5
    places: list[tuple[float, float, float]] = []  # left, top and right of each word
    x, y = width + margin, margin
    for word in words:
        length = font.getlength(word)
        if places and x + length > across - margin / 2:
            x, y = width + margin, y + step
        places.append((x, y, x + length))
        x += length + font.size / 2
    frames = []
    for current, alpha in enumerate(
        plots.spread(photo.size, alphas[: len(words)], (height, width), view).numpy()
    ):
        frame = Image.new("RGB", (across, max(height, round(y + step + margin))), plots.GROUND)
        frame.paste(Image.fromarray(plots.light(pixels, alpha)))
        draw = ImageDraw.Draw(frame)
        left, top, right = places[current]
        draw.rounded_rectangle((left - pad, top, right + pad, top + step), pad, fill=_LIGHT)
        for index, (word, (left, top, _)) in enumerate(zip(words, places, strict=True)):
            draw.text((left, top), word, _ON_LIGHT if index == current else plots.PALE, font)
        frames.append(frame)
    durations = [PAUSE] * (len(frames) - 1) + [LAST]
    with replacing(path) as partial:
        frames[0].save(
            partial,
            "WEBP",
            save_all=True,
            append_images=frames[1:],
            duration=durations,
            loop=0,
            quality=75,
        )
