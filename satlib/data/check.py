"""`satlib data check NAME`: statistics of a caption set, and missing or unreadable images."""

import os
from pathlib import Path
from typing import Any

from tabulate import tabulate

from satlib.data.caption_set import SPLITS, Example
from satlib.data.datasets import load
from satlib.data.features import read_ahead
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar


def check(name: str, root: Path | None = None, progress: bool = True) -> bool:
    """Print what a caption set has; is every image readable, and are there some in train and dev?"""
    data = load(name, root, require_images=False)

    def problem_of(example: Example) -> str:
        try:
            data.photo(example)
        except SatlibError as error:
            return str(error)
        return ""

    checked = read_ahead(problem_of, data.examples, min(8, os.cpu_count() or 1))
    problems = [*filter(None, progress_bar(checked, total=len(data), unit="img", desc=data.name, show=progress))]
    splits = {split: data.split(split) for split in SPLITS}
    vocabulary = data.vocabulary(10_000, 1) if splits["train"] else ()
    rows = [_statistics(examples, split, vocabulary) for split, examples in splits.items() if examples]
    print(f"{data.name}: {data.home or 'images without files of their own'}\n")
    print(tabulate(rows, headers="keys"))
    print(f"\nvocabulary of the training captions: K = {len(vocabulary):,}")
    print(f"images: {len(data) - len(problems):,} read, {len(problems):,} missing or unreadable")
    for problem in problems:
        print(f"  {problem}")
    lacking = [split for split in ("train", "dev") if not splits[split]]
    if lacking:
        print(f"no images in {' and '.join(lacking)}: satlib train needs some in both train and dev")
    return not problems and not lacking


def _statistics(examples: tuple[Example, ...], split: str, vocabulary: Vocabulary | tuple[()]) -> dict[str, Any]:
    """A row of the table."""
    captions = [tokenise(caption) for example in examples for caption in example.references]
    lengths, references = [len(words) for words in captions], [len(example.references) for example in examples]
    known = [word in vocabulary for words in captions for word in words]
    return {
        "split": split,
        "images": len(examples),
        "captions": len(captions),
        "per image": f"{min(references)}-{max(references)}",
        "words (mean)": f"{min(lengths)}-{max(lengths)} ({sum(lengths) / len(lengths):.1f})",
        "known words": f"{sum(known) / len(known):.2%}",
    }
