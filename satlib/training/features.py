"""Computing a feature store (`satlib.data.features`), later only for new or changed images.

Each batch's images are appended to the journal once their vectors are written, so a store is valid
at any moment, and a stopped extraction resumes.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch
from torch import Tensor

from satlib.data import features
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import (
    ARRAY,
    JOURNAL,
    MANIFEST,
    FeatureStore,
    Manifest,
    Pixels,
    Reader,
    Record,
    stamp,
)
from satlib.errors import SatlibError
from satlib.files import locked_folder, progress_bar, read_ahead
from satlib.model.encoders import Encoder
from satlib.training import distributed

# Enough to measure a scale: a single image already has tens of thousands of values.
IMAGES = 64


def _manifest(data: CaptionSet, encoder: Encoder) -> Manifest:
    """What a store of these vectors says of itself, without images yet."""
    return Manifest(
        "satlib features 6",
        str(data.home or "drawn"),
        encoder.name,
        encoder.weights_hash,
        encoder.grid,
        encoder.dim,
    )


def root_mean_square(reader: Reader, image_ids: Sequence[str]) -> float:
    """The root mean square of the annotation vectors' values, of the first `IMAGES` images.

    VGG-19's on Flickr8k is 6.4. Values that large saturate the gates of an untrained LSTM;
    `encoder.scale` brings them to about 1.
    """
    a = reader.read(image_ids[:IMAGES])
    return a.double().square().mean().sqrt().item()


def open_store(
    root: Path, data: CaptionSet, encoder: Encoder, examples: Sequence[Example]
) -> FeatureStore:
    """The store for a caption set and an encoder, checked for `examples` by the first process."""
    store = FeatureStore(features.folder(root, data, encoder.name), encoder.name)
    distributed.current().from_first(lambda: store.check(_manifest(data, encoder), examples))
    return store


def extract(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    device: str | torch.device = "cpu",
    batch_size: int = 32,
    progress: bool = True,
) -> FeatureStore:
    """Compute the annotation vectors that a store lacks, all for a new one, and open it.

    Several processes share the work: each encodes its batches and writes their rows into the one
    array; the first keeps journal and manifest.

    Raises:
        SatlibError: the folder is in use, or holds the vectors of another encoder or data set.
    """
    ranks = distributed.current()
    # Channels last is a third to a half faster on a CPU, with the same results up to rounding.
    encoder = encoder.to(device).to(memory_format=torch.channels_last).eval()

    with ExitStack() as held, torch.inference_mode():
        ranks.from_first(lambda: held.enter_context(locked_folder(folder)))
        empty = _manifest(data, encoder)

        def begun() -> Manifest:
            return _begin(folder, empty, _up_to_date(folder, empty, data))

        # What is stored already, which the first process reads for all of them.
        manifest = ranks.from_first(begun)

        todo = _missing(data, manifest)
        batches = _own_batches(todo, batch_size, ranks)

        array = held.enter_context(open(folder / ARRAY, "r+b"))
        journal = held.enter_context(closing(_Journal(folder, manifest, ranks)))
        bar = held.enter_context(
            progress_bar(
                total=len(todo),
                unit="img",
                desc=f"{data.name} by {encoder.name}",
                show=progress and ranks.first,
            )
        )
        for records, images in read_ahead(_reader(data), batches, threads=4):
            if records:
                vectors = encoder(images.to(device, non_blocking=True))
                _write_rows(array, records.values(), vectors)
            count = journal.add(records)
            bar.update(count)
        journal.finish()
    return FeatureStore(folder)


class _Journal:
    """The images whose rows are written, kept on disk by the first process."""

    def __init__(self, folder: Path, manifest: Manifest, ranks: distributed.Ranks) -> None:
        self._folder = folder
        self._manifest = manifest
        self._ranks = ranks
        # The other processes note nothing.
        place = folder / JOURNAL if ranks.first else Path(os.devnull)
        self._file = place.open("ab")

    def add(self, records: dict[str, Record]) -> int:
        """Note this process's images and, with them, those of the others; how many in all."""
        count = 0
        for part in self._ranks.gather(records):
            self._manifest.images |= part
            for item in part.items():
                self._file.write(msgspec.json.encode(item) + b"\n")
            count += len(part)
        self._file.flush()
        return count

    def finish(self) -> None:
        """Put all images in the manifest; every process waits until it is written."""
        # Windows deletes no file that is open.
        self.close()
        if self._ranks.first:
            _save(self._manifest, self._folder)
        self._ranks.wait()

    def close(self) -> None:
        """Close the file, which holds what has been noted."""
        self._file.close()


