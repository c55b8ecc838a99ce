"""Captions as words: tokenisation in any script, and the vocabulary (section 4.3)."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import regex

from satlib.errors import SatlibError
from satlib.files import read_json, write_json

END, UNKNOWN = 0, 1
SPECIALS = ("<end>", "<unknown>")

# Languages written without spaces between words: what data.language may be, if it is not empty.
LANGUAGES = {"zh": "Chinese", "ja": "Japanese", "th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Burmese"}

# The word boundaries of Unicode (UAX 29, by the Word_Break property), with a few changes for captions: "_", ":" and "." never
# join ("3 p.m." is three words), hyphens do, and so do the signs for numbers that are not digits ("m²"). Marks and joiners
# belong to the letter before them (rule WB4). A letter outside LETTER is of a script without spaces and a token by itself
# (WB999), except that katakana stay together (WB13).
_MARKS = r"[\p{WB=Extend}\p{WB=ZWJ}]*+"
_LETTER = r"[\p{WB=ALetter}\p{WB=Hebrew_Letter}\p{WB=Numeric}\p{No}]"
# The middle dot of Catalan ("col·lega"), and the quotation mark of Hebrew abbreviations (WB7b), join as well.
_JOINER = r"(?:[-']|(?<=l)·(?=l)|(?<=\p{WB=Hebrew_Letter})[\"״](?=\p{WB=Hebrew_Letter}))"
_RUN = rf"(?:{_LETTER}{_MARKS})++"
# A clitic that stands alone ("dog 's") is a word too.
_WORD = rf"{_RUN}(?:{_JOINER}{_RUN})*+|(?<!\w)'(?:s|t|d|m|re|ve|ll)\b"
# A letter, its marks, and the vowel AM of Thai and Lao: a grapheme cluster as of Unicode 15.0, but with the Burmese signs that
# it leaves out. The library's \X follows later versions, which join what Khmer writes below the line: a model's tokens
# would depend on the version installed.
_CLUSTER = rf"[\p{{L}}\p{{N}}]{_MARKS}(?:[\u0e33\u0eb3]{_MARKS})?"
_WORDS = regex.compile(rf"{_WORD}|(?:\p{{WB=Katakana}}{_MARKS})++|{_CLUSTER}")
_CHARACTERS = regex.compile(rf"{_WORD}|{_CLUSTER}")
_CHARACTER = regex.compile(rf"(?!{_LETTER})[\p{{L}}\p{{N}}]")
_INVISIBLE = regex.compile(r"\p{WB=Format}+")


def normalise(text: str) -> str:
    """One spelling for what looks the same: composed accents (NFC), and no invisible marks (soft hyphens, directions).

    The joiners of Indic scripts and Persian (ZWJ, ZWNJ) stay: they change what is read.
    """
    return unicodedata.normalize("NFC", text if text.isascii() else _INVISIBLE.sub("", text))


def tokenise(caption: str, language: str = "") -> list[str]:
    """Lower case, words only, by the word boundaries of Unicode.

    Args:
        caption: any text.
        language: one of `LANGUAGES`, which write no spaces between words: one token per character (grapheme cluster), while
            Latin words and digits stay whole. "" for all others. Without it the tokens of such a language are the
            same, but for katakana, which stay together; what changes is how captions are written (`written`).

    Characters, not the words of a dictionary: segmenters disagree with each other and from version to version, and scores
    with them, and a word that the dictionary lacks is cut wrongly without notice. Characters need no file, are the same
    everywhere, and leave hardly any unknown. The price is length: see data.max_length and decoding.max_length.

    Lower case is Unicode's, whatever the language: of Turkish, "I" becomes "i" and "İ" becomes "i" with a dot above
    (U+0307).

    >>> tokenise("A dog's T-shirt, (red)!")
    ['a', "dog's", 't-shirt', 'red']

    Raises:
        SatlibError: an unknown language.
    """
    _check_language(language)
    text = normalise(caption.lower()).replace("\u2019", "'")
    return (_CHARACTERS if language else _WORDS).findall(text)


def written(words: Iterable[str], language: str = "") -> str:
    """Words as a line, with spaces between them; in one of `LANGUAGES` not between two of its characters.

    >>> written(["穿", "nike", "的", "人"], "zh")
    '穿 nike 的人'
    """
    line, before = "", False
    for word in words:
        now = bool(language) and is_character(word)
        line += word if not line or (before and now) else f" {word}"
        before = now
    return line


def is_character(word: str) -> bool:
    """Whether a word is a character of a script without spaces between words, such as Chinese."""
    return _CHARACTER.match(word) is not None


def _check_language(language: str) -> None:
    if language and language not in LANGUAGES:
        raise SatlibError(
            f"data.language is one of {', '.join(LANGUAGES)}, or empty for languages that write spaces; not {language!r}"
        )


class Vocabulary:
    """Words and their ids: 0 is the end of a caption, 1 any unknown word, then words from the most to the least frequent.

    There is no start token: the first word is predicted from a zero embedding, as in the official code.

    Attributes:
        words: all of them, in the order of their ids.
        language: how captions are split into words (`tokenise`).
    """

    def __init__(self, words: Sequence[str], language: str = "") -> None:
        """Take the words in the order of their ids, the first of which is 2, and the captions' language (`tokenise`).

        Raises:
            SatlibError: no word, or one twice, or an unknown language.
        """
        _check_language(language)
        if not words or len(set(words)) != len(words):
            raise SatlibError(
                "a vocabulary needs at least one word and no word twice; build it from the training captions again"
            )
        self.words = (*SPECIALS, *words)
        self.language = language
        self._ids = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def from_captions(
        cls, captions: Iterable[str], size: int = 10_000, min_count: int = 1, language: str = ""
    ) -> "Vocabulary":
        """Count the words of the *training* captions; keep the most frequent.

        Args:
            captions: raw captions.
            size: K at most, the two special words included.
            min_count: leave out words seen less often.
            language: as in `tokenise`.

        Equally frequent words are ordered alphabetically, so that the same captions always give the same ids.
        """
        counts = Counter(word for caption in captions for word in tokenise(caption, language))
        return cls.from_counts(counts, size, min_count, language)

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], size: int = 10_000, min_count: int = 1, language: str = ""
    ) -> "Vocabulary":
        """As `from_captions`, where the words have been counted already."""
        ordered = sorted(
            (word for word, count in counts.items() if count >= min_count), key=lambda word: (-counts[word], word)
        )
        return cls(ordered[: size - len(SPECIALS)], language)

    def __len__(self) -> int:
        """K."""
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and (self.words, self.language) == (other.words, other.language)

    def __hash__(self) -> int:
        return hash((self.words, self.language))

    def encode(self, caption: str) -> list[int]:
        """The ids of a caption's words, without the end; a word that is not known becomes UNKNOWN."""
        return [self._ids.get(word, UNKNOWN) for word in tokenise(caption, self.language)]

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
        """SHA-256 of the words in their order, and of the language if there is one: what a checkpoint is checked by."""
        content = [self.language, self.words] if self.language else self.words
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def to_json(self) -> list[str]:
        """The words after the special ones."""
        return list(self.words[len(SPECIALS) :])

    def save(self, path: Path) -> None:
        """Write the words as a JSON list in the order of their ids; with a language, an object of both."""
        words = self.to_json()
        write_json(path, {"language": self.language, "words": words} if self.language else words)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            SatlibError: the file is missing, cut short, or something else.
        """
        found: Any = read_json(path)
        words, language = (found.get("words"), found.get("language")) if isinstance(found, dict) else (found, "")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in [*words, language]):
            raise SatlibError(f"{path} is not a vocabulary (a JSON list of words, or an object of language and words)")
        return cls(words, language)
