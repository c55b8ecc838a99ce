"""Warnings about captions: a language that is not set, damaged text, captions that are too long for a recipe.

`satlib data check` prints them; they stop nothing.
"""

from collections.abc import Callable, Iterator, Sequence

import regex

from satlib.data.datasets import Example
from satlib.data.text import LANGUAGES, is_character, tokenise
from satlib.recipe import DataConfig

FEW = 0.01  # up to this share of the captions, wording that a person may well have intended is not reported
_SCRIPTS = {"zh": "Han", "ja": "Hiragana", "th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Myanmar"}
_LONE_MARK = regex.compile(r"(?:^|\s)(?!\p{Variation_Selector})\p{M}")
_HANGUL = regex.compile(r"\p{Hangul}")  # each of its characters is a syllable
_OTHER = r"[\p{Cyrillic}\p{Greek}]"
_MIXED = regex.compile(rf"\p{{Latin}}\p{{M}}*{_OTHER}|{_OTHER}\p{{M}}*\p{{Latin}}")


def warnings(examples: Sequence[Example], language: str = "") -> list[str]:
    """One line per problem: the number of captions, what to do, and the first such caption.

    Text that is not in NFC is no problem: `text.normalise` converts it wherever words are read.

    Args:
        examples: the examples of all splits.
        language: the recipe's data.language.
    """
    captions = [(example, caption) for example in examples for caption in example.references]
    longest = DataConfig.max_length

    def line(wrong: Callable[[str], object], share: float, text: str) -> Iterator[str]:
        wrong_ones = [(example, caption) for example, caption in captions if wrong(caption)]
        if len(wrong_ones) > share * len(captions):
            example, caption = wrong_ones[0]
            shown = caption if len(caption) <= 60 else caption[:60] + "..."
            yield f"{len(wrong_ones):,} of {len(captions):,} captions {text}; the first belongs to {example.image_id}: {shown!r}"

    lines: list[str] = []
    if not language:
        code = _language([caption for _, caption in captions])
        lines += line(
            _mostly_characters,
            FEW,
            f"are in a script without spaces between words: train with --set data.language={code} "
            f"({LANGUAGES[code]}), and check with --language {code}",
        )
    lines += line(_misread, 0, "were decoded with the wrong character encoding: save them again as UTF-8")
    lines += line(_LONE_MARK.search, 0, "have an accent or vowel sign separated from its letter: join the two again")
    lines += line(_single_letters, FEW, "are mostly single letters: remove the spaces inside words")
    lines += line(
        _MIXED.search,
        0,
        "mix Latin with Cyrillic or Greek letters in one word: retype the word in one alphabet",
    )
    lines += line(
        lambda caption: len(tokenise(caption, language)) > longest,
        FEW,
        f"are longer than {longest} tokens and would be left out of training: raise data.max_length, and "
        "decoding.max_length with it",
    )
    return lines


def _mostly_characters(caption: str) -> bool:
    words = [] if caption.isascii() else tokenise(caption)
    return 2 * sum(map(is_character, words)) > len(words)


def _language(captions: Sequence[str]) -> str:
    """The language of the most frequent script. Hiragana identify Japanese, which uses Han characters too."""
    text = "".join(captions)
    used = {code: len(regex.findall(rf"\p{{{script}}}", text)) for code, script in _SCRIPTS.items()}
    most = max(used, key=used.__getitem__)
    return "ja" if most == "zh" and used["ja"] > 0.1 * used["zh"] else most


def _misread(caption: str) -> bool:
    """Whether it contains a replacement character, or a word that is UTF-8 decoded with another encoding ("cafÃ©")."""
    return "\ufffd" in caption or (
        not caption.isascii()
        and any(_is_utf8(word, encoding) for word in caption.split() for encoding in ("cp1252", "latin-1"))
    )


def _is_utf8(word: str, encoding: str) -> bool:
    try:
        return word.encode(encoding).decode("utf-8") != word
    except UnicodeError:
        return False


def _single_letters(caption: str) -> bool:
    """Whether most words are single letters, not counting scripts whose characters are syllables or words."""
    words = [word for word in tokenise(caption) if not (is_character(word) or _HANGUL.match(word))]
    return len(words) > 3 and 2 * sum(len(word) == 1 and word.isalpha() for word in words) > len(words)
