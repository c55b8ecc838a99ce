"""What looks wrong in captions: a language that is not set, damaged text, captions longer than a recipe takes.

None of it stops anything; `satlib data check` shows it.
"""

from collections.abc import Callable, Iterator, Sequence

import regex

from satlib.datasets import Example
from satlib.recipe import DataConfig
from satlib.text import LANGUAGES, is_character, tokenise

FEW = 0.01  # share of the captions up to which what a person may well write is passed over
_SCRIPTS = {"zh": "Han", "ja": "Hiragana", "th": "Thai", "lo": "Lao", "km": "Khmer", "my": "Myanmar"}
_LONE_MARK = regex.compile(r"(?:^|\s)(?!\p{Variation_Selector})\p{M}")
_HANGUL = regex.compile(r"\p{Hangul}")  # a letter of it is a syllable
_OTHER = r"[\p{Cyrillic}\p{Greek}]"
_MIXED = regex.compile(rf"\p{{Latin}}\p{{M}}*{_OTHER}|{_OTHER}\p{{M}}*\p{{Latin}}")


def warnings(examples: Sequence[Example], language: str = "") -> list[str]:
    """One line for each thing that looks wrong: how many captions, the first of them, and what to do.

    Text that is not in NFC is not among them: `text.normalise` makes it so wherever words are read.

    Args:
        examples: of all splits.
        language: what data.language will be.
    """
    captions = [(example, caption) for example in examples for caption in example.references]
    longest = DataConfig.max_length

    def line(wrong: Callable[[str], object], share: float, text: str) -> Iterator[str]:
        found = [(example, caption) for example, caption in captions if wrong(caption)]
        if len(found) > share * len(captions):
            example, caption = found[0]
            shown = caption if len(caption) <= 60 else caption[:60] + "..."
            yield f"{len(found):,} of {len(captions):,} captions {text}; the first is of {example.image_id}: {shown!r}"

    found: list[str] = []
    if not language:
        code = _language([caption for _, caption in captions])
        found += line(
            _mostly_characters,
            FEW,
            f"are in a script without spaces between words: train with --set data.language={code} "
            f"({LANGUAGES[code]}), and check with --language {code}",
        )
    found += line(_misread, 0, "were read in another encoding than they were written in: save them as UTF-8 again")
    found += line(_LONE_MARK.search, 0, "have an accent or vowel sign without its letter: join the two again")
    found += line(_single_letters, FEW, "are mostly single letters: remove the spaces inside words")
    found += line(
        _MIXED.search,
        0,
        "mix Latin with Cyrillic or Greek letters in one word: type the word again in one alphabet",
    )
    found += line(
        lambda caption: len(tokenise(caption, language)) > longest,
        FEW,
        f"are longer than {longest} tokens and would be left out of training: raise data.max_length, and "
        "decoding.max_length with it",
    )
    return found


def _mostly_characters(caption: str) -> bool:
    words = [] if caption.isascii() else tokenise(caption)
    return 2 * sum(map(is_character, words)) > len(words)


def _language(captions: Sequence[str]) -> str:
    """The one whose script is used most; Japanese is known by its hiragana, since it is written in Han characters too."""
    text = "".join(captions)
    used = {code: len(regex.findall(rf"\p{{{script}}}", text)) for code, script in _SCRIPTS.items()}
    most = max(used, key=used.__getitem__)
    return "ja" if most == "zh" and used["ja"] > 0.1 * used["zh"] else most


def _misread(caption: str) -> bool:
    """Whether it holds a replacement character, or a word of which the characters, taken for bytes, are UTF-8 ("cafÃ©")."""
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
    """Whether most of its words are; not of scripts whose characters are syllables or words."""
    words = [word for word in tokenise(caption) if not (is_character(word) or _HANGUL.match(word))]
    return len(words) > 3 and 2 * sum(len(word) == 1 and word.isalpha() for word in words) > len(words)
