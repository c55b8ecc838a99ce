"""`satlib data check NAME`: statistics of a caption set, and missing or unreadable images."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from satlib.data.batches import pairs
from satlib.data.caption_set import SPLITS, Example
from satlib.data.datasets import load
from satlib.data.features import read_ahead
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar
from satlib.recipe import DataConfig

_LONGEST = DataConfig().max_length


@dataclass(frozen=True)
class Report:
    """The result of `check`."""

    title: str  # the name of the caption set, and the folder that contains its images
    splits: dict[str, dict[str, Any]]  # a row of statistics for each split that has images
    vocabulary: int  # K, of the training captions, special words included; 0 without a training split
    opened: int  # the number of images that were opened (or drawn)
    problems: list[str]  # one line for each image that is missing or cannot be read
    lacking: list[str]  # the splits that training needs and that have no caption which it can use

    @property
    def ok(self) -> bool:
        """Whether every listed image can be read, and there are images to train on and to choose an epoch by."""
        return not self.problems and not self.lacking

    def __str__(self) -> str:
        lines = [self.title, "", tabulate(self.splits.values(), headers="keys"), ""]
        lines.append(f"vocabulary of the training captions: K = {self.vocabulary:,}")
        lines.append(f"images: {self.opened:,} read, {len(self.problems):,} missing or unreadable")
        lines += [f"  {problem}" for problem in self.problems]
        if self.lacking:
            lines.append(
                f"nothing to train on in {' and '.join(self.lacking)}: satlib train needs images in both train and dev, with "
                f"captions of at most {_LONGEST} words (data.max_length); give some images that split, or shorten captions"
            )
        return "\n".join(lines)


def check(name: str, root: Path | None = None, progress: bool = True) -> Report:
    """Check a whole caption set: captions, splits, and every image, opened (or drawn) once."""
    data = load(name, root, require_images=False)

    def problem_of(example: Example) -> str:
        try:
            data.photo(example)
        except SatlibError as error:
            return str(error)
        return ""

    checked = read_ahead(problem_of, data.examples, min(8, os.cpu_count() or 1))
    problems = [*filter(None, progress_bar(checked, total=len(data), unit="img", desc=data.name, show=progress))]
    vocabulary = data.vocabulary(10_000, 1) if data.split("train") else None
    splits = {split: _statistics(data.split(split), split, vocabulary) for split in SPLITS if data.split(split)}
    return Report(
        title=f"{data.name}: {data.home or 'images without files of their own'}",
        splits=splits,
        vocabulary=len(vocabulary) if vocabulary else 0,
        opened=len(data) - len(problems),
        problems=problems,
        lacking=[split for split in ("train", "dev") if not splits.get(split, {}).get("usable")],
    )


def _statistics(examples: tuple[Example, ...], split: str, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """A row of the table: known words are in the training vocabulary; usable captions are not too long to train on."""
    captions = [tokenise(caption) for example in examples for caption in example.references]
    lengths, references = [len(words) for words in captions], [len(example.references) for example in examples]
    known = [word in (vocabulary or ()) for words in captions for word in words]
    distinct = {word for words in captions for word in words}
    return {
        "split": split,
        "images": len(examples),
        "captions": len(captions),
        "per image": f"{min(references)}-{max(references)}",
        "words (mean)": f"{min(lengths)}-{max(lengths)} ({sum(lengths) / len(lengths):.1f})",
        "known words": f"{sum(word in (vocabulary or ()) for word in distinct) / len(distinct):.1%}",
        "running": f"{sum(known) / len(known):.2%}",
        "usable": _usable(examples, vocabulary),
    }


def _usable(examples: tuple[Example, ...], vocabulary: Vocabulary | None) -> int:
    """How many captions training takes."""
    try:
        return len(pairs(examples, vocabulary, _LONGEST)) if vocabulary else len(examples)
    except SatlibError:
        return 0
