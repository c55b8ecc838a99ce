"""A small world for translation: plain English into Orrish, an invented language with another word order and inflection.

The English sentences come from a grammar of a few rules (`RULES`), which generates sentences of any length. Orrish has
properties that defeat a word-by-word translation:

- a noun's last vowel, -o or -a, is its class; determiners and adjectives take that vowel, and -n in the plural;
- adjectives follow their noun, the nearest first; "a" and "some" are not translated;
- prepositions follow their noun phrase; verbs stand at the end of their clause, after object and adverb;
- "does not" and "do not" are one word, after the verb.

`translate` parses an English sentence by the grammar and translates it into Orrish. Each Orrish word comes with the index of
its English source word: the true alignment, with which a model's attention can be compared.
"""

import random
from typing import NamedTuple

from satlib.errors import SatlibError


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


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
ONE, MANY = (
    ("the", "my", "our", "every", "a"),
    ("the", "my", "our", "some"),
)  # determiners of the singular, of the plural
VERBS = TRANSITIVE | INTRANSITIVE

# The expansions of each symbol; frequent ones are listed twice. "1" is singular, "n" plural; lower case marks words.
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
_PATIENCE = 20_000  # rejected sentences in a row
_CHOICES = {symbol: [choice.split() for choice in choices] for symbol, choices in RULES.items()}


class Word(NamedTuple):
    """A word, and the index (from 0) of the English word that it translates."""

    text: str
    source: int


def _sentence(rng: random.Random, longest: int) -> list[str]:
    """Expand SENTENCE from left to right, with no word twice in a row; stop at more than `longest` words."""
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


def pairs(count: int, seed: int, shortest: int = 3, longest: int = 25) -> list[SentencePair]:
    """Distinct sentences of the small world with their translations, in random order; every length is equally frequent.

    Args:
        count: the number of pairs.
        seed: the same seed gives the same sentences.
        shortest: the number of words in the shortest English sentence, at least 3.
        longest: the number of words in the longest.

    Raises:
        SatlibError: `shortest` is below 3, `longest` is below `shortest`, or there are too few sentences.
    """
    if not 3 <= shortest <= longest:
        raise SatlibError(
            f"no sentence has {shortest} to {longest} words; the shortest sentences have 3, so set shortest to 3 or more"
        )
    rng, lengths = random.Random(seed), range(shortest, longest + 1)
    missing = {length: count // len(lengths) + (i < count % len(lengths)) for i, length in enumerate(lengths)}
    sentences: dict[str, None] = {}
    rejected = 0
    while len(sentences) < count:
        if rejected == _PATIENCE:
            scarce = next(length for length in lengths if missing[length])
            raise SatlibError(
                f"too few sentences of {scarce} words for {count} pairs; ask for fewer, or for longer ones"
            )
        words = _sentence(rng, longest)
        sentence = " ".join(words)
        if missing.get(len(words)) and sentence not in sentences:
            missing[len(words)] -= 1
            sentences[sentence] = None
            rejected = 0
        else:
            rejected += 1
    order = list(sentences)
    rng.shuffle(order)
    return [SentencePair(sentence, " ".join(word.text for word in translate(sentence))) for sentence in order]


def translate(sentence: str) -> list[Word]:
    """Translate an English sentence of the small world into Orrish.

    Raises:
        SatlibError: the grammar has no such sentence; the message gives the word and what may stand there.
    """
    return _Reader(sentence.split()).sentence()


class _Reader:
    """Parses one sentence from left to right. Each method reads a phrase and returns it in Orrish."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> str:
        """The next word to read; "" after the last."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, *allowed: str) -> Word:
        """Read one of these words."""
        if self.next not in allowed:
            problem = f"{self.next!r} stands" if self.next else "the sentence ends"
            expected = ", ".join(allowed[:4]) + (", ..." if len(allowed) > 4 else "")
            raise SatlibError(f"word {self.at + 1}: {problem} where the grammar expects one of: {expected}")
        self.at += 1
        return Word(self.words[self.at - 1], self.at - 1)

    def say(self, lexicon: dict[str, str], ending: str = "") -> Word:
        """Read a word of the lexicon and translate it."""
        word = self.take(*lexicon)
        return Word(lexicon[word.text] + ending, word.source)

    def sentence(self) -> list[Word]:
        orrish = self.clause()
        while self.next:
            orrish += [self.say(CONJUNCTIONS), *self.clause()]
        return orrish

    def clause(self) -> list[Word]:
        thing, several = self.thing()
        does = self.does(several)
        # The adverb: last in English, before the object in Orrish.
        return [*thing, self.say(ADVERBS), *does] if self.next in ADVERBS else thing + does

    def thing(self) -> tuple[list[Word], bool]:
        """A noun phrase, and whether it is plural."""
        determiner, adjectives = self.take(*DETERMINERS), []
        while self.next in ADJECTIVES:
            adjectives.append(self.take(*ADJECTIVES))
        one = tuple(NOUNS) if determiner.text in ONE else ()
        noun = self.take(*one, *(RULES["NOUNn"] if determiner.text in MANY else ()))
        several = noun.text not in NOUNS
        singular = NOUNS[noun.text.removesuffix("s") if several else noun.text]
        ending = singular[-1] + "n" * several
        orrish = (
            [Word(DETERMINERS[determiner.text] + ending, determiner.source)] if DETERMINERS[determiner.text] else []
        )
        orrish += [Word(singular + "n" * several, noun.source)]
        orrish += [Word(ADJECTIVES[word.text] + ending, word.source) for word in reversed(adjectives)]
        if self.next in PREPOSITIONS:
            preposition = self.say(PREPOSITIONS)
            orrish += [*self.thing()[0], preposition]
        elif self.next == "that":
            orrish += [Word("ki", self.take("that").source), *self.does(several)]
        return orrish, several

    def does(self, several: bool) -> list[Word]:
        """A verb phrase: the object stands before the verb."""
        negation, ending = [], "" if several else "s"
        if self.next in ("does", "do"):
            self.take("do" if several else "does")
            negation, ending = [Word("nu", self.take("not").source)], ""
        verb = self.take(*(stem + ending for stem in VERBS))
        stem = verb.text.removesuffix("s") if ending else verb.text
        thing = self.thing()[0] if stem in TRANSITIVE else []
        return [*thing, Word(VERBS[stem] + ("in" if several else "as"), verb.source), *negation]
