"""`satlib data check NAME`: what a caption set has, what is missing, and what its captions are like."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from satlib.datasets import SPLITS, CaptionSet, Example, data_root, load
from satlib.datasets.reading import absent
from satlib.datasets.sharded import Shards
from satlib.datasets.wording import warnings
from satlib.errors import SatlibError
from satlib.text import Vocabulary, tokenise


@dataclass(frozen=True)
class Split:
    """One split: its images and captions, caption lengths in words, and how much of it the training vocabulary knows.

    Attributes:
        images, captions: how many.
        references: (least, greatest) number of captions of an image.
        lengths: (least, mean, greatest) number of words of a caption.
        known_tokens: share of the running words that the training vocabulary has, 0..1.
        known_words: share of the distinct words that it has, 0..1.
    """

    images: int
    captions: int
    references: tuple[int, int]
    lengths: tuple[int, float, int]
    known_tokens: float
    known_words: float


@dataclass(frozen=True)
class Report:
    """What `check` found.

    Attributes:
        name, where: of the caption set, and the folder of its images ("drawn, needs no file" for scenes).
        splits: name -> Split, those with images.
        vocabulary: K, the size of the vocabulary of the training captions, special words included; 0 without training.
        opened: how many images were opened (or drawn).
        missing: ids of images whose file is missing.
        unreadable: one line for every image that cannot be read.
        warnings: one line for each thing that looks wrong in the captions (`satlib.datasets.wording`).
    """

    name: str
    where: str
    splits: dict[str, Split]
    vocabulary: int
    opened: int
    missing: tuple[str, ...]
    unreadable: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every listed image is there and was read."""
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
        lines += [f"warning: {line}" for line in self.warnings]
        return "\n".join(lines)


def check(name: str, root: Path | None = None, size: int = 10_000, progress: bool = True, language: str = "") -> Report:
    """Look at all of a caption set: captions, splits, and every image, opened (or drawn) once.

    Args:
        name: as in `load`.
        root: the data root.
        size: K at most of the vocabulary that coverage is measured with.
        progress: show a bar while images are opened.
        language: what the recipe's data.language will be; shards have their own.

    Raises:
        SatlibError: there is no such set, or its captions cannot be read.
    """
    root = data_root() if root is None else root
    data = load(name, root, require_images=False)
    if isinstance(data, Shards):
        return _check_shards(data, size, progress, language or data.language)
    missing = absent(data.examples)
    gone = {example.image_id for example in missing}
    there = [example for example in data.examples if example.image_id not in gone]
    unreadable = tuple(line for line in _read(data, there, progress) if line)
    train = [caption for example in data.split("train") for caption in example.references]
    vocabulary = Vocabulary.from_captions(train, size, language=language) if train else None
    paths = [str(example.path.parent) for example in data.examples if example.path is not None]
    return Report(
        name=data.name,
        where=os.path.commonpath(paths) if paths else "drawn, needs no file",
        splits={split: _describe(data.split(split), vocabulary, language) for split in SPLITS if data.split(split)},
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(there) - len(unreadable),
        missing=tuple(example.image_id for example in missing),
        unreadable=unreadable,
        warnings=tuple(warnings(data.examples, language)),
    )


def _check_shards(data: Shards, size: int, progress: bool, language: str) -> Report:
    """The same of shards: each is read once, captions are kept and images are not."""
    found: dict[str, list[Example]] = {}
    unreadable = []
    bar = tqdm(total=len(data), unit="img", desc=data.name, disable=not progress)
    with bar:
        for split, shards in data.index["splits"].items():
            for shard in range(len(shards)):
                for picture, captions in data.read(shard, split):
                    found.setdefault(split, []).append(Example(str(picture), split, captions))
                    if line := _problem(picture.photo):
                        unreadable.append(line)
                    bar.update()
    vocabulary = data.vocabulary(size, 1, language) if "train" in found else None
    return Report(
        name=data.name,
        where=data.place,
        splits={split: _describe(examples, vocabulary, language) for split, examples in found.items()},
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(data) - len(unreadable),
        missing=(),
        unreadable=tuple(unreadable),
        warnings=tuple(warnings([example for examples in found.values() for example in examples], language)),
    )


def _problem(read: Callable[[], object]) -> str:
    """The line of the error of what reads an image, or an empty one."""
    try:
        read()
    except SatlibError as error:
        return str(error)
    return ""


def _read(data: CaptionSet, examples: Sequence[Example], progress: bool) -> Iterator[str]:
    """For each example the line of its error, or an empty one."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from tqdm(
            pool.map(lambda example: _problem(lambda: data.photo(example)), examples),
            total=len(examples),
            unit="img",
            desc=data.name,
            disable=not progress,
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
