"""How a scene is painted: backgrounds, shapes, textures, clutter, on a canvas that remembers whose pixel is whose.

Every outline is a signed distance in pixels (negative inside), and a pixel is covered by clip(1/2 - distance, 0, 1): edges
are smooth without supersampling, and only the window of each shape is touched. Only + - * / sqrt and rounded sines are
used, all exact by IEEE 754, and numpy's frozen `RandomState`: the same key gives the same picture on every platform.
"""

import colorsys
import math
from collections.abc import Callable

import numpy as np
from numpy.random import RandomState

from satlib.datasets.scenes_grammar import between, pick

SIDE = 224  # pixels
RGB = {
    "red": (0.88, 0.13, 0.15),
    "orange": (0.97, 0.53, 0.08),
    "yellow": (0.96, 0.81, 0.10),
    "green": (0.16, 0.64, 0.27),
    "blue": (0.15, 0.36, 0.86),
    "purple": (0.54, 0.22, 0.73),
}
WHITE = (0.99, 0.98, 0.95)  # stripes and dots
OUTLINE = 2.0  # pixels
GREY_SHAPES = (0, 2)  # how many unnamed grey shapes lie behind, from and to
SPECKS = (8, 25)  # tiny coloured dots
TWIGS = (1, 3)  # thin brown lines
OCCLUDERS = (0, 2)  # grey shapes and twigs that may lie before the objects

_STEPS = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE  # pixel centres, 0..1

_SIN36, _COS36 = np.float32(0.587785), np.float32(0.809017)
_HALF_ROOT = np.float32(0.707107)

Outline = Callable[[np.ndarray, np.ndarray], np.ndarray]  # x, y in units of half the size, y down -> signed distance


class Canvas:
    """A picture being painted, back to front.

    pixels: float32 (224, 224, 3), 0..1. owner: int8 (224, 224), the number of the object seen at a pixel, -1 for none.
    """

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels = pixels
        self.owner = np.full((SIDE, SIDE), -1, dtype=np.int8)

    def copy(self) -> "Canvas":
        """A canvas that can be painted on without changing this one."""
        twin = Canvas(self.pixels.copy())
        twin.owner = self.owner.copy()
        return twin

    def window(self, centre: tuple[float, float], reach: float) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray]:
        """The part of the canvas within `reach` pixels of `centre`, and x (1, w), y (h, 1) relative to the centre."""
        (left, right), (top, bottom) = (
            (max(0, math.floor(at - reach)), max(0, min(SIDE, math.ceil(at + reach)))) for at in centre
        )
        x = np.arange(left, right, dtype=np.float32) + np.float32(0.5 - centre[0])
        y = np.arange(top, bottom, dtype=np.float32) + np.float32(0.5 - centre[1])
        return (slice(top, bottom), slice(left, right)), x[None, :], y[:, None]

    def blend(self, part: tuple[slice, slice], colour: np.ndarray, cover: np.ndarray) -> None:
        """Lay a colour, (3,) or (h, w, 3), over a part of the canvas, by `cover` (h, w) in 0..1."""
        under = self.pixels[part]
        under += cover[..., None] * (colour - under)


# --- Shapes: signed distance in units of half the bounding box ------------------------------------------------------


def circle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A disc that fills its box."""
    return np.sqrt(x * x + y * y) - 1


def square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A square a little smaller than its box."""
    return np.maximum(np.abs(x), np.abs(y)) - 0.9


def triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """An isosceles triangle that stands on its base: apex (0, -1), base from (-1, 0.8) to (1, 0.8)."""
    slant = (1.8 * np.abs(x) - (y + 1)) / math.sqrt(1.8**2 + 1)
    return np.maximum(slant, y - 0.8)


def star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A star of five points, folded twice at a mirror line (36 degrees from the upper point) until one edge is left."""
    x, y = np.abs(x), 0.1 - y  # y up, from here on
    for _ in range(2):
        beyond = np.maximum(_COS36 * x - _SIN36 * y, 0)
        x, y = np.abs(x - 2 * _COS36 * beyond), y + 2 * _SIN36 * beyond
    inner_x, inner_y = 0.5 * _SIN36, 0.5 * _COS36  # where two points meet, half way to the centre
    return ((1 - inner_y) * x + inner_x * (y - 1)) / math.sqrt((1 - inner_y) ** 2 + inner_x**2)


def heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A square on its tip, with a disc on either upper side."""
    x, y = np.abs(x) * 1.2, (y + 0.16) * 1.2
    lobe = np.sqrt((x - 0.5) ** 2 + (y + 0.5) ** 2) - math.sqrt(0.5)
    return np.minimum((x + np.abs(y) - 1) / math.sqrt(2), lobe) / 1.2


