"""Painting scenes: backgrounds, shapes, textures and clutter, on a canvas.

The canvas records which object each pixel belongs to. Every outline is a signed distance in pixels
(negative inside); a pixel's coverage is clip(1/2 - distance, 0, 1), so edges are smooth. The code
uses only + - * / sqrt, which IEEE 754 defines exactly, rounded sines, and numpy's frozen
`RandomState`: an image id gives the same image on every platform. For the same reason the order of
the random draws and of the operations must stay as it is.
"""

import colorsys
import math
from collections.abc import Callable

import numpy as np
from numpy.random import RandomState
from PIL import Image

from satlib.data.scenes_grammar import Kind, between, pick

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

# How many there are, at least and at most.
GREY_SHAPES = (0, 2)  # behind the objects
SPECKS = (6, 16)
TWIGS = (1, 3)
OCCLUDERS = (0, 2)  # grey shapes and twigs in front of the objects

# The centres of the pixels, 0..1, also as one row and as one column.
_STEPS = (np.arange(SIDE, dtype=np.float32) + 0.5) / SIDE  # (224,)
_ACROSS = _STEPS[None, :]  # (1, 224)
_DOWN = _STEPS[:, None]  # (224, 1)

# Written out, because `math.sin` may differ in the last digit from one platform to another.
_SIN36 = 0.587785
_COS36 = 0.809017
_HALF_ROOT = 0.707107  # sqrt(1/2)

Array = np.ndarray
Point = tuple[float, float]  # x, y in pixels
Part = tuple[slice, slice]  # rows and columns of a canvas
# x, y in units of half the size, y down -> signed distance.
Outline = Callable[[Array, Array], Array]


# --- The canvas -------------------------------------------------------------------------------


class Canvas:
    """An image that is painted from back to front.

    pixels: float32 (3, 224, 224), 0..1.
    owner: int8 (224, 224), the index of the object that is visible at a pixel, -1 for none.
    """

    def __init__(self, pixels: Array) -> None:
        self.pixels = pixels
        self.owner = np.full((SIDE, SIDE), -1, dtype=np.int8)

    def blend(self, part: Part, colour: Array, cover: Array, owner: int | None = -1) -> None:
        """Blend a colour into a part of the canvas.

        colour: (3, 1, 1) or (3, h, w).
        cover: (h, w), 0..1, the opacity.
        owner: whose the covered pixels are from then on; with None they keep their owner.
        """
        rows, columns = part
        under = self.pixels[:, rows, columns]  # a view: what is added to it is on the canvas
        under += cover * (colour - under)
        if owner is not None:
            self.owner[part][cover > 0.5] = owner

    def picture(self) -> Image.Image:
        """The finished RGB image."""
        # Half a level is added, because `astype` cuts off.
        levels = np.clip(self.pixels, 0, 1) * 255 + 0.5
        return Image.fromarray(levels.astype(np.uint8).transpose(1, 2, 0))


def _window(centre: Point, reach: float) -> tuple[Part, Array, Array]:
    """The part of the canvas within `reach` pixels of `centre`.

    And the coordinates of its pixels relative to the centre: x (1, w) and y (h, 1).
    """
    # Shapes are painted in their window alone: whole canvases would take many times as long.
    columns, x = _span(centre[0], reach)
    rows, y = _span(centre[1], reach)
    return (rows, columns), x[None, :], y[:, None]


def _span(middle: float, reach: float) -> tuple[slice, Array]:
    """The pixels along an axis within `reach` of `middle`, and their coordinates relative to it."""
    start = max(0, math.floor(middle - reach))
    stop = max(0, min(SIDE, math.ceil(middle + reach)))
    coordinates = np.arange(start, stop, dtype=np.float32) + (0.5 - middle)
    return slice(start, stop), coordinates


def _coverage(distance: Array) -> Array:
    """How much of each pixel lies inside an outline, 0..1, by its signed distance in pixels."""
    return np.clip(0.5 - distance, 0, 1)


def _turned(x: Array, y: Array, angle: float) -> tuple[Array, Array]:
    """Coordinates along axes that are turned by an angle."""
    # Rounded, so that they are the same on every platform.
    cos = round(math.cos(angle), 6)
    sin = round(math.sin(angle), 6)
    return cos * x + sin * y, cos * y - sin * x


def _colour(rgb: tuple[float, float, float], light: float = 1) -> Array:
    """A colour as (3, 1, 1), darkened or lightened."""
    channels = np.array(rgb, dtype=np.float32) * light
    return np.minimum(channels, 1)[:, None, None]


# --- Shapes: signed distance in units of half the bounding box --------------------------------


def _circle(x: Array, y: Array) -> Array:
    return np.sqrt(x * x + y * y) - 1


def _square(x: Array, y: Array) -> Array:
    return np.maximum(np.abs(x), np.abs(y)) - 0.9


def _triangle(x: Array, y: Array) -> Array:
    """An isosceles triangle on its base: apex (0, -1), base from (-1, 0.8) to (1, 0.8)."""
    length = math.sqrt(1.8**2 + 1)
    slant = (1.8 * np.abs(x) - (y + 1)) / length
    return np.maximum(slant, y - 0.8)


