"""Computing a feature store (`satlib.data.features`): first for all images, later only for new, changed or damaged ones.

New vectors go to rows that the manifest does not use, and the manifest is replaced every `SAVE_SECONDS`. So a store is valid at
any moment, and a stopped extraction resumes: the manifest lacks the images that are left.
"""

import itertools
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import (
    ARRAY,
    COMMAND,
    FORMAT,
    MANIFEST,
    FeatureStore,
    Manifest,
    Pixels,
    Record,
    Source,
    content_hash,
    home_of,
    read_ahead,
    read_manifest,
    read_row,
    size_of,
    stamp,
    unchanged,
    write_manifest,
)
from satlib.data.features import (
    folder as store_folder,
)
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar, say
from satlib.model.encoders import Encoder
from satlib.training import distributed

SAVE_SECONDS = 30.0
LOCK = ".lock"


def open_store(
    root: Path, data: CaptionSet, encoder: Encoder, view: str, examples: Sequence[Example], command: str = COMMAND
) -> FeatureStore:
    """The store for a caption set and an encoder, checked for `examples` by the first process.

    Raises:
        SatlibError: the store is missing, or does not fit (`FeatureStore.check`).
    """
    store = FeatureStore(store_folder(root, data, encoder.name, view), command)
    source = Source(encoder.name, encoder.weights_hash, view)
    distributed.current().from_first(lambda: store.check(source, data, examples))
    return store


def extract(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    device: str | torch.device = "cpu",
    batch_size: int = 32,
    progress: bool = True,
    view: str = "whole",
    verify: bool = False,
) -> FeatureStore:
    """Compute the annotation vectors of a caption set, or those missing from an existing store, and open the store.

    Images that are new or have changed are computed; vectors of images that the set does not have stay in the store. A stopped
    extraction resumes where it stopped, on any number of processes.

    Args:
        data: the caption set.
        encoder: computes the vectors.
        folder: the folder of the store.
        device: the device of the encoder.
        batch_size: images per batch.
        progress: show a progress bar and a line about the changes.
        view: the part of a photograph that the encoder sees (`images.square`).
        verify: compare the content of all images, not only of those whose files have another size or time, and the checksums of
            all vectors; recompute those that differ.

    Raises:
        SatlibError: the folder holds a different store, another process computes it, an image cannot be read, or the disk is too
            small.
    """
    ranks = distributed.current()
    source = Source(encoder.name, encoder.weights_hash, view)
    manifest = Manifest(FORMAT, data.name, home_of(data), *source, encoder.grid, encoder.dim, {})
    try:
        with _locked(folder, ranks):
            todo, manifest.images, changes = ranks.from_first(lambda: _plan(data, folder, manifest, verify))
            if changes and progress and ranks.first:
                say(f"{folder}: {changes}")
            if todo:
                _compute(data, encoder.to(device), folder, manifest, todo, batch_size, progress and ranks.first)
            ranks.any()  # waits for the manifest
    except OSError as error:
        raise SatlibError(
            f"cannot write {folder / ARRAY}: {error.strerror}; free some space and run the same command again"
        ) from error
    return FeatureStore(folder)


@contextmanager
def _locked(folder: Path, ranks: distributed.Ranks) -> Iterator[None]:
    """Hold a store's folder, which is made if it is not there; the first process holds it for all."""
    lock = FileLock(folder / LOCK)

    def acquire() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise SatlibError(
                f"{folder} is in use by another satlib features; wait until it has ended, and run this one again"
            ) from error

    ranks.from_first(acquire)
    try:
        yield
    finally:
        lock.release()


