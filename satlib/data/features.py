"""Annotation vectors on disk: computed once (`satlib.training.extraction`), read by every run.

A feature store is a folder with two files. `annotations.f16` is an array with one row (L, D) of float16 per image.
`manifest.json` records the encoder and the hash of its weights, the view of the photographs, their folder, and for each image
its row, the size and SHA-256 of its file, and the CRC-32 of the row. Therefore `check` detects images that are new or have
changed, and `read` detects damaged vectors.
"""

import hashlib
import json
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from satlib.data import images
from satlib.data.datasets import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.files.atomic import read_json, write_text
from satlib.files.progress import progress_bar
from satlib.files.schemas import StoredImages, StoredNames
from satlib.files.untrusted import matches
from satlib.model.encoders import SIZE, Encoder
from satlib.training import distributed

FORMAT = "satlib features 2"  # change it whenever the result of `images.square` changes
SAMPLE = 5  # images that are recomputed to check a store of the first format, which has no checksums
TOLERANCE = 0.05  # their largest relative error; float16 and different processors cause about 0.001
ARRAY, MANIFEST = "annotations.f16", "manifest.json"
COMMAND = "satlib features RECIPE"  # what makes a store
MADE_BY = ("encoder", "weights", "view")


class Record(NamedTuple):
    """A store's record of an image: its row in the array, the size and SHA-256 of its file, and the CRC-32 of its vectors."""

    row: int
    bytes: int
    sha256: str
    crc32: int


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
        """Open a finished store; `command`, which makes one, is for the message.

        Raises:
            SatlibError: the store is missing or unfinished, or its array is shorter than its manifest says.
        """
        self.folder = folder
        if not (folder / MANIFEST).is_file():
            state = "is not finished" if (folder / (MANIFEST + ".partial")).exists() else "does not exist"
            raise SatlibError(f"the feature store {folder} {state}; create it with: {command}")
        self.manifest, self._records = read_manifest(folder)
        self.grid: tuple[int, int] = tuple(self.manifest["grid"])
        self.dim: int = self.manifest["dim"]
        self._path, self._shape = folder / ARRAY, (self.grid[0] * self.grid[1], self.dim)
        rows = 1 + max((record.row for record in self._records.values()), default=-1)
        size, expected = size_of(self._path), rows * self._shape[0] * self._shape[1] * 2
        if size < expected:
            raise SatlibError(
                f"{self._path} has {size} bytes instead of {expected}; run satlib features again, which computes the missing vectors"
            )
        self._intact = np.zeros(rows, dtype=bool)  # rows whose checksum has been verified

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._records

    def __len__(self) -> int:
        return len(self._records)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32.

        Raises:
            SatlibError: an image is not in the store, or its vectors are damaged.
        """
        try:
            records = [self._records[image_id] for image_id in image_ids]
        except KeyError as error:
            raise SatlibError(
                f"the feature store {self.folder} has no image {error}; run satlib features again"
            ) from error
        values = np.empty((len(records), *self._shape), np.float16)
        with open(self._path, "rb", buffering=0) as array:
            for image_id, record, vectors in zip(image_ids, records, values, strict=True):
                if not read_row(array, record.row, vectors):
                    raise SatlibError(f"{self._path} was truncated while it was read; run satlib features again")
                if not self._intact[record.row]:
                    if self._has_checksums and zlib.crc32(vectors) != record.crc32:
                        raise SatlibError(
                            f"the vectors of {image_id} in {self._path} are damaged (wrong checksum); "
                            "run satlib features again, which recomputes them"
                        )
                    self._intact[record.row] = True
        return torch.from_numpy(values).float()

    def check(self, encoder: Encoder, data: CaptionSet, examples: Sequence[Example], view: str = "whole") -> None:
        """Check that the store fits an encoder and a data set. Reads every image file to compare its content.

        Args:
            encoder: the encoder that must have computed the vectors.
            data: the caption set.
            examples: the examples whose images will be read.
            view: the part of a photograph that the encoder sees (`images.square`).

        Raises:
            SatlibError: the store was made with a different encoder, weights, view or image folder, or images are missing or
                have changed since then.
        """
        for field, value in made_by(encoder, view).items():
            if field in self.manifest and self.manifest[field] != value:
                raise SatlibError(
                    f"the feature store {self.folder} was made with {field} {self.manifest[field]!r}, not {value!r}; "
                    "delete it and run satlib features again"
                )
        if self._has_checksums and self.manifest["home"] != home_of(data):
            raise SatlibError(
                f"the feature store {self.folder} was made from {self.manifest['home']}, not from {home_of(data)}; run satlib "
                "features again, which compares the images and recomputes only those that differ"
            )
        missing = [example.image_id for example in examples if example.image_id not in self]
        if missing:
            raise SatlibError(
                f"the feature store {self.folder} lacks {_images(len(missing))} (the first is {missing[0]}); run satlib features "
                "again, which computes only the missing images"
            )
        if not self._has_checksums:
            self._check_sample(encoder, data, examples, view)
            return
        prints = fingerprints(data, examples)
        changed = [image_id for image_id, now in prints.items() if now != self._records[image_id][1:3]]
        if changed:
            raise SatlibError(
                f"{_images(len(changed))} changed after the feature store {self.folder} was made (the first is {changed[0]}); run "
                "satlib features again, which recomputes only the changed images"
            )

    @property
    def _has_checksums(self) -> bool:
        return self.manifest.get("format") == FORMAT

    def _check_sample(self, encoder: Encoder, data: CaptionSet, examples: Sequence[Example], view: str) -> None:
        """Recompute some vectors: the only possible check of a store of the first format, which recorded only names."""
        image_ids = [example.image_id for example in examples[:: -(-len(examples) // SAMPLE) or 1]]
        with torch.inference_mode():
            fresh = encoder(Pixels(data, view, cache_bytes=0).read(image_ids).to(encoder.mean.device)).float().cpu()
        stored = self.read(image_ids)
        errors = (fresh - stored).flatten(1).norm(dim=1) / fresh.flatten(1).norm(dim=1)
        if not (errors < TOLERANCE).all():
            image_id = image_ids[int(errors.nan_to_num(torch.inf).argmax())]
            raise SatlibError(
                f"the feature store {self.folder}, made by an older satlib, differs from what {encoder.name} now computes for {image_id} "
                f"(view {view!r}); create a new store with: satlib features RECIPE"
            )
        tqdm.write(
            f"warning: the feature store {self.folder} was made by an older satlib, which recorded only the names of its "
            f"images; {len(image_ids)} of {len(examples)} images were recomputed and agree. To check all of them, create a new "
            "store with: satlib features RECIPE",
            file=sys.stderr,
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


def open_store(
    root: Path,
    data: CaptionSet,
    encoder: Encoder,
    view: str,
    examples: Sequence[Example],
    command: str = COMMAND,
) -> FeatureStore:
    """The store for a caption set and an encoder, checked for `examples`; an older satlib's is used if there is no other.

    Raises:
        SatlibError: the store is missing, or does not fit (`FeatureStore.check`).
    """
    place, old = folder(root, data, encoder.name, view), _old_folder(root, data, encoder.name)
    store = FeatureStore(old if (old / MANIFEST).is_file() and not (place / MANIFEST).is_file() else place, command)
    distributed.current().from_first(lambda: store.check(encoder, data, examples, view))
    return store


def _old_folder(root: Path, data: CaptionSet, encoder: str) -> Path:
    """The folder of a store of the first format."""
    return root / "features" / f"{data.name}-{encoder}".replace(":", "-").replace("/", "-")


def fingerprints(data: CaptionSet, examples: Sequence[Example]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each image file, or of the pixels of a drawn image, by image id.

    Raises:
        SatlibError: a file is missing or cannot be read.
    """
    bar = progress_bar(total=len(examples), unit="img", desc="comparing images", delay=2, leave=False)
    with bar:
        prints = {}
        for example, now in zip(examples, read_ahead(lambda e: fingerprint(data, e), examples, 4), strict=True):
            prints[example.image_id] = now
            bar.update()
    return prints