def _star(x: Array, y: Array) -> Array:
    """A five-pointed star."""
    # Its symmetry axes, 36 degrees from the upper point, fold it twice onto one edge.
    x = np.abs(x)
    y = 0.1 - y  # from here on, y points up
    for _ in range(2):
        beyond = np.maximum(_COS36 * x - _SIN36 * y, 0)
        x = np.abs(x - 2 * _COS36 * beyond)
        y = y + 2 * _SIN36 * beyond

    # The edge leads from the upper point (0, 1) to the inner corner between two points, which is
    # half way to the centre.
    inner_x = 0.5 * _SIN36
    inner_y = 0.5 * _COS36
    length = math.sqrt((1 - inner_y) ** 2 + inner_x**2)
    return ((1 - inner_y) * x + inner_x * (y - 1)) / length


def _heart(x: Array, y: Array) -> Array:
    """A square on its corner, with a disc on each upper side. Clutter only: no caption names it."""
    # Larger coordinates make it smaller: without that it would not fit the bounding box.
    x = np.abs(x) * 1.2
    y = (y + 0.16) * 1.2
    square = (x + np.abs(y) - 1) / math.sqrt(2)
    disc = np.sqrt((x - 0.5) ** 2 + (y + 0.5) ** 2) - math.sqrt(0.5)
    return np.minimum(square, disc) / 1.2


OUTLINES: dict[str, Outline] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
}


def _distance(
    centre: Point, size: float, tilt: float, outline: Outline
) -> tuple[Part, Array, Array]:
    """A shape's part of the canvas, and in pixels its coordinates and its signed distance (h, w).

    The coordinates are x and y, tilted with the shape: (2, h, w).
    """
    half = size / 2
    # With room for the corners of a tilted shape and for its soft shadow.
    part, x, y = _window(centre, half * 1.25 + 4)
    axes = np.stack(_turned(x, y, tilt))
    return part, axes, outline(*(axes / half)) * half


# --- Named objects ----------------------------------------------------------------------------


def named_object(
    canvas: Canvas, random: RandomState, number: int, centre: Point, size: float, kind: Kind
) -> None:
    """Paint a named object, `size` pixels across.

    It has a soft shadow, a darker outline and its texture in white.
    """
    outline = OUTLINES[kind.shape]
    light = random.uniform(0.94, 1.06)
    tilt = random.uniform(-0.16, 0.16)
    turn = between(random, 0, 3)  # for plain objects, too, so that texture changes nothing else
    base = _colour(RGB[kind.colour], light)

    # The shadow lies on what is behind and does not hide it: its pixels keep their owner.
    below = (centre[0] + 3, centre[1] + 4)
    part, _, distance = _distance(below, size, tilt, outline)
    opacity = 0.22 * _coverage(distance / 5)
    canvas.blend(part, _colour((0, 0, 0)), opacity, None)

    part, (x, y), distance = _distance(centre, size, tilt, outline)
    paint = base * (1 - y * (0.1 / size))  # slightly brighter at the top
    if kind.texture != "plain":
        whiteness = _texture(kind.texture, x, y, size, turn)
        paint += whiteness * (_colour(WHITE) - paint)
    rim = np.clip(distance + (OUTLINE + 0.5), 0, 1)
    paint += rim * (base * 0.6 - paint)
    canvas.blend(part, paint, _coverage(distance), number)


def _texture(texture: str, x: Array, y: Array, size: float, turn: int) -> Array:
    """The whiteness of each pixel, 0..1.

    Stripes in one of four directions, or dots on a square grid, upright or on its corner.
    """
    period = 7 + size / 9  # 12 pixels in a small object, 16 in a big one
    falling = (x + y) * _HALF_ROOT
    rising = (x - y) * _HALF_ROOT

    # Distances from the middle of the nearest stripe or dot, in periods.
    if texture == "striped":
        direction = (x, y, falling, rising)[turn]
        from_middle = np.abs((direction / period) % 1 - 0.5)
        return _coverage((from_middle - 0.24) * period)

    axes = (falling, rising) if turn % 2 else (x, y)
    across, down = ((axis / period + 0.5) % 1 - 0.5 for axis in axes)
    from_middle = np.sqrt(across * across + down * down)
    return _coverage((from_middle - 0.29) * period)


# --- Clutter: never named; the pixels that it covers no longer belong to an object ------------


def grey_shape(canvas: Canvas, random: RandomState, centre: Point, size: float) -> None:
    """A grey shape, `size` pixels across."""
    outline = OUTLINES[pick(random, tuple(OUTLINES))]
    tilt = random.uniform(-0.8, 0.8)
    grey = _colour((1, 0.99, 0.97), random.uniform(0.35, 0.8))

    part, _, distance = _distance(centre, size, tilt, outline)
    rim = np.clip(distance + 2, 0, 1)
    paint = grey * (1 - 0.25 * rim)
    canvas.blend(part, paint, _coverage(distance))


