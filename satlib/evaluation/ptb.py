"""Words of captions as in the COCO tools: those of Stanford's PTB tokenizer, in lower case and without punctuation.

The Penn Treebank's words are not quite those between spaces: "dog's" is two, "can't" is "ca" and "n't", a full stop belongs to
"St." but not to "dog.". The COCO tools need Java for this; here are rules of our own. `tests/test_ptb.py` compares both: all captions
of Flickr8k, Flickr30k and COCO that we tried gave the same words. E-mail addresses and the like are left out.
"""

import html
from collections.abc import Sequence

import regex

# After these a full stop belongs to the word; after the second kind if a number follows.
_ABBREVIATIONS = "ave blvd capt co corp dept dr etc ft gen gov inc jr lt ltd mr mrs ms mt prof rd rev sgt sq sr st univ vs"
_ABBREVIATIONS_BEFORE_NUMBERS = "art fig no nos pp"
# These words begin a sentence, so that the full stop between them and a single letter ends one.
_STARTERS = (
    "A About According Additionally After An As At But Earlier He Her Here However If In It Last Many More Now Once One Other Our "
    "She Since So Some Such That The Their Then There These They This We What When While Yet You Mr\\. Ms\\."
)


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


_L = r"[\p{L}\p{Nd}\p{M}]"
_CLITIC = r"['’](?i:s|d|m|ll|re|ve|em)(?!\p{L})"
_PIECE = rf"(?:(?:[A-Zdlno](?!{_CLITIC})['’](?=\p{{L}}{{2}}))?{_L}+)"  # with the first letter of "o'clock" and "O'Neil"
_ASCII = "[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"
_END = rf"(?!{_L}|[-/]{_L}|{_CLITIC})"
_TOKEN = regex.compile(
    rf"""
      [a-z]+(?<!cannot|gonna|wanna)(?=[ \n])                              # most words, at once
    | \n | [!?]{{2,}}
    | (?i:can(?=not{_END})|(?:gon|wan)(?=na{_END}))                       # two words in one: can not, gon na
    | (?i:\p{{L}}+?(?=n['’]t)|n['’]t(?!{_L}))                             # is n't
    | {_CLITIC} | ['’]\d\d(?:s|(?!\S)) | ['’][nN](?:['’]|(?!\S))          # 's, '90s, 'n'
    | (?i:\p{{L}}+[aeiouy]['’][aeiou]\p{{L}}*)                            # ma'am
    | [A-Z]+(?:&[A-Z]+)+ | (?:[a-zA-Z]\.)+[a-zA-Z]\.(?!{_L})              # R&B, U.S.
    | \p{{L}}[\p{{L}}\d]*(?:[.!?]\p{{L}}[\p{{L}}\d]*)+(?!{_L})            # dog.com
    | (?i:{_any(_ABBREVIATIONS)})\. | (?i:{_any(_ABBREVIATIONS_BEFORE_NUMBERS)})\.(?=\s*\d)
    | [a-zA-Z]\.(?!\s+(?=\p{{Lu}})(?i:{_any(_STARTERS)})(?!\S)) | {_L}+\.(?=[,;:])
    | \d+\ \d{{1,4}}/\d{{1,4}}(?!{_L}) | \d+(?:[.,:]\d+)+                 # 3 1/2, 10:30
    | {_ASCII}(?:/{_ASCII}){{1,2}} | {_PIECE}(?:[-‐‑]{_PIECE})*           # black/white, t-shirt
    | [-+]?[.,:]?\d+(?:[.,:]\d+)*
    | [#$%&()/<=>@*\[\\\]^{{|}}~+¡-⯿[\uff00-\uff65]--[\p{{L}}\p{{M}}\p{{Pi}}\p{{Pf}}‐-―…]]
    """,
    regex.VERBOSE | regex.VERSION1,
)
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_SIGNS = {
    "£": "#",
    "€": "$",
    "¢": "cents",
    "½": "1/2",
    "¼": "1/4",
    "¾": "3/4",
    "⅓": "1/3",
    "⅔": "2/3",
    "’": "'",
}
_WRITTEN = str.maketrans(_BRACKETS | _SIGNS | {" ": "\xa0"})


def split(captions: Sequence[str]) -> list[str]:
    """The words of captions, each on one line, in lower case, without punctuation, joined by spaces.

    >>> split(["The dog's owner can't see (it)."])
    ["the dog 's owner ca n't see -lrb- it -rrb-"]
    """
    # As one text, since a full stop after a single letter depends on the next word, even in the next caption.
    tokens = (
        token.translate(_WRITTEN).lower()
        for token in _TOKEN.findall(html.unescape("\n".join(captions)))
    )
    return [line.strip() for line in " ".join(tokens).split("\n")]
