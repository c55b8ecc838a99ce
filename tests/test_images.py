"""Photographs of every kind, held against pixels worked out by hand."""

import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms

from satlib.data.images import in_part, open_photo, photo_of, seen_box, square, to_tensor
from satlib.errors import SatlibError


def pixels(path):
    photo = open_photo(path)
    assert photo.mode == "RGB"
    return np.asarray(photo).tolist()


def png(path, width, height, depth, colour, rows, extra=b""):
    """A PNG written byte by byte, so that the test does not lean on Pillow's own writer."""

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


RGBA = bytes(
    [10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 255, 51]
)  # 51/255 = 0.2: 0.2 * (0, 100, 255) + 0.8 * 255
PALETTE = chunk(b"PLTE", bytes([255, 0, 0, 0, 0, 255, 0, 255, 0]))


@pytest.mark.parametrize(
    ("header", "row", "extra", "expected"),
    [
        ((3, 1, 1, 0), bytes([0b10100000]), b"", [[255] * 3, [0] * 3, [255] * 3]),
        # scaled by 1/257, not clipped
        ((5, 1, 16, 0), struct.pack(">5H", 0, 257, 300, 25700, 65535), b"", [[0] * 3, [1] * 3, [1] * 3, [100] * 3, [255] * 3]),
        ((3, 1, 8, 6), RGBA, b"", [[10, 20, 30], [255, 255, 255], [204, 224, 255]]),
        ((2, 1, 8, 3), bytes([1, 0]), PALETTE, [[0, 0, 255], [255, 0, 0]]),
        ((3, 1, 8, 3), bytes([0, 1, 2]), PALETTE + chunk(b"tRNS", bytes([255, 0])), [[255, 0, 0], [255] * 3, [0, 255, 0]]),
        ((2, 1, 8, 2), bytes([9, 9, 9, 1, 2, 3]), chunk(b"tRNS", struct.pack(">HHH", 9, 9, 9)), [[255] * 3, [1, 2, 3]]),
        ((1, 1, 8, 0), bytes([7]), chunk(b"eXIf", b"garbage that is no TIFF header"), [[7] * 3]),
    ],
    ids=["one bit", "16 bits", "alpha", "palette", "transparent palette", "transparent colour", "damaged EXIF"],
)  # fmt: skip
def test_each_kind_of_png(tmp_path, header, row, extra, expected):
    png(tmp_path / "photo.png", *header, [row], extra)
    assert pixels(tmp_path / "photo.png") == [expected]


def test_a_tiff_of_floating_point_numbers(tmp_path):
    Image.fromarray(np.array([[-1.0, 0.0, 1.0]], dtype=np.float32)).save(tmp_path / "deep.tif")
    assert pixels(tmp_path / "deep.tif") == [
        [[0] * 3, [128] * 3, [255] * 3]
    ]  # 127.5 rounds to the even 128


