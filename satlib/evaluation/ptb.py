"""Words of captions as in the COCO tools: those of Stanford's PTB tokenizer, in lower case.

The Penn Treebank's words are not quite those between spaces: "dog's" is two, "can't" is "ca" and
"n't", a full stop belongs to "St." but not to "dog.". Punctuation is left out. The COCO tools need
Java for this; here are rules of our own. `tests/test_ptb.py` compares both: all captions of
Flickr8k, Flickr30k and COCO that we tried gave the same words. There are no rules for e-mail
addresses and the like.
"""

import html
from collections.abc import Sequence

import regex

# After these a full stop belongs to the word; after the second kind if a number follows.
_ABBREVIATIONS = (
    "ave blvd capt co corp dept dr etc ft gen gov inc jr lt ltd mr mrs ms mt prof rd rev sgt sq sr "
    "st univ vs"
)
_ABBREVIATIONS_BEFORE_NUMBERS = "art fig no nos pp"
# These words begin a sentence, so that the full stop between them and a single letter ends one.
_STARTERS = (
    "A About According Additionally After An As At But Earlier He Her Here However If In It Last "
    "Many More Now Once One Other Our She Since So Some Such That The Their Then There These They "
    "This We What When While Yet You Mr\\. Ms\\."
)


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


_L = r"[\p{L}\p{Nd}\p{M}]"  # what words consist of
_CLITIC = r"['’](?i:s|d|m|ll|re|ve|em)(?!\p{L})"  # 's, 'd, 'm, 'll, 're, 've, 'em
# A run of letters, with the first letter of "o'clock" and "O'Neil".
_PIECE = rf"(?:(?:[A-Zdlno](?!{_CLITIC})['’](?=\p{{L}}{{2}}))?{_L}+)"
_ASCII = "[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"  # t-shirt
_END = rf"(?!{_L}|[-/]{_L}|{_CLITIC})"  # the end of a word

# At each place the first alternative that matches gives a token; what none matches is left out.
# Each line's comment has examples: a | b stands for two tokens.
_TOKEN = regex.compile(
    rf"""
      [a-z]+(?<!cannot|gonna|wanna)(?=[ \n])  # "dog " -> dog: most words, found at once
    | \n  # the end of a caption
    | [!?]{{2,}}  # "?!" -> ?!, "!!!" -> !!!
    | (?i:can(?=not{_END}))  # "cannot" -> can | not
    | (?i:(?:gon|wan)(?=na{_END}))  # "gonna" -> gon | na, "wanna" -> wan | na
    | (?i:\p{{L}}+?(?=n['’]t))  # "isn't" -> is, "can't" -> ca, before the next alternative
    | (?i:n['’]t(?!{_L}))  # "isn't" -> n't
    | {_CLITIC}  # "dog's" -> 's, "they're" -> 're, "'em" -> 'em
    | ['’]\d\d(?:s|(?!\S))  # "the '90s" -> '90s, "in '96" -> '96
    | ['’][nN](?:['’]|(?!\S))  # "rock 'n' roll" -> 'n', "rock 'n roll" -> 'n
    | (?i:\p{{L}}+[aeiouy]['’][aeiou]\p{{L}}*)  # "ma'am" -> ma'am
    | [A-Z]+(?:&[A-Z]+)+  # "R&B" -> r&b; but "rock&roll" -> rock | & | roll
    | (?:[a-zA-Z]\.)+[a-zA-Z]\.(?!{_L})  # "U.S." -> u.s., "p.m." -> p.m.
    | \p{{L}}[\p{{L}}\d]*(?:[.!?]\p{{L}}[\p{{L}}\d]*)+(?!{_L})  # "dog.com" -> dog.com
    | (?i:{_any(_ABBREVIATIONS)})\.  # "St. Bernard" -> st. | bernard
    | (?i:{_any(_ABBREVIATIONS_BEFORE_NUMBERS)})\.(?=\s*\d)  # "no. 5" -> no. | 5
    # "a C. on it" -> c.; but "the letter b. The dog" -> b, because "The" begins a sentence
    | [a-zA-Z]\.(?!\s+(?=\p{{Lu}})(?i:{_any(_STARTERS)})(?!\S))
    | {_L}+\.(?=[,;:])  # "dog., mass" -> dog. | mass
    | \d+\ \d{{1,4}}/\d{{1,4}}(?!{_L})  # "3 1/2 cups" -> 3 1/2 | cups, with a hard space
    | \d+(?:[.,:]\d+)+  # "10:30" -> 10:30, "1,000" -> 1,000
    | {_ASCII}(?:/{_ASCII}){{1,2}}  # "black/white/red" -> black/white/red
    | {_PIECE}(?:[-‐‑]{_PIECE})*  # "T-shirt" -> t-shirt, "café" -> café, "o'clock" -> o'clock
    | [-+]?[.,:]?\d+(?:[.,:]\d+)*  # "-5" -> -5, ".50" -> .50
    # Signs, one at a time: "5$" -> 5 | $, "50%" -> 50 | %, "(it)" -> -lrb- | it | -rrb-
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
    """The words of captions, each on one line, in lower case, without punctuation.

    They are joined by spaces.

    >>> split(["The dog's owner can't see (it)."])
    ["the dog 's owner ca n't see -lrb- it -rrb-"]
    """
    # As one text, since a full stop after a single letter depends on the next word, even in the
    # next caption.
    text = html.unescape("\n".join(captions))
    tokens = [token.translate(_WRITTEN).lower() for token in _TOKEN.findall(text)]
    return [line.strip() for line in " ".join(tokens).split("\n")]
