"""Tokenising captions in any script, and the vocabulary (section 4.3)."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import regex
from msgspec import Struct

from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.reading import read_json
from satlib.recipe import LANGUAGES

END, UNKNOWN = 0, 1
PAD = -1  # no word: after the end mark, where captions of several lengths share a batch
SPECIALS = ("<end>", "<unknown>")

# Unicode word boundaries (UAX 29, by the Word_Break property), with a few changes for captions: "_", ":" and "." never join
# ("3 p.m." is three words), but hyphens do, and so do number signs that are not digits ("m²"). Marks and joiners belong to the
# letter before them (rule WB4). A letter outside _LETTER belongs to a script without spaces and is a token of its own
# (WB999), except that katakana stay together (WB13).
_MARKS = r"[\p{WB=Extend}\p{WB=ZWJ}]*+"
_LETTER = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}\p{No}]"
# The Catalan middle dot ("col·lega") and the quotation mark in Hebrew abbreviations (WB7b) also join.
_JOINER = r"(?:[-']|(?<=l)·(?=l)|(?<=\p{WB=Hebrew_Letter})[\"״](?=\p{WB=Hebrew_Letter}))"
_RUN = rf"(?:{_LETTER}{_MARKS})++"
# A separate clitic ("dog 's") is also a word.
_WORD = rf"{_RUN}(?:{_JOINER}{_RUN})*+|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b"
# A letter, its marks, and the Thai and Lao vowel AM: a grapheme cluster as in Unicode 15.0, plus the Burmese signs that it
# leaves out. The library's \X follows later Unicode versions, which also join Khmer subscripts, so a model's tokens would
# depend on the installed version.
_CLUSTER = rf"[\p{{L}}\p{{N}}]{_MARKS}(?:[\u0e33\u0eb3]{_MARKS})?"
_WORDS = regex.compile(rf"{_WORD}|(?:\p{{WB=Katakana}}{_MARKS})++|{_CLUSTER}")
_CHARACTERS = regex.compile(rf"{_WORD}|{_CLUSTER}")
_CHARACTER = regex.compile(rf"(?!{_LETTER})[\p{{L}}\p{{N}}]")
_INVISIBLE = regex.compile(r"\p{WB=Format}+")


def normalise(text: str) -> str:
    """Normalise spellings that look the same: composed accents (NFC), no invisible marks (soft hyphens, directions).

    The joiners of Indic scripts and Persian (ZWJ, ZWNJ) are kept, because they change the text that is read.
    """
    return unicodedata.normalize("NFC", text if text.isascii() else _INVISIBLE.sub("", text))


def tokenise(caption: str, language: str = "") -> list[str]:
    """The words of a caption in lower case, split at Unicode word boundaries, without punctuation.

    Args:
        caption: any text.
        language: one of `LANGUAGES`, which are written without spaces between words: one token per character (grapheme
            cluster), but Latin words and digits stay whole. "" for all other languages. With "", the tokens of those
            languages are the same except that katakana stay together; the difference is in writing captions (`written`).

    Tokens are characters and not dictionary words because word segmenters disagree with each other and between versions,
    which changes scores, and because they split unknown words wrongly without a warning. Characters need no dictionary, are
    the same everywhere, and hardly any are unknown. The disadvantage is longer captions: see data.max_length and
    decoding.max_length.

    Lower-casing follows Unicode, independent of the language: Turkish "I" becomes "i", and "İ" becomes "i" with a combining
    dot above (U+0307).

    >>> tokenise("A dog's T-shirt, (red)!")
    ['a', "dog's", 't-shirt', 'red']

    Raises:
        SatlibError: the language is unknown.
    """
    _check_language(language)
    text = normalise(caption.lower()).replace("\u2019", "'")
    return (_CHARACTERS if language else _WORDS).findall(text)


def written(words: Iterable[str], language: str = "") -> str:
    """Words as a line, separated by spaces; in one of `LANGUAGES`, no space between two of its characters.

    >>> written(["穿", "nike", "的", "人"], "zh")
    '穿 nike 的人'
    """
    line, after_character = "", False
    for word in words:
        character = bool(language) and is_character(word)
        line += word if not line or (after_character and character) else f" {word}"
        after_character = character
    return line


def is_character(word: str) -> bool:
    """Whether a token is a character of a script without spaces between words, such as Chinese."""
    return _CHARACTER.match(word) is not None


def _check_language(language: str) -> None:
    if language and language not in LANGUAGES:
        raise SatlibError(
            f"data.language must be one of {', '.join(LANGUAGES)}, or empty for languages with spaces between words, not {language!r}"
        )


class WordList(Struct):
    """vocabulary.json of a language that is written without spaces."""

    words: list[str]
    language: str


class Vocabulary:
    """Words and their ids: 0 is the end mark, 1 is any unknown word, followed by the words in order of decreasing frequency.

    There is no start token: the first word is predicted from a zero embedding, as in the official code.

    Attributes:
        words: all words in the order of their ids, special words included.
        language: the language for `tokenise`.
    """

    def __init__(self, words: Sequence[str], language: str = "") -> None:
        """Make a vocabulary from words in the order of their ids, starting with id 2, and the language for `tokenise`.

        Raises:
            SatlibError: there are no words, a word occurs twice, or the language is unknown.
        """
        _check_language(language)
        if not words or len(set(words)) != len(words):
            raise SatlibError(
                "a vocabulary needs at least one word and no duplicates; build it from the training captions again"
            )
        self.words = (*SPECIALS, *words)
        self.language = language
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], size: int = 10_000, min_count: int = 1, language: str = ""
    ) -> "Vocabulary":
        """A vocabulary of the most frequent words of the *training* captions.

        Args:
            captions: raw captions.
            size: the largest K, including the two special words.
            min_count: leave out words that occur less often.
            language: as in `tokenise`.

        Equally frequent words are ordered alphabetically, so the same captions always give the same ids.
        """
        counts = Counter(word for caption in captions for word in tokenise(caption, language))
        return cls.from_counts(counts, size, min_count, language)

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], size: int = 10_000, min_count: int = 1, language: str = ""
    ) -> "Vocabulary":
        """As `from_captions`, but from word counts."""
        ordered = sorted(
            (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
        )
        return cls(ordered[: size - len(SPECIALS)], language)

    def __len__(self) -> int:
        """K, the number of words, special words included."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (self.words, self.language) == (other.words, other.language)

    def __hash__(self) -> int:
        return hash((self.words, self.language))

    def number(self, word: str) -> int:
        """The id of a word; UNKNOWN if the vocabulary does not have it."""
        return self._ids.get(word, UNKNOWN)

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words, without the end mark; unknown words become UNKNOWN."""
        return [self.number(word) for word in tokenise(caption, self.language)]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words before the first end mark."""
        words = []
        for i in ids:
            if i == END:
                break
            words.append(self.words[i])
        return words

    @property
    def hash(self) -> str:
        """SHA-256 of the words in order, and of the language if it is set, which identifies the vocabulary in a checkpoint."""
        content = [self.language, self.words] if self.language else self.words
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> list[str]:
        """The words without the special words."""
        return list(self.words[len(SPECIALS) :])

    def save(self, path: Path) -> None:
        """Write the words as a JSON list in the order of their ids; with a language, as an object with both."""
        words = self.to_json()
        write_json(path, {"language": self.language, "words": words} if self.language else words)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read a file written by `save`.

        Raises:
            SatlibError: the file is missing, truncated, or not a vocabulary.
        """
        what = "a vocabulary: a JSON list of words, or an object of language and words"
        content = read_json(path, list[str] | WordList, what)
        return cls(content) if isinstance(content, list) else cls(content.words, content.language)
