"""What captions invent in photographs, counted by hand."""

from satlib.evaluation import inventions, statistics


def test_objects_by_kind():
    assert inventions.objects("Two dogs and a puppy run to the women on benches.") == {
        "dog",
        "person",
        "bench",
    }
    assert inventions.objects("it is nice") == set()


def test_chair_by_hand():
    """Of four objects that two captions name, nobody else mentions the ball."""
    captions = {"1": "a man with a dog and a red ball", "2": "a cat"}
    columns = inventions.measure(
        captions, {"1": ["A boy plays.", "a puppy outside"], "2": ["the kitten", "a cat sits"]}
    )
    assert columns == {
        "objects": [3, 1],
        "invented objects": [1, 0],
        "captions that invent": [1, 0],
    }
    assert statistics.whole(columns) == {"captions that invent": 50, "invented objects": 25}
