"""A small world for translation: plain English into Orrish, a language invented so that words change places and forms.

The English is a grammar of a few rules (`RULES`) that makes sentences as long as one likes. Orrish has what makes
translating word by word fail:

- a noun's last vowel, -o or -a, is its class; determiners and adjectives take that vowel, and -n in the plural;
- adjectives follow their noun, the nearest first; "a" and "some" are not said;
- prepositions follow what they stand before in English; verbs stand at the end of their clause, behind object and adverb;
- "does not" and "do not" are one word, after the verb.

`translate` reads an English sentence by the grammar and says it in Orrish, each word with the place of the English word
that it comes from: the true alignment, which a model's can be held against.
"""

import random
from typing import NamedTuple

from satlib.course.translation import Pair
from satlib.errors import SatlibError


def _lexicon(entries: str) -> dict[str, str]:
    return dict(entry.split(":") for entry in entries.split())


NOUNS = _lexicon(
    "dog:velo cat:mira bird:pilo horse:cavano king:rego queen:rega sailor:maro farmer:agro teacher:mesta river:fluma "
    "house:domo tree:arba tower:torro garden:horta boat:nava letter:skriva"
)
ADJECTIVES = _lexicon("red:rud small:pik young:jun green:verd big:grot white:blan tall:halt happy:felit")
TRANSITIVE = _lexicon("see:vid find:trov follow:sek paint:pint help:jut hear:aud want:vol love:am")
INTRANSITIVE = _lexicon("sleep:dorm sing:kant wait:atend laugh:rid")
ADVERBS = _lexicon("often:ofte slowly:lente today:hodie again:denove")
PREPOSITIONS = _lexicon("under:sub near:apu behind:retro with:kun")
CONJUNCTIONS = _lexicon("and:e but:ma while:dum because:kar")
DETERMINERS = _lexicon("the:l my:m our:n every:siv a: some:")
ONE, MANY = ("the", "my", "our", "every", "a"), ("the", "my", "our", "some")  # determiners of one thing, of several
VERBS = TRANSITIVE | INTRANSITIVE

# What each symbol may become, the commoner choices written twice. "1" is singular, "n" plural; small letters are words.
RULES = {
    "SENTENCE": ("CLAUSE", "CLAUSE CONJUNCTION SENTENCE"),
    "CLAUSE": ("THING1 DOES1", "THINGn DOn", "THING1 DOES1 ADVERB", "THINGn DOn ADVERB"),
    "DOES1": ("VERB1 THING", "VERB1 THING", "INTRANSITIVE1", "does not INTRANSITIVEn"),
    "DOn": ("VERBn THING", "VERBn THING", "INTRANSITIVEn", "do not INTRANSITIVEn"),
    "VERB1": ("TRANSITIVE1", "TRANSITIVE1", "does not TRANSITIVEn"),
    "VERBn": ("TRANSITIVEn", "TRANSITIVEn", "do not TRANSITIVEn"),
    "THING": ("THING1", "THINGn"),
    "THING1": ("NAMED1", "NAMED1", "NAMED1 PREPOSITION NAMED", "NAMED1 that VERB1 NAMED", "NAMED1 that INTRANSITIVE1"),
    "THINGn": ("NAMEDn", "NAMEDn", "NAMEDn PREPOSITION NAMED", "NAMEDn that VERBn NAMED", "NAMEDn that INTRANSITIVEn"),
    "NAMED": ("NAMED1", "NAMEDn"),
    "NAMED1": ("DETERMINER1 OF_KIND NOUN1",),
    "NAMEDn": ("DETERMINERn OF_KIND NOUNn",),
    "OF_KIND": ("", "", "ADJECTIVE", "ADJECTIVE ADJECTIVE"),
    "DETERMINER1": ONE,
    "DETERMINERn": MANY,
    "NOUN1": tuple(NOUNS),
    "NOUNn": tuple(noun + "s" for noun in NOUNS),
    "TRANSITIVE1": tuple(verb + "s" for verb in TRANSITIVE),
    "TRANSITIVEn": tuple(TRANSITIVE),
    "INTRANSITIVE1": tuple(verb + "s" for verb in INTRANSITIVE),
    "INTRANSITIVEn": tuple(INTRANSITIVE),
    "ADJECTIVE": tuple(ADJECTIVES),
    "ADVERB": tuple(ADVERBS),
    "PREPOSITION": tuple(PREPOSITIONS),
    "CONJUNCTION": tuple(CONJUNCTIONS),
}
_PATIENCE = 20_000  # sentences in a row that are not wanted
_CHOICES = {symbol: [choice.split() for choice in choices] for symbol, choices in RULES.items()}


class Word(NamedTuple):
    """A word, and the place (from 0) of the English word that it translates."""

    text: str
    source: int


