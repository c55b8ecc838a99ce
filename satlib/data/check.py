"""`satlib data check NAME`: statistics of a caption set, and missing or unreadable images."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from satlib.data.datasets import SPLITS, CaptionSet, Example, data_root, load
from satlib.data.reading import absent
from satlib.data.sharded import Shards
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar


@dataclass(frozen=True)
class Split:
    """Statistics of one split.

    Attributes:
        images, captions: their numbers.
        references: (minimum, maximum) number of captions per image.
        lengths: (minimum, mean, maximum) number of words per caption.
        known_tokens: share of the running words that are in the training vocabulary, 0..1.
        known_words: share of the distinct words that are in it, 0..1.
    """

    images: int
    captions: int
    references: tuple[int, int]
    lengths: tuple[int, float, int]
    known_tokens: float
    known_words: float


@dataclass(frozen=True)
class Report:
    """The result of `check`.

    Attributes:
        name: of the caption set.
        where: the folder of its images ("drawn, needs no files" for scenes).
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
        """Whether every listed image exists and can be read."""
        return not self.missing and not self.unreadable

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
        return "\n".join(lines)


def check(name: str, root: Path | None = None, size: int = 10_000, progress: bool = True, language: str = "") -> Report:
    """Check a whole caption set: captions, splits, and every image, opened (or drawn) once.

    Args:
        name: as in `load`.
        root: the data root.
        size: the largest K of the vocabulary whose coverage is measured.
        progress: show a progress bar while images are opened.
        language: the recipe's data.language; shards record their own.

    Raises:
        SatlibError: the set is unknown, or its captions cannot be read.
    """
    root = data_root() if root is None else root
    data = load(name, root, require_images=False)
    if isinstance(data, Shards):
        return _check_shards(data, size, progress, language or data.language)
    missing = absent(data.examples)
    missing_ids = {example.image_id for example in missing}
    present = [example for example in data.examples if example.image_id not in missing_ids]
    unreadable = tuple(line for line in _read(data, present, progress) if line)
    train = [caption for example in data.split("train") for caption in example.references]
    vocabulary = Vocabulary.from_captions(train, size, language=language) if train else None
    paths = [str(example.path.parent) for example in data.examples if example.path is not None]
    return Report(
        name=data.name,
        where=os.path.commonpath(paths) if paths else "drawn, needs no files",
        splits={split: _describe(data.split(split), vocabulary, language) for split in SPLITS if data.split(split)},
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(present) - len(unreadable),
        missing=tuple(example.image_id for example in missing),
        unreadable=unreadable,
    )


def _check_shards(data: Shards, size: int, progress: bool, language: str) -> Report:
    """`check` for shards: each shard is read once; captions are kept in memory, images are not."""
    by_split: dict[str, list[Example]] = {}
    unreadable = []
    bar = progress_bar(total=len(data), unit="img", desc=data.name, show=progress)
    with bar:
        for split, shards in data.index["splits"].items():
            for shard in range(len(shards)):
                for image, captions in data.read(shard, split):
                    by_split.setdefault(split, []).append(Example(str(image), split, captions))
                    if line := _problem(image.photo):
                        unreadable.append(line)
                    bar.update()
    vocabulary = data.vocabulary(size, 1, language) if "train" in by_split else None
    return Report(
        name=data.name,
        where=data.place,
        splits={split: _describe(examples, vocabulary, language) for split, examples in by_split.items()},
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(data) - len(unreadable),
        missing=(),
        unreadable=tuple(unreadable),
    )


def _problem(read: Callable[[], object]) -> str:
    """The error message of a function that reads an image, or "" if it succeeds."""
    try:
        read()
    except SatlibError as error:
        return str(error)
    return ""


def _read(data: CaptionSet, examples: Sequence[Example], progress: bool) -> Iterator[str]:
    """Yield each example's error message, or "" if its image can be read."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from progress_bar(
            pool.map(lambda example: _problem(lambda: data.photo(example)), examples),
            total=len(examples),
            unit="img",
            desc=data.name,
            show=progress,
        )


def _describe(examples: Sequence[Example], vocabulary: Vocabulary | None, language: str) -> Split:
    captions = [tokenise(caption, language) for example in examples for caption in example.references]
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
    )
