"""Words of captions as in the COCO tools: those of Stanford's PTB tokenizer, in lower case and without punctuation.

The Penn Treebank's words are not quite those between spaces: "dog's" is two, "can't" is "ca" and "n't", a full stop belongs to
"St." but not to "dog.". The rules here are our own, found by giving the program (CoreNLP 3.4.1, with the options of
pycocoevalcap: `-preserveLines -lowerCase`) one kind of text after the other; `tests/test_ptb.py` compares with it. Known to differ: links, file names and addresses that
touch other signs, words with several apostrophes or slashes, and characters that Unicode got after 2010.
"""

from collections.abc import Sequence

import regex

# After these a full stop belongs to the word: in any case; if the first letter is a capital; if a number follows.
_ABBREVIATIONS = (
    "adj adm adv al ala alex apr ariz assn assoc asst atty attn aug ave az bancorp bhd bldg blvd brig bros calif capt cf cie cmdr co col "
    "colo comdr conn corp cos cpl ct dak dec dept det dr drs elec ens esq est etc ext feb fla fri ft ga gen gov govs hon inc ind "
    "insp intl invt jan jos jr jul jun kan kans ky lieut lt ltd maj mar md messrs mfg mich minn mlle mme mo mon mont mr mrs ms msgr "
    "mt mtg natl neb nev nov oct okla penn pfc ph plc ppte ppty pres prof profs pte ptes pty ptys pvt rd rep reps rev rt sen sens "
    "sep sept seq sfc sgt spc sq sr st ste supt sys tel tenn thu thurs tue tues univ va vs vt wed wis wisc wm wyo"
)
_ABBREVIATED_NAMES = "Ark Del Ill La Mass Miss Ore Pa Tex Wash"
_ABBREVIATIONS_BEFORE_NUMBERS = "art fig figs no nos op pp prop"
# These words begin a sentence, so that the full stop between them and a single letter ends one.
_STARTERS = (
    "A About According Additionally After An As At But Earlier He Her Here However If In It Last Many More Now Once One Other Our "
    "She Since So Some Such That The Their Then There These They This We What When While Yet You Mr\\. Ms\\."
)


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


_L = r"[\p{L}\p{Nd}[\p{M}&&[\u0300-\u0eff]]]"  # the marks of later scripts end a word
_Q = "['’`]"
_CLITIC = r"['’](?i:s|d|m|ll|re|ve|em)(?!\p{L})"
_PIECE = rf"(?:(?:[A-Zdlno](?!{_CLITIC}){_Q}(?=\p{{L}}{{2}}))?{_L}+(?:_{_L}+)*)"
_WORD = rf"{_PIECE}(?:[-‐‑]{_PIECE})*"
_ASCII = "[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"
_DOTTED = r"(?:\p{L}[\p{L}\d]*(?:[.!?]\p{L}[\p{L}\d]*)+)"
_ACRONYM = r"(?:(?:[a-zA-Z]\.)+[a-zA-Z]\.)"
_END = rf"(?!{_L}|[-_/]{_L}|[.!?]\p{{L}}|{_CLITIC})"
_SPLIT = _any("cannot gimme gonna gotta lemme wanna")

