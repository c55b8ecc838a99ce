"""Word counts and caption lengths of a caption set, for statistics without the captions themselves.

Counts can be distributed where captions cannot: satlib includes those of Flickr8k. The file is a table with one column per
split and rows such as "images", "length 7" and "word dog". It was made by `save(count(load("flickr8k")), FLICKR8K)`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from satlib.data.caption_set import SPLITS, CaptionSet
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.files.atomic import write_text
from satlib.files.reading import read_lines

FLICKR8K = Path(__file__).parent / "flickr8k-counts.tsv"


@dataclass
class Counts:
    """One split: the number of images, of captions by length in words, and of occurrences of each word."""

    images: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)


def count(data: CaptionSet) -> dict[str, Counts]:
    """Count every split of a set, with satlib's tokeniser."""
    counts = {}
    for split in SPLITS:
        examples = data.split(split)
        captions = [tokenise(caption) for example in examples for caption in example.references]
        words = Counter(word for caption in captions for word in caption)
        counts[split] = Counts(len(examples), Counter(map(len, captions)), words)
    return counts


def save(counts: Mapping[str, Counts], path: Path) -> None:
    """Write the table, the words most frequent in training first."""
    splits = [counts[name] for name in SPLITS]
    rows = [("images", [split.images for split in splits])]
    lengths = sorted(set().union(*(split.lengths for split in splits)))
    rows += [(f"length {n}", [split.lengths[n] for split in splits]) for n in lengths]
    words = sorted(set().union(*(split.words for split in splits)), key=lambda word: (-splits[0].words[word], word))
    rows += [(f"word {word}", [split.words[word] for split in splits]) for word in words]
    lines = ["\t".join(["what", *SPLITS]), *("\t".join([label, *map(str, numbers)]) for label, numbers in rows)]
    write_text(path, "\n".join(lines) + "\n")


def read(path: Path = FLICKR8K) -> dict[str, Counts]:
    """Read such a table, by default the one of Flickr8k.

    Raises:
        SatlibError: the file is missing or is not such a table.
    """
    counts = {split: Counts() for split in SPLITS}
    (_, header), *lines = read_lines(path) or [(1, "")]
    if header.split("\t") != ["what", *SPLITS]:
        raise SatlibError(f"{path} is not a table of counts; make it with satlib.data.counts.save")
    for number, line in lines:
        try:
            label, *numbers = line.split("\t")
            kind, _, name = label.partition(" ")
            for split, value in zip(SPLITS, map(int, numbers), strict=True):
                if kind == "images":
                    counts[split].images = value
                elif value:
                    table: Counter = {"length": counts[split].lengths, "word": counts[split].words}[kind]
                    table[int(name) if kind == "length" else name] = value
        except (ValueError, KeyError) as error:
            raise SatlibError(
                f"{path}, line {number}: expected images, length N or word W, then one count per split"
            ) from error
    return counts
