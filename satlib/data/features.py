"""Annotation vectors on disk: computed once (`satlib.training.features`), read by every run.

A feature store is a folder with two files. `annotations.f16` is an array with one row (L, D) of float16 per image.
`manifest.json` records the encoder and the hash of its weights, the view of the photographs, their folder, and for each image
its row, the size, modification time and SHA-256 of its file, and the CRC-32 of the row. Therefore `check` detects images that
are new or have changed, and `read` detects damaged vectors.
"""

import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedIOBase, RawIOBase
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.files.atomic import write_text
from satlib.files.progress import progress_bar
from satlib.files.reading import Count, Size, read_json

FORMAT = "satlib features 3"  # change it whenever the result of `images.square` changes
ARRAY, MANIFEST = "annotations.f16", "manifest.json"
COMMAND = "satlib features RECIPE"  # what makes a store
Item = TypeVar("Item")
Value = TypeVar("Value")


class Source(NamedTuple):
    """What, with an image, determines its vectors: the encoder's name, the hash of its weights, the view of `images.square`."""

    encoder: str
    weights: str
    view: str = "whole"


class Record(NamedTuple):
    """An image in a store: its row, the size in bytes, modification time in ns and SHA-256 of its file, the CRC-32 of its vectors.

    A drawn image has neither size nor time (0), and the SHA-256 of its pixels.
    """

    row: Count
    bytes: Count
    modified: int
    sha256: str
    crc32: Count


class Manifest(msgspec.Struct):
    """The content of `manifest.json`: `Source`, the images' folder ("drawn" if they have none), the shape of a row, the images."""

    format: str
    data: str
    home: str
    encoder: str
    weights: str
    view: str
    grid: tuple[Size, Size]
    dim: Size
    images: dict[str, Record]

    @property
    def row_bytes(self) -> int:
        """The size of the vectors of one image."""
        return 2 * self.grid[0] * self.grid[1] * self.dim

    def require(self, source: Source, folder: Path) -> None:
        """Require that the vectors were computed with `source`; `folder` is the store's.

        Raises:
            SatlibError: they were computed with something else.
        """
        for field, value in source._asdict().items():
            if getattr(self, field) != value:
                raise SatlibError(
                    f"the feature store {folder} was made with {field} {getattr(self, field)!r}, not {value!r}; "
                    "delete it and run satlib features again"
                )


