"""Photographs as an encoder takes them: RGB, upright, square (section 5.4)."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from satlib.configs import VIEWS
from satlib.errors import SatlibError

SIZE = 224  # pixels, the side of the square that an encoder takes
_MARGIN = 256 / 224  # "crop" scales the shortest side to this much of the square before it cuts
# Beyond this ratio of the sides only the middle of a photograph is enlarged: the crop would drop the rest anyway.
_LONGEST = 4


def open_photo(path: Path | str) -> Image.Image:
    """Read an image file as 8-bit RGB, turned upright by its EXIF orientation, transparency laid on white.

    Raises:
        SatlibError: the file is missing, a folder, empty, not an image, cut short or damaged, or of more pixels than
            Pillow's limit against decompression bombs (`Image.MAX_IMAGE_PIXELS`).
    """
    return _opened(Path(path), str(path))


def decode(content: bytes, name: str) -> Image.Image:
    """The content of an image file as `open_photo` gives it; `name` is what errors call it.

    Raises:
        SatlibError: as `open_photo`.
    """
    return _opened(content, name)


def _opened(file: Path | bytes, name: str) -> Image.Image:
    try:
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        if size == 0:
            raise SatlibError(f"{name} is empty (0 bytes); copy the image again or take it out of the set")
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as photo:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and photo.width * photo.height > limit:
                raise Image.DecompressionBombError
            return to_rgb(photo)
    except SatlibError:
        raise
    except FileNotFoundError as error:
        raise SatlibError(f"the image {name} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise SatlibError(f"{name} is a folder, not an image; name a file in it") from error
    except UnidentifiedImageError as error:
        raise SatlibError(f"{name} is not an image that can be read; convert it to JPEG or PNG") from error
    except Image.DecompressionBombError as error:
        raise SatlibError(f"{name} unpacks to more than {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller") from error
    except Exception as error:  # Pillow's decoders raise a dozen types on damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SatlibError(
            f"{name} is cut short or damaged ({reason}); copy the image again or take it out of the set"
        ) from error


def to_rgb(photo: Image.Image) -> Image.Image:
    """Any Pillow image as 8-bit RGB, upright, on white; its pixels in memory.

    16-bit grey is scaled by 1/257 (65535 becomes 255), never clipped. Modes without a nominal white (32-bit integers,
    floats) are stretched from their least to their greatest value.
    """
    photo.load()
    photo = _upright(photo)
    if photo.mode.startswith("I") or photo.mode == "F":
        photo = _eight_bits(photo)
    if photo.has_transparency_data:
        photo = photo.convert("RGBA")
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    return photo if photo.mode == "RGB" else photo.convert("RGB")


def _upright(photo: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(photo)
    except Exception:  # damaged EXIF, of any kind, says nothing about orientation; the pixels are whole
        return photo


def _eight_bits(photo: Image.Image) -> Image.Image:
    values = np.asarray(photo).astype(np.float64)
    if photo.mode.startswith("I;16"):
        low, high = 0.0, 65535.0
    else:
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    scaled = np.nan_to_num((values - low) / max(high - low, 1e-12) * 255, nan=0.0, posinf=255.0, neginf=0.0)
    return Image.fromarray(np.rint(scaled).astype(np.uint8))


def square(photo: Image.Image, view: str = "whole", size: int = SIZE) -> Image.Image:
    """The square of size x size pixels that an encoder sees of a photograph.

    Args:
        photo: an RGB image.
        view: "whole": all of the photograph, squeezed to the square with a Hamming filter; "crop": the shortest side is scaled
            to 8/7 of `size` with a bilinear filter and the middle is cut out (256 and 224 pixels: the paper's). Both filters
            are antialiased; the Hamming filter keeps more of the fine detail.
        size: of the square's side, in pixels.

    A photograph of exactly size x size comes back untouched.

    Raises:
        SatlibError: no view is called that.
    """
    _check(view)
    if photo.size == (size, size):
        return photo
    if view == "whole":
        return photo.resize((size, size), Image.Resampling.HAMMING)
    width, height = photo.size
    short = min(width, height)
    if max(width, height) > _LONGEST * short:
        photo = centre(photo, min(width, _LONGEST * short), min(height, _LONGEST * short))
    photo = photo.resize(with_shortest(photo.size, round(_MARGIN * size)), Image.Resampling.BILINEAR)
    return centre(photo, size, size)


def seen_box(photo: tuple[int, int], view: str = "whole", size: int = SIZE) -> tuple[float, float, float, float]:
    """The part of a photograph of (width, height) that `square` shows: (left, top, right, bottom) in the photograph's pixels.

    Raises:
        SatlibError: no view is called that.
    """
    _check(view)
    if view == "whole" or photo == (size, size):
        return 0.0, 0.0, float(photo[0]), float(photo[1])
    edges = []
    for side in photo:
        kept = min(side, _LONGEST * min(photo))  # of this side, about its middle
        scaled = with_shortest((kept, min(photo)), round(_MARGIN * size))[0]
        left = round((side - kept) / 2) + round((scaled - size) / 2) * kept / scaled
        edges.append((left, left + size * kept / scaled))
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


def _check(view: str) -> None:
    if view not in VIEWS:
        raise SatlibError(f"no view of a photograph is called {view!r}; choose among {', '.join(VIEWS)}")


def with_shortest(sides: tuple[int, int], shortest: int) -> tuple[int, int]:
    """Both sides of a photograph, in their proportion, when the shorter one has so many pixels."""
    return shortest * sides[0] // min(sides), shortest * sides[1] // min(sides)


def centre(photo: Image.Image, width: int, height: int) -> Image.Image:
    """The middle of a photograph."""
    left, top = round((photo.width - width) / 2), round((photo.height - height) / 2)
    return photo.crop((left, top, left + width, top + height))


def to_tensor(photo: Image.Image) -> Tensor:
    """An RGB image -> uint8 (3, H, W); (3, 224, 224) after `square`."""
    pixels = np.array(photo if photo.mode == "RGB" else to_rgb(photo))  # (H, W, 3), a copy that torch may own
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
