"""A small world for translation (notebook 01, which tells its rules): plain English into Orrish, an
invented language.

Also: "a" and "some" are not translated; of several adjectives the nearest is first; "does not" and
"do not" are one word, after the verb.
"""

from typing import NamedTuple

from satlib.errors import SatlibError


class Word(NamedTuple):
    """A word of Orrish, and the index (from 0) of the English word that it translates."""

    text: str
    source: int


def _lexicon(entries: str) -> dict[str, str]:
    """English words and their stems in Orrish, from pairs such as "dog:velo"."""
    return dict(entry.split(":") for entry in entries.split())


NOUNS = _lexicon(
    "dog:velo cat:mira bird:pilo horse:cavano king:rego queen:rega sailor:maro farmer:agro "
    "teacher:mesta river:fluma house:domo tree:arba tower:torro garden:horta boat:nava "
    "letter:skriva"
)
ADJECTIVES = _lexicon(
    "red:rud small:pik young:jun green:verd big:grot white:blan tall:halt happy:felit"
)
TRANSITIVE = _lexicon("see:vid find:trov follow:sek paint:pint help:jut hear:aud want:vol love:am")
INTRANSITIVE = _lexicon("sleep:dorm sing:kant wait:atend laugh:rid")
ADVERBS = _lexicon("often:ofte slowly:lente today:hodie again:denove")
PREPOSITIONS = _lexicon("under:sub near:apu behind:retro with:kun")
CONJUNCTIONS = _lexicon("and:e but:ma while:dum because:kar")
DETERMINERS = _lexicon("the:l my:m our:n every:siv a: some:")
# Determiners of a singular noun and of a plural one.
ONE = ("the", "my", "our", "every", "a")
MANY = ("the", "my", "our", "some")
VERBS = TRANSITIVE | INTRANSITIVE


def translate(sentence: str) -> list[Word]:
    """Translate an English sentence of the small world into Orrish, each word with the index of its
    English word: the true alignment.
    """
    parser = _Parser(sentence.split())
    orrish = parser.clause()
    while parser.next:
        orrish += [parser.word(CONJUNCTIONS), *parser.clause()]
    return orrish


class _Parser:
    """Each method reads a phrase and returns it in Orrish."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    @property
    def next(self) -> str:
        """The next word to read; "" after the last."""
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, *allowed: str) -> Word:
        if self.next not in allowed:
            raise SatlibError(
                f"word {self.at + 1}: {self.next!r} where the grammar expects one of: "
                f"{', '.join(allowed)}"
            )
        word = Word(self.next, self.at)
        self.at += 1
        return word

    def word(self, lexicon: dict[str, str]) -> Word:
        english, source = self.take(*lexicon)
        return Word(lexicon[english], source)

    def clause(self) -> list[Word]:
        thing, plural = self.thing()
        does = self.does(plural)
        # The adverb is last in English, and before the object in Orrish.
        if self.next in ADVERBS:
            return [*thing, self.word(ADVERBS), *does]
        return thing + does

    def thing(self) -> tuple[list[Word], bool]:
        """A noun phrase, and whether it is plural."""
        determiner = self.take(*DETERMINERS)
        adjectives = []
        while self.next in ADJECTIVES:
            adjectives.append(self.word(ADJECTIVES))
        noun = self.take(*_nouns_after(determiner.text))
        plural = noun.text not in NOUNS

        # What belongs to a noun ends as the noun does: in its last vowel, and n in the plural.
        stem = NOUNS[noun.text.removesuffix("s") if plural else noun.text]
        n = "n" if plural else ""
        orrish = [Word(stem + n, noun.source)]
        orrish += [Word(text + stem[-1] + n, source) for text, source in reversed(adjectives)]
        if DETERMINERS[determiner.text]:
            orrish.insert(0, Word(DETERMINERS[determiner.text] + stem[-1] + n, determiner.source))

        # At most one thing more is said of it.
        if self.next in PREPOSITIONS:
            preposition = self.word(PREPOSITIONS)
            orrish += [*self.thing()[0], preposition]
        elif self.next == "that":
            orrish += [Word("ki", self.take("that").source), *self.does(plural)]
        return orrish, plural

    def does(self, plural: bool) -> list[Word]:
        """A verb phrase: the object stands before the verb."""
        negation = []
        ending = "" if plural else "s"
        if self.next in ("does", "do"):
            self.take("do" if plural else "does")
            negation = [Word("nu", self.take("not").source)]
            # "does not sleep": the verb itself has no ending.
            ending = ""

        verb = self.take(*(stem + ending for stem in VERBS))
        stem = verb.text.removesuffix(ending)
        thing = self.thing()[0] if stem in TRANSITIVE else []
        orrish = VERBS[stem] + ("in" if plural else "as")
        return [*thing, Word(orrish, verb.source), *negation]


def _nouns_after(determiner: str) -> list[str]:
    """The English nouns, singular or plural, that may follow a determiner."""
    nouns = []
    if determiner in ONE:
        nouns += NOUNS
    if determiner in MANY:
        nouns += [noun + "s" for noun in NOUNS]
    return nouns