class FeatureStore:
    """The annotation vectors of a caption set's images, read image by image from the file.

    The file is not memory-mapped, because mapped pages count as memory of the process once they are read, up to the whole file.
    The operating system still caches the file as far as memory allows.

    Attributes:
        folder: the folder of the store.
        manifest: the content of `manifest.json`.
        grid, dim: (h, w) and D of the encoder that made it.
    """

    def __init__(self, folder: Path, command: str = COMMAND) -> None:
        """Open a store; `command`, which makes one, is for the message.

        Raises:
            SatlibError: the store is missing, or its array is shorter than its manifest says.
        """
        self.folder = folder
        if not (folder / MANIFEST).is_file():
            raise SatlibError(f"the feature store {folder} does not exist; create it with: {command}")
        self.manifest = read_manifest(folder)
        self.grid, self.dim = self.manifest.grid, self.manifest.dim
        self._path = folder / ARRAY
        rows = 1 + max((record.row for record in self.manifest.images.values()), default=-1)
        size, expected = size_of(self._path), rows * self.manifest.row_bytes
        if size < expected:
            raise SatlibError(
                f"{self._path} has {size} bytes instead of {expected}; run satlib features again, which computes the missing vectors"
            )
        self._intact = np.zeros(rows, dtype=bool)  # rows whose checksum has been verified

    def __contains__(self, image_id: str) -> bool:
        return image_id in self.manifest.images

    def __len__(self) -> int:
        return len(self.manifest.images)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32.

        Raises:
            SatlibError: an image is not in the store, or its vectors are damaged.
        """
        try:
            records = [self.manifest.images[image_id] for image_id in image_ids]
        except KeyError as error:
            raise SatlibError(
                f"the feature store {self.folder} has no image {error}; run satlib features again"
            ) from error
        values = np.empty((len(records), self.grid[0] * self.grid[1], self.dim), np.float16)
        with open(self._path, "rb", buffering=0) as array:
            for image_id, record, vectors in zip(image_ids, records, values, strict=True):
                if not read_row(array, record.row, vectors.data):
                    raise SatlibError(f"{self._path} was truncated while it was read; run satlib features again")
                if not self._intact[record.row]:
                    if zlib.crc32(vectors.data) != record.crc32:
                        raise SatlibError(
                            f"the vectors of {image_id} in {self._path} are damaged (wrong checksum); "
                            "run satlib features again with --verify, which recomputes them"
                        )
                    self._intact[record.row] = True
        return torch.from_numpy(values).float()

    def check(self, source: Source, data: CaptionSet, examples: Sequence[Example]) -> None:
        """Check that the store fits an encoder and a data set. Reads only image files whose size or time has changed.

        Args:
            source: what must have computed the vectors.
            data: the caption set.
            examples: the examples whose images will be read.

        Raises:
            SatlibError: the store was made with a different encoder, weights, view or image folder, or images are missing or
                have changed since then.
        """
        self.manifest.require(source, self.folder)
        if self.manifest.home != home_of(data):
            raise SatlibError(
                f"the feature store {self.folder} was made from {self.manifest.home}, not from {home_of(data)}; run satlib "
                "features again, which compares the images and recomputes only those that differ"
            )
        missing = [example.image_id for example in examples if example.image_id not in self]
        if missing:
            raise SatlibError(
                f"the feature store {self.folder} lacks {_images(len(missing))} (the first is {missing[0]}); run satlib features "
                "again, which computes only the missing images"
            )
        same = unchanged(data, examples, self.manifest.images)
        changed = [example.image_id for example in examples if example.image_id not in same]
        if changed:
            raise SatlibError(
                f"{_images(len(changed))} changed after the feature store {self.folder} was made (the first is {changed[0]}); run "
                "satlib features again, which recomputes only the changed images"
            )


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def folder(root: Path, data: CaptionSet, encoder: str, view: str = "whole") -> Path:
    """The folder, below the data root, of the store for a caption set and the name of an encoder.

    If the set is not in its own folder below the root, the name contains a hash of its path, so two folders called "photos" have
    two stores.
    """
    name = data.name
    if data.home is not None and not data.home.is_relative_to((root / data.name).resolve()):
        name += "-" + hashlib.sha256(str(data.home).encode()).hexdigest()[:8]
    return root / "features" / f"{name}-{encoder}-{view}".replace(":", "-").replace("/", "-")


def unchanged(
    data: CaptionSet, examples: Sequence[Example], records: Mapping[str, Record], verify: bool = False
) -> dict[str, Record]:
    """The records of the images that have the same content as then, with the size and time that their files have now.

    Args:
        data: the caption set.
        examples: examples that all have a record.
        records: by image id.
        verify: compare the content of every image, instead of only of those whose size or time differ.

    Raises:
        SatlibError: a file is missing or cannot be read.
    """
    now = {
        e.image_id: records[e.image_id]._replace(bytes=size, modified=time)
        for e in examples
        for size, time in [stamp(e)]
    }
    doubtful = [e for e in examples if verify or now[e.image_id] != records[e.image_id]]
    hashes = read_ahead(lambda example: content_hash(data, example), doubtful, 4)
    bar = progress_bar(hashes, total=len(doubtful), unit="img", desc="comparing images", delay=2, leave=False)
    for example, found in zip(doubtful, bar, strict=True):
        if found != records[example.image_id].sha256:
            del now[example.image_id]
    return now


def stamp(example: Example) -> tuple[int, int]:
    """Size and modification time (ns) of an image's file; (0, 0) if it is drawn.

    Raises:
        SatlibError: the file is missing or cannot be read.
    """
    if example.path is None:
        return 0, 0
    status = _of_file(example.path, Path.stat)
    return status.st_size, status.st_mtime_ns


def content_hash(data: CaptionSet, example: Example) -> str:
    """SHA-256 of an image's file, or of the pixels of a drawn image; errors as for `stamp`."""
    path = example.path
    content = np.asarray(data.photo(example)).tobytes() if path is None else _of_file(path, Path.read_bytes)
    return hashlib.sha256(content).hexdigest()


