"""Preparing photographs for an encoder: RGB, upright, square (section 5.4)."""

import contextlib
import math
import re
import threading
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps, PngImagePlugin, UnidentifiedImageError
from torch import Tensor

from satlib.errors import SatlibError
from satlib.files import note

# Only the extra "heic" installs it.
with contextlib.suppress(ImportError):
    import pillow_heif

    pillow_heif.register_heif_opener()

# Images of 20,000 x 20,000 pixels and more, whose values alone take a gigabyte, are not read: Pillow
# refuses twice this number. Of half as many it warns, with a path into its own folder.
Image.MAX_IMAGE_PIXELS = 20_000**2 // 2 - 1
warnings.simplefilter("ignore", Image.DecompressionBombWarning)

# ComfyUI and others write whole workflows into their pictures: megabytes of text.
PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY  # pyrefly: ignore[bad-assignment]

SIZE = 224  # pixels, the side of the square input of an encoder

# A JPEG whose sides are twice this long, in pixels, is decoded at half its size or less: faster,
# and still far larger than the square.
_DRAFT = 4 * SIZE

# A photograph of more pixels, from a satellite or a microscope, takes a gigabyte while it is decoded.
# One is decoded at a time, whatever the number of threads, and then scaled down to about `_ENOUGH`.
_LARGE = 50_000_000
_ENOUGH = (2 * _DRAFT) ** 2
_one_large_photograph = threading.Lock()

# Pixels to which `square` with "crop" scales the shorter side, before it crops the square.
_SHORTER_SIDE = 256

# How files and folders begin that no person put there: thumbnails, a Mac's other half of each file
# ("._1.jpg" is no photograph), a network disk's thumbnails, Windows' deleted files.
_HIDDEN = (".", "__MACOSX", "@eaDir", "$RECYCLE.BIN")

Box = tuple[float, float, float, float]  # left, top, right, bottom
Given = Path | str | Image.Image


# --- Reading ----------------------------------------------------------------------------------


def files_in(folder: Path) -> list[Path]:
    """The image files in a folder and its subfolders, by their extensions, in order.

    Hidden files and folders, such as thumbnails, are left out; links to folders, too, which may lead
    round in a circle, or to a whole disk: that is said.
    """
    extensions = Image.registered_extensions()
    found = []
    links = []
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).parts
        if any(map(_is_hidden, inside)):
            continue
        if file.is_symlink() and file.is_dir():
            links.append(file)
        elif file.suffix.lower() in extensions:
            found.append(file)
    if links:
        note(f"{folder}: links to folders are not followed ({links[0].name}); copy or name these")
    return [file for file in found if not file.is_dir()]


def _is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN)


def photo_of(given: Given) -> Image.Image:
    """A photograph as `to_rgb` gives it, from a path or a Pillow image."""
    if isinstance(given, Path | str):
        return open_photo(given)
    # `to_rgb` empties `info`: an image without any has nothing left to convert.
    if given.mode == "RGB" and not given.info:
        return given
    return to_rgb(given)


def open_photo(file: Path | str | BinaryIO, name: str = "") -> Image.Image:
    """Read an image file, called `name` in messages, as `to_rgb` gives it, but never a large one whole.

    Raises:
        SatlibError: the file is missing, damaged, too large or not an image.
    """
    try:
        with Image.open(file) as photo:
            photo.draft(None, (_DRAFT, _DRAFT))
            if photo.width * photo.height <= _LARGE:
                return to_rgb(photo)
            with _one_large_photograph:
                return _scaled_down(photo)
    except FileNotFoundError as error:
        raise SatlibError(f"the image {file} does not exist; check the path") from error
    # Pillow's decoders raise many types of exceptions for damaged files.
    except Exception as error:
        raise SatlibError(f"cannot read the image {name or file}: {_why(file, error)}") from error


# How files begin that are no images, or none that Pillow reads: what they are, and what to do.
_OTHERS = {
    rb"\Z": "it is empty; copy or download it again",
    rb"\0+\Z": "it holds nothing but zeros; copy or download it again",
    rb"version https://git-lfs": "it is a Git LFS pointer; git lfs pull fetches the image",
    rb"(?is)[^<]{0,9}<(!doctype html|html|head|body|[?!].*<html)": (
        "it is an HTML page; download the image itself"
    ),
    rb"(?s).*<svg": "it is an SVG drawing; export it as PNG",
    rb"%PDF|%!PS": "it is a PDF or PostScript; export it as PNG",
    rb"(?s)PK|Rar!|7z\xbc\xaf|\x1f\x8b|BZh|\xfd7zXZ|.{257}ustar": "it is an archive; unpack it",
    rb"(?s)....ftyp(?!avi|hei|hev|mif|msf)|\x1aE\xdf\xa3": "it is a film; save a picture of it",
    rb"(?s)II[*+]\0|MM\0[*+]": (
        "it is cut off, or a TIFF of a kind that Pillow does not read, such as one of many bands; "
        "save three bands as PNG"
    ),
    rb"[\t\n\r -~]+\Z": "it is a text; download the image itself",
}
_HEIC = rb"(?s)....ftyp(hei|hev|mif|msf)"
# How images begin that Pillow reads if they are whole.
_WHOLE = rb"(?s)\xff\xd8\xff|\x89PNG|GIF8|RIFF....WEBP|BM|....ftyp"


