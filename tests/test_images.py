"""Photographs of every kind, held against pixels worked out by hand."""

import io
import struct
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from torchvision import transforms

from satlib.data import images
from satlib.data.images import open_photo, photo_of, square, to_tensor
from satlib.files import read_ahead


def pixels(path):
    photo = open_photo(path)
    assert photo.mode == "RGB"
    return np.asarray(photo).tolist()


def chunk(kind, data):
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def png(path, width, height, depth, colour, rows, extra=b""):
    """A PNG written byte by byte, so that the test does not lean on Pillow's own writer."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    # The first byte of a row says how it is filtered: not at all.
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    chunks = [chunk(b"IHDR", header), extra, chunk(b"IDAT", data), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


RED = [255, 0, 0]
GREEN = [0, 255, 0]
BLUE = [0, 0, 255]
WHITE = [255, 255, 255]
BLACK = [0, 0, 0]
PALETTE = chunk(b"PLTE", bytes([*RED, *BLUE, *GREEN]))


# (width, height, bits, kind of colour), the bytes of the row, further chunks, the pixels.
@pytest.mark.parametrize(
    ("header", "row", "extra", "expected"),
    [
        pytest.param(
            (3, 1, 1, 0),
            bytes([0b10100000]),
            b"",
            [WHITE, BLACK, WHITE],
            id="one bit",
        ),
        # Scaled by 1/257, not clipped.
        pytest.param(
            (5, 1, 16, 0),
            struct.pack(">5H", 0, 257, 300, 25700, 65535),
            b"",
            [BLACK, [1] * 3, [1] * 3, [100] * 3, WHITE],
            id="16 bits",
        ),
        pytest.param(
            (3, 1, 16, 0),
            struct.pack(">3H", 0, 1606, 4095),
            b"",
            [BLACK, [100] * 3, WHITE],
            id="a camera's 12 bits in 16",
        ),
        # On white: 51/255 = 0.2, and 0.2 * (0, 100, 255) + 0.8 * 255.
        pytest.param(
            (3, 1, 8, 6),
            bytes([10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 255, 51]),
            b"",
            [[10, 20, 30], WHITE, [204, 224, 255]],
            id="alpha",
        ),
        pytest.param(
            (2, 1, 8, 3),
            bytes([1, 0]),
            PALETTE,
            [BLUE, RED],
            id="palette",
        ),
        # The second entry of the palette is transparent.
        pytest.param(
            (3, 1, 8, 3),
            bytes([0, 1, 2]),
            PALETTE + chunk(b"tRNS", bytes([255, 0])),
            [RED, WHITE, GREEN],
            id="transparent palette",
        ),
        # What has exactly this colour is transparent.
        pytest.param(
            (2, 1, 8, 2),
            bytes([9, 9, 9, 1, 2, 3]),
            chunk(b"tRNS", struct.pack(">HHH", 9, 9, 9)),
            [WHITE, [1, 2, 3]],
            id="transparent colour",
        ),
        pytest.param(
            (1, 1, 8, 0),
            bytes([7]),
            chunk(b"eXIf", b"garbage that is no TIFF header"),
            [[7] * 3],
            id="damaged EXIF",
        ),
    ],
)
def test_each_kind_of_png(tmp_path, header, row, extra, expected):
    png(tmp_path / "photo.png", *header, [row], extra)
    assert pixels(tmp_path / "photo.png") == [expected]


def test_a_tiff_of_floating_point_numbers(tmp_path):
    values = np.array([[-1.0, 0.0, 1.0]], dtype=np.float32)
    Image.fromarray(values).save(tmp_path / "deep.tif")
    # 127.5 rounds to the even 128.
    assert pixels(tmp_path / "deep.tif") == [[BLACK, [128] * 3, WHITE]]


# What the file holds, to what should be seen (EXIF 2.3, tag 274), for the picture  A B  /  C D.
A, B, C, D = RED, GREEN, BLUE, WHITE
ORIENTATIONS = {
    1: [[A, B], [C, D]],
    2: [[B, A], [D, C]],
    3: [[D, C], [B, A]],
    4: [[C, D], [A, B]],
    5: [[A, C], [B, D]],
    6: [[C, A], [D, B]],
    7: [[D, B], [C, A]],
    8: [[B, D], [A, C]],
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_exif_orientation(tmp_path, orientation):
    file = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[274] = orientation
    stored = Image.fromarray(np.array([[A, B], [C, D]], dtype=np.uint8))
    stored.save(file, exif=exif)

    assert pixels(file) == ORIENTATIONS[orientation]
    photo = photo_of(Image.open(file))
    assert np.asarray(photo).tolist() == ORIENTATIONS[orientation]
    # A photograph becomes RGB once.
    assert photo_of(photo) is photo


def whole(kind):
    content = io.BytesIO()
    Image.effect_noise((400, 400), 50).save(content, kind)
    return content.getvalue()


HTML = "it is an HTML page; download the image itself"
CUT = "it is cut off or damaged"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (bytes(5000), "nothing but zeros"),
        (b"<html>404</html>", HTML),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><p>Sign in <svg></svg>", HTML),
        (b"<!-- saved --><html>", HTML),
        (b"404: Not Found\n", "it is a text; download the image itself"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'>", "it is an SVG drawing"),
        (b"PK\x03\x04" + bytes(99), "it is an archive; unpack it"),
        (b"a.jpg".ljust(257, b"\0") + b"ustar", "it is an archive; unpack it"),
        (b"\0\0\0\x20ftypisom" + bytes(99), "it is a film"),
        (b"%PDF-1.7", "it is a PDF"),
        (b"II*\0" + bytes(99), "save three bands as PNG"),
        (b"\0\0\0\x0cJXL \r\n", "convert it to JPEG or PNG"),
        (whole("JPEG")[:-9000], CUT),
        (whole("JPEG")[:200], CUT),
        (whole("PNG")[:3000], CUT),
        (whole("WEBP")[:2000], CUT),
    ],
)
def test_what_an_unreadable_file_is(tmp_path, content, reason):
    file = tmp_path / "a.jpg"
    file.write_bytes(content)
    message = refused(lambda: open_photo(file), str(file), reason)
    # Only where that helps.
    assert ("convert" in message) == reason.startswith("convert")
    # What a data set of the Hub has, too.
    refused(lambda: open_photo(io.BytesIO(content), "row 5"), "the image row 5", reason)


def test_heic_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "registered_extensions", dict)
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x24ftypheic" + bytes(99))
    refused(lambda: open_photo(tmp_path / "a.jpg"), "it is HEIC", "pip install 'satlib[heic]'")


def test_missing_files_and_folders_are_named(tmp_path):
    refused(lambda: open_photo(tmp_path / "none.jpg"), "none.jpg does not exist")
    (tmp_path / "folder.jpg").mkdir()
    refused(lambda: open_photo(tmp_path / "folder.jpg"), "folder.jpg", "directory")


def test_pixels_without_end_are_refused_and_text_without_end_is_read(tmp_path):
    """As ComfyUI writes it: 3 MB of text in a picture."""
    text = chunk(b"tEXt", b"workflow\0" + b"x" * 3_000_000)
    packed = chunk(b"zTXt", b"prompt\0\0" + zlib.compress(b"y" * 3_000_000))
    png(tmp_path / "small.png", 1, 1, 8, 0, [b"\7"], text + packed)
    assert pixels(tmp_path / "small.png") == [[[7] * 3]]

    png(tmp_path / "large.png", 20_000, 20_000, 8, 0, [])
    refused(
        lambda: open_photo(tmp_path / "large.png"), "make it smaller: 20,000 x 20,000 pixels is"
    )
    # Pillow itself would warn of smaller ones, with a path into its own folder.
    png(tmp_path / "less.png", 20_000, 19_999, 8, 0, [])
    code = "import sys; from satlib.data.images import Image; Image.open(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path / "less.png"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_large_jpeg_is_decoded_at_half_its_size_and_looks_the_same(tmp_path):
    file = tmp_path / "large.jpg"
    noise((900, 700)).resize((3600, 2800)).save(file)
    small = open_photo(file)
    assert small.size == (1800, 1400)

    # Pillow's own decoding of all pixels; as float, because differences of uint8 wrap around.
    whole = np.asarray(square(Image.open(file)), float)
    assert np.abs(np.asarray(square(small)) - whole).max() <= 3


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "I;16"])
def test_one_large_photograph_at_a_time_is_scaled_down_and_looks_the_same(
    tmp_path, monkeypatch, mode
):
    """Upright, by the mean of each square of pixels."""
    file = tmp_path / "large.png"
    photo = noise((60, 40)).resize((1200, 900))
    if mode == "I;16":
        photo = Image.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    photo.convert(mode).save(file, exif=exif)
    whole = open_photo(file)
    assert whole.size == (900, 1200)

    monkeypatch.setattr(images, "_LARGE", 900_000)
    monkeypatch.setattr(images, "_ENOUGH", 100_000)
    decoding = []
    to_rgb = images.to_rgb

    def watched(photo):
        decoding.append(photo)
        assert len(decoding) == 1
        time.sleep(0.01)  # long enough for another thread to come
        decoding.pop()
        return to_rgb(photo)

    monkeypatch.setattr(images, "to_rgb", watched)
    for small in read_ahead(open_photo, [file] * 4, threads=4):
        assert small.size == (300, 400)
        difference = np.asarray(square(small), float) - np.asarray(square(whole), float)
        assert np.abs(difference).max() <= 8  # a palette has grain


# --- square and to_tensor -------------------------------------------------------------------------


# Wide, tall, almost square, smaller than the encoder's square, and very wide.
SIZES = [
    (500, 375),
    (375, 500),
    (257, 256),
    (100, 80),
    (900, 226),
]


def noise(size):
    width, height = size
    random = np.random.RandomState(0)
    return Image.fromarray(random.randint(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", SIZES)
def test_the_crop_is_torchvisions_resize_and_centre_crop(size):
    photo = noise(size)
    reference = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    expected = np.asarray(reference(photo))
    assert np.array_equal(np.asarray(square(photo, "crop")), expected)


def hamming_weights(side, out=224):
    """A row for each pixel of the output: what it takes of each pixel of the input.

    A windowed sinc, as wide as a pixel of the output, so that what is too fine is averaged.
    """
    scale = max(side / out, 1)
    centres = (np.arange(out)[:, None] + 0.5) * side / out
    x = (np.arange(side)[None, :] + 0.5 - centres) / scale
    window = 0.54 + 0.46 * np.cos(np.pi * x)
    weights = np.where(abs(x) < 1, np.sinc(x) * window, 0)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_is_a_hamming_filter_in_both_directions(size):
    photo = noise(size)
    across = hamming_weights(photo.width)
    down = hamming_weights(photo.height)
    pixels = np.asarray(photo).astype(float)
    expected = np.einsum("yr,rcd,xc->yxd", down, pixels, across, optimize=True)
    # Pillow rounds to whole levels twice, after each direction.
    assert abs(np.asarray(square(photo, "whole")) - expected).max() <= 1.6


def test_to_tensor():
    levels = np.arange(2 * 3 * 3, dtype=np.uint8)
    tensor = to_tensor(Image.fromarray(levels.reshape(2, 3, 3)))
    assert tensor.dtype == torch.uint8
    # (colour, row, column): in the picture, the three colours of a pixel are neighbours.
    assert tensor.tolist() == [
        [[0, 3, 6], [9, 12, 15]],
        [[1, 4, 7], [10, 13, 16]],
        [[2, 5, 8], [11, 14, 17]],
    ]
