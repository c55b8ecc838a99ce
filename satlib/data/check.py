"""`satlib data check NAME`: statistics of a caption set, and missing or unreadable images."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from satlib.data.batches import training_pairs
from satlib.data.caption_set import SPLITS, Example
from satlib.data.datasets import data_root, load
from satlib.data.features import read_ahead
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar
from satlib.recipe import DataConfig

_LONGEST = DataConfig().max_length


@dataclass(frozen=True)
class Split:
    """Statistics of one split.

    Attributes:
        images, captions: their numbers.
        references: (minimum, maximum) number of captions per image.
        lengths: (minimum, mean, maximum) number of words per caption.
        known_tokens: share of the running words that are in the training vocabulary, 0..1.
        known_words: share of the distinct words that are in it, 0..1.
        usable: the number of captions that training takes: not too long for the default data.max_length, with a known word.
    """

    images: int
    captions: int
    references: tuple[int, int]
    lengths: tuple[int, float, int]
    known_tokens: float
    known_words: float
    usable: int


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    Attributes:
        name: of the caption set.
        where: the folder that contains its images ("drawn, needs no files" for scenes).
        splits: name -> statistics, for the splits that have images.
        vocabulary: K, the vocabulary size of the training captions, special words included; 0 without a training split.
        opened: the number of images that were opened (or drawn).
        missing: ids of images whose file is missing.
        unreadable: one line for each image that cannot be read.
    """

    name: str
    where: str
    splits: dict[str, Split]
    vocabulary: int
    opened: int
    missing: tuple[str, ...]
    unreadable: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every listed image exists and can be read, and there are images to train on and to choose an epoch by."""
        return not self.missing and not self.unreadable and not self.lacking

    @property
    def lacking(self) -> list[str]:
        """The splits that training needs and that have no image with a caption for it."""
        return [split for split in ("train", "dev") if split not in self.splits or not self.splits[split].usable]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.where}", ""]
        lines.append(
            f"{'split':6} {'images':>7} {'captions':>9} {'per image':>10} {'words (mean)':>16} {'known words':>12} {'running':>8}"
        )
        for name, split in self.splits.items():
            low, mean, high = split.lengths
            lines.append(
                f"{name:6} {split.images:7,} {split.captions:9,} {'{}-{}'.format(*split.references):>10} "
                f"{f'{low}-{high} ({mean:.1f})':>16} {split.known_words:12.1%} {split.known_tokens:8.2%}"
            )
        lines += ["", f"vocabulary of the training captions: K = {self.vocabulary:,}"]
        lines.append(
            f"images: {self.opened:,} read, {len(self.missing):,} missing, {len(self.unreadable):,} unreadable"
        )
        lines += [f"  missing: {image_id}" for image_id in self.missing]
        lines += [f"  {line}" for line in self.unreadable]
        if self.lacking:
            lines.append(
                f"nothing to train on in {' and '.join(self.lacking)}: satlib train needs images in both train and dev, with "
                f"captions of at most {_LONGEST} words (data.max_length); give some images that split, or shorten captions"
            )
        return "\n".join(lines)


def check(name: str, root: Path | None = None, size: int = 10_000, progress: bool = True) -> Report:
    """Check a whole caption set: captions, splits, and every image, opened (or drawn) once.

    Args:
        name: as in `load`.
        root: the data root.
        size: the largest K of the vocabulary whose coverage is measured.
        progress: show a progress bar while images are opened.

    Raises:
        SatlibError: the set is unknown, or its captions cannot be read.
    """
    data = load(name, data_root() if root is None else root, require_images=False)
    by_split: dict[str, list[Example]] = {}
    missing, unreadable = [], []

    def read(example: Example) -> tuple[Example, bool, str]:
        if example.path is not None and not example.path.exists():
            return example, False, ""
        try:
            data.photo(example)
        except SatlibError as error:
            return example, True, str(error)
        return example, True, ""

    seen = read_ahead(read, data.examples, min(8, os.cpu_count() or 1))
    for example, exists, problem in progress_bar(seen, total=len(data), unit="img", desc=data.name, show=progress):
        by_split.setdefault(example.split, []).append(example)
        if not exists:
            missing.append(example.image_id)
        elif problem:
            unreadable.append(problem)
    vocabulary = data.vocabulary(size, 1) if "train" in by_split else None
    return Report(
        name=data.name,
        where="drawn, needs no files" if data.home is None else str(data.home),
        splits={split: _describe(by_split[split], vocabulary) for split in SPLITS if split in by_split},
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(data) - len(missing) - len(unreadable),
        missing=tuple(missing),
        unreadable=tuple(unreadable),
    )


def _describe(examples: Sequence[Example], vocabulary: Vocabulary | None) -> Split:
    captions = [tokenise(caption) for example in examples for caption in example.references]
    lengths = [len(words) for words in captions]
    tokens = [word for words in captions for word in words]
    distinct = set(tokens)
    counts = [len(example.references) for example in examples]
    known = {word for word in distinct if vocabulary is not None and word in vocabulary}
    return Split(
        images=len(examples),
        captions=len(captions),
        references=(min(counts), max(counts)),
        lengths=(min(lengths), sum(lengths) / len(lengths), max(lengths)),
        known_tokens=sum(word in known for word in tokens) / len(tokens),
        known_words=len(known) / len(distinct),
        usable=sum(0 < length <= _LONGEST for length in lengths)
        if vocabulary is None
        else sum(1 for _ in training_pairs(examples, vocabulary, _LONGEST)),
    )