# An image with the row that its vectors get.
Place = tuple[int, Example]


def _missing(data: CaptionSet, manifest: Manifest) -> list[Place]:
    """The images that a store lacks.

    Their rows follow the last one in use; those of outdated images before it stay unused.
    """
    first_row = 1 + max((record.row for record in manifest.images.values()), default=-1)
    missing = [example for example in data.examples if example.image_id not in manifest.images]
    return list(enumerate(missing, first_row))


def _reader(data: CaptionSet) -> Callable[[Sequence[Place]], tuple[dict[str, Record], Tensor]]:
    """Reads the images of a batch: their records, and their pixels (B, 3, 224, 224), uint8."""
    pixels = Pixels(data, cache_bytes=0)

    def read(batch: Sequence[Place]) -> tuple[dict[str, Record], Tensor]:
        # The files' times first: an image that is replaced before its pixels are read then differs
        # from its record.
        records = {example.image_id: Record(row, *stamp(example)) for row, example in batch}
        if not records:
            return records, torch.empty(0)
        return records, pixels.read(list(records))

    return read


def _own_batches(
    todo: Sequence[Place], batch_size: int, ranks: distributed.Ranks
) -> list[Sequence[Place]]:
    """The batches of this process, of which the last may be empty.

    Every process has as many, because after each batch they wait for each other.
    """
    turns = math.ceil(len(todo) / (batch_size * ranks.size))
    starts = [batch_size * (turn * ranks.size + ranks.rank) for turn in range(turns)]
    return [todo[start : start + batch_size] for start in starts]


def _up_to_date(folder: Path, empty: Manifest, data: CaptionSet) -> dict[str, Record]:
    """The images of a store that need no new vectors; none where there is no store.

    Raises SatlibError if the store is not what `empty` says of a new one.
    """
    if not (folder / MANIFEST).is_file():
        return {}
    old = features.read_manifest(folder)
    old.require(empty, folder)
    outdated = old.outdated(data.examples)
    return {name: record for name, record in old.images.items() if name not in outdated}


def _begin(folder: Path, empty: Manifest, kept: dict[str, Record]) -> Manifest:
    """Write the manifest of a store with the images that are kept, and an array if it has none."""
    # Of nothing kept: the journal of a store without its manifest may be of another encoder.
    if not kept:
        (folder / JOURNAL).unlink(missing_ok=True)
    manifest = msgspec.structs.replace(empty, images=kept)
    _save(manifest, folder)
    (folder / ARRAY).touch()
    return manifest


def _save(manifest: Manifest, folder: Path) -> None:
    """Write a manifest, which has all that is in the journal, and delete the journal."""
    manifest.save(folder)
    (folder / JOURNAL).unlink(missing_ok=True)


def _write_rows(array: BinaryIO, records: Iterable[Record], vectors: Tensor) -> None:
    """Write annotation vectors (B, L, D), each image's in its own row of the array."""
    rows = vectors.to("cpu", torch.float16).numpy()
    try:
        for record, row in zip(records, rows, strict=True):
            array.seek(record.row * row.nbytes)
            array.write(row.tobytes())
        # Written before the journal names them.
        array.flush()
    except OSError as error:
        raise SatlibError(
            f"cannot write {array.name}: {error.strerror}; free some space, and run it again"
        ) from error
