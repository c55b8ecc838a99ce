"""Annotation vectors on disk: computed once (`satlib.training.features`), read by every run.

In a store's folder, `annotations.f16` is an array with one row (L, D) of float16 per image.
`manifest.json` records the photographs' folder, the encoder, the hash of its weights and the view,
and for each image its row and the size and modification time of its file, so that new and changed
images are noticed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor

from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.files import read_json, write_text

# Change it whenever the result of `images.square` changes.
FORMAT = "satlib features 5"
ARRAY = "annotations.f16"
MANIFEST = "manifest.json"


class Record(NamedTuple):
    """An image in a store: its row, and the size and modification time (ns) of its file.

    Both are 0 if it is drawn.
    """

    row: int
    bytes: int
    modified: int


class Manifest(msgspec.Struct):
    """The content of `manifest.json`; `images` lists those whose vectors are in the array."""

    format: str
    home: str  # the folder of the photographs, or "drawn"
    encoder: str
    weights: str
    view: str
    grid: tuple[int, int]
    dim: int
    images: dict[str, Record] = {}

    def save(self, folder: Path) -> None:
        """Write it, with one line per image."""
        # 100,000 images in one line would be more than most editors open.
        encoded = msgspec.json.encode(self).replace(b'],"', b'],\n"')
        write_text(folder / MANIFEST, encoded.decode())

    def outdated(self, examples: Iterable[Example]) -> set[str]:
        """The ids of the images whose vectors are missing, or whose files have changed since."""
        ids = set()
        for example in examples:
            record = self.images.get(example.image_id)
            if record is None or (record.bytes, record.modified) != stamp(example):
                ids.add(example.image_id)
        return ids


def stamp(example: Example) -> tuple[int, int]:
    """Size and modification time (ns) of an image's file; (0, 0) if it is drawn."""
    if example.path is None:
        return 0, 0
    status = example.path.stat()
    return status.st_size, status.st_mtime_ns


def read_manifest(folder: Path, expected: Manifest | None = None) -> Manifest:
    """The manifest of a store.

    Raises:
        SatlibError: it is damaged, or its vectors were computed with something else than expected.
    """
    advice = f"delete {folder} and run satlib features again"
    manifest = read_json(folder / MANIFEST, Manifest, "the manifest of a feature store", advice)
    if expected is None:
        return manifest

    for name in ("format", "home", "encoder", "weights", "view"):
        stored = getattr(manifest, name)
        needed = getattr(expected, name)
        if stored != needed:
            raise SatlibError(f"{folder} was made with {name} {stored!r}, not {needed!r}; {advice}")
    return manifest


class FeatureStore:
    """The annotation vectors of a caption set's images.

    `grid` and `dim` are (h, w) and D of the encoder that made them.

    Raises:
        SatlibError: the folder has no store, or a damaged one.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / MANIFEST).is_file():
            raise SatlibError(
                f"{folder} does not exist; "
                "run satlib features with the same recipe, --set and --data"
            )
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.grid = self.manifest.grid
        self.dim = self.manifest.dim

        # After a stop the file may be longer than the rows that the manifest knows.
        records = self.manifest.images.values()
        last_row = max((record.row for record in records), default=-1)
        h, w = self.grid
        shape = (last_row + 1, h * w, self.dim)  # (images, L, D)
        try:
            # Mapped, not read: COCO's vectors of VGG-19 are 25 GB.
            self._array = np.memmap(folder / ARRAY, np.float16, "r", shape=shape)
        except (ValueError, OSError) as error:
            raise SatlibError(
                f"{folder / ARRAY} is missing or cut off; run satlib features again"
            ) from error

    def __len__(self) -> int:
        return len(self.manifest.images)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32."""
        rows = [self.manifest.images[image_id].row for image_id in image_ids]
        return torch.from_numpy(self._array[rows]).float()

    def check(self, expected: Manifest, examples: Sequence[Example]) -> None:
        """Refuse a store of another encoder or view, or without the examples as they are now."""
        read_manifest(self.folder, expected)
        outdated = self.manifest.outdated(examples)
        if outdated:
            raise SatlibError(
                f"{self.folder} lacks {len(outdated):,} images, or they have changed "
                f"(one is {min(outdated)}); "
                "run satlib features again, which computes only these"
            )


def folder(root: Path, data: CaptionSet, encoder: str, view: str = "whole") -> Path:
    """The folder of a store, below the data root."""
    # "hf:USER/NAME" has characters that a folder's name cannot have.
    name = f"{data.name}-{encoder}-{view}".replace(":", "-").replace("/", "-")
    return root / "features" / name


class Reader(Protocol):
    """Reads tensors by image id: a `FeatureStore`, or `Pixels` if the encoder is trained."""

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """Annotation vectors (B, L, D) or images (B, 3, 224, 224)."""
        ...


class Pixels:
    """Images as an encoder sees them (`images.square`), kept in memory up to `cache_bytes`."""

    def __init__(
        self, data: CaptionSet, view: str = "whole", cache_bytes: int = 4_000_000_000
    ) -> None:
        self._photo = data.photo
        self._view = view
        self._examples = {example.image_id: example for example in data.examples}
        self._cache: dict[str, Tensor] = {}
        self._room = cache_bytes // (3 * SIZE * SIZE)  # images

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The named images: (B, 3, 224, 224), uint8."""
        pixels = [self._one(image_id).numpy() for image_id in image_ids]
        # numpy stacks bytes in half the time that torch takes.
        return torch.from_numpy(np.stack(pixels))

    def _one(self, image_id: str) -> Tensor:
        cached = self._cache.get(image_id)
        if cached is not None:
            return cached

        example = self._examples[image_id]
        square = images.square(self._photo(example), self._view)
        image = images.to_tensor(square)
        # Photographs alone: a drawn scene is used once, or seldom, and the Hub decodes its own.
        if example.path is not None and len(self._cache) < self._room:
            self._cache[image_id] = image
        return image