OUTLINES: dict[str, Outline] = {"circle": circle, "square": square, "triangle": triangle, "star": star, "heart": heart}


# --- Things on a canvas ----------------------------------------------------------------------------------------------


def named_object(
    canvas: Canvas,
    random: RandomState,
    number: int,
    centre: tuple[float, float],
    size: float,
    shape: str,
    colour: str,
    texture: str,
) -> int:
    """Paint a named object, `size` pixels across: a soft shadow, a darker outline, its texture in white.

    Returns the number of its pixels.
    """
    half = size / 2
    jitter, tilt, turn = random.uniform(0.94, 1.06), random.uniform(-0.16, 0.16), between(random, 0, 3)
    base = np.clip(np.array(RGB[colour], dtype=np.float32) * np.float32(jitter), 0, 1)
    part, x, y, distance = _outline(canvas, centre, half, tilt, OUTLINES[shape], offset=(3.0, 4.0))
    canvas.blend(part, np.zeros(3, dtype=np.float32), np.clip(0.5 - distance / 5, 0, 1) * np.float32(0.22))
    part, x, y, distance = _outline(canvas, centre, half, tilt, OUTLINES[shape])
    light = (1.05 - 0.1 * (y / half + 1) / 2)[..., None]  # a little brighter above
    paint = np.broadcast_to(base * light, (*distance.shape, 3))
    if texture != "plain":
        white = _texture(texture, x, y, half, turn)[..., None]
        paint = paint + white * (np.array(WHITE, dtype=np.float32) - paint)
    rim = np.clip(distance + np.float32(OUTLINE + 0.5), 0, 1)[..., None]
    paint = paint + rim * (base * np.float32(0.6) - paint)
    cover = np.clip(0.5 - distance, 0, 1)
    canvas.blend(part, paint, cover)
    inside = cover > 0.5
    canvas.owner[part][inside] = number
    return np.count_nonzero(inside)


def _outline(
    canvas: Canvas,
    centre: tuple[float, float],
    half: float,
    tilt: float,
    outline: Outline,
    offset: tuple[float, float] = (0, 0),
) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray, np.ndarray]:
    """Window, the shape's own tilted coordinates in pixels, and the signed distance in pixels, each (h, w)."""
    part, x, y = canvas.window((centre[0] + offset[0], centre[1] + offset[1]), half * 1.25 + 4)
    cos, sin = np.float32(round(math.cos(tilt), 6)), np.float32(round(math.sin(tilt), 6))
    x, y = cos * x + sin * y, cos * y - sin * x
    return part, x, y, outline(x / np.float32(half), y / np.float32(half)) * np.float32(half)


def _texture(texture: str, x: np.ndarray, y: np.ndarray, half: float, turn: int) -> np.ndarray:
    """How white a pixel is, 0..1: stripes in one of four directions, or dots on a square grid."""
    period = np.float32(10 + half / 6)  # 13 pixels in a small object, 17 in a big one
    if texture == "striped":
        along = ((x, y, (x + y) * _HALF_ROOT, (x - y) * _HALF_ROOT)[turn] / period) % 1
        return np.clip((np.float32(0.24) - np.abs(along - 0.5)) * period + 0.5, 0, 1)
    across, down = ((x + y) * _HALF_ROOT, (x - y) * _HALF_ROOT) if turn % 2 else (x, y)
    across, down = ((across / period + 0.5) % 1 - 0.5), ((down / period + 0.5) % 1 - 0.5)
    return np.clip((np.float32(0.29) - np.sqrt(across * across + down * down)) * period + 0.5, 0, 1)


def grey_shape(canvas: Canvas, random: RandomState, centre: tuple[float, float], size: float) -> None:
    """A shape without colour: clutter, never named, and whatever it hides is hidden."""
    outline, tilt = OUTLINES[pick(random, tuple(OUTLINES))], random.uniform(-0.8, 0.8)
    grey = np.float32(random.uniform(0.35, 0.8)) * np.array([1, 0.99, 0.97], dtype=np.float32)
    part, _, _, distance = _outline(canvas, centre, size / 2, tilt, outline)
    cover = np.clip(0.5 - distance, 0, 1)
    rim = np.clip(distance + 2, 0, 1)[..., None]
    canvas.blend(part, grey * (1 - np.float32(0.25) * rim), cover)
    canvas.owner[part][cover > 0.5] = -1


