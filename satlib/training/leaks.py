"""Images that are in the training split and, the same or nearly so, in dev or test: scores on those say little."""

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
from PIL import Image

from satlib.data.datasets import CaptionSet
from satlib.files.progress import progress_bar

# Of 64 bits, by how many the gradients of two photographs may differ that are nearly the same. On 300 photographs of Flickr8k, 99 % of
# the copies at JPEG quality 50, and 96 % of those at half the size or brighter by 15 %, are within 3; of a million pairs of different
# photographs none is within 5. A copy that was cropped is usually not found.
ALIKE = 3


def shared_images(data: CaptionSet) -> list[tuple[str, str]]:
    """Pairs of an image of train and one of dev or test that are equal, or nearly so.

    Raises:
        SatlibError: an image cannot be read.
    """
    prints = {split: _prints(data, split) for split in ("train", "dev", "test")}
    return [pair for other in ("dev", "test") for pair in _alike(prints["train"], prints[other])]


def _prints(data: CaptionSet, split: str) -> Mapping[str, tuple[str, int]]:
    """For each image of a split, the hash of its file and that of its gradients."""
    found = {}
    for example in progress_bar(data.split(split), unit="img", desc=f"comparing {split}", leave=False):
        assert example.path is not None  # drawn scenes have none, and no caller compares them
        found[example.image_id] = (
            hashlib.sha256(example.path.read_bytes()).hexdigest(),
            gradient_hash(data.photo(example)),
        )
    return found


def gradient_hash(photo: Image.Image) -> int:
    """64 bits: whether each of 8 x 8 places of the small grey picture is darker than its right neighbour."""
    grey = np.asarray(photo.convert("L").resize((9, 8), Image.Resampling.BOX), dtype=np.int16)
    return int.from_bytes(np.packbits(grey[:, :-1] < grey[:, 1:]).tobytes(), "big")


def _alike(train: Mapping[str, tuple[str, int]], other: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Pairs of equal or nearly equal images; pictures of one colour, whose gradients are all 0, only if their files are equal."""
    names, known = list(train), np.array([bits for _, bits in train.values()], dtype=np.uint64)
    files = {file: name for name, (file, _) in train.items()}
    for name, (file, bits) in other.items():
        if file in files:
            yield files[file], name
        elif bits and len(known):
            apart = np.unpackbits((known ^ np.uint64(bits)).view(np.uint8).reshape(-1, 8), axis=1).sum(1)
            if apart.min() <= ALIKE:
                yield names[int(apart.argmin())], name
