"""Annotation vectors on disk: computed once (`satlib.extraction`), read by every run.

A store is a folder of two files. `annotations.f16` is an array of rows (L, D) in float16, one for each image. `manifest.json`
says what they are: the encoder and the hash of its weights, the view of the photographs, the folder that they came from, and
for each image its row, the size and the SHA-256 of its file, and the row's CRC-32. So a store knows its images: `check`
refuses images that are new or have changed, and `read` refuses vectors that were damaged.
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

from satlib import distributed, images
from satlib.datasets import CaptionSet, Example
from satlib.encoders import SIZE, Encoder
from satlib.errors import SatlibError
from satlib.files import read_json, write_text

FORMAT = "satlib features 2"  # to be changed with whatever `images.square` gives of a photograph
SAMPLE = 5  # images by which a store of the first format, which does not know its images, is tried
TOLERANCE = 0.05  # and how far their vectors may lie from it, over their norm: float16 and other processors give .001
ARRAY, MANIFEST = "annotations.f16", "manifest.json"
MADE_BY = ("encoder", "weights", "view")


class Record(NamedTuple):
    """What a store knows of an image: its row in the array, its file's size and SHA-256, and the CRC-32 of its vectors."""

    row: int
    bytes: int
    sha256: str
    crc32: int


class FeatureStore:
    """The annotation vectors of a caption set's images, read image by image from the file.

    Not memory-mapped: pages of a map count as the process's own memory once they were touched, up to the whole file. What was
    read stays in the system's cache all the same, as far as there is room for it.

    Attributes:
        folder: where it lies.
        manifest: what it holds.
        grid, dim: (h, w) and D of the encoder that made it.
    """

    def __init__(self, folder: Path) -> None:
        """Open a finished store.

        Raises:
            SatlibError: there is none, it is not finished, or its array is shorter than its manifest says.
        """
        self.folder = folder
        if not (folder / MANIFEST).is_file():
            state = "is not finished" if (folder / (MANIFEST + ".partial")).exists() else "does not exist"
            raise SatlibError(f"the feature store {folder} {state}; make it with: satlib features RECIPE")
        self.manifest, self._records = read_manifest(folder)
        self.grid: tuple[int, int] = tuple(self.manifest["grid"])
        self.dim: int = self.manifest["dim"]
        self._path, self._shape = folder / ARRAY, (self.grid[0] * self.grid[1], self.dim)
        rows = 1 + max((record.row for record in self._records.values()), default=-1)
        size, expected = size_of(self._path), rows * self._shape[0] * self._shape[1] * 2
        if size < expected:
            raise SatlibError(
                f"{self._path} holds {size} bytes instead of {expected}; run satlib features again, which computes what is missing"
            )
        self._intact = np.zeros(rows, dtype=bool)  # rows whose checksum has been compared

    def __contains__(self, image_id: str) -> bool:
        return image_id in self._records

    def __len__(self) -> int:
        return len(self._records)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32.

        Raises:
            SatlibError: an image is not in the store, or its vectors are not those that were written.
        """
        try:
            records = [self._records[image_id] for image_id in image_ids]
        except KeyError as error:
            raise SatlibError(
                f"the feature store {self.folder} has no image {error}; run satlib features again"
            ) from error
        values = np.empty((len(records), *self._shape), np.float16)
        with open(self._path, "rb", buffering=0) as array:
            for image_id, record, into in zip(image_ids, records, values, strict=True):
                if not read_row(array, record.row, into):
                    raise SatlibError(f"{self._path} was cut short while it was read; run satlib features again")
                if not self._intact[record.row]:
                    if self._knows_its_images and zlib.crc32(into) != record.crc32:
                        raise SatlibError(
                            f"the vectors of {image_id} in {self._path} are damaged (another checksum than when they were written); "
                            "run satlib features again, which computes them anew"
                        )
                    self._intact[record.row] = True
        return torch.from_numpy(values).float()

    def check(self, encoder: Encoder, data: CaptionSet, examples: Sequence[Example], view: str = "whole") -> None:
        """Refuse a store that is not what is asked for. Every image's file is read, to compare its content.

        Args:
            encoder: what the vectors have to be made by.
            data: the set.
            examples: those of its images that will be read.
            view: what the encoder sees of a photograph (`images.square`).

        Raises:
            SatlibError: made by another encoder, other weights or another view, of another folder, or images are missing or
                have changed since.
        """
        for field, value in made_by(encoder, view).items():
            if field in self.manifest and self.manifest[field] != value:
                raise SatlibError(
                    f"the feature store {self.folder} was made with {field} {self.manifest[field]!r}, not {value!r}; "
                    "delete it and run satlib features again"
                )
        if self._knows_its_images and self.manifest["home"] != home_of(data):
            raise SatlibError(
                f"the feature store {self.folder} was made from {self.manifest['home']}, not from {home_of(data)}; run satlib "
                "features again, which compares the images and computes only those that differ"
            )
        missing = [example.image_id for example in examples if example.image_id not in self]
        if missing:
            raise SatlibError(
                f"the feature store {self.folder} lacks {_images(len(missing))} (the first is {missing[0]}); run satlib features "
                "again, which computes only what is missing"
            )
        if not self._knows_its_images:
            self._try(encoder, data, examples, view)
            return
        prints = fingerprints(data, examples)
        changed = [image_id for image_id, found in prints.items() if found != self._records[image_id][1:3]]
        if changed:
            raise SatlibError(
                f"{_images(len(changed))} changed after the feature store {self.folder} was made (the first is {changed[0]}); run "
                "satlib features again, which computes only what has changed"
            )

    @property
    def _knows_its_images(self) -> bool:
        return self.manifest.get("format") == FORMAT

    def _try(self, encoder: Encoder, data: CaptionSet, examples: Sequence[Example], view: str) -> None:
        """Compute some vectors again: all that can be asked of a store of the first format, which noted names alone."""
        image_ids = [example.image_id for example in examples[:: -(-len(examples) // SAMPLE) or 1]]
        with torch.inference_mode():
            fresh = encoder(Pixels(data, view, cache_bytes=0).read(image_ids).to(encoder.mean.device)).float().cpu()
        stored = self.read(image_ids)
        apart = (fresh - stored).flatten(1).norm(dim=1) / fresh.flatten(1).norm(dim=1)
        if not (apart < TOLERANCE).all():
            image_id = image_ids[int(apart.nan_to_num(torch.inf).argmax())]
            raise SatlibError(
                f"the feature store {self.folder}, made by an older satlib, does not hold what {encoder.name} computes for {image_id} now "
                f"(view {view!r}); make a new store with: satlib features RECIPE"
            )
        tqdm.write(
            f"warning: the feature store {self.folder} was made by an older satlib, which recorded the names of its images but not "
            f"their content; {len(image_ids)} of {len(examples)} images were computed again and agree. To check them all, make a new "
            "store with: satlib features RECIPE",
            file=sys.stderr,
        )


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count:,} images"


def folder(root: Path, data: CaptionSet, encoder: str, view: str = "whole") -> Path:
    """Where the store of a caption set by an encoder (its name) lies below the data root.

    A set that is not in its own folder below the root has its path's hash in the name: two folders called "photos" have two stores.
    """
    name = data.name
    if data.home is not None and not data.home.is_relative_to((root / data.name).resolve()):
        name += "-" + hashlib.sha256(str(data.home).encode()).hexdigest()[:8]
    return root / "features" / f"{name}-{encoder}-{view}".replace(":", "-").replace("/", "-")


def open_store(root: Path, data: CaptionSet, encoder: Encoder, view: str, examples: Sequence[Example]) -> FeatureStore:
    """The store of a caption set by an encoder, checked for some of its images; or the one that an older satlib made there.

    Raises:
        SatlibError: there is none, or it is not what is asked for (`FeatureStore.check`).
    """
    place, old = folder(root, data, encoder.name, view), _old_folder(root, data, encoder.name)
    store = FeatureStore(old if (old / MANIFEST).is_file() and not (place / MANIFEST).is_file() else place)
    distributed.current().from_first(lambda: store.check(encoder, data, examples, view))
    return store


def _old_folder(root: Path, data: CaptionSet, encoder: str) -> Path:
    """Where stores of the first format lie."""
    return root / "features" / f"{data.name}-{encoder}".replace(":", "-").replace("/", "-")


def fingerprints(data: CaptionSet, examples: Sequence[Example]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of each image's file, or of its pixels where it is drawn, by image id.

    Raises:
        SatlibError: a file is missing or cannot be read.
    """
    bar = tqdm(total=len(examples), unit="img", desc="comparing images", delay=2, leave=False)
    with bar:
        prints = {}
        for example, found in zip(examples, read_ahead(lambda e: fingerprint(data, e), examples, 4), strict=True):
            prints[example.image_id] = found
            bar.update()
    return prints


