"""Preparing photographs for an encoder: RGB, upright, square (section 5.4)."""

import contextlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from satlib.errors import SatlibError

with contextlib.suppress(ImportError):  # the extra "heic"
    import pillow_heif

    pillow_heif.register_heif_opener()

SIZE = 224  # pixels, the side of the square input of an encoder
_DRAFT = 4 * SIZE  # pixels; a JPEG whose sides are twice that is decoded at half its size or less
_SHORTEST = (
    256  # pixels, to which the view "crop" scales the shorter side before it crops the square
)
Box = tuple[float, float, float, float]  # left, top, right, bottom
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)  # all of a photograph, as fractions of its sides
Given = Path | str | Image.Image


def files_in(folder: Path) -> list[Path]:
    """The image files below a folder, by their endings, in order."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in Image.registered_extensions()
    ]


def photo_of(given: Given) -> Image.Image:
    """A photograph as `to_rgb` gives it, from a path or a Pillow image."""
    if isinstance(given, Path | str):
        return open_photo(given)
    return given if given.mode == "RGB" and not given.info else to_rgb(given)


def open_photo(file: Path | str | BinaryIO, name: str = "") -> Image.Image:
    """Read an image file, called `name` in messages, as `to_rgb` gives it; one that is missing or damaged is refused."""
    try:
        with Image.open(file) as photo:
            photo.draft(None, (_DRAFT, _DRAFT))
            return to_rgb(photo)
    except FileNotFoundError as error:
        raise SatlibError(f"the image {file} does not exist; check the path") from error
    except Exception as error:  # Pillow's decoders raise many types of exceptions for damaged files
        raise SatlibError(
            f"cannot read the image {name or file}: {' '.join(str(error).split())}; convert it to JPEG or PNG (for HEIC "
            "photographs of telephones, run: pip install 'satlib[heic]')"
        ) from error


def to_rgb(photo: Image.Image) -> Image.Image:
    """Any Pillow image as 8-bit RGB, upright by its EXIF orientation, on white where it is transparent, with its pixels in memory.

    16-bit grey is scaled by 1/257 (65535 becomes 255), never clipped. Modes without a nominal white (32-bit integers, floats) are
    scaled so that their minimum becomes 0 and their maximum 255.
    """
    photo.load()
    with contextlib.suppress(
        Exception
    ):  # damaged EXIF has no usable orientation, but the pixels are intact
        photo = ImageOps.exif_transpose(photo)
    if photo.mode.startswith("I") or photo.mode == "F":
        values = np.asarray(photo).astype(np.float64)
        low, high = (
            (0.0, 65535.0) if photo.mode.startswith("I;16") else (values.min(), values.max())
        )
        photo = Image.fromarray(
            np.rint((values - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
        )
    if photo.has_transparency_data:
        photo = photo.convert("RGBA")
        photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)
    photo = photo if photo.mode == "RGB" else photo.convert("RGB")
    photo.info = {}  # EXIF and transparency are used up; by that, `photo_of` knows that nothing is left to convert
    return photo


def square(photo: Image.Image, view: str = "whole") -> Image.Image:
    """The square of 224 x 224 pixels that the encoder sees; a photograph of exactly that size is returned unchanged.

    The view "whole" squeezes the whole photograph into the square with a Hamming filter; "crop" scales the shorter side to 256
    pixels with a bilinear filter and crops the centre, as in the paper.
    """
    if photo.size == (SIZE, SIZE):
        return photo
    if view == "whole":
        return photo.resize((SIZE, SIZE), Image.Resampling.HAMMING)
    from torchvision import transforms  # slow to import

    return transforms.CenterCrop(SIZE)(transforms.Resize(_SHORTEST)(photo))


def seen_box(photo: tuple[int, int], view: str = "whole") -> Box:
    """The part of a photograph of (width, height) that `square` keeps, in pixels of the photograph."""
    if view == "whole" or photo == (SIZE, SIZE):
        return 0.0, 0.0, float(photo[0]), float(photo[1])
    scaled = [_SHORTEST * side // min(photo) for side in photo]
    left, top = (
        round((length - SIZE) / 2) * side / length
        for side, length in zip(photo, scaled, strict=True)
    )
    return left, top, left + SIZE * photo[0] / scaled[0], top + SIZE * photo[1] / scaled[1]


def seen_part(photo: tuple[int, int], view: str = "whole") -> Box:
    """`seen_box` as fractions of the photograph's sides."""
    width, height = photo
    left, top, right, bottom = seen_box(photo, view)
    return left / width, top / height, right / width, bottom / height


def in_part(box: Box, seen: Box) -> Box | None:
    """A box as fractions of a part of the photograph, clipped to it; None if none of it is there."""
    left, top, right, bottom = (
        min(max((corner - seen[axis]) / (seen[axis + 2] - seen[axis]), 0.0), 1.0)
        for corner, axis in zip(box, (0, 1, 0, 1), strict=True)
    )
    return (left, top, right, bottom) if left < right and top < bottom else None


def to_tensor(photo: Image.Image) -> Tensor:
    """An RGB image -> uint8 (3, H, W); (3, 224, 224) after `square`."""
    return (
        torch.from_numpy(np.array(photo)).permute(2, 0, 1).contiguous()
    )  # of a copy, which torch may write to
