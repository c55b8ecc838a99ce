"""Annotation vectors on disk: computed once (`satlib.training.features`), read by every run.

In a store's folder, `annotations.f16` is an array with one row (L, D) of float16 per image.
`manifest.json` records the photographs' folder, the encoder and the hash of its weights, and for
each image its row and the size and modification time of its file, so that new and changed images
are noticed. While vectors are computed, their images are appended to `journal.jsonl`, one in
a line; at the end all are in the manifest, and the journal is gone.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor

from satlib.data import images
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.images import SIZE
from satlib.errors import SatlibError
from satlib.files import read_json, write_text

ARRAY = "annotations.f16"
MANIFEST = "manifest.json"
JOURNAL = "journal.jsonl"


class Record(NamedTuple):
    """An image in a store: its row, and the size and modification time (ns) of its file.

    Both are 0 if it is drawn.
    """

    row: int
    bytes: int
    modified: int


# A line of a journal: ["a.jpg",[row,bytes,modified]].
_JOURNAL_LINE = msgspec.json.Decoder(tuple[str, Record])


class Manifest(msgspec.Struct):
    """The content of `manifest.json`; `images` lists those whose vectors are in the array."""

    # Drop both whenever the result of `images.square` changes. 5 knows no journals.
    format: Literal["satlib features 5", "satlib features 6"]
    home: str  # the folder of the photographs, or "drawn"
    encoder: str
    weights: str  # their hash
    grid: tuple[int, int]
    dim: int
    images: dict[str, Record] = {}

    def save(self, folder: Path) -> None:
        """Write it, with one line per image."""
        # {"format":...,"images":{} without its last two brackets, which come after the images.
        head = msgspec.json.encode(msgspec.structs.replace(self, images={}))[:-2]
        # 100,000 images in one line would be more than most editors open.
        lines = [msgspec.json.encode({name: record})[1:-1] for name, record in self.images.items()]
        write_text(folder / MANIFEST, (head + b",\n".join(lines) + b"}}").decode())

    def outdated(self, examples: Iterable[Example]) -> set[str]:
        """The ids of the images whose vectors are missing, or whose files have changed since."""
        ids = set()
        for example in examples:
            record = self.images.get(example.image_id)
            if record is None or (record.bytes, record.modified) != stamp(example):
                ids.add(example.image_id)
        return ids

    def require(self, expected: "Manifest", folder: Path) -> None:
        """Refuse vectors in `folder` that were computed of, or with, something else."""
        for name in ("home", "encoder", "weights"):
            stored = getattr(self, name)
            needed = getattr(expected, name)
            if stored != needed:
                raise SatlibError(
                    f"{folder} was made with {name} {stored!r}, not {needed!r}; {_advice(folder)}"
                )


def _advice(folder: Path) -> str:
    return f"delete {folder} and run satlib features again"


def stamp(example: Example) -> tuple[int, int]:
    """Size and modification time (ns) of an image's file; (0, 0) if it is drawn."""
    if example.path is None:
        return 0, 0
    status = example.path.stat()
    return status.st_size, status.st_mtime_ns


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store, with the images of its journal.

    Raises:
        SatlibError: it is damaged.
    """
    advice = _advice(folder)
    manifest = read_json(folder / MANIFEST, Manifest, "the manifest of a feature store", advice)
    journal = folder / JOURNAL
    if journal.is_file():
        # What a kill has cut off, a line without an end, does not count.
        whole_lines, _, _ = journal.read_bytes().rpartition(b"\n")
        try:
            manifest.images |= _JOURNAL_LINE.decode_lines(whole_lines)
        except msgspec.DecodeError as error:
            raise SatlibError(f"{journal} is damaged ({error}); {advice}") from error
    return manifest


class FeatureStore:
    """The annotation vectors of a caption set's images.

    `grid` and `dim` are (h, w) and D of the encoder that made them.

    Raises:
        SatlibError: the folder has no store, or a damaged one. `encoder` names the one to make it
            with, which may be that of --start, unknown to satlib features.
    """

    def __init__(self, folder: Path, encoder: str = "") -> None:
        if not (folder / MANIFEST).is_file():
            its_encoder = f", and --set encoder.name={encoder}" if encoder else ""
            raise SatlibError(
                f"{folder} does not exist; "
                f"run satlib features with the same recipe, --set and --data{its_encoder}"
            )
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.grid = self.manifest.grid
        self.dim = self.manifest.dim

        # After a stop the file may be longer than the rows that the manifest knows.
        records = self.manifest.images.values()
        rows = 1 + max((record.row for record in records), default=-1)
        h, w = self.grid
        self._shape = h * w, self.dim  # of a row, (L, D)
        self._row_bytes = 2 * h * w * self.dim
        array = folder / ARRAY
        if not array.is_file() or array.stat().st_size < rows * self._row_bytes:
            raise self._cut_off()

    def _cut_off(self) -> SatlibError:
        return SatlibError(
            f"{self.folder / ARRAY} is missing or cut off; run satlib features again"
        )

    def __len__(self) -> int:
        return len(self.manifest.images)

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D), float32."""
        vectors = np.empty((len(image_ids), *self._shape), np.float16)  # (B, L, D)
        # Rows are read, not mapped: of a mapped file a process seems to hold, and may be killed for,
        # all that it has read so far, and a file that is cut off meanwhile would end it (SIGBUS).
        with open(self.folder / ARRAY, "rb") as array:
            for image_id, row in zip(image_ids, vectors, strict=True):
                array.seek(self.manifest.images[image_id].row * self._row_bytes)
                if array.readinto(row.data) < self._row_bytes:
                    raise self._cut_off()
        return torch.from_numpy(vectors).float()

    def check(self, expected: Manifest, examples: Sequence[Example]) -> None:
        """Refuse a store of another encoder, or without the examples as they are now."""
        self.manifest.require(expected, self.folder)
        outdated = self.manifest.outdated(examples)
        if outdated:
            raise SatlibError(
                f"{self.folder} lacks {len(outdated):,} images, or they have changed "
                f"(one is {min(outdated)}); "
                "run satlib features again, which computes only these"
            )


def folder(root: Path, data: CaptionSet, encoder: str) -> Path:
    """The folder of a store, below the data root."""
    # "hf:USER/NAME" has characters that a folder's name cannot have.
    # All stores are of whole photographs; earlier versions had others, and these keep their name.
    name = f"{data.name}-{encoder}-whole".replace(":", "-").replace("/", "-")
    return root / "features" / name


class Reader(Protocol):
    """Reads tensors by image id: a `FeatureStore`, or `Pixels` if the encoder is trained."""

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """Annotation vectors (B, L, D) or images (B, 3, 224, 224)."""
        ...


class Pixels:
    """Images as an encoder sees them (`images.square`), kept in memory up to `cache_bytes`."""

    def __init__(self, data: CaptionSet, cache_bytes: int = 4_000_000_000) -> None:
        self._photo = data.photo
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
        square = images.square(self._photo(example))
        image = images.to_tensor(square)
        # Photographs alone: a drawn scene is used once, or seldom, and the Hub decodes its own.
        if example.path is not None and len(self._cache) < self._room:
            self._cache[image_id] = image
        return image
