"""Computing a feature store (`satlib.data.features`): first for all images, later only for new, changed or damaged ones.

Each process (`satlib.training.distributed`) writes its rows to parts of the array that the manifest does not use, and records them in
its own journal. The manifest is replaced last. If an extraction is killed, the old manifest is still valid, and the journals
record the rows that need not be recomputed.
"""

import itertools
import json
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from satlib.data.datasets import CaptionSet
from satlib.data.features import (
    ARRAY,
    FORMAT,
    MADE_BY,
    MANIFEST,
    FeatureStore,
    Pixels,
    Record,
    fingerprint,
    fingerprints,
    home_of,
    made_by,
    read_ahead,
    read_manifest,
    read_row,
    size_of,
    write_manifest,
)
from satlib.errors import SatlibError
from satlib.files.atomic import read_json, write_json, write_text
from satlib.files.progress import progress_bar, say
from satlib.model.encoders import Encoder
from satlib.training import distributed

_JOURNAL = "images-{}.partial"


def extract(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    device: str | torch.device = "cpu",
    batch_size: int = 32,
    progress: bool = True,
    view: str = "whole",
) -> FeatureStore:
    """Compute the annotation vectors of a caption set, or those missing from an existing store, and open the store.

    Images that are new, have changed, or whose vectors are damaged are computed; removed images are dropped; all others are
    left unchanged. A stopped extraction resumes where it stopped, on any number of processes.

    Args:
        data: the caption set.
        encoder: computes the vectors.
        folder: the folder of the store.
        device: the device of the encoder.
        batch_size: images per batch.
        progress: show a progress bar and a line about the changes.
        view: the part of a photograph that the encoder sees (`images.square`).

    Raises:
        SatlibError: the folder holds a different store, an image cannot be read, or the disk is too small.
    """
    ranks = distributed.current()
    description = {
        "format": FORMAT,
        "data": data.name,
        "home": home_of(data),
        **made_by(encoder, view),
        "grid": list(encoder.grid),
        "dim": encoder.dim,
    }
    plan = ranks.from_first(lambda: _plan(data, folder, description))
    if plan.changes and progress and ranks.first:
        say(f"{folder}: {plan.changes}")
    if not plan.finished:
        todo = plan.todo[len(plan.todo) * ranks.rank // ranks.size : len(plan.todo) * (ranks.rank + 1) // ranks.size]
        try:
            _compute(data, encoder.to(device), folder, todo, batch_size, view, progress and ranks.first)
            ranks.any()  # waits for all rows
            ranks.from_first(lambda: _finish(data, folder, description, plan.valid))
        except OSError as error:
            raise SatlibError(
                f"cannot write {folder / ARRAY}: {error.strerror}; free some space and run the same command again"
            ) from error
    return FeatureStore(folder)


class _ExtractionPlan(NamedTuple):
    """The (image id, row) pairs to compute, the records to keep, the changes as text, and whether nothing is left to do."""

    todo: list[tuple[str, int]]
    valid: dict[str, Record]
    changes: str
    finished: bool


def _plan(data: CaptionSet, folder: Path, description: dict[str, Any]) -> _ExtractionPlan:
    """Compare a caption set with the store in a folder, if any, and with the remains of a stopped extraction."""
    old, stored = read_manifest(folder) if (folder / MANIFEST).is_file() else ({}, {})
    partial = folder / (MANIFEST + ".partial")
    advice = f"delete {folder} and run satlib features again"
    begun = read_json(partial, dict[str, Any], "the manifest of a feature store", advice) if partial.is_file() else {}
    for state, manifest in (("a feature store", old), ("an unfinished extraction", begun)):
        differing = [field for field in ("format", *MADE_BY) if manifest and manifest.get(field) != description[field]]
        if differing:
            raise SatlibError(
                f"{folder} holds {state} with a different value of {', '.join(differing)}; delete it, or repeat the command that made it"
            )
    known = stored | _journals(folder)
    examples = {example.image_id: example for example in data.examples}
    now = fingerprints(data, [examples[image_id] for image_id in known if image_id in examples])
    same = {image_id: record for image_id, record in known.items() if now.get(image_id) == record[1:3]}
    row_bytes = 2 * description["dim"] * int(np.prod(description["grid"]))
    valid = _undamaged(folder / ARRAY, same, row_bytes)
    # Includes the rows of the old manifest, which stays valid until it is replaced.
    taken = {record.row for record in known.values()}
    free = (row for row in itertools.count() if row not in taken)
    todo = [(image_id, next(free)) for image_id in examples if image_id not in valid]
    if finished := not todo and stored.keys() == examples.keys() and old.get("home") == description["home"]:
        return _ExtractionPlan([], valid, "", finished)
    counts = {
        "new": sum(image_id not in stored and image_id not in valid for image_id in examples),
        "changed": sum(image_id in now and image_id not in same for image_id in stored),
        "damaged": len(same) - len(valid),
        "removed": sum(image_id not in examples for image_id in stored),
    }
    changes = [f"{count} {state}" for state, count in counts.items() if count]
    if old and old["home"] != description["home"]:
        changes.insert(0, f"moved from {old['home']}")
    write_json(partial, description)
    _merge_journals(folder, {image_id: record for image_id, record in valid.items() if stored.get(image_id) != record})
    rows = 1 + max((row for _, row in todo), default=-1)
    _require_space(folder, rows * row_bytes - size_of(folder / ARRAY))
    line = f"{', '.join(changes)}; computing {len(todo):,} of {len(examples):,} images" if old else ""
    return _ExtractionPlan(todo, valid, line, finished)


def _undamaged(array: Path, records: Mapping[str, Record], size: int) -> dict[str, Record]:
    """The records whose rows, of `size` bytes each, match their checksums."""
    if not records or not array.is_file():
        return {}
    row = bytearray(size)
    with (
        open(array, "rb", buffering=0) as file,
        progress_bar(total=len(records), unit="img", desc="comparing checksums", delay=2, leave=False) as bar,
    ):
        valid = {}
        for image_id, record in sorted(records.items(), key=lambda item: item[1].row):
            if read_row(file, record.row, row) and zlib.crc32(row) == record.crc32:
                valid[image_id] = record
            bar.update()
    return valid


def _compute(
    data: CaptionSet,
    encoder: Encoder,
    folder: Path,
    todo: Sequence[tuple[str, int]],
    batch_size: int,
    view: str,
    progress: bool,
) -> None:
    """Write the vectors of some images to their rows, and record each in this process's journal once it is on disk."""
    # Channels last is a third to a half faster on a CPU (`python -m benchmarks.bench extraction`), with the same results up to rounding.
    encoder = encoder.to(memory_format=torch.channels_last).eval()
    pixels = Pixels(data, view, cache_bytes=0)
    examples = {example.image_id: example for example in data.examples}

    def read(batch: Sequence[tuple[str, int]]) -> tuple[Tensor, list[tuple[int, str]]]:
        # Fingerprints first: an image that is replaced before its pixels are read then differs from its record and is recomputed.
        prints = [fingerprint(data, examples[image_id]) for image_id, _ in batch]
        return pixels.read([image_id for image_id, _ in batch]), prints

    batches = [todo[start : start + batch_size] for start in range(0, len(todo), batch_size)]
    name = f"{data.name} by {encoder.name}"
    bar = progress_bar(total=len(todo), unit="img", desc=name, show=progress)
    journal_path = folder / _JOURNAL.format(distributed.current().rank)
    (folder / ARRAY).touch()
    with (
        bar,
        open(folder / ARRAY, "r+b", buffering=0) as array,
        open(journal_path, "a", encoding="utf-8") as journal,
        torch.inference_mode(),
    ):
        journal.write("\n")  # ends a line that a kill left incomplete
        for batch, (batch_pixels, prints) in zip(batches, read_ahead(read, batches, threads=4), strict=True):
            vectors = encoder(batch_pixels.to(encoder.mean.device, non_blocking=True)).to("cpu", torch.float16)
            if not torch.isfinite(vectors).all():
                raise SatlibError(
                    f"{encoder.name} gives values beyond float16 in the batch that starts with image {batch[0][0]}"
                )
            contents = [one.contiguous().numpy().tobytes() for one in vectors]
            for (_, row), content in zip(batch, contents, strict=True):
                _write_row(array, row, content)
            os.fsync(array.fileno())
            for (image_id, row), printed, content in zip(batch, prints, contents, strict=True):
                journal.write(_line(image_id, Record(row, *printed, zlib.crc32(content))))
            journal.flush()
            bar.update(len(batch))


def _finish(data: CaptionSet, folder: Path, description: dict[str, Any], valid: Mapping[str, Record]) -> None:
    """Replace the manifest by one that lists all images, and delete the journals."""
    known = {**valid, **_journals(folder)}
    write_manifest(folder, description, {example.image_id: known[example.image_id] for example in data.examples})
    for left_over in (folder / (MANIFEST + ".partial"), *folder.glob(_JOURNAL.format("*"))):
        left_over.unlink()


def _merge_journals(folder: Path, valid: Mapping[str, Record]) -> None:
    """Replace all journals by one with only the valid records, so that outdated records are never read again."""
    journals = list(folder.glob(_JOURNAL.format("*")))
    write_text(
        folder / _JOURNAL.format("begun"), "".join(_line(image_id, record) for image_id, record in valid.items())
    )
    for path in journals:
        if path.name != _JOURNAL.format("begun"):
            path.unlink()


def _line(image_id: str, record: Record) -> str:
    return json.dumps([image_id, *record]) + "\n"


def _journals(folder: Path) -> dict[str, Record]:
    """The records of stopped extractions, without lines that a kill left incomplete."""
    records = {}
    for path in sorted(folder.glob(_JOURNAL.format("*"))):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                image_id, *values = json.loads(line)
                records[image_id] = Record(*values)
            except (TypeError, ValueError):  # an incomplete line
                continue
    return records


def _write_row(array: BinaryIO, row: int, content: bytes) -> None:
    array.seek(row * len(content))
    left = memoryview(content)
    while left:  # a disk that is nearly full may write only a part
        left = left[array.write(left) :]


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SatlibError(
            f"{folder} has {free / 1e9:.1f} GB free, but the features need {needed / 1e9:.1f} GB; free some space or choose another folder"
        )
