"""Batches of captions of one length, without padding (section 4.3); batches of whole images.

The order of an epoch's batches depends only on (seed, epoch), so a resumed run sees the same
batches.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from satlib.data.caption_set import Example
from satlib.data.features import Reader
from satlib.data.text import END, PAD, UNKNOWN, Vocabulary
from satlib.errors import SatlibError
from satlib.files import progress_bar, read_ahead


@dataclass(frozen=True, slots=True)
class Pair:
    """A training pair: an image id and one of its captions as word ids, with the end mark last."""

    image_id: str
    caption: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Images and B captions (B, C), each with its end mark, and `PAD` after it if it is shorter."""

    image_ids: list[str]
    captions: Tensor
    # (B,), the index of each caption's image in `image_ids`; None if each image has one caption,
    # in the same order.
    rows: Tensor | None = None
    # Of the loss, if this is one process's share of a batch (`satlib.training.distributed`).
    weight: float = 1.0

    @property
    def images(self) -> list[str]:
        """The image id of each caption."""
        if self.rows is None:
            return self.image_ids
        return [self.image_ids[row] for row in self.rows.tolist()]

    def by_caption(self, values: Tensor) -> Tensor:
        """Values of the images (I, ...) -> of the captions (B, ...)."""
        if self.rows is None:
            return values
        return values[self.rows.to(values.device)]


def pairs(examples: Sequence[Example], vocabulary: Vocabulary, max_length: int) -> list[Pair]:
    """A pair for each caption of at most `max_length` words, a known one among them.

    Raises:
        SatlibError: there is no such caption.
    """
    usable = []
    for example in examples:
        for reference in example.references:
            ids = vocabulary.encode(reference)
            # Unknown words alone would teach the model to say "<unknown>".
            has_known = any(word != UNKNOWN for word in ids)
            if len(ids) <= max_length and has_known:
                usable.append(Pair(example.image_id, (*ids, END)))
    if not usable:
        raise SatlibError(
            f"none of the {len(examples)} images has a caption of 1 to {max_length} words with a "
            "known one among them; "
            "shorten captions, or set data.max_length higher or data.min_count lower"
        )
    return usable


class SameLengthBatches:
    """The pairs in batches of captions of the same length; every pair occurs once per epoch."""

    def __init__(self, pairs: Sequence[Pair], batch_size: int = 64, seed: int = 0) -> None:
        self.pairs = pairs
        self.batch_size = batch_size
        self.seed = seed
        # The number of words of a caption -> the indices of the pairs that have it.
        self._by_length: dict[int, list[int]] = defaultdict(list)
        for index, pair in enumerate(pairs):
            self._by_length[len(pair.caption)].append(index)

    def __len__(self) -> int:
        return sum(len(chunks(own, self.batch_size)) for own in self._by_length.values())

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of one epoch, in order."""
        rng = np.random.default_rng((self.seed, epoch))
        parts = []
        # Sorted, so that the draws do not depend on which length came first in the data.
        for length in sorted(self._by_length):
            order = rng.permutation(self._by_length[length])
            parts += chunks(order, self.batch_size)

        # Shuffled again, or an epoch would go from the shortest captions to the longest.
        batches = []
        for number in rng.permutation(len(parts)):
            own = [self.pairs[index] for index in parts[number]]
            captions = torch.tensor([pair.caption for pair in own])  # (B, C)
            batches.append(Batch([pair.image_id for pair in own], captions))
        return batches


class ImageBatches:
    """The images in batches; every image occurs once per epoch.

    So an encoder that is trained encodes it once. With `pairs`, a batch has all captions of its
    images, and images without one are left out. Without, it has none, and the model samples its
    own. With `per_epoch`, an epoch has only this many images, the next ones: several epochs pass
    over all of them.
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

        self.image_ids = image_ids
        if pairs is not None:
            self.image_ids = [image_id for image_id in image_ids if image_id in self.captions]

        self.batch_size = batch_size
        self.seed = seed
        count = len(self.image_ids)
        self.per_epoch = min(per_epoch or count, count)

    def __len__(self) -> int:
        return len(chunks(range(self.per_epoch), self.batch_size))

    def epoch(self, epoch: int) -> list[Batch]:
        """The batches of one epoch, in order."""
        # All epochs of a pass take their parts from one order, so that none repeats an image. What
        # does not fill a part is left out until the next pass, which has another order.
        epochs_per_pass = len(self.image_ids) // self.per_epoch
        passed, part = divmod(epoch, epochs_per_pass)
        rng = np.random.default_rng((self.seed, passed))
        order = rng.permutation(len(self.image_ids))

        start = part * self.per_epoch
        own = order[start : start + self.per_epoch]
        parts = chunks(own, self.batch_size)
        return [self._batch([self.image_ids[index] for index in part]) for part in parts]

    def _batch(self, image_ids: list[str]) -> Batch:
        captions: list[Tensor] = []
        rows: list[int] = []  # of each caption, the row of its image
        for row, image_id in enumerate(image_ids):
            own = self.captions.get(image_id, [])
            captions += own
            rows += [row] * len(own)

        if not captions:
            return Batch(image_ids, torch.empty(len(image_ids), 0, dtype=torch.long))
        padded = pad_sequence(captions, batch_first=True, padding_value=PAD)  # (B, C)
        return Batch(image_ids, padded, torch.tensor(rows))


def chunks(items: Any, size: int) -> list[Any]:
    """Parts of a sequence or an array, of `size` items each; the last may be smaller."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def read_batches(
    reader: Reader, items: Sequence[Any], size: int, title: str = ""
) -> Iterator[tuple[Sequence[Any], Tensor]]:
    """Items with an `image_id` in batches, each with what the reader gives for their images.

    title: of the progress bar; without it there is none.
    """
    batches = chunks(items, size)
    # The next batch is read while this one is used.
    inputs = read_ahead(lambda batch: reader.read([item.image_id for item in batch]), batches)
    with progress_bar(total=len(items), unit="img", desc=title, show=bool(title)) as bar:
        for batch, images in zip(batches, inputs, strict=True):
            yield batch, images
            bar.update(len(batch))
