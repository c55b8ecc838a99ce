import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satlib.errors import SatlibError
from satlib.text import END, UNKNOWN, Vocabulary, tokenise


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog's T-shirt, (red)!", ["a", "dog's", "t-shirt", "red"]),
        ("A man 's hat .", ["a", "man", "'s", "hat"]),
        ("Two  dogs\trun;they play...", ["two", "dogs", "run", "they", "play"]),
        ("It’s 3 p.m.", ["it's", "3", "p", "m"]),
        ("Ein Mädchen lächelt", ["ein", "mädchen", "lächelt"]),
        ("'quoted' -- words_too", ["quoted", "words", "too"]),
        (" . ", []),
    ],
)
def test_tokenise(caption, words):
    assert tokenise(caption) == words


@given(st.text())
def test_tokenising_is_idempotent_and_lower_case(caption):
    words = tokenise(caption)
    assert tokenise(" ".join(words)) == words
    assert all(not (set(word) & set(string.ascii_uppercase + string.whitespace)) for word in words)


def test_ids_are_ordered_by_frequency_then_alphabet():
    vocabulary = Vocabulary.from_captions(["b a c", "c b a", "c d"])
    assert vocabulary.words == ("<end>", "<unknown>", "c", "a", "b", "d")
    assert vocabulary.encode("D c x") == [5, 2, UNKNOWN]
    assert vocabulary.decode([2, 5, END, 3]) == ["c", "d"]


def test_size_and_min_count_bound_the_vocabulary():
    captions = ["a a a b b c"]
    assert Vocabulary.from_captions(captions, size=4).words[2:] == ("a", "b")
    assert Vocabulary.from_captions(captions, min_count=3).words[2:] == ("a",)
    assert len(Vocabulary.from_captions(captions, size=4)) == 4


@given(st.lists(st.text(alphabet="abcde ", min_size=1), min_size=1).filter(lambda cs: any(tokenise(c) for c in cs)))
def test_the_order_of_captions_does_not_matter(captions):
    assert Vocabulary.from_captions(captions) == Vocabulary.from_captions(list(reversed(captions)))


def test_save_and_load(tmp_path):
    vocabulary = Vocabulary.from_captions(["a dog’s ball", "über"])
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == vocabulary
    assert Vocabulary.load(tmp_path / "v.json").hash == vocabulary.hash
    (tmp_path / "v.json").write_text('["a", "b')
    with pytest.raises(SatlibError, match="not complete JSON"):
        Vocabulary.load(tmp_path / "v.json")
    (tmp_path / "v.json").write_text('{"a": 1}')
    with pytest.raises(SatlibError, match="not a vocabulary"):
        Vocabulary.load(tmp_path / "v.json")


def test_no_words_is_an_error():
    with pytest.raises(SatlibError, match="at least one word"):
        Vocabulary.from_captions([" . "])
