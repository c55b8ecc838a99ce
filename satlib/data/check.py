"""`satlib data check NAME`: a caption set in numbers, and images that are missing, damaged or in two splits."""

import os
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from satlib.data.caption_set import SPLITS, CaptionSet, Example
from satlib.data.datasets import load
from satlib.data.images import files_in
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files import progress_bar, read_ahead
from satlib.recipe import DataConfig

MOST = DataConfig().max_length  # longer captions are not trained on


def check(name: str, root: Path | None = None) -> bool:
    """Print what a caption set has; is each image readable, in one split, and are some in train and dev?"""
    data = load(name, root, require_images=False)
    looks = _looks(data)
    read = sum(bool(pixels) for _, pixels in looks)
    problems, first = [problem for problem, _ in looks if problem], dict[str, Example]()
    for one, (_, pixels) in zip(data.examples, looks, strict=True):
        other = first.setdefault(pixels or one.image_id, one)
        if other.split != one.split and one.path:
            problems.append(
                f"{other.image_id} ({other.split}), {one.image_id} ({one.split}): the same photograph"
            )
    splits = {split: data.split(split) for split in SPLITS}
    vocabulary = data.vocabulary(10_000, 1) if splits["train"] else ()
    rows = [
        _statistics(examples, split, vocabulary) for split, examples in splits.items() if examples
    ]
    print(f"{data.name}: {data.home or 'images without files of their own'}\n")
    print(tabulate(rows, headers="keys"))
    print(f"\nvocabulary of the training captions: K = {len(vocabulary):,}")
    paths = {example.path for example in data.examples}
    more = {
        file for folder in {path.parent for path in paths if path} for file in files_in(folder)
    } - paths
    print(
        f"images: {read:,} read, {len(data) - read:,} missing or unreadable; {len(more):,} more without captions"
    )
    for problem in problems:
        print(f"  {problem}")
    lacking = [split for split in ("train", "dev") if not splits[split]]
    if lacking:
        print(
            f"no images in {' and '.join(lacking)}: satlib train needs some in both train and dev"
        )
    return not problems and not lacking


def readable(data: CaptionSet) -> CaptionSet:
    """The set without the images that are missing or damaged; says which they are."""
    looks = _looks(data)
    kept = tuple(
        example for example, (_, pixels) in zip(data.examples, looks, strict=True) if pixels
    )
    for problem, pixels in looks:
        if not pixels:
            print(f"left out: {problem}", file=sys.stderr)
    print(f"{data.name}: {len(data) - len(kept):,} of {len(data):,} images left out")
    return replace(data, examples=kept)


def _looks(data: CaptionSet) -> list[tuple[str, str]]:
    """Each image's fault, if any, and the hash of its pixels, empty if it cannot be read."""

    def look(example: Example) -> tuple[str, str]:
        try:
            photo = data.photo(example)
        except SatlibError as error:
            return str(error), ""
        brightest = int(np.asarray(photo).max())
        dark = f"{example.image_id} is nearly black: its values end at {brightest} of 255"
        return dark * (brightest < 32), sha256(photo.tobytes()).hexdigest()

    looks = read_ahead(look, data.examples, min(8, os.cpu_count() or 1))
    return [*progress_bar(looks, total=len(data), unit="img", desc=data.name)]


def _statistics(
    examples: tuple[Example, ...], split: str, vocabulary: Vocabulary | tuple[()]
) -> dict[str, Any]:
    """A row of the table."""
    captions = [tokenise(caption) for example in examples for caption in example.references]
    lengths, references = (
        [len(words) for words in captions],
        [len(example.references) for example in examples],
    )
    known = [word in vocabulary for words in captions for word in words]
    return {
        "split": split,
        "images": len(examples),
        "captions": len(captions),
        "per image": f"{min(references)}-{max(references)}",
        f"over {MOST} words": sum(length > MOST for length in lengths),
        "words (mean)": f"{min(lengths)}-{max(lengths)} ({sum(lengths) / len(lengths):.1f})",
        "known words": f"{sum(known) / len(known):.2%}",
    }