def fingerprint(data: CaptionSet, example: Example) -> tuple[int, str]:
    """Size and SHA-256 of one image, as in `fingerprints`."""
    if example.path is None:
        content = np.asarray(data.photo(example)).tobytes()
    else:
        try:
            content = example.path.read_bytes()
        except FileNotFoundError as error:
            raise SatlibError(f"the image {example.path} does not exist; restore it, or delete its captions") from error
        except OSError as error:
            raise SatlibError(f"cannot read the image {example.path}: {error.strerror}; check the file") from error
    return len(content), hashlib.sha256(content).hexdigest()


def write_manifest(folder: Path, description: Mapping[str, Any], records: Mapping[str, Record]) -> None:
    """Write a store's manifest, with one line per image."""
    lines = ",\n".join(
        f"  {json.dumps(image_id, ensure_ascii=False)}: {json.dumps(list(record))}"
        for image_id, record in records.items()
    )
    head = json.dumps(description, indent=1, ensure_ascii=False).removesuffix("\n}")
    write_text(folder / MANIFEST, f'{head},\n "images": {{\n{lines}\n }}\n}}\n')


def read_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, Record]]:
    """A manifest and the records of its images. The first format lists only image ids, in the order of the rows."""
    advice = f"delete {folder} and run satlib features again"
    manifest = read_json(folder / MANIFEST, dict[str, Any], "the manifest of a feature store", advice)
    checksums = manifest.get("format") == FORMAT
    form = StoredImages if checksums else StoredNames
    matches(manifest, form, f"{folder / MANIFEST} is not the manifest of a feature store", advice)
    if checksums:
        return manifest, {image_id: Record(*values) for image_id, values in manifest["images"].items()}
    return manifest, {image_id: Record(row, 0, "", 0) for row, image_id in enumerate(manifest["images"])}


def read_row(array: BinaryIO, row: int, buffer: Any) -> bool:
    """Read a row into a buffer of its size; return whether it is complete."""
    size = memoryview(buffer).nbytes
    array.seek(row * size)
    return array.readinto(buffer) == size


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
        self._examples = {example.image_id: example for example in data.examples}
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
            image = images.to_tensor(images.square(self._data.photo(self._examples[image_id]), self._view))
            if len(self._cache) < self._room:
                self._cache[image_id] = image
        return image


Item, Value = TypeVar("Item"), TypeVar("Value")


def read_ahead(read: Callable[[Item], Value], items: Iterable[Item], threads: int = 2) -> Iterator[Value]:
    """Yield read(item) for each item in order, while threads read the next few items."""
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        pending = deque(pool.submit(read, item) for item in islice(items, threads + 1))
        while pending:
            value = pending.popleft().result()
            pending.extend(pool.submit(read, item) for item in islice(items, 1))
            yield value


def made_by(encoder: Encoder, view: str) -> dict[str, str]:
    """The manifest fields that, with the image, determine its vectors."""
    return dict(zip(MADE_BY, (encoder.name, encoder.weights_hash, view), strict=True))


def home_of(data: CaptionSet) -> str:
    """The location of a set's images, as recorded in a manifest."""
    return "drawn" if data.home is None else str(data.home)


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.is_file() else 0
