"""The captions of scenes: a small English grammar and its parser.

A caption names two objects, each with size, colour, shape and texture (if it is not plain), and their spatial relation:

    "A tiny striped red star floats above a large blue square."
    "Below a big yellow star with white dots there is a little green circle."

`captions` writes such sentences, and `parse` reads exactly these: with placeholders for the noun phrases ("x is above y"),
each is looked up among all sentences of the grammar. `phrases` also finds the noun phrases of partly wrong sentences.
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
LONGEST = 18  # words in a caption
OTHER_ORDER = 0.5  # share of the captions beginning with the relation that name the lower or right object first

# The first synonym of each list is the most frequent; a value that is not here has one word, its own.
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
    """A sentence with placeholders for the first object X, the second object Y and their relation."""

    text: str
    weight: int
    of_second: bool = (
        False  # the relation is that of Y to X ("X with Y above it"), not of X to Y ("X above Y")
    )
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
_WEIGHTED = [frame for frame in FRAMES for _ in range(frame.weight)]


@dataclass(frozen=True)
class Kind:
    """The attributes of one object that a caption states."""

    size: str
    colour: str
    shape: str
    texture: str = "plain"


@dataclass(frozen=True)
class Meaning:
    """The meaning of a caption in canonical form: `relation` is always "above" or "left of"."""

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
    attributes: Mapping[int, tuple[str, str]]  # index of a descriptive word -> ("colour", "red")

    @property
    def kind(self) -> Kind | None:
        """The object described; None unless size, colour and shape occur exactly once and texture at most once."""
        attributes = dict(self.attributes.values())
        complete = {"size", "colour", "shape"} <= attributes.keys()
        return Kind(**attributes) if complete and len(attributes) == len(self.attributes) else None


def captions(random: RandomState, meaning: Meaning) -> tuple[str, ...]:
    """Five different random sentences, each of which expresses `meaning` in at most `LONGEST` words."""
    sentences: dict[str, None] = {}  # a set in the order of its members
    while len(sentences) < 5:
        frame = pick(random, _WEIGHTED)
        x, relation, y = meaning.first, meaning.relation, meaning.second
        # Captions name the upper or left object first, unless the first words say otherwise ("Below a ..."): the model
        # has to know which object comes first before the first noun if its attention lags one word behind.
        if random.random_sample() < OTHER_ORDER and frame.text.startswith("{relation}"):
            x, relation, y = y, INVERSE[relation], x
        if frame.of_second:
            relation = INVERSE[relation]
        article = "the " if frame.definite and random.random_sample() < 0.25 else "a "
        first = "" if frame.bare and random.random_sample() < 0.2 else article
        sentence = frame.text.format(
            relation=_synonym(random, _RELATION[relation]),
            to_it=_synonym(random, _RELATION_TO_IT[relation]),
            verb=_synonym(random, _VERBS[relation]),
        )
        sentence = sentence.replace("X", first + _noun_phrase(random, x, frame.simple_first))
        sentence = sentence.replace("Y", article + _noun_phrase(random, y, False))
        if len(sentence.split()) <= LONGEST:
            sentences[sentence[0].upper() + sentence[1:] + "."] = None
    return tuple(sentences)


def _noun_phrase(random: RandomState, kind: Kind, simple: bool) -> str:
    """An object without its article: "small striped red star", "small red star with white stripes"."""
    size, shape = (_synonym(random, _words(value)) for value in (kind.size, kind.shape))
    mention, variant = random.random_sample(2)
    if kind.texture == "plain":
        return f"{size} {'plain ' if mention < 0.2 else ''}{kind.colour} {shape}"
    if not simple and mention < 0.25:
        white = "white " if variant < 0.4 else ""
        return f"{size} {kind.colour} {shape} with {white}{_synonym(random, _AFTER_WITH[kind.texture])}"
    texture = _synonym(random, _words(kind.texture))
    return (
        f"{size} {texture} {kind.colour} {shape}"
        if variant < 0.7
        else f"{size} {kind.colour} {texture} {shape}"
    )


def pick(random: RandomState, values: Sequence[Any]) -> Any:
    """One of the values, with equal probability. (numpy's `randint` gives different numbers on different platforms.)"""
    return values[int(random.random_sample() * len(values))]


def between(random: RandomState, least: int, most: int) -> int:
    """A random integer from `least` to `most`, inclusive."""
    return least + int(random.random_sample() * (most + 1 - least))


def _synonym(random: RandomState, words: Sequence[str]) -> str:
    """One of the words; the first is the most likely."""
    return words[0] if random.random_sample() < 0.4 else pick(random, words)


def _words(value: str) -> tuple[str, ...]:
    return _WORDS.get(value, (value,))


_DESCRIBING = {
    word: (attribute, value)
    for attribute, values in {
        "size": SIZES,
        "colour": COLOURS,
        "shape": SHAPES,
        "texture": TEXTURES,
    }.items()
    for value in values
    for word in _words(value)
}
_DESCRIBING_AFTER_WITH = {
    word: ("texture", value) for value, words in _AFTER_WITH.items() for word in words
}
_NOUN = "|".join(word for word, (attribute, _) in _DESCRIBING.items() if attribute == "shape")
_ADJECTIVE = "|".join(word for word, (attribute, _) in _DESCRIBING.items() if attribute != "shape")
_NOUN_PHRASE = re.compile(
    rf"(?<!\S)(?:(?:a|an|the) )?(?:(?:{_ADJECTIVE}) )*"
    rf"(?:(?:{_NOUN})(?: with (?:white )?(?:{'|'.join(_DESCRIBING_AFTER_WITH)}))?|(?:{_ADJECTIVE}))(?!\S)"
)


def phrases(words: Sequence[str]) -> list[Phrase]:
    """The noun phrases of a sentence, also those that lack their noun."""
    describing, sentence, noun_phrases = _DESCRIBING | _DESCRIBING_AFTER_WITH, " ".join(words), []
    for match in _NOUN_PHRASE.finditer(sentence):
        start, own = sentence.count(" ", 0, match.start()), match[0].split()
        attributes = {
            index: describing[word] for index, word in enumerate(own, start) if word in describing
        }
        noun_phrases.append(Phrase(start, start + len(own), attributes))
    return noun_phrases


def parse(text: str | Sequence[str]) -> Meaning | None:
    """The meaning of a caption, or of its words in lower case; None if it is not a sentence of the grammar."""
    words = tokenise(text) if isinstance(text, str) else list(text)
    noun_phrases = phrases(words)
    if len(noun_phrases) != 2:
        return None
    x, y = noun_phrases
    relation = _skeletons().get(
        (*words[: x.start], "x", *words[x.stop : y.start], "y", *words[y.stop :])
    )
    if relation is None or x.kind is None or y.kind is None:
        return None
    return Meaning.of(x.kind, relation, y.kind)


@lru_cache
def _skeletons() -> dict[tuple[str, ...], str]:
    """The words of every sentence of the grammar, with x and y for the objects -> the relation of X to Y."""
    relations = {}
    for frame, relation in product(FRAMES, RELATIONS):
        for words in product(_RELATION[relation], _RELATION_TO_IT[relation], _VERBS[relation]):
            text = frame.text.format(**dict(zip(("relation", "to_it", "verb"), words, strict=True)))
            relations[tuple(tokenise(text))] = INVERSE[relation] if frame.of_second else relation
    return relations