def fingerprint(data: CaptionSet, example: Example) -> tuple[int, str]:
    """Size and SHA-256 of one image, as `fingerprints` has them."""
    if example.path is None:
        content = np.asarray(data.photo(example)).tobytes()
    else:
        try:
            content = example.path.read_bytes()
        except FileNotFoundError as error:
            raise SatlibError(
                f"the image {example.path} does not exist; put it back, or delete its captions"
            ) from error
        except OSError as error:
            raise SatlibError(f"cannot read the image {example.path}: {error.strerror}; check the file") from error
    return len(content), hashlib.sha256(content).hexdigest()


def write_manifest(folder: Path, description: Mapping[str, Any], records: Mapping[str, Record]) -> None:
    """Write what a store's rows are, a line for each image."""
    lines = ",\n".join(
        f"  {json.dumps(image_id, ensure_ascii=False)}: {json.dumps(list(record))}"
        for image_id, record in records.items()
    )
    head = json.dumps(description, indent=1, ensure_ascii=False).removesuffix("\n}")
    write_text(folder / MANIFEST, f'{head},\n "images": {{\n{lines}\n }}\n}}\n')


def read_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, Record]]:
    """A manifest, and its images' records; those of the first format are in the order of their rows and know nothing else."""
    manifest = read_json(folder / MANIFEST)
    try:
        listed = manifest["images"]
        if manifest.get("format") == FORMAT:
            records = {image_id: Record(*values) for image_id, values in listed.items()}
        else:
            records = {image_id: Record(row, 0, "", 0) for row, image_id in enumerate(listed)}
        fits = (
            len(manifest["grid"]) == 2 and manifest["dim"] > 0 and all(record.row >= 0 for record in records.values())
        )
    except (AttributeError, KeyError, TypeError):
        fits = False
    if not fits:
        raise SatlibError(
            f"{folder / MANIFEST} is no feature store's manifest; delete {folder} and run satlib features again"
        )
    return manifest, records


