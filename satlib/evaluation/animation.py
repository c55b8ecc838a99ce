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
    across = max(width, LONGEST // 2)  # a sentence needs more room than a narrow photograph has
    font = ImageFont.truetype(findfont(FontProperties(weight="bold")), LONGEST // 17)
    step, pad = 1.35 * font.size, font.size // 5
    lines = _lines(words, font, across - font.size)
    frames = []
    for current, alpha in enumerate(overlay.spread(photo.size, alphas[: len(words)], (height, width), view).numpy()):
        frame = Image.new("RGB", (across, round(height + step * (len(lines) + 0.4))), plots.GROUND)
        frame.paste(Image.fromarray(overlay.light(pixels, alpha)), ((across - width) // 2, 0))
        draw = ImageDraw.Draw(frame)
        for row, line in enumerate(lines):
            x, y = (across - _length(words, font, line)) / 2, height + step * (row + 0.2)
            for index in line:
                end = x + font.getlength(words[index])
                if index == current:
                    draw.rounded_rectangle((x - pad, y, end + pad, y + step), pad, fill=_LIGHT)
                draw.text((x, y), words[index], _ON_LIGHT if index == current else plots.PALE, font)
                x = end + font.size / 2
        frames.append(frame)
    durations = [PAUSE] * (len(frames) - 1) + [LAST]
    with replacing(path) as partial:
        frames[0].save(partial, "WEBP", save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=75)


def _lines(words: Sequence[str], font: ImageFont.FreeTypeFont, room: float) -> list[list[int]]:
    """The indices of the words that stand on each line, at most `room` pixels wide."""
    lines: list[list[int]] = [[0]]
    for index in range(1, len(words)):
        if _length(words, font, [*lines[-1], index]) <= room:
            lines[-1].append(index)
        else:
            lines.append([index])
    return lines


def _length(words: Sequence[str], font: ImageFont.FreeTypeFont, line: Sequence[int]) -> float:
    """The width of a line in pixels: its words, with half the font's size between them."""
    return sum(font.getlength(words[index]) for index in line) + font.size / 2 * (len(line) - 1)
