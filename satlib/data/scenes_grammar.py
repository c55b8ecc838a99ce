"""The captions of scenes: a small English grammar and its parser.

A caption names two objects, each with size, colour, shape and texture (if it is not plain), and
their spatial relation:

    "A tiny striped red star floats above a large blue square."
    "Below a big yellow star with white dots there is a little green circle."

`captions` writes such sentences, and `parse` reads exactly these: with placeholders for the noun
phrases ("x is above y"), each is looked up among all sentences of the grammar. `phrases` also finds
the noun phrases of partly wrong sentences.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from numpy.random import RandomState

from satlib.data.text import tokenise

SIZES = ("small", "big")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple")
SHAPES = ("circle", "square", "triangle", "star")
TEXTURES = ("plain", "striped", "dotted")
RELATIONS = ("above", "below", "left of", "right of")
INVERSE = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}
MAX_WORDS = 18  # in a caption

# Share of the captions beginning with the relation ("Below a ...") that name the lower or right
# object first.
OTHER_ORDER = 0.5

# The first synonym of each list is the most frequent. A value that is not here is its own word.
_WORDS = {
    "small": ("small", "little", "tiny"),
    "big": ("big", "large", "huge"),
    "circle": ("circle", "disc"),
    "dotted": ("dotted", "spotted"),
}
_AFTER_WITH = {"striped": ("stripes",), "dotted": ("dots", "spots")}

_RELATION = {
    "above": ("above", "over"),
    "below": ("below", "under", "beneath", "underneath"),
    "left of": ("to the left of", "left of", "on the left of", "on the left side of"),
    "right of": ("to the right of", "right of", "on the right of", "on the right side of"),
}
_RELATION_TO_IT = {
    "above": ("above it", "over it"),
    "below": ("below it", "under it", "beneath it", "underneath it"),
    "left of": ("to its left", "on its left", "to the left of it"),
    "right of": ("to its right", "on its right", "to the right of it"),
}
_VERBS = {
    "above": ("is", "floats", "hangs", "hovers"),
    "below": ("is", "sits", "lies", "rests"),
    "left of": ("is", "sits", "stands", "lies"),
    "right of": ("is", "sits", "stands", "lies"),
}


@dataclass(frozen=True)
class Frame:
    """A sentence with placeholders for the objects X and Y and for their relation."""

    text: str
    weight: int
    # The relation is that of Y to X ("X with Y above it"), not of X to Y ("X above Y").
    of_second: bool = False
    definite: bool = False  # the article may be "the"
    bare: bool = False  # the first article may be omitted, as is common in captions
    simple_first: bool = False  # no "with stripes" after X, because "with" or "and" follows


FRAMES = (
    Frame("X {relation} Y", 5, bare=True),
    Frame("X {verb} {relation} Y", 5, definite=True),
    Frame("There is X {relation} Y", 2),
    Frame("The picture shows X {relation} Y", 1),
    Frame("This image shows X {relation} Y", 1),
    Frame("We see X {relation} Y", 1),
    Frame("We can see X {relation} Y", 1),
    Frame("A picture of X {relation} Y", 1),
    Frame("A drawing of X {relation} Y", 1),
    Frame("In this picture, X {verb} {relation} Y", 1, definite=True),
    Frame("{relation} X {verb} Y", 1, of_second=True),
    Frame("{relation} X, there is Y", 1, of_second=True),
    Frame("{relation} X, we see Y", 1, of_second=True),
    Frame("X with Y {to_it}", 3, of_second=True, bare=True, simple_first=True),
    Frame("X has Y {to_it}", 1, of_second=True),
    Frame("X and, {to_it}, Y", 1, of_second=True, simple_first=True),
)

# Each frame as often as its weight says, so that `pick` draws it in proportion.
_WEIGHTED = [frame for frame in FRAMES for _ in range(frame.weight)]


# --- Meaning ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """The attributes of one object that a caption states."""

    size: str
    colour: str
    shape: str
    texture: str = "plain"


@dataclass(frozen=True)
class Meaning:
    """The meaning of a caption in canonical form: `relation` is "above" or "left of"."""

    first: Kind
    relation: str
    second: Kind

    @classmethod
    def of(cls, subject: Kind, relation: str, other: Kind) -> "Meaning":
        """The meaning of "subject relation other", where "a below b" becomes "b above a"."""
        if relation in ("above", "left of"):
            return cls(subject, relation, other)
        return cls(other, INVERSE[relation], subject)


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: words[start:stop]."""

    start: int
    stop: int
    # The index of each word that describes -> ("colour", "red").
    attributes: Mapping[int, tuple[str, str]]

    @property
    def kind(self) -> Kind | None:
        """The object described.

        None unless size, colour and shape occur exactly once and texture at most once.
        """
        attributes = dict(self.attributes.values())
        complete = {"size", "colour", "shape"} <= attributes.keys()
        # If two words state the same attribute, the dict has lost one of them.
        repeated = len(attributes) < len(self.attributes)
        return Kind(**attributes) if complete and not repeated else None


