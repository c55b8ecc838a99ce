"""What captions invent in photographs, counted by hand."""

import pytest

from satlib.errors import SatlibError
from satlib.evaluation import inventions, statistics


def test_objects_by_kind():
    # A puppy is a dog and a woman is a person, so each kind is there once.
    found = inventions.objects("Two dogs and a puppy run to the women on benches.")
    assert found == {"dog", "person", "bench"}
    assert inventions.objects("it is nice") == set()


def test_chair_by_hand():
    """Of four objects that two captions name, nobody else mentions the ball."""
    captions = {"1": "a man with a dog and a red ball", "2": "a cat"}
    references = {
        "1": ["A boy plays.", "a puppy outside"],
        "2": ["the kitten", "a cat sits"],
    }
    columns = inventions.measure(captions, references)
    assert columns == {
        "objects": [3, 1],
        "invented objects": [1, 0],
        "captions that invent": [1, 0],
    }
    # One caption of two, one object of four.
    assert statistics.whole(columns) == {"captions that invent": 50, "invented objects": 25}


def test_nothing_of_the_list():
    """Radar images have none of its objects; a model that sees one there has invented it."""
    references = {"1": ["a bright echo"], "2": ["noise"]}
    with pytest.raises(SatlibError, match="invented objects are missing"):
        inventions.measure({"1": "an echo", "2": "noise"}, references)
    columns = inventions.measure({"1": "a dog", "2": "noise"}, references)
    assert columns["captions that invent"] == [1, 0]
