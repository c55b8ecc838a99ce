"""Annotation vectors on disk: extracted once, read by every run.

A store is a folder of two files: `annotations.f16`, the array (N, L, D) in float16, and `manifest.json`, which says what it
holds: the encoder and the hash of its weights, the preprocessing, the list of images. While it is being made the two end
in `.partial`; images are appended batch by batch, so that extraction continues where it stopped, and the manifest takes its
final name last: a folder with a manifest is whole. Several processes (`satlib.distributed`) share the images out, each in a
part of its own; the first joins the parts.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from satlib import distributed, images
from satlib.datasets import CaptionSet, Example
from satlib.encoders import SIZE, Encoder
from satlib.errors import SatlibError
from satlib.files import read_json, write_json

PREPROCESSING = f"RGB; shortest side to 256, centre crop {SIZE}; square photographs of {SIZE} untouched"
_ARRAY, _MANIFEST = "annotations.f16", "manifest.json"


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
            SatlibError: there is none, it is not finished, or its array is not as long as its manifest says.
        """
        self.folder = folder
        if not (folder / _MANIFEST).is_file():
            state = "is not finished" if (folder / (_MANIFEST + ".partial")).exists() else "does not exist"
            raise SatlibError(f"the feature store {folder} {state}; make it with: satlib features RECIPE")
        self.manifest: dict[str, Any] = read_json(folder / _MANIFEST)
        if not isinstance(self.manifest, dict) or not {"images", "grid", "dim"} <= self.manifest.keys():
            raise SatlibError(
                f"{folder / _MANIFEST} is no feature store's manifest; delete {folder} and run satlib features again"
            )
        self.grid: tuple[int, int] = tuple(self.manifest["grid"])
        self.dim: int = self.manifest["dim"]
        self._rows = {key: row for row, key in enumerate(self.manifest["images"])}
        shape = (len(self._rows), self.grid[0] * self.grid[1], self.dim)
        path = folder / _ARRAY
        expected = int(np.prod(shape)) * 2
        size = path.stat().st_size if path.is_file() else 0
        if size != expected:
            raise SatlibError(
                f"{path} holds {size} bytes instead of {expected}; delete {folder} and run satlib features again"
            )
        self._path, self._shape = path, shape

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, keys: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32.

        Raises:
            SatlibError: an image is not in the store.
        """
        try:
            rows = [self._rows[key] for key in keys]
        except KeyError as error:
            raise SatlibError(
                f"the feature store {self.folder} has no image {error}; run satlib features again"
            ) from error
        found = np.empty((len(rows), *self._shape[1:]), np.float16)
        with open(self._path, "rb", buffering=0) as array:
            for row, into in zip(rows, found, strict=True):
                array.seek(row * into.nbytes)
                if array.readinto(into) != into.nbytes:
                    raise SatlibError(
                        f"{self._path} was cut short while it was read; delete {self.folder} and make it again"
                    )
        return torch.from_numpy(found).float()

    def check(self, encoder: Encoder, examples: Sequence[Example]) -> None:
        """Refuse a store that is not what is asked for.

        Raises:
            SatlibError: made by another encoder, other weights or another preprocessing, or images are missing.
        """
        wanted = _description(encoder)
        for field, value in wanted.items():
            if self.manifest.get(field) != value:
                raise SatlibError(
                    f"the feature store {self.folder} was made with {field} {self.manifest.get(field)!r}, not {value!r}; "
                    "delete it and run satlib features again"
                )
        missing = [example.key for example in examples if example.key not in self]
        if missing:
            raise SatlibError(
                f"the feature store {self.folder} lacks {len(missing)} images, {missing[0]} first; run satlib features again"
            )


def folder(root: Path, data: str, encoder: str) -> Path:
    """Where the store of a data set by an encoder lies below the data root."""
    return root / "features" / f"{data}-{encoder}".replace(":", "-").replace("/", "-")


def extract(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    device: str | torch.device = "cpu",
    batch_size: int = 32,
    progress: bool = True,
) -> FeatureStore:
    """Compute the annotation vectors of every image of a set, or finish doing so, and open the store.

    A store that is already there is checked and opened. A stopped extraction goes on after the last whole image, of several
    processes when it is started with as many again.

    Raises:
        SatlibError: the store there is another one, an image cannot be read, or the disk is too small.
    """
    keys = [example.key for example in data.examples]
    if (folder / _MANIFEST).is_file():
        store = FeatureStore(folder)
        store.check(encoder, data.examples)
        return store
    manifest = {
        "data": data.name,
        **_description(encoder),
        "grid": list(encoder.grid),
        "dim": encoder.dim,
        "images": keys,
    }
    image_bytes = encoder.grid[0] * encoder.grid[1] * encoder.dim * 2
    ranks = distributed.current()
    begun = ranks.from_first(lambda: _begin(folder, manifest))
    parts = [
        folder / (_ARRAY + (f".{r}-of-{ranks.size}" if ranks.size > 1 else "") + ".partial") for r in range(ranks.size)
    ]
    partial_array = parts[ranks.rank]
    done = partial_array.stat().st_size // image_bytes if begun and partial_array.is_file() else 0
    first, last = (len(keys) * r // ranks.size for r in (ranks.rank, ranks.rank + 1))
    total, keys = len(keys), keys[first:last]
    # The first process also needs room for the joined array, beside the parts.
    _require_space(folder, (len(keys) - done + (total if ranks.size > 1 and ranks.first else 0)) * image_bytes)
    # Channels last: a third to a half faster on a CPU (`satlib bench extraction`), the same numbers to rounding.
    encoder = encoder.to(device, memory_format=torch.channels_last).eval()
    name = f"{data.name} by {encoder.name}"
    bar = tqdm(total=len(keys), initial=done, unit="img", desc=name, disable=not (progress and ranks.first))
    try:
        with bar, open(partial_array, "ab") as array, torch.inference_mode():
            array.truncate(done * image_bytes)  # drops what a kill left of a half-written image
            reader = Pixels(data, cache_bytes=0)
            batches = [keys[start : start + batch_size] for start in range(done, len(keys), batch_size)]
            for batch in read_ahead(reader.read, batches, threads=4):
                annotations = encoder(batch.to(device, non_blocking=True)).to("cpu", torch.float16)
                if not torch.isfinite(annotations).all():
                    raise SatlibError(f"{encoder.name} gives values beyond float16 near image {keys[done]}")
                array.write(annotations.contiguous().numpy().tobytes())
                array.flush()
                os.fsync(array.fileno())
                done += len(batch)
                bar.update(len(batch))
        ranks.any()  # waits for all parts
        ranks.from_first(lambda: _finish(folder, parts))
    except OSError as error:
        raise SatlibError(
            f"cannot write {partial_array}: {error.strerror}; free some space and run the same command again"
        ) from error
    return FeatureStore(folder)


def _begin(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether an extraction of the same store was begun; its partial manifest is there afterwards."""
    path = folder / (_MANIFEST + ".partial")
    found = path.is_file() and any(folder.glob(_ARRAY + "*.partial"))
    if found:
        begun = read_json(path)
        if not isinstance(begun, dict):
            raise SatlibError(f"{path} is no feature store's manifest; delete {folder} and run satlib features again")
        other = [field for field, value in manifest.items() if begun.get(field) != value]
        if other:
            raise SatlibError(
                f"{folder} holds an unfinished extraction with another value of {', '.join(other)}; delete it, or finish it "
                "with what it was begun with"
            )
    write_json(path, manifest)
    return found


