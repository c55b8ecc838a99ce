"""What is said of a scene: a small English grammar and its exact inverse.

A caption names two objects, each with size, colour, shape and texture, and how the one lies to the other:

    "A tiny striped red star floats above a large blue square."
    "Below a big yellow star with white dots there is a little green circle."

A texture that is not said means plain. `caption` writes such sentences, `parse` takes them apart again: it replaces each
noun phrase by its place ("X is above Y") and looks what is left up among all the sentences that the grammar can build, so
whatever `caption` writes `parse` understands, and nothing else. `phrases` alone is forgiving: it finds the noun phrases
of a sentence that a model got half wrong, so that a word's map can still be held against the object that it names.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from numpy.random import RandomState

from satlib.text import tokenise

# Knobs: fewer kinds make the world easier to learn, more make it harder.
SHAPES = ("circle", "square", "triangle", "star")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple")
TEXTURES = ("plain", "striped", "dotted")
SIZES = ("small", "big")
RELATIONS = ("above", "below", "left of", "right of")
LONGEST = 18  # words in a caption
OTHER_ORDER = 0.5  # how often a caption that begins with the relation names the lower or right object first

INVERSE = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}

# The first synonym of each list is the commonest.
_SIZE_WORDS = {"small": ("small", "little", "tiny"), "big": ("big", "large", "huge")}
_SHAPE_WORDS = {"circle": ("circle", "disc")}
_BEFORE_NOUN = {"plain": ("plain",), "striped": ("striped",), "dotted": ("dotted", "spotted")}
_AFTER_NOUN = {"striped": ("stripes",), "dotted": ("dots", "spots")}

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
    """A sentence with places for the first object X, the second object Y and their relation.

    `of_second` says which way the relation reads: of X to Y ("X above Y"), or of Y to X ("X with Y above it").
    """

    text: str
    weight: int
    of_second: bool = False
    definite: bool = False  # "the red star", too
    bare: bool = False  # the first article may be dropped, as captions do
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


@dataclass(frozen=True)
class Kind:
    """All that a caption says of one object."""

    size: str
    colour: str
    shape: str
    texture: str = "plain"


@dataclass(frozen=True)
class Meaning:
    """What a caption says, in one canonical form: `relation` is only ever "above" or "left of"."""

    first: Kind
    relation: str
    second: Kind

    @classmethod
    def of(cls, subject: Kind, relation: str, other: Kind) -> "Meaning":
        """The meaning of "subject relation other"; a below b is b above a."""
        if relation in ("above", "left of"):
            return cls(subject, relation, other)
        return cls(other, INVERSE[relation], subject)


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: words[start:stop], and what each describing word says as (attribute, value)."""

    start: int
    stop: int
    said: Mapping[int, tuple[str, str]]  # index of the word -> ("colour", "red")

    @property
    def kind(self) -> Kind | None:
        """The object described, or None unless size, colour, shape are said once and texture at most once."""
        said = dict(self.said.values())
        complete = {"size", "colour", "shape"} <= said.keys()
        return Kind(**said) if complete and len(said) == len(self.said) else None


# --- Writing ---------------------------------------------------------------------------------------------------------


def caption(random: RandomState, meaning: Meaning) -> str:
    """Write one sentence that says `meaning`, of at most `LONGEST` words."""
    weights = [frame.weight for frame in FRAMES]
    while True:
        frame = FRAMES[_weighted(random, weights)]
        x, relation, y = meaning.first, meaning.relation, meaning.second
        # People name the upper or left object first, unless the first words say that they do not: "Below a ...".
        # So it is known where the first noun looks before its first word, as an attention that lags a word behind needs.
        if random.random_sample() < OTHER_ORDER and frame.text.startswith("{relation}"):
            x, relation, y = y, INVERSE[relation], x
        if frame.of_second:
            relation = INVERSE[relation]
        definite = frame.definite and random.random_sample() < 0.25
        article = "the " if definite else "a "
        first = "" if frame.bare and random.random_sample() < 0.2 else article
        sentence = frame.text.format(
            relation=_synonym(random, _RELATION[relation]),
            to_it=_synonym(random, _RELATION_TO_IT[relation]),
            verb=_synonym(random, _VERBS[relation]),
        )
        sentence = sentence.replace("X", first + _noun_phrase(random, x, frame.simple_first))
        sentence = sentence.replace("Y", article + _noun_phrase(random, y, False))
        if len(sentence.split()) <= LONGEST:
            return sentence[0].upper() + sentence[1:] + "."


def captions(random: RandomState, meaning: Meaning, count: int = 5) -> tuple[str, ...]:
    """Write `count` different sentences that all say `meaning`."""
    written: dict[str, None] = {}
    while len(written) < count:
        written[caption(random, meaning)] = None
    return tuple(written)


