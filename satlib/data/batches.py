"""Batches of captions of one length (section 4.3), without padding; and of images, with all captions or none.

The order of an epoch's batches depends only on (seed, epoch), so a resumed run sees the same batches.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from satlib.data.caption_set import Example
from satlib.data.text import END, PAD, UNKNOWN, Vocabulary
from satlib.errors import SatlibError


@dataclass(frozen=True)
class Pair:
    """A training pair: an image id and one of its captions as word ids, with the end mark last."""

    image_id: str
    caption: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Images and B captions (B, C), each with its end mark and, if it is shorter than C words, `PAD` after it.

    rows: (B,), the index of each caption's image in `image_ids`; None if each image has one caption, in the same order.
    weight: the weight of the loss, if this is one process's share of a batch (`satlib.training.distributed`).
    """

    image_ids: list[str]
    captions: Tensor
    rows: Tensor | None = None
    weight: float = 1.0

    @property
    def images(self) -> list[str]:
        """The image id of each caption."""
        return (
            self.image_ids
            if self.rows is None
            else [self.image_ids[row] for row in self.rows.tolist()]
        )

    def by_caption(self, values: Tensor) -> Tensor:
        """Values of the images (I, ...) -> of the captions (B, ...)."""
        return values if self.rows is None else values[self.rows.to(values.device)]


def pairs(examples: Sequence[Example], vocabulary: Vocabulary, max_length: int) -> list[Pair]:
    """A pair for each caption, except captions longer than `max_length` words or without a known word."""
    usable = []
    for example in examples:
        for reference in example.references:
            ids = vocabulary.encode(reference)
            if len(ids) <= max_length and any(i != UNKNOWN for i in ids):
                usable.append(Pair(example.image_id, (*ids, END)))
    if not usable:
        raise SatlibError(
            f"none of the {len(examples)} images has a caption of 1 to {max_length} words with a known one among them; "
            "shorten captions, or set data.max_length higher or data.min_count lower"
        )
    return usable


class SameLengthBatches:
    """The pairs in batches in which all captions have the same length; every pair occurs once per epoch."""

    def __init__(self, pairs: Sequence[Pair], batch_size: int = 64, seed: int = 0) -> None:
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self._by_length: dict[int, list[int]] = defaultdict(list)
        for i, pair in enumerate(pairs):
            self._by_length[len(pair.caption)].append(i)

    def __len__(self) -> int:
        return sum(-(-len(members) // self.batch_size) for members in self._by_length.values())

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of one epoch, in order."""
        rng = np.random.default_rng((self.seed, epoch))
        chunks = []
        for length in sorted(self._by_length):
            chunks += _chunks(rng.permutation(self._by_length[length]), self.batch_size)
        batches = ([self.pairs[i] for i in chunks[chunk]] for chunk in rng.permutation(len(chunks)))
        return [
            Batch([pair.image_id for pair in own], torch.tensor([pair.caption for pair in own]))
            for own in batches
        ]


class ImageBatches:
    """The images in batches; every image occurs once per epoch, so an encoder that is trained encodes it once.

    With `pairs`, a batch has all captions of its images, and images without one are left out. Without, it has none, and the model
    samples its own. With `per_epoch`, an epoch has only this many images, the next ones: several epochs pass over all of them.
    """

    def __init__(
        self,
        image_ids: Sequence[str],
        batch_size: int = 32,
        seed: int = 0,
        pairs: Sequence[Pair] | None = None,
        per_epoch: int = 0,
    ) -> None:
        self.captions: dict[str, list[Tensor]] = defaultdict(list)
        for pair in pairs or ():
            self.captions[pair.image_id].append(torch.tensor(pair.caption))
        self.image_ids = (
            image_ids if pairs is None else [name for name in image_ids if name in self.captions]
        )
        self.batch_size, self.seed = batch_size, seed
        self.per_epoch = min(per_epoch or len(self.image_ids), len(self.image_ids))

    def __len__(self) -> int:
        return -(-self.per_epoch // self.batch_size)

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of one epoch, in order."""
        passed, part = divmod(epoch, len(self.image_ids) // self.per_epoch)
        order = np.random.default_rng((self.seed, passed)).permutation(len(self.image_ids))
        order = order[part * self.per_epoch :][: self.per_epoch]
        return [
            self._batch([self.image_ids[i] for i in chunk])
            for chunk in _chunks(order, self.batch_size)
        ]

    def _batch(self, image_ids: list[str]) -> Batch:
        captions = [self.captions.get(name, []) for name in image_ids]
        rows = torch.arange(len(image_ids)).repeat_interleave(
            torch.tensor([len(own) for own in captions])
        )
        if not len(rows):
            return Batch(image_ids, torch.empty(len(image_ids), 0, dtype=torch.long))
        padded = pad_sequence(
            [caption for own in captions for caption in own], batch_first=True, padding_value=PAD
        )
        return Batch(image_ids, padded, rows)


def _chunks(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[start : start + size] for start in range(0, len(order), size)]
