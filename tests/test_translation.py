"""The small world against pairs made by hand."""

import pytest

from satcourse.lessons import translation_world
from satlib.errors import SatlibError

# English, Orrish, and the place of the English word that each word of Orrish comes from.
BY_HAND = [
    ("some cats sing often", "miran ofte kantin", [1, 3, 2]),
    # Adjectives follow the noun, the nearest first; the object stands before the verb.
    ("my small red cat sees the dog", "ma mira ruda pika lo velo vidas", [0, 3, 2, 1, 5, 6, 4]),
    (
        "every queen does not want a tall tower",
        "siva rega torro halto volas nu",
        [0, 1, 7, 6, 4, 3],
    ),
    ("the bird behind our houses waits", "lo pilo non domon retro atendas", [0, 1, 3, 4, 2, 5]),
    (
        "the boats that follow a bird wait today",
        "lan navan ki pilo sekin hodie atendin",
        [0, 1, 2, 5, 3, 7, 6],
    ),
    (
        "my farmer helps the horses with a red boat because a tree does not sing",
        "mo agro lon cavanon nava ruda kun jutas kar arba kantas nu",
        [0, 1, 3, 4, 8, 7, 5, 2, 9, 11, 14, 13],
    ),
]


@pytest.mark.parametrize(("english", "orrish", "sources"), BY_HAND)
def test_hand_made_pairs(english, orrish, sources):
    words = translation_world.translate(english)
    assert " ".join(word.text for word in words) == orrish
    assert [word.source for word in words] == sources


@pytest.mark.parametrize(
    "sentence",
    [
        # No such word, two numbers, a verb without its object, and one with an object too many.
        "the zebra sleeps",
        "the dogs sleeps",
        "the dog sees",
        "the dog sleeps the cat",
    ],
)
def test_a_sentence_that_the_grammar_does_not_have_is_refused(sentence):
    # The message says where, and what could stand there.
    with pytest.raises(SatlibError, match=r"word \d: .* where the grammar expects one of: "):
        translation_world.translate(sentence)