# What the file holds, to what should be seen (EXIF 2.3, tag 274), for the picture  A B  /  C D.
A, B, C, D = [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]
ORIENTATIONS = {
    1: [[A, B], [C, D]], 2: [[B, A], [D, C]], 3: [[D, C], [B, A]], 4: [[C, D], [A, B]], 5: [[A, C], [B, D]],
    6: [[C, A], [D, B]], 7: [[D, B], [C, A]], 8: [[B, D], [A, C]],
}  # fmt: skip


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_exif_orientation(tmp_path, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    stored = Image.fromarray(np.array([[A, B], [C, D]], dtype=np.uint8))
    stored.save(tmp_path / "turned.png", exif=exif)
    assert pixels(tmp_path / "turned.png") == ORIENTATIONS[orientation]
    photo = photo_of(Image.open(tmp_path / "turned.png"))
    assert np.asarray(photo).tolist() == ORIENTATIONS[orientation]
    assert photo_of(photo) is photo  # a photograph becomes RGB once


def test_bad_files_are_named(tmp_path):
    Image.new("RGB", (40, 40)).save(tmp_path / "whole.jpg")
    whole = (tmp_path / "whole.jpg").read_bytes()
    for name, content in (("empty.jpg", b""), ("page.jpg", b"<html>"), ("cut.jpg", whole[:-400])):
        (tmp_path / name).write_bytes(content)
    for name in ("empty.jpg", "page.jpg", "cut.jpg", "none.jpg"):
        with pytest.raises(SatlibError, match=name):
            open_photo(tmp_path / name)


def test_a_large_jpeg_is_decoded_at_half_its_size_and_looks_the_same(tmp_path):
    noise((900, 700)).resize((3600, 2800)).save(tmp_path / "large.jpg")
    small, large = open_photo(tmp_path / "large.jpg"), Image.open(tmp_path / "large.jpg")
    assert small.size == (1800, 1400)
    assert np.abs(np.asarray(square(small)) - np.asarray(square(large), float)).max() <= 3


# --- square and to_tensor -------------------------------------------------------------------------


SIZES = [(500, 375), (375, 500), (257, 256), (100, 80), (900, 226)]


def noise(size):
    return Image.fromarray(
        np.random.RandomState(0).randint(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    )


@pytest.mark.parametrize("size", SIZES)
def test_the_crop_is_torchvisions_resize_and_centre_crop(size):
    photo = noise(size)
    reference = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])(photo)
    assert np.array_equal(np.asarray(square(photo, "crop")), np.asarray(reference))


def hamming_weights(side, out=224):
    """A row for each pixel of the output: what it takes of each pixel of the input (a windowed sinc, antialiased)."""
    scale = max(side / out, 1)
    centres = (np.arange(out)[:, None] + 0.5) * side / out
    x = (np.arange(side)[None, :] + 0.5 - centres) / scale
    weights = np.where(abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0)
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_is_a_hamming_filter_in_both_directions(size):
    photo = noise(size)
    across, down = hamming_weights(size[0]), hamming_weights(size[1])
    expected = np.einsum(
        "yr,rcd,xc->yxd", down, np.asarray(photo).astype(float), across, optimize=True
    )
    assert (
        abs(np.asarray(square(photo, "whole")) - expected).max() <= 1.6
    )  # rounded to whole levels twice


@given(st.integers(224, 900), st.integers(224, 900), st.sampled_from(["whole", "crop"]))
@settings(max_examples=40)
def test_the_box_is_what_the_square_shows(width, height, view):
    """Colours that say where they are: the square's corners have those of the box's corners."""
    x, y = np.meshgrid(np.linspace(0, 250, width), np.linspace(0, 250, height))
    photo = Image.fromarray(np.stack([x, y, 0 * x], axis=2).round().astype(np.uint8))
    shown = np.asarray(square(photo, view)).astype(float)
    left, top, right, bottom = seen_box(photo.size, view)
    for row, column, at_y, at_x in ((0, 0, top, left), (-1, -1, bottom, right)):
        assert shown[row, column, 0] == pytest.approx(250 * at_x / width, abs=2.5)
        assert shown[row, column, 1] == pytest.approx(250 * at_y / height, abs=2.5)


def test_a_box_in_a_part_by_hand():
    """The part begins at 0.1 and 0.2, is 0.5 wide and 0.8 high; the box begins above it."""
    assert in_part((0.2, 0.1, 0.6, 0.6), (0.1, 0.2, 0.6, 1.0)) == pytest.approx(
        (0.2, 0.0, 1.0, 0.5)
    )
    assert in_part((0.6, 0.2, 0.9, 0.9), (0.1, 0.2, 0.6, 1.0)) is None
    assert in_part((0.0, 0.5, 1.0, 1.0), (-0.5, 0.0, 1.5, 1.0)) == (0.25, 0.5, 0.75, 1.0)


def test_to_tensor():
    photo = Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3))
    tensor = to_tensor(photo)
    assert tensor.dtype == torch.uint8
    assert tensor.tolist() == [
        [[0, 3, 6], [9, 12, 15]],
        [[1, 4, 7], [10, 13, 16]],
        [[2, 5, 8], [11, 14, 17]],
    ]