def _noun_phrase(random: RandomState, kind: Kind, simple: bool) -> str:
    """Describe an object without its article: "small striped red star", "small red star with white stripes"."""
    size = _synonym(random, _SIZE_WORDS[kind.size])
    shape = _synonym(random, _SHAPE_WORDS.get(kind.shape, (kind.shape,)))
    said, after = random.random_sample(2)
    if kind.texture == "plain":
        return f"{size} {'plain ' if said < 0.2 else ''}{kind.colour} {shape}"
    if not simple and said < 0.25:
        white = "white " if after < 0.4 else ""
        return f"{size} {kind.colour} {shape} with {white}{_synonym(random, _AFTER_NOUN[kind.texture])}"
    texture = _synonym(random, _BEFORE_NOUN[kind.texture])
    return f"{size} {texture} {kind.colour} {shape}" if after < 0.7 else f"{size} {kind.colour} {texture} {shape}"


def pick(random: RandomState, values: Sequence[Any]) -> Any:
    """One of the values, all equally likely. (numpy's own `randint` differs between platforms.)"""
    return values[int(random.random_sample() * len(values))]


def between(random: RandomState, least: int, most: int) -> int:
    """A whole number from `least` to `most`, both included."""
    return least + int(random.random_sample() * (most + 1 - least))


def _synonym(random: RandomState, words: Sequence[str]) -> str:
    """One of the words, the first more often."""
    return words[0] if random.random_sample() < 0.4 else pick(random, words)


def _weighted(random: RandomState, weights: Sequence[int]) -> int:
    left = random.random_sample() * sum(weights)
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return len(weights) - 1


# --- Reading ---------------------------------------------------------------------------------------------------------


def split(text: str | Sequence[str]) -> list[str]:
    """The words of a caption; a list of words is taken as it is."""
    return tokenise(text) if isinstance(text, str) else list(text)


def phrases(words: Sequence[str]) -> list[Phrase]:
    """Find the noun phrases of a sentence, complete or not, from left to right.

    A phrase runs over describing words up to a shape word, with the article before it and "with stripes" after it.
    """
    words = list(words)
    describing, after_noun = _lexicon()
    found = []
    at = 0
    while at < len(words):
        start, said = at, {}
        at += words[at] in ("a", "an", "the")
        while at < len(words) and words[at] in describing:
            said[at] = describing[words[at]]
            at += 1
            if said[at - 1][0] == "shape":
                if words[at : at + 1] == ["with"]:
                    tail = at + 1 + (words[at + 1 : at + 2] == ["white"])
                    if tail < len(words) and words[tail] in after_noun:
                        said[tail] = after_noun[words[tail]]
                        at = tail + 1
                break
        if said:
            found.append(Phrase(start, at, said))
        else:
            at = start + 1
    return found


def parse(text: str | Sequence[str]) -> Meaning | None:
    """The meaning of a caption, or None where it is not a sentence of the grammar.

    text: the caption, or its lower-case words. Order does not matter: "a above b" and "b below a" mean the same.
    """
    words = split(text)
    found = phrases(words)
    if len(found) != 2:
        return None
    (x, y), (first, second) = found, (found[0].kind, found[1].kind)
    rest = (*words[: x.start], "X", *words[x.stop : y.start], "Y", *words[y.stop :])
    relation = _skeletons().get(rest)
    if relation is None or first is None or second is None:
        return None
    return Meaning.of(first, relation, second)


@lru_cache
def _lexicon() -> tuple[dict[str, tuple[str, str]], dict[str, tuple[str, str]]]:
    """Word -> (attribute, value): for the words up to the noun, and for those after "with"."""
    describing = {colour: ("colour", colour) for colour in COLOURS}
    describing |= {word: ("size", size) for size in SIZES for word in _SIZE_WORDS[size]}
    describing |= {word: ("shape", shape) for shape in SHAPES for word in _SHAPE_WORDS.get(shape, (shape,))}
    describing |= {word: ("texture", texture) for texture in TEXTURES for word in _BEFORE_NOUN[texture]}
    return describing, {word: ("texture", texture) for texture, words in _AFTER_NOUN.items() for word in words}


def sentences() -> Iterator[tuple[str, str]]:
    """Every sentence of the grammar with X and Y in place of the objects, and the relation of X to Y."""
    for frame in FRAMES:
        for said in RELATIONS:
            places = {"relation": _RELATION[said], "to_it": _RELATION_TO_IT[said], "verb": _VERBS[said]}
            texts = {frame.text}
            for place, synonyms in places.items():
                texts = {text.replace(f"{{{place}}}", word) for text in texts for word in synonyms}
            for text in sorted(texts):
                yield text, INVERSE[said] if frame.of_second else said


@lru_cache
def _skeletons() -> dict[tuple[str, ...], str]:
    return {
        tuple(word if word in "XY" else word.lower() for word in re.findall(r"\w+", text)): relation
        for text, relation in sentences()
    }