def read_row(array: BinaryIO, row: int, into: Any) -> bool:
    """Whether a row was read whole into a buffer of its size."""
    size = memoryview(into).nbytes
    array.seek(row * size)
    return array.readinto(into) == size


class Reader(Protocol):
    """Whatever gives the tensors of images by image id: a `FeatureStore`, or `Pixels` where the encoder trains."""

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """(B, L, D) annotation vectors, or (B, 3, 224, 224) images."""
        ...


class Pixels:
    """Images as an encoder takes them, kept in memory once read as far as `cache_bytes` reaches."""

    def __init__(self, data: CaptionSet, view: str = "whole", cache_bytes: int = 4_000_000_000) -> None:
        """`view` is what the encoder sees of a photograph (`images.square`)."""
        self._data, self._view = data, view
        self._examples = {example.image_id: example for example in data.examples}
        self._kept: dict[str, Tensor] = {}
        self._room = cache_bytes // (3 * SIZE * SIZE)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The named images: (B, 3, 224, 224), uint8."""
        return torch.from_numpy(np.stack([self._one(image_id).numpy() for image_id in image_ids]))

    def prepare(self, image_ids: Sequence[str], progress: bool = True) -> None:
        """Draw images that are drawn, as many as are kept, before they are asked for.

        Drawing is Python's work and training, too, is steered by it: side by side each waits for the other's turn, and
        the first epoch takes twice as long as the second.
        """
        if self._data.draw is not None:
            for image_id in tqdm(
                image_ids[: self._room], unit="img", desc="drawing", disable=not progress, leave=False
            ):
                self._one(image_id)

    def _one(self, image_id: str) -> Tensor:
        image = self._kept.get(image_id)
        if image is None:
            image = images.to_tensor(images.square(self._data.photo(self._examples[image_id]), self._view))
            if len(self._kept) < self._room:
                self._kept[image_id] = image
        return image


Item, Value = TypeVar("Item"), TypeVar("Value")


def read_ahead(read: Callable[[Item], Value], items: Iterable[Item], threads: int = 2) -> Iterator[Value]:
    """read(item) of each item in order, the next few being read by threads meanwhile."""
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(read, item) for item in islice(items, threads + 1))
        while waiting:
            value = waiting.popleft().result()
            waiting.extend(pool.submit(read, item) for item in islice(items, 1))
            yield value


def made_by(encoder: Encoder, view: str) -> dict[str, str]:
    """What decides an image's vectors, besides the image."""
    return dict(zip(MADE_BY, (encoder.name, encoder.weights_hash, view), strict=True))


def home_of(data: CaptionSet) -> str:
    """Where a set's images are, as a manifest says it."""
    return "drawn" if data.home is None else str(data.home)


def size_of(path: Path) -> int:
    """A file's bytes; 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0
