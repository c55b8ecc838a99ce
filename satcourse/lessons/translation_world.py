"""A small world for translation (notebook 01): plain English into Orrish, an invented language with another word order and inflection.

The English sentences come from a grammar (`RULES`). Orrish has properties that defeat a word-by-word translation:

- a noun's last vowel, -o or -a, is its class; determiners and adjectives take that vowel, and -n in the plural;
- adjectives follow their noun, the nearest first; "a" and "some" are not translated;
- prepositions follow their noun phrase; verbs stand at the end of their clause, after object and adverb;
- "does not" and "do not" are one word, after the verb.
"""

import random
from typing import NamedTuple

from satlib.errors import SatlibError


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class Word(NamedTuple):
    """A word of Orrish, and the index (from 0) of the English word that it translates."""

    text: str
    source: int


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
ONE, MANY = ("the", "my", "our", "every", "a"), ("the", "my", "our", "some")  # determiners, singular and plural
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
_CHOICES = {symbol: [choice.split() for choice in choices] for symbol, choices in RULES.items()}


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
    """Distinct sentences of `shortest` (at least 3) to `longest` words, every length equally frequent, in random order."""
    rng, lengths = random.Random(seed), range(shortest, longest + 1)
    missing = {length: count // len(lengths) + (i < count % len(lengths)) for i, length in enumerate(lengths)}
    sentences: dict[str, None] = {}
    while len(sentences) < count:
        words = _sentence(rng, longest)
        sentence = " ".join(words)
        if missing.get(len(words)) and sentence not in sentences:
            missing[len(words)] -= 1
            sentences[sentence] = None
    order = list(sentences)
    rng.shuffle(order)
    return [SentencePair(sentence, " ".join(word.text for word in translate(sentence))) for sentence in order]


def translate(sentence: str) -> list[Word]:
    """Translate an English sentence of the small world into Orrish, each word with the index of its English word: the true alignment."""
    parser = _Parser(sentence.split())
    orrish = parser.clause()
    while parser.next:
        orrish += [parser.word(CONJUNCTIONS), *parser.clause()]
    return orrish


class _Parser:
    """Parses one sentence from left to right. Each method reads a phrase and returns it in Orrish."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.at = words, 0

    @property
    def next(self) -> str:
        """The next word to read; "" after the last."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, *allowed: str) -> Word:
        """Read one of these English words."""
        if self.next not in allowed:
            problem = f"{self.next!r} stands" if self.next else "the sentence ends"
            raise SatlibError(f"word {self.at + 1}: {problem} where the grammar expects one of: {', '.join(allowed)}")
        self.at += 1
        return Word(self.words[self.at - 1], self.at - 1)

    def word(self, lexicon: dict[str, str]) -> Word:
        """Read a word of the lexicon and translate it."""
        english, source = self.take(*lexicon)
        return Word(lexicon[english], source)

    def clause(self) -> list[Word]:
        thing, plural = self.thing()
        does = self.does(plural)
        # The adverb: last in English, before the object in Orrish.
        return [*thing, self.word(ADVERBS), *does] if self.next in ADVERBS else thing + does

    def thing(self) -> tuple[list[Word], bool]:
        """A noun phrase, and whether it is plural."""
        determiner, adjectives = self.take(*DETERMINERS), []
        while self.next in ADJECTIVES:
            adjectives.append(self.word(ADJECTIVES))
        singulars = RULES["NOUN1"] if determiner.text in ONE else ()
        noun = self.take(*singulars, *(RULES["NOUNn"] if determiner.text in MANY else ()))
        plural = noun.text not in NOUNS
        stem = NOUNS[noun.text.removesuffix("s") if plural else noun.text]
        n = "n" * plural
        orrish = [Word(stem + n, noun.source)]
        orrish += [Word(text + stem[-1] + n, source) for text, source in reversed(adjectives)]
        if DETERMINERS[determiner.text]:
            orrish.insert(0, Word(DETERMINERS[determiner.text] + stem[-1] + n, determiner.source))
        if self.next in PREPOSITIONS:
            preposition = self.word(PREPOSITIONS)
            orrish += [*self.thing()[0], preposition]
        elif self.next == "that":
            orrish += [Word("ki", self.take("that").source), *self.does(plural)]
        return orrish, plural

    def does(self, plural: bool) -> list[Word]:
        """A verb phrase: the object stands before the verb."""
        negation, ending = [], "" if plural else "s"
        if self.next in ("does", "do"):
            self.take("do" if plural else "does")
            negation, ending = [Word("nu", self.take("not").source)], ""
        verb = self.take(*(stem + ending for stem in VERBS))
        stem = verb.text.removesuffix(ending)
        thing = self.thing()[0] if stem in TRANSITIVE else []
        return [*thing, Word(VERBS[stem] + ("in" if plural else "as"), verb.source), *negation]