_TOKEN = regex.compile(
    rf"""
      (?!{_SPLIT}\b)[a-z]+(?=[ \n])                                        # most words, at once
    | \n | \.{{3,4}} | --+ | '' | `` | [!?]{{2,}} | \#{{2,}} | \*+ | _+
    | <[!?/]?[a-zA-Z][a-zA-Z0-9]*(?:\ [^<>\n]*|/)?> | <!--[^<>\n]*--> | &\#\d+;                # of HTML
    | (?i:https?)://[^\s"<>|(){{}}]*[^\s"<>|(){{}},.!?;:'-]
    | [^\s"'`<>|(){{}}\[\].,;:!?/\-](?:[^\s"'`<>|().,;:!?/\-]|-(?!-))*(?:\.\w+)*\.(?i:com|net|org|edu)\b
    | [a-zA-Z0-9][^\s"<>|()]*@(?:[^\s"<>|().]+\.)*[^\s"<>|().]+ | [@#][a-zA-Z]\w* | @_\w*
    | [:;=]'?-?[()DdPpO|](?!{_L}) | :-?[]\\](?!{_L}) | :3(?![\d.]) | \^_\^ | -_- | -[LRlr][RrSsCc][Bb]-  # faces, brackets
    | (?:Ph|Ed)\.D\.
    | (?:{_ACRONYM}|[a-zA-Z0-9]+[.,][a-zA-Z0-9.,]*)(?:-(?:{_ACRONYM}|[a-zA-Z0-9]+))+            # 1,000-foot
    # Two words in one: cannot, gonna, wanna, gotta, gimme, lemme, 'tis, 'twas, isn't.
    | (?i:can(?=not{_END})|(?:gon|wan)(?=na{_END})|got(?=ta{_END})|(?:gim|lem)(?=me{_END})|'t(?=is|was))
    | (?i:\p{{L}}+?(?=n{_Q}t)|n{_Q}t(?!{_L}))
    | {_CLITIC} | ['’](?i:till?|cause)(?!\p{{L}}) | ['’]\d\d(?:s|(?!\S)) | ['’][nN](?:['’]|(?!\S))
    | (?i:e{_Q}er|c{_Q}mon|s{_Q}mores|cap{_Q}n|nor{_Q}easter|nat{_Q}l|ev{_Q}ry)(?!{_L})
    | (?i:\p{{L}}+[aeiouy]{_Q}[aeiou]\p{{L}}*)
    | (?!\p{{L}}{_CLITIC})(?:[DdLl]['’](?!\p{{L}}{{2}})|[JjYy]['’](?=\p{{L}})|(?i:ol)['’])
    | [A-Z]{{1,2}}\$ | [cC]\+\+ | [cCfF]\# | [A-Z]+(?:&[A-Z]+)+
    | {_ACRONYM}(?!{_L}) | {_DOTTED}(?!{_L})(?:\.(?=[,;:]))?
    | (?i:{_any(_ABBREVIATIONS)})\.
    | (?:{_any(_ABBREVIATED_NAMES)}|{_any(_ABBREVIATED_NAMES.upper())})\.
    | (?i:{_any(_ABBREVIATIONS_BEFORE_NUMBERS)})\.(?=\s*\d)
    | [a-zA-Z]\.(?!\s+(?=\p{{Lu}})(?i:{_any(_STARTERS)})(?!\S))
    | {_L}+\.(?=[,;:])
    | \d+\ \d{{1,4}}/\d{{1,4}}(?!{_L}) | \d+(?:[.,:]\d+)+                  # 3 1/2, 10:30
    | {_ASCII}(?:/{_ASCII}){{1,2}} | {_WORD}
    | [-+]?[.,:]?\d+(?:[.,:]\d+)*
    | [#$%&()/<=>@\[\\\]^{{|}}~+¡-⯿[\uff00-\uff65]--[\p{{L}}\p{{M}}\p{{Pi}}\p{{Pf}}‐-―…]]
    """,
    regex.VERBOSE | regex.VERSION1,
)
_SAME = {
    "£": "#",
    "€": "$",
    "¤": "$",
    "¢": "cents",
    "½": "1/2",
    "¼": "1/4",
    "¾": "3/4",
    "⅓": "1/3",
    "⅔": "2/3",
    " ": "\xa0",
}
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_WRITTEN = str.maketrans(_SAME | _BRACKETS)
_ENTITIES = {"&amp;": "&", "&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&mdash;": "—"}
_ENTITY = regex.compile("|".join(_ENTITIES), regex.IGNORECASE)
_CURLY = regex.compile(r"(n?)’(t|s|d|m|ll|re|ve)")
_DROPPED = {"...", "....", "--", "---", "----", "''", "``"}


def split(captions: Sequence[str]) -> list[str]:
    """The words of captions, each on one line, in lower case, without punctuation, joined by spaces.

    >>> split(["The dog's owner can't see (it)."])
    ["the dog 's owner ca n't see -lrb- it -rrb-"]
    """
    # As one text, since a full stop after a single letter depends on the next word, even in the next caption.
    text = _ENTITY.sub(lambda entity: _ENTITIES[entity[0].lower()], "\n".join(captions))
    tokens = (token.translate(_WRITTEN).lower() for token in _TOKEN.findall(text) if token not in _DROPPED)
    words = " ".join(_CURLY.sub(r"\1'\2", token) if _CURLY.fullmatch(token) else token for token in tokens)
    return [line.strip() for line in words.split("\n")]
