"""Word counts and caption lengths of Flickr8k by satlib's tokeniser.

They can be distributed, while the captions cannot: flickr8k-counts.tsv beside this file has a
column for each split and rows such as "length 7" and "word dog".
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from satlib.data.caption_set import SPLITS
from satlib.files import read_lines


class Counts(NamedTuple):
    """The number of captions by their length in words, and of occurrences of each word."""

    lengths: Counter[int]
    words: Counter[str]


def read() -> dict[str, Counts]:
    """The counts of Flickr8k, by split."""
    found = {split: Counts(Counter(), Counter()) for split in SPLITS}
    lines = read_lines(Path(__file__).with_name("flickr8k-counts.tsv"))
    # The first two are the header and the number of images.
    for _, line in lines[2:]:
        label, *row = line.split("\t")
        kind, name = label.split(" ")
        for counts, number in zip(found.values(), row, strict=True):
            if kind == "word":
                counts.words[name] = int(number)
            else:
                counts.lengths[int(name)] = int(number)

    # A plus drops what occurs in another split alone.
    return {split: Counts(+counts.lengths, +counts.words) for split, counts in found.items()}
