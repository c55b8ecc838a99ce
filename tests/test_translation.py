"""The small world against pairs made by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satcourse.lessons import translation_world
from satlib.errors import SatlibError
from satlib.model import attention

# English, Orrish, and the place of the English word that each word of Orrish comes from.
BY_HAND = [
    ("the dog sleeps", "lo velo dormas", [0, 1, 2]),
    ("the dogs sleep", "lon velon dormin", [0, 1, 2]),
    ("a cat sings", "mira kantas", [1, 2]),
    ("some cats sing often", "miran ofte kantin", [1, 3, 2]),
    ("my small red cat sees the dog", "ma mira ruda pika lo velo vidas", [0, 3, 2, 1, 5, 6, 4]),
    ("our kings do not laugh", "non regon ridin nu", [0, 1, 4, 3]),
    ("every queen does not want a tall tower", "siva rega torro halto volas nu", [0, 1, 7, 6, 4, 3]),
    ("the bird behind our houses waits", "lo pilo non domon retro atendas", [0, 1, 3, 4, 2, 5]),
    ("the boats that follow a bird wait today", "lan navan ki pilo sekin hodie atendin", [0, 1, 2, 5, 3, 7, 6]),
    (
        "my farmer helps the horses with a red boat because a tree does not sing",
        "mo agro lon cavanon nava ruda kun jutas kar arba kantas nu",
        [0, 1, 3, 4, 8, 7, 5, 2, 9, 11, 14, 13],
    ),
]


@pytest.mark.parametrize(("english", "orrish", "sources"), BY_HAND)
def test_hand_made_pairs(english, orrish, sources):
    said = translation_world.translate(english)
    assert " ".join(word.text for word in said) == orrish
    assert [word.source for word in said] == sources


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_every_sentence_is_understood_and_every_word_translated_once(seed):
    """All but the words that Orrish does not say, or says with the verb."""
    for english, orrish in translation_world.pairs(5, seed, shortest=6, longest=12):
        words, said = english.split(), translation_world.translate(english)
        assert " ".join(word.text for word in said) == orrish
        silent = [i for i, word in enumerate(words) if word in ("a", "some", "does", "do")]
        assert sorted([word.source for word in said] + silent) == list(range(len(words)))


def test_lengths_are_even_and_no_sentence_comes_twice():
    found = translation_world.pairs(50, 0, shortest=4, longest=8)
    lengths = [len(pair.source.split()) for pair in found]
    assert [lengths.count(n) for n in range(4, 9)] == [10] * 5
    assert len(set(found)) == 50
    assert lengths != sorted(lengths)
    assert not any(
        one == two for pair in found for one, two in zip(pair.source.split(), pair.source.split()[1:], strict=False)
    )


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("the zebra sleeps", "word 2: 'zebra' stands where the grammar expects one of: dog, cat, bird, horse, ..."),
        ("a dogs sleep", "word 2: 'dogs' stands"),
        ("the dogs sleeps", "word 3: 'sleeps' stands where the grammar expects one of: see, find"),
        ("the dog do not sleep", "word 3: 'do' stands"),
        ("the dog sees", "word 4: the sentence ends where the grammar expects one of: the, my, our, every"),
        ("the dog sleeps the cat", "word 4: 'the' stands where the grammar expects one of: and, but, while, because"),
        ("", "word 1: the sentence ends"),
    ],
)
def test_sentences_that_the_world_does_not_have(sentence, message):
    with pytest.raises(SatlibError) as error:
        translation_world.translate(sentence)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 5, "shortest": 2}, "the shortest sentences have 3"),
        ({"count": 5, "shortest": 9, "longest": 8}, "no sentence has 9 to 8 words"),
        ({"count": 2000, "shortest": 3, "longest": 3}, "too few sentences of 3 words for 2000 pairs; ask for fewer"),
    ],
)
def test_worlds_that_cannot_be(arguments, message, monkeypatch):
    monkeypatch.setattr(translation_world, "_PATIENCE", 100)
    with pytest.raises(SatlibError, match=message):
        translation_world.pairs(seed=0, **arguments)


def test_scores_from_one_embedding_and_the_mean_of_another():
    """Soft attention takes its keys and what it averages apart, as the addressing and the content of a memory network are."""
    addresses, contents, question = torch.randn(2, 4, 3), torch.randn(2, 4, 5), torch.randn(2, 3)
    z, alpha, _ = attention.SoftAttention(attention.DotEnergy(3, 3, 0))(contents, addresses, question)
    for row in range(2):
        p = torch.softmax(addresses[row] @ question[row], 0)
        torch.testing.assert_close(alpha[row], p)
        torch.testing.assert_close(z[row], sum(p[i] * contents[row, i] for i in range(4)))
