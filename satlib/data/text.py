"""Captions as words, in any script, and the vocabulary (section 4.3)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

import regex

from satlib.errors import SatlibError

# The ids of the special words. The other two stand for no word: a decoder reads both as y_0, the
# zero embedding. `START` is before the first word; `PAD` follows the end mark of a caption that is
# shorter than others in its batch, where nothing that is read counts.
END = 0
UNKNOWN = 1
START = -1
PAD = -1
SPECIALS = ("<end>", "<unknown>")


# --- Words in any script ----------------------------------------------------------------------

# Words end at Unicode word boundaries (UAX 29, by the Word_Break property), except that "_", ":"
# and "." never join ("3 p.m." is three words), but hyphens and number signs ("m²") do. Marks and
# joiners belong to the letter before them (rule WB4): "é" written as e and an accent.
_MARKS = r"[\p{WB=Extend}\p{WB=ZWJ}]*+"
_LETTER = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}\p{No}]"
# Hyphen and apostrophe join ("t-shirt", "dog's"). So do the Catalan middle dot ("col·lega") and the
# quotation mark in Hebrew abbreviations (WB7b).
_JOINER = r"(?:[-']|(?<=l)·(?=l)|(?<=\p{WB=Hebrew_Letter})[\"״](?=\p{WB=Hebrew_Letter}))"
_RUN = rf"(?:{_LETTER}{_MARKS})++"
# A separate clitic ("dog 's") is also a word.
_WORD = rf"{_RUN}(?:{_JOINER}{_RUN})*+|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b"

# Every other letter belongs to a script without spaces between words (Han, kana, Thai, Lao, Khmer,
# Burmese) and is a token with its marks and the Thai and Lao vowel AM.
_CLUSTER = rf"[\p{{L}}\p{{N}}]{_MARKS}(?:[\u0e33\u0eb3]{_MARKS})?"
_TOKEN = regex.compile(rf"{_WORD}|{_CLUSTER}")

# What that finds in ASCII in lower case, as most captions are, four times as fast.
_ASCII_TOKEN = re.compile(r"[a-z0-9]+(?:[-'][a-z0-9]+)*|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b", re.ASCII)

# How such a token begins, and the space between two of them, which nobody writes.
_CHARACTER = rf"(?!{_LETTER})[\p{{L}}\p{{N}}]"
_GAP = regex.compile(rf"(?<=(?<!\S){_CHARACTER}\S*) (?={_CHARACTER})")

# Soft hyphens, and marks for the direction of writing.
_INVISIBLE = regex.compile(r"\p{WB=Format}+")


def normalise(text: str) -> str:
    """One spelling for what looks the same: composed accents (NFC), no invisible marks."""
    # ASCII has none of them, and most captions are ASCII.
    if not text.isascii():
        text = _INVISIBLE.sub("", text)
    return unicodedata.normalize("NFC", text)


def tokenise(caption: str) -> list[str]:
    """The words of a caption in lower case, without punctuation.

    A script without spaces gives one token per character. Characters and not dictionary words: word
    segmenters disagree, and split unknown words wrongly without a warning.

    >>> tokenise("A dog's T-shirt, (red)!")
    ['a', "dog's", 't-shirt', 'red']
    >>> tokenise("穿Nike的人")
    ['穿', 'nike', '的', '人']
    """
    if caption.isascii():
        return _ASCII_TOKEN.findall(caption.lower())
    # The typographic apostrophe is the same letter as the one of typewriters.
    normalised = normalise(caption.lower()).replace("\u2019", "'")
    return _TOKEN.findall(normalised)


def written(words: Iterable[str]) -> str:
    """Words as a line, separated by spaces, but not two characters of a script without spaces.

    >>> written(["穿", "nike", "的", "人"])
    '穿 nike 的人'
    """
    return _GAP.sub("", " ".join(words))


def is_character(word: str) -> bool:
    """Whether a token is a character of a script without spaces between words, such as Chinese."""
    return regex.match(_CHARACTER, word) is not None


# --- The vocabulary ---------------------------------------------------------------------------


class Vocabulary:
    """Words and their ids: 0 is the end mark, 1 any unknown word, then the words by frequency.

    There is no start token: the first word is predicted from a zero embedding, as in the official
    code. `words` holds all words in the order of their ids, special words included.

    Raises:
        SatlibError: there are no words, or some twice.
    """

    def __init__(self, words: Sequence[str]) -> None:
        if not words or len(set(words)) != len(words):
            raise SatlibError(
                "a vocabulary needs at least one word and no duplicates; "
                "build it from training captions"
            )
        self.words = (*SPECIALS, *words)
        self._ids = {word: number for number, word in enumerate(self.words)}

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], size: int = 10_000, min_count: int = 1
    ) -> "Vocabulary":
        """The `size` - 2 most frequent words of the *training* captions.

        Only words that occur at least `min_count` times.

        Raises:
            SatlibError: there is none.
        """
        counts = Counter(word for caption in captions for word in tokenise(caption))
        frequent = [word for word, count in counts.items() if count >= min_count]
        if not frequent:
            raise SatlibError(
                f"no word occurs {min_count} times in the training captions; lower data.min_count"
            )
        # Equally frequent words in alphabetical order, so that the same captions give the same ids.
        frequent.sort(key=lambda word: (-counts[word], word))
        return cls(frequent[: size - len(SPECIALS)])

    def __len__(self) -> int:
        """K, the number of words, special words included."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def number(self, word: str) -> int:
        """The id of a word; UNKNOWN if the vocabulary does not have it."""
        return self._ids.get(word, UNKNOWN)

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words, without the end mark; unknown words become UNKNOWN."""
        return [self.number(word) for word in tokenise(caption)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words before the first end mark."""
        return [self.words[i] for i in takewhile(END.__ne__, ids)]

    def to_json(self) -> list[str]:
        """The words without the special words."""
        return list(self.words[len(SPECIALS) :])
