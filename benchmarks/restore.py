"""Photographs that were squeezed to 224 x 224, back in their original shape: does satlib then say what it said of the copies?

    python benchmarks/restore.py COPIES ENTITIES DEST [--split test] [--rounds 40]

COPIES is a folder `flickr8k` of squeezed photographs, ENTITIES the annotations of Flickr30k Entities (a zip, which knows every
photograph's original size), DEST a new folder `flickr8k` in the official layout. Then, with DEST's parent as --data:

    satlib features flickr8k-lite0-soft && satlib evaluate flickr8k-lite0-soft

What a squeeze has lost nobody can bring back. The photographs of the split are made such that satlib's own squeeze
(`encoder.view = "whole"`) gives the copy again: enlarged, squeezed, the difference enlarged and added, and so on for `--rounds`
rounds. With `--rounds 0`, and in the other splits, they are only enlarged (bicubic), which blurs them. Written as PNG inside
(whatever their names say), since JPEG would change them again.
"""

import argparse
import re
import shutil
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from satlib.data.images import SIZE, square

SPLITS = ("train", "dev", "test")


def sizes(entities: Path) -> dict[str, tuple[int, int]]:
    """(width, height) of each original, by the number that its file name begins with."""
    found = {}
    with zipfile.ZipFile(entities) as archive:
        for name in archive.namelist():
            if name.endswith(".xml"):
                size = re.search(rb"<width>(\d+)</width>\s*<height>(\d+)</height>", archive.read(name))
                found[Path(name).stem] = int(size[1]), int(size[2])
    return found


def restored(copy: Image.Image, size: tuple[int, int], rounds: int) -> Image.Image:
    """A photograph of a size whose squeeze is nearly the copy (exactly, but for rounding, after enough rounds)."""
    wanted = np.asarray(copy, np.float32)
    photo = resized(wanted, size)
    for _ in range(rounds):
        seen = np.stack([np.asarray(square(plane, "whole")) for plane in planes(photo)], 2)
        photo = np.clip(photo + resized(wanted - seen, size), 0, 255)
    return Image.fromarray(np.rint(photo.clip(0, 255)).astype(np.uint8))


def resized(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Pixels (H, W, 3) of any range, bicubic."""
    return np.stack([np.asarray(plane.resize(size, Image.Resampling.BICUBIC)) for plane in planes(pixels)], 2)


def planes(pixels: np.ndarray) -> list[Image.Image]:
    """The channels of (H, W, 3), each an image of floats."""
    return [Image.fromarray(np.ascontiguousarray(pixels[..., channel])) for channel in range(3)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Restore all three splits; say how near the squeezed photographs of the chosen one are to their copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copies", type=Path)
    parser.add_argument("entities", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--split", choices=SPLITS, default="test", help="restored in rounds")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(arguments)
    known, photos = sizes(options.entities), options.dest / "Flicker8k_Dataset"
    photos.mkdir(parents=True, exist_ok=True)
    shutil.copytree(options.copies / "Flickr8k_text", options.dest / "Flickr8k_text", dirs_exist_ok=True)
    levels = []
    for split in SPLITS:
        names = (options.dest / "Flickr8k_text" / f"Flickr_8k.{split}Images.txt").read_text(encoding="utf-8").split()
        for name in tqdm(names, unit="img", desc=split):
            copy = Image.open(options.copies / "Flicker8k_Dataset" / name).convert("RGB")
            chosen = split == options.split
            photo = restored(copy, known[name.split("_")[0]], options.rounds if chosen else 0)
            photo.save(photos / name, format="PNG", compress_level=1)
            if chosen:
                levels.append(abs(np.asarray(square(photo, "whole")).astype(int) - np.asarray(copy)).mean())
    print(
        f"{options.split}: squeezed again, the photographs differ from their copies by {np.mean(levels):.2f} of 255 levels"
    )
    return 0


if __name__ == "__main__":
    assert SIZE == 224
    sys.exit(main())
