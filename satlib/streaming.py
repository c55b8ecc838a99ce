"""Training on shards (`satlib.datasets.sharded`): batches of one length (section 4.3) out of a stream, the encoder in the loop.

Nothing grows with the collection. What has been read and waits for its turn is at most `buffer` captions, among which the
next is drawn by lot, and for each length of captions less than a batch; each with its image.

Of several processes (`satlib.distributed`) each reads the whole stream and decodes the images of its own rows: a batch is
shared out as any other, so that a run means the same on any number of them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from satlib.batching import Batch
from satlib.datasets.sharded import Picture, Shards
from satlib.errors import SatlibError
from satlib.text import END, UNKNOWN, Vocabulary


class StreamedBatches:
    """Cuts the captions of a stream into batches within which every caption has the same length.

    Every caption comes exactly once per epoch, those of more than `max_length` words or without a known word left out. The
    order depends on (seed, epoch) alone: shards are permuted, captions are drawn from the buffer. What is left of each length
    when the stream ends comes last, in smaller batches.
    """

    def __init__(
        self,
        shards: Shards,
        vocabulary: Vocabulary,
        max_length: int,
        batch_size: int = 64,
        seed: int = 0,
        buffer: int = 4000,
    ) -> None:
        """Take the stream of a set's training images.

        Raises:
            SatlibError: it has no caption of 1 to `max_length` words.
        """
        self.shards, self.vocabulary, self.max_length = shards, vocabulary, max_length
        self.batch_size, self.seed, self.buffer = batch_size, seed, buffer
        lengths = {int(length): count for length, count in shards.index["lengths"].items()}
        self._batches = sum(-(-count // batch_size) for length, count in lengths.items() if length <= max_length)
        if not self._batches:
            raise SatlibError(
                f"{shards.place} has no training caption of 1 to {max_length} words; write shards of the train split"
            )

    def __len__(self) -> int:
        """Batches in an epoch: known beforehand, since the order changes nothing in how many captions each length has.

        A few less come where captions have no word of the vocabulary.
        """
        return self._batches

    @property
    def hash(self) -> str:
        """SHA-256 of what the stream says: what a checkpoint is checked by."""
        shards = [shard["sha256"] for shard in self.shards.index["splits"]["train"]]
        return hashlib.sha256(repr([self.vocabulary.words, shards]).encode()).hexdigest()

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch, in their order, as the stream is read; `image_ids` are `Picture`s, nothing is decoded yet.

        Raises:
            SatlibError: a shard cannot be read.
        """
        rng = np.random.default_rng((self.seed, epoch))
        waiting: dict[int, list[tuple[Picture, list[int]]]] = defaultdict(list)
        for picture, caption in self._mixed(rng):
            same = waiting[len(caption)]
            same.append((picture, caption))
            if len(same) == self.batch_size:
                yield _batch(waiting.pop(len(caption)))
        for length in rng.permutation(sorted(waiting)):
            yield _batch(waiting.pop(length))

    def _mixed(self, rng: np.random.Generator) -> Iterator[tuple[Picture, list[int]]]:
        """Images with one of their captions as ids, the end mark last, in the epoch's order."""
        held: list[tuple[Picture, list[int]]] = []
        for pair in self._read(rng.permutation(len(self.shards.index["splits"]["train"]))):
            if len(held) < self.buffer:
                held.append(pair)
                continue
            chosen = rng.integers(len(held))
            drawn, held[chosen] = held[chosen], pair
            yield drawn
        rng.shuffle(held)
        while held:  # let go of, one by one
            yield held.pop()

    def _read(self, order: Sequence[int]) -> Iterator[tuple[Picture, list[int]]]:
        for shard in order:
            for picture, captions in self.shards.read(shard):
                for caption in captions:
                    ids = self.vocabulary.encode(caption)
                    if 0 < len(ids) <= self.max_length and any(i != UNKNOWN for i in ids):
                        yield picture, [*ids, END]


def _batch(pairs: Sequence[tuple[Picture, list[int]]]) -> Batch:
    return Batch([picture for picture, _ in pairs], torch.tensor([caption for _, caption in pairs]))


class Pictures:
    """The reader of shards: their image ids bring the images along."""

    def __init__(self, view: str = "whole") -> None:
        """`view` is what the encoder sees of a photograph (`images.square`)."""
        self._view = view

    def read(self, image_ids: Sequence[Picture]) -> Tensor:
        """The images of a batch's ids: (B, 3, 224, 224), uint8.

        Raises:
            SatlibError: an image cannot be read.
        """
        return torch.stack([picture.pixels(self._view) for picture in image_ids])
