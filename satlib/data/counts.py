"""Word counts and caption lengths: these of Flickr8k can be distributed where its captions cannot.

flickr8k-counts.tsv has one column per split and rows such as "length 7" and "word dog"; its numbers are those of
`count(load("flickr8k"))`.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from satlib.data.caption_set import SPLITS, CaptionSet
from satlib.data.text import tokenise
from satlib.files.reading import read_lines


@dataclass
class Counts:
    """One split: the number of captions by their length in words, and of occurrences of each word."""

    lengths: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)


def count(data: CaptionSet) -> dict[str, Counts]:
    """The counts of every split of a set, with satlib's tokeniser."""
    counts = {}
    for split in SPLITS:
        captions = [tokenise(caption) for example in data.split(split) for caption in example.references]
        words = Counter(word for caption in captions for word in caption)
        counts[split] = Counts(Counter(map(len, captions)), words)
    return counts


def read() -> dict[str, Counts]:
    """The counts of Flickr8k."""
    counts = {split: Counts() for split in SPLITS}
    for _, line in read_lines(Path(__file__).with_name("flickr8k-counts.tsv"))[1:]:
        label, *numbers = line.split("\t")
        kind, _, name = label.partition(" ")
        for split, number in zip(SPLITS, map(int, numbers), strict=True):
            if kind == "length" and number:
                counts[split].lengths[int(name)] = number
            elif kind == "word" and number:
                counts[split].words[name] = number
    return counts
