"""Word counts and caption lengths of Flickr8k, which can be distributed where its captions cannot: flickr8k-counts.tsv beside this
file has a column for each split and rows such as "length 7" and "word dog", as `count` of its three splits gives them.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from satlib.data.caption_set import SPLITS, Example
from satlib.data.text import tokenise
from satlib.files.reading import read_lines


class Counts(NamedTuple):
    """The number of captions by their length in words, and of occurrences of each word."""

    lengths: Counter[int]
    words: Counter[str]


def count(examples: Iterable[Example]) -> Counts:
    """The counts of some examples, by satlib's tokeniser."""
    captions = [tokenise(caption) for example in examples for caption in example.references]
    return Counts(Counter(map(len, captions)), Counter(word for caption in captions for word in caption))


def read() -> dict[str, Counts]:
    """The counts of Flickr8k, by split."""
    lines = [line.split("\t") for _, line in read_lines(Path(__file__).with_name("flickr8k-counts.tsv"))[1:]]
    numbers = {label: dict(zip(SPLITS, map(int, row), strict=True)) for label, *row in lines}

    def of(kind: str, split: str) -> dict[str, int]:
        return {label.removeprefix(kind): row[split] for label, row in numbers.items() if label.startswith(kind)}

    return {
        split: Counts(+Counter({int(n): k for n, k in of("length ", split).items()}), +Counter(of("word ", split)))
        for split in SPLITS
    }
