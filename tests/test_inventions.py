"""What captions invent: counted by hand on scenes and photographs."""

import judging
import pytest

from satlib.data import scenes
from satlib.evaluation import evaluate, inventions
from satlib.evaluation.statistics import INVENTIONS

SCENE = scenes.scene("test-000000")  # a big purple triangle left of a big green star with dots


def said(text):
    """(false, said) by sort, of what is said at all."""
    found = inventions.of_scene(text, SCENE)
    return {name: (found[name], found[of]) for name, of in INVENTIONS.items() if found[of]}


def test_the_references_of_scenes_are_wholly_true():
    for example in scenes.load(1, 1, 50).split("test"):
        for reference in example.references:
            found = inventions.of_scene(reference, scenes.scene(example.image_id))
            assert not any(found[name] for name in INVENTIONS), reference
            assert [found[of] for of in ("sizes", "colours", "shapes", "relations", "objects")] == [2, 2, 2, 1, 2]


@pytest.mark.parametrize(
    ("text", "false"),
    [
        ("a small purple triangle to the left of a big dotted green star", {"wrong size"}),
        ("a big purple triangle to the left of a big striped green star", {"wrong texture"}),
        ("a big blue triangle to the left of a big dotted green star", {"wrong colour", "invented objects"}),
        ("a big purple circle to the left of a big dotted green star", {"wrong shape", "invented objects"}),
        ("a big purple triangle above a big dotted green star", {"wrong relation"}),
        ("a big dotted green star to the left of a big purple triangle", {"wrong relation"}),
        ("a big dotted green star to the right of a big purple triangle", set()),
    ],
)
def test_one_false_statement_about_a_scene(text, false):
    found = said(text)
    assert {name for name, (wrong, _) in found.items() if wrong} == false
    assert all(wrong <= 1 for wrong, _ in found.values())


def test_fragments_of_scenes():
    """Without two complete phrases nothing is said of the relation; twice the same object has none either."""
    assert said("a purple triangle above") == {
        "wrong colour": (0, 1), "wrong shape": (0, 1), "invented objects": (0, 1)
    }  # fmt: skip
    assert said("the picture shows") == {}
    twice = said("a big purple triangle above a big purple triangle")
    assert twice["invented objects"] == (0, 2)
    assert "wrong relation" not in twice


def test_objects_of_photographs_by_kind():
    assert inventions.objects("Two dogs and a puppy run to the women on benches.") == {"dog", "person", "bench"}
    found = inventions.of_photograph(
        "a man with a dog and a red ball", ["A boy plays with a basketball.", "a kid outside"]
    )
    assert found == {"objects": 3, "invented objects": 1}
    assert inventions.of_photograph("it is nice", ["a dog"]) == {"objects": 0, "invented objects": 0}


def test_people_by_hand():
    """Left out in turn, the five references name six objects, of which four others never name the horse and the cat."""
    references = {"1": ["a dog runs", "a dog", "a dog", "a horse", "a dog and a cat"]}
    assert judging.invented(None, references) == pytest.approx([100 * 2 / 6] * 3)
    assert judging.invented({"1": "a cat"}, references) == pytest.approx([100 / 5] * 3)  # unless the fifth is left out


def test_columns_are_those_of_each_image():
    examples = scenes.load(1, 1, 2).split("test")
    texts = {"test-000000": "a big blue triangle to the left of a big dotted green star", "test-000001": "star"}
    columns = inventions.measure(texts, examples, "scenes")
    assert columns["invented objects"] == [1, 0]
    assert columns["captions that invent"] == [1, 0]
    assert columns["objects"] == [2, 1]


def test_captions_that_name_nothing_have_no_such_scores():
    """Such as those in another language; and of sorts that nothing is said about."""
    examples = scenes.load(1, 1, 2).split("test")
    assert evaluate._inventions({"test-000000": "ein Dreieck", "test-000001": ""}, examples, "photographs") == ({}, {})
    figures, _ = evaluate._inventions({"test-000000": "a purple star", "test-000001": ""}, examples, "scenes")
    assert figures == {"wrong colour": 0, "wrong shape": 100, "invented objects": 100, "captions that invent": 50}