def _finish(folder: Path, parts: Sequence[Path]) -> None:
    """Put the parts of the array together and give the store its final names."""
    whole = folder / (_ARRAY + ".joined.partial") if len(parts) > 1 else parts[0]
    if len(parts) > 1:
        with open(whole, "wb") as joined:
            for part in parts:
                with open(part, "rb") as array:
                    shutil.copyfileobj(array, joined, 1 << 24)
            os.fsync(joined.fileno())
    whole.replace(folder / _ARRAY)
    (folder / (_MANIFEST + ".partial")).replace(folder / _MANIFEST)
    for left_over in folder.glob(_ARRAY + "*.partial"):
        left_over.unlink()


class Reader(Protocol):
    """Whatever gives the tensors of images by key: a `FeatureStore`, or `Pixels` where the encoder trains."""

    def read(self, keys: Sequence[str]) -> Tensor:
        """(B, L, D) annotation vectors, or (B, 3, 224, 224) images."""
        ...


class Pixels:
    """Images as an encoder takes them, kept in memory once read as far as `cache_bytes` reaches."""

    def __init__(self, data: CaptionSet, cache_bytes: int = 4_000_000_000) -> None:
        self._data = data
        self._examples = {example.key: example for example in data.examples}
        self._kept: dict[str, Tensor] = {}
        self._room = cache_bytes // (3 * SIZE * SIZE)

    def read(self, keys: Sequence[str]) -> Tensor:
        """The named images: (B, 3, 224, 224), uint8."""
        return torch.from_numpy(np.stack([self._one(key).numpy() for key in keys]))

    def prepare(self, keys: Sequence[str], progress: bool = True) -> None:
        """Draw images that are drawn, as many as are kept, before they are asked for.

        Drawing is Python's work and training, too, is steered by it: side by side each waits for the other's turn, and
        the first epoch takes twice as long as the second.
        """
        if self._data.draw is not None:
            for key in tqdm(keys[: self._room], unit="img", desc="drawing", disable=not progress, leave=False):
                self._one(key)

    def _one(self, key: str) -> Tensor:
        image = self._kept.get(key)
        if image is None:
            image = images.to_tensor(images.square(self._data.photo(self._examples[key])))
            if len(self._kept) < self._room:
                self._kept[key] = image
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


def _description(encoder: Encoder) -> dict[str, str]:
    return {"encoder": encoder.name, "weights": encoder.weights_hash, "preprocessing": PREPROCESSING}


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SatlibError(
            f"{folder} has {free / 1e9:.1f} GB free and the features need {needed / 1e9:.1f} GB; free some space or name another folder"
        )