def _sentence(rng: random.Random, longest: int) -> list[str]:
    """Expand SENTENCE from left to right, no word twice in a row; with more than `longest` words it is broken off."""
    words, symbols = [], ["SENTENCE"]
    while symbols and len(words) <= longest:
        symbol = symbols.pop()
        if symbol not in RULES:
            words.append(symbol)
            continue
        choice = rng.choice(_CHOICES[symbol])
        while words and choice == words[-1:]:
            choice = rng.choice(_CHOICES[symbol])
        symbols.extend(reversed(choice))
    return words


def pairs(count: int, seed: int, shortest: int = 3, longest: int = 25) -> list[Pair]:
    """Sentences of the small world with their translations: none twice, every length as often, in random order.

    Args:
        count: how many.
        seed: the same seed gives the same sentences.
        shortest: words in the shortest English sentence, 3 at least.
        longest: words in the longest.

    Raises:
        SatlibError: no sentence is as short as `shortest`, `longest` is below it, or there are not so many sentences.
    """
    if not 3 <= shortest <= longest:
        raise SatlibError(
            f"no sentence has {shortest} to {longest} words; the shortest here have 3, so begin at 3 or above"
        )
    rng, lengths = random.Random(seed), range(shortest, longest + 1)
    missing = {length: count // len(lengths) + (i < count % len(lengths)) for i, length in enumerate(lengths)}
    found: dict[str, None] = {}
    in_vain = 0
    while len(found) < count:
        if in_vain == _PATIENCE:
            scarce = next(length for length in lengths if missing[length])
            raise SatlibError(
                f"too few sentences of {scarce} words for {count} pairs; ask for fewer, or for longer ones"
            )
        words = _sentence(rng, longest)
        sentence = " ".join(words)
        if missing.get(len(words)) and sentence not in found:
            missing[len(words)] -= 1
            found[sentence] = None
            in_vain = 0
        else:
            in_vain += 1
    order = list(found)
    rng.shuffle(order)
    return [Pair(sentence, " ".join(word.text for word in translate(sentence))) for sentence in order]


def translate(sentence: str) -> list[Word]:
    """Say an English sentence of the small world in Orrish.

    Raises:
        SatlibError: the grammar has no such sentence; says at which word, and what may stand there.
    """
    return _Reader(sentence.split()).sentence()


class _Reader:
    """Reads one sentence from left to right. Each method reads a phrase and gives it in Orrish."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> str:
        """The word to be read; "" behind the last."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, *allowed: str) -> Word:
        """Read one of these words."""
        if self.next not in allowed:
            found = f"{self.next!r} stands" if self.next else "the sentence ends"
            shown = ", ".join(allowed[:4]) + (", ..." if len(allowed) > 4 else "")
            raise SatlibError(f"word {self.at + 1}: {found} where the small world has one of: {shown}")
        self.at += 1
        return Word(self.words[self.at - 1], self.at - 1)

    def say(self, lexicon: dict[str, str], ending: str = "") -> Word:
        """Read a word of the lexicon, and say it."""
        word = self.take(*lexicon)
        return Word(lexicon[word.text] + ending, word.source)

    def sentence(self) -> list[Word]:
        said = self.clause()
        while self.next:
            said += [self.say(CONJUNCTIONS), *self.clause()]
        return said

    def clause(self) -> list[Word]:
        thing, several = self.thing()
        does = self.does(several)
        # The adverb: last in English, before the object in Orrish.
        return [*thing, self.say(ADVERBS), *does] if self.next in ADVERBS else thing + does

    def thing(self) -> tuple[list[Word], bool]:
        """A noun with all that belongs to it, and whether there are several."""
        determiner, adjectives = self.take(*DETERMINERS), []
        while self.next in ADJECTIVES:
            adjectives.append(self.take(*ADJECTIVES))
        one = tuple(NOUNS) if determiner.text in ONE else ()
        noun = self.take(*one, *(RULES["NOUNn"] if determiner.text in MANY else ()))
        several = noun.text not in NOUNS
        singular = NOUNS[noun.text.removesuffix("s") if several else noun.text]
        ending = singular[-1] + "n" * several
        said = [Word(DETERMINERS[determiner.text] + ending, determiner.source)] if DETERMINERS[determiner.text] else []
        said += [Word(singular + "n" * several, noun.source)]
        said += [Word(ADJECTIVES[each.text] + ending, each.source) for each in reversed(adjectives)]
        if self.next in PREPOSITIONS:
            preposition = self.say(PREPOSITIONS)
            said += [*self.thing()[0], preposition]
        elif self.next == "that":
            said += [Word("ki", self.take("that").source), *self.does(several)]
        return said, several

    def does(self, several: bool) -> list[Word]:
        """A verb, with its object before it."""
        negation, ending = [], "" if several else "s"
        if self.next in ("does", "do"):
            self.take("do" if several else "does")
            negation, ending = [Word("nu", self.take("not").source)], ""
        verb = self.take(*(each + ending for each in VERBS))
        stem = verb.text.removesuffix("s") if ending else verb.text
        thing = self.thing()[0] if stem in TRANSITIVE else []
        return [*thing, Word(VERBS[stem] + ("in" if several else "as"), verb.source), *negation]