def twig(canvas: Canvas, random: RandomState, centre: tuple[float, float]) -> None:
    """A thin brown line, 30 to 110 pixels long."""
    half, thick, angle = random.uniform(15, 55), random.uniform(1.0, 2.2), random.uniform(0, math.pi)
    brown = np.array([0.42, 0.33, 0.25], dtype=np.float32) * np.float32(random.uniform(0.7, 1.3))
    part, x, y = canvas.window(centre, half + 4)
    cos, sin = np.float32(round(math.cos(angle), 6)), np.float32(round(math.sin(angle), 6))
    along, across = cos * x + sin * y, cos * y - sin * x
    beyond = np.maximum(np.abs(along) - np.float32(half), 0)
    cover = np.clip(np.float32(thick) + 0.5 - np.sqrt(beyond * beyond + across * across), 0, 1)
    canvas.blend(part, brown, cover)
    canvas.owner[part][cover > 0.5] = -1


def speck(canvas: Canvas, random: RandomState, centre: tuple[float, float]) -> None:
    """A dot of at most 6 pixels in any colour: too small to be named."""
    colour, radius = np.array(pick(random, tuple(RGB.values())), dtype=np.float32), random.uniform(1.2, 3)
    part, x, y = canvas.window(centre, radius + 1)
    cover = np.clip(np.float32(radius) + 0.5 - np.sqrt(x * x + y * y), 0, 1)
    canvas.blend(part, colour, cover)
    canvas.owner[part][cover > 0.5] = -1


# --- Backgrounds: pixels (224, 224, 3), pale or dusky, never saturated ------------------------------------------------


def background(random: RandomState) -> np.ndarray:
    """One of five backgrounds in two quiet colours, with a fine grain."""
    dusky = random.random_sample() < 0.15
    value = random.uniform(0.28, 0.42) if dusky else random.uniform(0.78, 0.97)
    hue, near = random.random_sample(2)
    one = _quiet(hue, random.uniform(0.03, 0.2), value)
    two = _quiet((hue + 0.3 * near) % 1, random.uniform(0.03, 0.2), value - random.uniform(0.05, 0.14))
    mix = pick(random, (_gradient, _mist, _horizon, _tiles, _hills))(random)
    grain = np.frombuffer(random.bytes(SIDE * SIDE), dtype=np.uint8).reshape(SIDE, SIDE, 1)
    pixels = one + mix[..., None] * (two - one)
    pixels += (grain.astype(np.float32) - 127.5) * np.float32(random.uniform(0.01, 0.06) / 255)
    return pixels


def _quiet(hue: float, saturation: float, value: float) -> np.ndarray:
    return np.array(colorsys.hsv_to_rgb(hue, saturation, value), dtype=np.float32)


def _gradient(random: RandomState) -> np.ndarray:
    """From one colour to the other in any direction."""
    across, down = (np.float32(value) for value in random.uniform(-1, 1, 2))
    plane = across * _STEPS[None, :] + down * _STEPS[:, None]
    return (plane - plane.min()) / (plane.max() - plane.min() + np.float32(1e-6))


def _mist(random: RandomState) -> np.ndarray:
    """Smooth clouds: a coarse random grid, interpolated."""
    cells = between(random, 3, 8)
    grid = random.random_sample((cells + 1, cells + 1)).astype(np.float32)
    at = _STEPS * np.float32(cells)
    low = at.astype(np.int64)
    part = at - low
    part = part * part * (3 - 2 * part)
    rows = grid[low] + part[:, None] * (grid[low + 1] - grid[low])
    return rows[:, low] + part * (rows[:, low + 1] - rows[:, low])


def _horizon(random: RandomState) -> np.ndarray:
    """Sky that pales towards a straight horizon, and the ground below it."""
    line = np.float32(random.uniform(0.4, 0.8))
    sky = 0.35 * _STEPS / line
    ground = np.clip((_STEPS - line) * SIDE + 0.5, 0, 1)
    return np.broadcast_to((sky + ground * (1 - sky))[:, None], (SIDE, SIDE))


def _tiles(random: RandomState) -> np.ndarray:
    """A chequered floor."""
    count, shift = random.uniform(3, 9), random.random_sample(2)
    right = ((_STEPS * np.float32(count) + np.float32(shift[0])) % 2) < 1
    down = ((_STEPS * np.float32(count) + np.float32(shift[1])) % 2) < 1
    return (right[None, :] ^ down[:, None]).astype(np.float32) * np.float32(0.7)


def _hills(random: RandomState) -> np.ndarray:
    """Two rolling hills, parabolas, one before the other."""
    mix = np.broadcast_to(0.3 * _STEPS[:, None], (SIDE, SIDE))
    for depth in (0.6, 1.0):
        top, middle, steep = random.uniform(0.35 + depth / 4, 0.85), random.uniform(0, 1), random.uniform(0.2, 1.2)
        skyline = np.float32(top) + np.float32(steep) * (_STEPS - np.float32(middle)) ** 2
        inside = np.clip((_STEPS[:, None] - skyline[None, :]) * SIDE + 0.5, 0, 1)
        mix = mix + inside * (np.float32(depth) - mix)
    return mix