# --- Writing ----------------------------------------------------------------------------------


def captions(random: RandomState, meaning: Meaning) -> tuple[str, ...]:
    """Five different random sentences that express `meaning`, of at most `MAX_WORDS` words each."""
    sentences: dict[str, None] = {}  # a set in the order of its members
    while len(sentences) < 5:
        sentence = _sentence(random, meaning)
        if len(sentence.split()) <= MAX_WORDS:
            sentences[sentence[0].upper() + sentence[1:] + "."] = None
    return tuple(sentences)


def _sentence(random: RandomState, meaning: Meaning) -> str:
    """A random sentence, without its capital letter and full stop."""
    frame = pick(random, _WEIGHTED)
    x, relation, y = meaning.first, meaning.relation, meaning.second

    # Captions name the upper or left object first, unless the first words say otherwise ("Below a
    # ..."): the model has to know which object comes first before the first noun if its attention
    # lags one word behind.
    other_order = random.random_sample() < OTHER_ORDER
    if other_order and frame.text.startswith("{relation}"):
        x, y = y, x
        relation = INVERSE[relation]
    if frame.of_second:
        relation = INVERSE[relation]

    # Drawn only for the frames that have a choice: another number of draws is another sentence.
    article = "a "
    if frame.definite and random.random_sample() < 0.25:
        article = "the "
    first_article = article
    if frame.bare and random.random_sample() < 0.2:
        first_article = ""

    sentence = frame.text.format(
        relation=_synonym(random, _RELATION[relation]),
        to_it=_synonym(random, _RELATION_TO_IT[relation]),
        verb=_synonym(random, _VERBS[relation]),
    )
    sentence = sentence.replace("X", first_article + _noun_phrase(random, x, frame.simple_first))
    return sentence.replace("Y", article + _noun_phrase(random, y, False))


def _noun_phrase(random: RandomState, kind: Kind, simple: bool) -> str:
    """An object without its article: "small striped red star", "small red star with stripes".

    simple: never with anything after the noun.
    """
    size = _synonym(random, _words(kind.size))
    shape = _synonym(random, _words(kind.shape))
    mention, variant = random.random_sample(2)

    if kind.texture == "plain":
        # People rarely say that something is plain.
        plain = "plain " if mention < 0.2 else ""
        return f"{size} {plain}{kind.colour} {shape}"

    if not simple and mention < 0.25:
        white = "white " if variant < 0.4 else ""
        marks = _synonym(random, _AFTER_WITH[kind.texture])
        return f"{size} {kind.colour} {shape} with {white}{marks}"

    texture = _synonym(random, _words(kind.texture))
    if variant < 0.7:
        return f"{size} {texture} {kind.colour} {shape}"
    return f"{size} {kind.colour} {texture} {shape}"


def pick(random: RandomState, values: Sequence[Any]) -> Any:
    """One of the values, with equal probability."""
    # numpy's `randint` gives different numbers on different platforms.
    return values[int(random.random_sample() * len(values))]