def twig(canvas: Canvas, random: RandomState, centre: Point) -> None:
    """A thin brown line, 30 to 110 pixels long."""
    half_length = random.uniform(15, 55)
    half_width = random.uniform(1.0, 2.2)
    angle = random.uniform(0, math.pi)
    brown = _colour((0.42, 0.33, 0.25), random.uniform(0.7, 1.3))

    part, x, y = _window(centre, half_length + 4)
    along, across = _turned(x, y, angle)
    # Zero beside the line, so that the distance is the one across; its ends are round.
    beyond = np.maximum(np.abs(along) - half_length, 0)
    distance = np.sqrt(beyond * beyond + across * across)
    cover = np.clip((half_width + 0.5) - distance, 0, 1)
    canvas.blend(part, brown, cover)


def speck(canvas: Canvas, random: RandomState, centre: Point) -> None:
    """A dot of any colour, at most 6 pixels across and therefore too small to be named."""
    colour = _colour(pick(random, tuple(RGB.values())))
    radius = random.uniform(1.2, 3)
    part, x, y = _window(centre, radius + 1)
    distance = np.sqrt(x * x + y * y)
    cover = np.clip((radius + 0.5) - distance, 0, 1)
    canvas.blend(part, colour, cover)


# --- Backgrounds: pale or dark, never saturated -----------------------------------------------


def background(random: RandomState) -> Array:
    """One of five backgrounds in two muted colours, with fine grain: (3, 224, 224)."""
    dark = random.random_sample() < 0.15
    value = random.uniform(0.28, 0.42) if dark else random.uniform(0.78, 0.97)
    hue = random.random_sample()
    hue_step = random.uniform(0, 0.3)
    saturation = random.uniform(0.03, 0.2)
    one = _colour(colorsys.hsv_to_rgb(hue, saturation, value))

    # The second colour is always darker, so that the pattern shows even if the hues are alike.
    saturation = random.uniform(0.03, 0.2)
    value -= random.uniform(0.05, 0.14)
    two = _colour(colorsys.hsv_to_rgb((hue + hue_step) % 1, saturation, value))

    pattern = pick(random, (_gradient, _mist, _horizon, _tiles, _hills))
    mix = pattern(random)  # 0..1, the share of the second colour

    # From bytes, because those are the same on every platform, and fast.
    noise = np.frombuffer(random.bytes(SIDE * SIDE), dtype=np.uint8)
    grain = noise.reshape(SIDE, SIDE).astype(np.float32) - 127.5
    strength = random.uniform(0.01, 0.06) / 255
    return one + mix * (two - one) + grain * strength


def _gradient(random: RandomState) -> Array:
    """A linear gradient from one colour to the other in a random direction."""
    across = random.uniform(-1, 1)
    down = random.uniform(-1, 1)
    # The values at the corners, so that the gradient goes from 0 to 1 whatever its direction.
    low = min(across, 0) + min(down, 0)
    high = max(across, 0) + max(down, 0)
    value = across * _ACROSS + down * _DOWN  # (224, 224)
    return (value - low) / (high - low + 1e-6)


def _mist(random: RandomState) -> Array:
    """Smooth clouds: a coarse random grid, interpolated."""
    cells = between(random, 3, 8)
    grid = random.random_sample((cells + 1, cells + 1)).astype(np.float32)

    at = _STEPS * cells
    low = at.astype(np.int64)
    part = at - low.astype(np.float32)
    # "Smoothstep": level at both ends, so that no edges show between the cells.
    part = part * part * (3 - 2 * part)

    upper = grid[low]
    lower = grid[low + 1]
    rows = upper + part[:, None] * (lower - upper)  # (224, cells + 1)
    left = rows[:, low]
    right = rows[:, low + 1]
    return left + part * (right - left)  # (224, 224)


def _horizon(random: RandomState) -> Array:
    """A sky that changes towards a straight horizon, and the ground below it: (224, 1)."""
    line = random.uniform(0.4, 0.8)
    sky = _DOWN * (0.35 / line)
    ground = _coverage((line - _DOWN) * SIDE)
    return sky + ground * (1 - sky)


def _tiles(random: RandomState) -> Array:
    """A chequerboard."""
    count = random.uniform(3, 9)
    right = random.random_sample()
    down = random.random_sample()
    odd_column = (_ACROSS * count + right) % 2 < 1
    odd_row = (_DOWN * count + down) % 2 < 1
    return (odd_column ^ odd_row).astype(np.float32) * 0.7


def _hills(random: RandomState) -> Array:
    """Two parabolic hills, one in front of the other."""
    mix = 0.3 * _DOWN
    for depth in (0.6, 1.0):
        top = random.uniform(0.35 + depth / 4, 0.85)
        middle = random.random_sample()
        steepness = random.uniform(0.2, 1.2)
        skyline = top + steepness * (_ACROSS - middle) ** 2
        hill = _coverage((skyline - _DOWN) * SIDE)
        mix = mix + hill * (depth - mix)
    return mix