def _plan(
    data: CaptionSet, folder: Path, manifest: Manifest, verify: bool
) -> tuple[list[tuple[str, int]], dict[str, Record], str]:
    """Compare a caption set with the store in a folder, and take out of the store's manifest what is no longer right.

    Returns:
        (image id, row) of the images to compute, the records that are left, and the changes in words.
    """
    old = read_manifest(folder) if (folder / MANIFEST).is_file() else manifest
    old.require(Source(manifest.encoder, manifest.weights, manifest.view), folder)
    moved, image_ids = old.home != manifest.home, {example.image_id for example in data.examples}
    known = [example for example in data.examples if example.image_id in old.images]
    same = unchanged(data, known, old.images, verify or moved)
    # What another recipe needs of the same set stays, except if it could be another set's.
    others = {image_id: record for image_id, record in old.images.items() if image_id not in image_ids and not moved}
    valid = _intact(folder / ARRAY, same | others, manifest.row_bytes, verify)
    taken = {record.row for record in old.images.values()}  # also of changed images: somebody may be reading them
    free = (row for row in itertools.count() if row not in taken)
    todo = [(example.image_id, next(free)) for example in data.examples if example.image_id not in valid]
    rows = 1 + max((row for _, row in todo), default=-1)
    _require_space(folder, rows * manifest.row_bytes - size_of(folder / ARRAY))
    counts = {
        "new": len(data) - len(known),
        "changed": len(known) - len(same),
        "damaged": len(same) + len(others) - len(valid),
    }
    changes = [f"{count} {state}" for state, count in counts.items() if count]
    if moved:
        changes.insert(0, f"moved from {old.home}")
    if old is manifest or changes or valid != old.images:
        manifest.images = valid
        write_manifest(folder, manifest)
    line = f"{', '.join(changes)}; computing {len(todo):,} of {len(data):,} images"
    return todo, valid, line if changes and old.images else ""


def _intact(array: Path, records: Mapping[str, Record], size: int, verify: bool) -> dict[str, Record]:
    """The records whose rows, of `size` bytes each, are in the array; if `verify`, those that also match their checksums."""
    end = size_of(array)
    records = {image_id: record for image_id, record in records.items() if (record.row + 1) * size <= end}
    if not verify or not records:
        return records
    row = memoryview(bytearray(size))
    bar = progress_bar(records.items(), unit="img", desc="comparing checksums", delay=2, leave=False)
    with open(array, "rb") as file:
        return {
            name: record for name, record in bar if read_row(file, record.row, row) and zlib.crc32(row) == record.crc32
        }


def _compute(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    manifest: Manifest,
    todo: Sequence[tuple[str, int]],
    batch_size: int,
    progress: bool,
) -> None:
    """Write the vectors of some images to their rows, and record them in the manifest once they are on disk."""
    # Channels last is a third to a half faster on a CPU (`python benchmarks/bench.py extraction`), with the same results up to rounding.
    encoder = encoder.to(memory_format=torch.channels_last).eval()
    pixels, ranks = Pixels(data, manifest.view, cache_bytes=0), distributed.current()
    examples = {example.image_id: example for example in data.examples}

    def read(batch: Sequence[tuple[str, int]]) -> tuple[list[tuple[int, int, str]], Tensor]:
        # The files first: an image that is replaced before its pixels are read then differs from its record.
        files = [(*stamp(examples[name]), content_hash(data, examples[name])) for name, _ in batch]
        return files, pixels.read([name for name, _ in batch]) if batch else torch.empty(0)

    starts = range(batch_size * ranks.rank, len(todo) + batch_size * ranks.rank, batch_size * ranks.size)
    batches = [todo[start : start + batch_size] for start in starts]
    (folder / ARRAY).touch()
    bar = progress_bar(total=len(todo), unit="img", desc=f"{data.name} by {encoder.name}", show=progress)
    with bar, open(folder / ARRAY, "r+b") as array, torch.inference_mode():
        saved = time.monotonic()
        try:
            for batch, (files, images) in zip(batches, read_ahead(read, batches, threads=4), strict=True):
                records = {}
                if batch:
                    contents = _encode(encoder, images, batch[0][0])
                    for (image_id, row), file, content in zip(batch, files, contents, strict=True):
                        array.seek(row * len(content))
                        array.write(content)
                        records[image_id] = Record(row, *file, zlib.crc32(content))
                array.flush()
                for part in ranks.gather(records):
                    manifest.images |= part
                    bar.update(len(part))
                if ranks.first and time.monotonic() - saved > SAVE_SECONDS:
                    write_manifest(folder, manifest)
                    saved = time.monotonic()
        finally:
            if ranks.first:
                write_manifest(folder, manifest)


def _encode(encoder: Encoder, images: Tensor, first: str) -> list[bytes]:
    """The vectors of a batch as float16, a row for each image; `first` names the batch in the message."""
    vectors = encoder(images.to(encoder.mean.device, non_blocking=True)).to("cpu", torch.float16)
    if not torch.isfinite(vectors).all():
        raise SatlibError(f"{encoder.name} gives values beyond float16 in the batch that starts with image {first}")
    return [one.contiguous().numpy().tobytes() for one in vectors]


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SatlibError(
            f"{folder} has {free / 1e9:.1f} GB free, but the features need {needed / 1e9:.1f} GB; free some space or choose another folder"
        )