def _of_file(path: Path, function: Callable[[Path], Value]) -> Value:
    try:
        return function(path)
    except FileNotFoundError as error:
        raise SatlibError(f"the image {path} does not exist; restore it, or delete its captions") from error
    except OSError as error:
        raise SatlibError(f"cannot read the image {path}: {error.strerror}; check the file") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a store's manifest, with one line per image."""
    write_text(folder / MANIFEST, msgspec.json.encode(manifest).replace(b'],"', b'],\n"').decode())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        SatlibError: it is damaged, or of another format.
    """
    advice = f"delete {folder} and run satlib features again"
    manifest = read_json(folder / MANIFEST, Manifest, "the manifest of a feature store", advice)
    if manifest.format != FORMAT:
        raise SatlibError(f"the feature store {folder} has the format {manifest.format!r}, not {FORMAT!r}; {advice}")
    return manifest


def read_row(array: RawIOBase | BufferedIOBase, row: int, buffer: memoryview) -> bool:
    """Read a row into a buffer of its size; return whether it is complete."""
    array.seek(row * buffer.nbytes)
    return array.readinto(buffer) == buffer.nbytes


def home_of(data: CaptionSet) -> str:
    """The location of a set's images, as recorded in a manifest."""
    return "drawn" if data.home is None else str(data.home)


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.is_file() else 0


class Reader(Protocol):
    """Reads tensors by image id: a `FeatureStore`, or `Pixels` if the encoder is trained."""

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """Annotation vectors (B, L, D) or images (B, 3, 224, 224)."""
        ...


class Pixels:
    """Images as the encoder's input, cached in memory up to `cache_bytes`."""

    def __init__(self, data: CaptionSet, view: str = "whole", cache_bytes: int = 4_000_000_000) -> None:
        """`view` is the part of a photograph that the encoder sees (`images.square`)."""
        self._data, self._view = data, view
        self._cache: dict[str, Tensor] = {}
        self._room = cache_bytes // (3 * SIZE * SIZE)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The named images: (B, 3, 224, 224), uint8."""
        return torch.from_numpy(np.stack([self._one(image_id).numpy() for image_id in image_ids]))

    def prepare(self, image_ids: Sequence[str], progress: bool = True) -> None:
        """Draw the images of a drawn set in advance, as many as the cache can hold.

        Drawing and training both run Python code and would wait for each other: without this, the first epoch would take twice
        as long as the second.
        """
        if self._data.draw is not None:
            for image_id in progress_bar(
                image_ids[: self._room], desc="drawing", unit="img", show=progress, leave=False
            ):
                self._one(image_id)

    def _one(self, image_id: str) -> Tensor:
        image = self._cache.get(image_id)
        if image is None:
            image = images.to_tensor(images.square(self._data.image(image_id), self._view))
            if len(self._cache) < self._room:
                self._cache[image_id] = image
        return image


def read_ahead(read: Callable[[Item], Value], items: Iterable[Item], threads: int = 2) -> Iterator[Value]:
    """Yield read(item) for each item in order, while threads read the next few items."""
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        pending = deque(pool.submit(read, item) for item in islice(items, threads + 1))
        while pending:
            value = pending.popleft().result()
            pending.extend(pool.submit(read, item) for item in islice(items, 1))
            yield value
