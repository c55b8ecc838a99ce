"""Training on shards (`satlib.data.sharded`): batches of one caption length (section 4.3) from a stream, with the encoder
in the loop.

Memory does not grow with the collection. At any time it holds at most `buffer` captions, from which the next one is drawn at
random, and less than one batch for each caption length, each caption with its image.

With several processes (`satlib.training.distributed`), each one reads the whole stream but decodes only the images of its own rows.
Batches are divided as usual, so every step trains on the same captions on any number of processes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from satlib.data.batches import Batch
from satlib.data.sharded import Shards, StreamedImage
from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.errors import SatlibError


class StreamedBatches:
    """Divides the captions of a stream into batches in which all captions have the same length.

    Every caption occurs exactly once per epoch, except those with more than `max_length` words or without a known word. The
    order depends only on (seed, epoch): shards are permuted, and captions are drawn from the buffer. When the stream ends, the
    remaining captions of each length follow in smaller batches.
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
        """Use the training split of `shards`.

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
        """The number of batches in an epoch, from the caption counts in the index.

        An epoch may be a few batches shorter, because captions without a known word are left out.
        """
        return self._batches

    @property
    def hash(self) -> str:
        """SHA-256 of the vocabulary and the shards, which identifies the data in a checkpoint."""
        shards = [shard["sha256"] for shard in self.shards.index["splits"]["train"]]
        return hashlib.sha256(repr([self.vocabulary.words, shards]).encode()).hexdigest()

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of one epoch while reading the stream. Their `image_ids` are not yet decoded.

        Raises:
            SatlibError: a shard cannot be read.
        """
        rng = np.random.default_rng((self.seed, epoch))
        waiting: dict[int, list[tuple[StreamedImage, list[int]]]] = defaultdict(list)
        for image, caption in self._shuffled(rng):
            same_length = waiting[len(caption)]
            same_length.append((image, caption))
            if len(same_length) == self.batch_size:
                yield _batch(waiting.pop(len(caption)))
        for length in rng.permutation(sorted(waiting)):
            yield _batch(waiting.pop(length))

    def _shuffled(self, rng: np.random.Generator) -> Iterator[tuple[StreamedImage, list[int]]]:
        """Yield (image, word ids of one caption with the end mark last) in the order of the epoch."""
        buffer: list[tuple[StreamedImage, list[int]]] = []
        for pair in self._read(rng.permutation(len(self.shards.index["splits"]["train"]))):
            if len(buffer) < self.buffer:
                buffer.append(pair)
                continue
            chosen = rng.integers(len(buffer))
            drawn, buffer[chosen] = buffer[chosen], pair
            yield drawn
        rng.shuffle(buffer)
        while buffer:  # pop, so that each image's memory is freed after its batch
            yield buffer.pop()

    def _read(self, order: Sequence[int]) -> Iterator[tuple[StreamedImage, list[int]]]:
        for shard in order:
            for image, captions in self.shards.read(shard):
                for caption in captions:
                    ids = self.vocabulary.encode(caption)
                    if 0 < len(ids) <= self.max_length and any(i != UNKNOWN for i in ids):
                        yield image, [*ids, END]


def _batch(pairs: Sequence[tuple[StreamedImage, list[int]]]) -> Batch:
    return Batch([image for image, _ in pairs], torch.tensor([caption for _, caption in pairs]))


class StreamedImages:
    """The `Reader` for shards, whose image ids carry the images."""

    def __init__(self, view: str = "whole") -> None:
        """`view` is the part of a photograph that the encoder sees (`images.square`)."""
        self._view = view

    def read(self, image_ids: Sequence[StreamedImage]) -> Tensor:
        """The images with these ids: (B, 3, 224, 224), uint8.

        Raises:
            SatlibError: an image cannot be read.
        """
        return torch.stack([image.pixels(self._view) for image in image_ids])
