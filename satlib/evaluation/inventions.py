"""What captions invent in photographs: CHAIR, with captions in place of COCO's masks.

Rohrbach et al., 2018 (arXiv:1809.02156). An object counts as invented if no reference of the
photograph mentions one of its kind: "invented objects" is CHAIR_i, "captions that invent" CHAIR_s.
People do not mention all that they see, so the figures are too high, for every model. Only the
words of `KINDS` count; those of one kind are equal: "man" for a woman does not count as invented.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.files import read_text

# Common objects of everyday photographs, one kind a line; a plural with -s or -es need not be
# listed.
KINDS = read_text(Path(__file__).with_name("kinds.txt")).splitlines()


def _kinds_of_words() -> dict[str, str]:
    """The kind of each word, singular or plural; a kind's name is the first word of its line."""
    kinds = {}
    for line in KINDS:
        words = line.split()
        for word in words:
            # Both plurals of every word: nobody writes the wrong one.
            for form in (word, f"{word}s", f"{word}es"):
                kinds[form] = words[0]
    return kinds


_KIND = _kinds_of_words()


def objects(text: str) -> set[str]:
    """The kinds of objects that a caption mentions, each by its first word in `KINDS`."""
    return {_KIND[word] for word in tokenise(text) if word in _KIND}


def measure(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """The columns of an evaluation.

    In each caption, the objects, the invented ones, and whether there are any.

    Raises:
        SatlibError: neither captions nor references have any of the objects.
    """
    mentioned = []
    invented = []
    known: set[str] = set()
    for image, caption in captions.items():
        own = objects(caption)
        true = set().union(*map(objects, references[image]))
        known |= own | true
        mentioned.append(float(len(own)))
        invented.append(float(len(own - true)))
    if not known:
        raise SatlibError(
            "invented objects are missing: neither captions nor references have an object of "
            "CHAIR's list, which is for everyday photographs"
        )
    return {
        "objects": mentioned,
        "invented objects": invented,
        "captions that invent": [float(count > 0) for count in invented],
    }