def between(random: RandomState, least: int, most: int) -> int:
    """A random integer from `least` to `most`, inclusive."""
    return least + int(random.random_sample() * (most + 1 - least))


def _synonym(random: RandomState, words: Sequence[str]) -> str:
    """One of the words; the first is the most likely."""
    if random.random_sample() < 0.4:
        return words[0]
    return pick(random, words)


def _words(value: str) -> tuple[str, ...]:
    """The words that say a value of an attribute."""
    return _WORDS.get(value, (value,))


# --- Reading ----------------------------------------------------------------------------------


def _describing() -> dict[str, tuple[str, str]]:
    """Each word that describes -> the attribute and its value: "tiny" -> ("size", "small")."""
    values_of = {"size": SIZES, "colour": COLOURS, "shape": SHAPES, "texture": TEXTURES}
    describing = {}
    for attribute, values in values_of.items():
        for value in values:
            for word in _words(value):
                describing[word] = attribute, value
    return describing


_DESCRIBING = _describing()
# Likewise after "with": "stripes" -> ("texture", "striped").
_DESCRIBING_AFTER_WITH = {
    word: ("texture", texture) for texture, words in _AFTER_WITH.items() for word in words
}

# "a tiny red star with white dots", or, where the noun is missing, "a tiny red".
_NOUN = "|".join(word for word, (attribute, _) in _DESCRIBING.items() if attribute == "shape")
_ADJECTIVE = "|".join(word for word, (attribute, _) in _DESCRIBING.items() if attribute != "shape")
_WITH = f"with (?:white )?(?:{'|'.join(_DESCRIBING_AFTER_WITH)})"
_NOUN_PHRASE = re.compile(
    rf"(?<!\S)(?:(?:a|an|the) )?(?:(?:{_ADJECTIVE}) )*"
    rf"(?:(?:{_NOUN})(?: {_WITH})?|(?:{_ADJECTIVE}))(?!\S)"
)


def phrases(words: Sequence[str]) -> list[Phrase]:
    """The noun phrases of a sentence, also those that lack their noun."""
    describing = _DESCRIBING | _DESCRIBING_AFTER_WITH
    sentence = " ".join(words)
    noun_phrases = []
    for match in _NOUN_PHRASE.finditer(sentence):
        # The spaces before it are as many as the words before it.
        start = sentence.count(" ", 0, match.start())
        own = match[0].split()
        attributes = {
            index: describing[word] for index, word in enumerate(own, start) if word in describing
        }
        noun_phrases.append(Phrase(start, start + len(own), attributes))
    return noun_phrases


def parse(text: str | Sequence[str]) -> Meaning | None:
    """The meaning of a caption, or of its words in lower case.

    None if it is not a sentence of the grammar.
    """
    words = tokenise(text) if isinstance(text, str) else list(text)
    noun_phrases = phrases(words)
    if len(noun_phrases) != 2:
        return None

    x, y = noun_phrases
    before = words[: x.start]
    middle = words[x.stop : y.start]
    after = words[y.stop :]
    relation = _skeletons().get((*before, "x", *middle, "y", *after))
    if relation is None or x.kind is None or y.kind is None:
        return None
    return Meaning.of(x.kind, relation, y.kind)


@lru_cache
def _skeletons() -> dict[tuple[str, ...], str]:
    """The words of every sentence, with x and y for the objects -> the relation of X to Y."""
    relations = {}
    for frame, relation in product(FRAMES, RELATIONS):
        of_x_to_y = INVERSE[relation] if frame.of_second else relation
        # A frame has only some of the three: the sentences that this repeats are the same ones.
        synonyms = product(_RELATION[relation], _RELATION_TO_IT[relation], _VERBS[relation])
        for said, to_it, verb in synonyms:
            text = frame.text.format(relation=said, to_it=to_it, verb=verb)
            relations[tuple(tokenise(text))] = of_x_to_y
    return relations
