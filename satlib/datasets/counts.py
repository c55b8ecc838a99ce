"""What a caption set's statistics need, without its captions: how often each word is said, and how long captions are.

Counts can be passed on where captions cannot: those of Flickr8k come with satlib. The file is a table with a column for each
split and rows "images", "length 7" and "word dog", and is made by

    python -m satlib.datasets.counts NAME FILE
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from satlib.datasets import SPLITS, CaptionSet, load
from satlib.datasets.reading import read_lines
from satlib.errors import SatlibError
from satlib.files import write_text
from satlib.text import tokenise

FLICKR8K = Path(__file__).parent / "flickr8k-counts.tsv"


@dataclass
class Counts:
    """One split: its images, how many captions have each length in words, and how often each word is said in them."""

    images: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)


def count(data: CaptionSet) -> dict[str, Counts]:
    """Count every split of a set, in satlib's own tokens."""
    found = {}
    for split in SPLITS:
        examples = data.split(split)
        said = [tokenise(caption) for example in examples for caption in example.references]
        words = Counter(word for words in said for word in words)
        found[split] = Counts(len(examples), Counter(map(len, said)), words)
    return found


def save(counts: Mapping[str, Counts], path: Path) -> None:
    """Write the table; words from the most to the least frequent in training."""
    of = [counts[split] for split in SPLITS]
    rows = [("images", [each.images for each in of])]
    rows += [(f"length {n}", [each.lengths[n] for each in of]) for n in sorted(set().union(*(c.lengths for c in of)))]
    words = sorted(set().union(*(each.words for each in of)), key=lambda word: (-of[0].words[word], word))
    rows += [(f"word {word}", [each.words[word] for each in of]) for word in words]
    lines = ["\t".join(["what", *SPLITS]), *("\t".join([what, *map(str, numbers)]) for what, numbers in rows)]
    write_text(path, "\n".join(lines) + "\n")


def read(path: Path = FLICKR8K) -> dict[str, Counts]:
    """Read such a table; that of Flickr8k if no other is named.

    Raises:
        SatlibError: the file is missing or is something else.
    """
    found = {split: Counts() for split in SPLITS}
    (_, header), *lines = read_lines(path) or [(1, "")]
    if header.split("\t") != ["what", *SPLITS]:
        raise SatlibError(f"{path} is not a table of counts; make it with: python -m satlib.datasets.counts NAME FILE")
    for number, line in lines:
        try:
            what, *numbers = line.split("\t")
            kind, _, name = what.partition(" ")
            for split, value in zip(SPLITS, map(int, numbers), strict=True):
                if kind == "images":
                    found[split].images = value
                elif value:
                    table: Counter = {"length": found[split].lengths, "word": found[split].words}[kind]
                    table[int(name) if kind == "length" else name] = value
        except (ValueError, KeyError) as error:
            raise SatlibError(
                f"{path}, line {number}: expected images, length N or word W, and a count a split"
            ) from error
    return found


def main() -> None:
    """See the top of this file."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m satlib.datasets.counts NAME FILE")
    try:
        save(count(load(sys.argv[1], require_images=False)), Path(sys.argv[2]))
    except SatlibError as error:
        raise SystemExit(f"counts: {error}") from error


if __name__ == "__main__":
    main()