def _why(file: Path | str | BinaryIO, error: Exception) -> str:
    """Why a file cannot be read as an image, by its first bytes, and what to do about it."""
    if isinstance(error, Image.DecompressionBombWarning | Image.DecompressionBombError):
        return "it is too large; make it smaller: 20,000 x 20,000 pixels is the limit"
    if isinstance(error, MemoryError):
        return "there is too little memory for it; make it smaller"

    try:
        if isinstance(file, Path | str):
            with open(file, "rb") as opened:
                start = opened.read(1000)
        else:
            file.seek(0)
            start = file.read(1000)
    except OSError as unopened:  # a folder, or no permission
        return f"{unopened.strerror}; check the path"

    for form, reason in _OTHERS.items():
        if re.match(form, start):
            return reason
    if re.match(_HEIC, start) and ".heic" not in Image.registered_extensions():
        return "it is HEIC, as telephones write it; pip install 'satlib[heic]' for these"
    if not re.match(_WHOLE, start):
        return "its format is not one that Pillow reads; convert it to JPEG or PNG"
    if isinstance(error, UnidentifiedImageError):
        return "it is cut off or damaged; copy or download it again"
    reason = " ".join(str(error).split())
    return f"it is cut off or damaged ({reason}); copy or download it again"


def _scaled_down(photo: Image.Image) -> Image.Image:
    """A large photograph as `to_rgb` gives it, each side divided by the same whole number."""
    # In place, and before anything else: every copy of all pixels is another gigabyte.
    photo.load()
    with contextlib.suppress(Exception):
        ImageOps.exif_transpose(photo, in_place=True)
    # Pillow does not average palettes and 16 bits.
    if photo.mode in ("1", "P") or photo.mode.startswith("I;16"):
        photo = to_rgb(photo)
    return to_rgb(photo.reduce(math.isqrt(photo.width * photo.height // _ENOUGH)))


def to_rgb(photo: Image.Image) -> Image.Image:
    """Any Pillow image as 8-bit RGB, upright by its EXIF orientation, on white where transparent.

    Its pixels are in memory. 16-bit grey is scaled by 1/257 (65535 becomes 255), never clipped; if
    nothing in it is above 4095, it is taken for a camera's 12 bits, and 4095 becomes 255. Modes
    without a nominal white (32-bit integers, floats) are scaled so that their minimum becomes 0 and
    their maximum 255.
    """
    photo.load()
    # Damaged EXIF has no usable orientation, but the pixels are intact.
    with contextlib.suppress(Exception):
        photo = ImageOps.exif_transpose(photo)

    if photo.mode.startswith("I") or photo.mode == "F":
        photo = _to_8_bits(photo)

    if photo.has_transparency_data:
        photo = photo.convert("RGBA")
        background = Image.new("RGBA", photo.size, "white")
        photo = Image.alpha_composite(background, photo)

    if photo.mode != "RGB":
        photo = photo.convert("RGB")
    # EXIF and transparency are used up. `photo_of` tells by this that nothing is left to convert.
    photo.info = {}
    return photo


def _to_8_bits(photo: Image.Image) -> Image.Image:
    """An image of integers or floats as 8-bit grey."""
    values = np.asarray(photo).astype(np.float64)
    if photo.mode.startswith("I;16"):
        twelve_bits = values.max() < 4096
        low, high = 0.0, 4095.0 if twelve_bits else 65535.0
    else:
        low, high = values.min(), values.max()
    # An image of a single value becomes black, not a division by zero.
    levels = np.rint((values - low) / max(high - low, 1e-12) * 255)
    return Image.fromarray(levels.astype(np.uint8))


# --- The square that the encoder sees ---------------------------------------------------------


def square(photo: Image.Image, view: str = "whole") -> Image.Image:
    """The square of 224 x 224 pixels that the encoder sees.

    The view "whole", that of all models, squeezes the whole photograph into the square with a
    Hamming filter. "crop" shows what the paper's encoder saw: it scales the shorter side to 256
    pixels with a bilinear filter and crops the centre. A photograph of exactly 224 x 224 pixels is
    returned unchanged.
    """
    if photo.size == (SIZE, SIZE):
        return photo
    if view == "whole":
        return photo.resize((SIZE, SIZE), Image.Resampling.HAMMING)

    # Slow to import, and only notebooks crop.
    from torchvision import transforms

    scaled = transforms.Resize(_SHORTER_SIDE)(photo)
    return transforms.CenterCrop(SIZE)(scaled)


def to_tensor(photo: Image.Image) -> Tensor:
    """An RGB image -> uint8 (3, H, W); (3, 224, 224) after `square`."""
    # A copy, which torch may write to.
    pixels = torch.from_numpy(np.array(photo))  # (H, W, 3)
    return pixels.permute(2, 0, 1).contiguous()
