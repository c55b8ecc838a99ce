"""Captions as words: basic tokenisation and the vocabulary (section 4.3)."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError
from satlib.files import read_json, write_json

END, UNKNOWN = 0, 1
SPECIALS = ("<end>", "<unknown>")

# Letters and digits, joined by hyphens and apostrophes inside a word; a clitic that stands alone ("dog 's") is a word too.
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b")


def tokenise(caption: str) -> list[str]:
    """Lower case, words only.

    >>> tokenise("A dog's T-shirt, (red)!")
    ['a', "dog's", 't-shirt', 'red']
    """
    return _WORD.findall(caption.lower().replace("\u2019", "'"))


class Vocabulary:
    """Words and their ids: 0 is the end of a caption, 1 any unknown word, then words from the most to the least frequent.

    There is no start token: the first word is predicted from a zero embedding, as in the official code.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Take the words in the order of their ids, the first of which is 2.

        Raises:
            SatlibError: no word, or one twice.
        """
        if not words or len(set(words)) != len(words):
            raise SatlibError(
                "a vocabulary needs at least one word and no word twice; build it from the training captions again"
            )
        self.words = (*SPECIALS, *words)
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def from_captions(cls, captions: Iterable[str], size: int = 10_000, min_count: int = 1) -> "Vocabulary":
        """Count the words of the *training* captions; keep the most frequent.

        Args:
            captions: raw captions.
            size: K at most, the two special words included.
            min_count: leave out words seen less often.

        Equally frequent words are ordered alphabetically, so that the same captions always give the same ids.
        """
        return cls.from_counts(Counter(word for caption in captions for word in tokenise(caption)), size, min_count)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], size: int = 10_000, min_count: int = 1) -> "Vocabulary":
        """As `from_captions`, where the words have been counted already."""
        ordered = sorted(
            (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
        )
        return cls(ordered[: size - len(SPECIALS)])

    def __len__(self) -> int:
        """K."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words, without the end; a word that is not known becomes UNKNOWN."""
        return [self._ids.get(word, UNKNOWN) for word in tokenise(caption)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words up to the end, which is left out."""
        words = []
        for i in ids:
            if i == END:
                break
            words.append(self.words[i])
        return words

    @property
    def hash(self) -> str:
        """SHA-256 of the words in their order: what a checkpoint is checked by."""
        return hashlib.sha256(json.dumps(self.words).encode()).hexdigest()

    def to_json(self) -> list[str]:
        """The words after the special ones."""
        return list(self.words[len(SPECIALS) :])

    def save(self, path: Path) -> None:
        """Write the words as a JSON list in the order of their ids."""
        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            SatlibError: the file is missing, cut short, or something else.
        """
        words: Any = read_json(path)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise SatlibError(f"{path} is not a vocabulary (a JSON list of words)")
        return cls(words)
