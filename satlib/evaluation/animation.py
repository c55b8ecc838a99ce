"""A caption as one animated picture, a WebP: the light walks along the sentence, with a frame for each word."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from satlib.evaluation import overlay, plots
from satlib.files.atomic import replacing

LONGEST = 640  # pixels of the photograph's longer side
PAUSE, LAST = 700, 2100  # milliseconds that a word is shown, and the last one
_LIGHT, _ON_LIGHT = "#ffd34d", "#1b1c1f"  # behind the current word, and the word


def animate(photo: Image.Image, words: Sequence[str], alphas: Tensor, path: Path, view: str = "whole") -> None:
    """Write, for each word, the photograph lit by its map of alphas (C, h, w), above the sentence with the word emphasised."""
    pixels = overlay.scaled(photo, LONGEST)
    height, width = pixels.shape[:2]
    across = max(width, LONGEST // 2)  # room for a sentence
    font = ImageFont.truetype(findfont(FontProperties(weight="bold")), LONGEST // 17)
    margin, pad, step = font.size / 2, font.size // 5, 1.35 * font.size
    places: list[tuple[float, float, float]] = []  # left, top and right of each word
    x, y = margin, height + 0.2 * step
    for word in words:
        length = font.getlength(word)
        if x > margin and x + length > across - margin:
            x, y = margin, y + step
        places.append((x, y, x + length))
        x += length + font.size / 2
    frames = []
    for current, alpha in enumerate(overlay.spread(photo.size, alphas[: len(words)], (height, width), view).numpy()):
        frame = Image.new("RGB", (across, round(y + 1.2 * step)), plots.GROUND)
        frame.paste(Image.fromarray(overlay.light(pixels, alpha)), ((across - width) // 2, 0))
        draw = ImageDraw.Draw(frame)
        left, top, right = places[current]
        draw.rounded_rectangle((left - pad, top, right + pad, top + step), pad, fill=_LIGHT)
        for index, (word, (left, top, _)) in enumerate(zip(words, places, strict=True)):
            draw.text((left, top), word, _ON_LIGHT if index == current else plots.PALE, font)
        frames.append(frame)
    durations = [PAUSE] * (len(frames) - 1) + [LAST]
    with replacing(path) as partial:
        frames[0].save(partial, "WEBP", save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=75)
