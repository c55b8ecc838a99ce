"""The recipes that satlib carries are whole, and those that stand for a comparison differ in the compared thing alone."""

import importlib.resources

import pytest

from satlib import recipe
from satlib.data.datasets import NAMES
from satlib.model import encoders

ABSENT = object()


def differences(one, other):
    """section.key: (value, value) of every value in which two recipes differ, their names left out."""
    left, right = (recipe.load(name).to_dict() for name in (one, other))
    assert left.pop("name") == one
    assert right.pop("name") == other
    return {
        f"{section}.{key}": (left[section].get(key, ABSENT), right[section].get(key, ABSENT))
        for section in left.keys() | right.keys()
        for key in left[section].keys() | right[section].keys()
        if left[section].get(key, ABSENT) != right[section].get(key, ABSENT)
    }


def test_every_recipe_is_read_and_says_what_it_is():
    for name in recipe.names():
        loaded = recipe.load(name)
        assert loaded.name == name
        known = {*encoders.NAMES, *(f"{recipe.OF_MODEL}runs/{model}" for model in recipe.names())}
        assert all(part.split("@")[0] in known for part in loaded.encoder.name.split("+")), name
        assert {*loaded.data.name.split("+")} <= {*NAMES, "FOLDER", "coco_small"}, name
        text = (importlib.resources.files("satlib.recipes") / f"{name}.toml").read_text(
            encoding="utf-8"
        )
        assert text.startswith("# "), name


def test_twins_differ_in_attention_alone():
    """Decoding is chosen on dev for a model without attention; the penalty is soft attention's: with hard attention it is off."""
    twins = [
        name for name in recipe.names() if name.endswith(("-none", "-hard")) and "paper" not in name
    ]
    assert set(twins) == {"flickr8k-none", "scenes-none", "scenes-hard", "flickr8k-hard"}
    for name in twins:
        model, attention = name.rsplit("-", 1)
        changed = differences(name, f"{model}-soft")
        assert changed.pop("decoder.attention") == (attention, "soft")
        assert attention == "none" or changed.pop("objective.doubly_stochastic", (0, 0))[0] == 0
        assert {each.partition(".")[0] for each in changed} <= {
            "decoding" if attention == "none" else "hard"
        }, name


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_the_papers_own_training(attention):
    """Section 4.3, and equations 11 to 14: no averaging of weights, no learned baseline, no annealing."""
    made = recipe.load(f"flickr8k-paper-{attention}")
    assert (made.training.optimiser, made.training.average, made.training.select) == (
        "rmsprop",
        0,
        "bleu4",
    )
    assert (made.data.vocabulary_size, made.data.min_count) == (10_000, 1)
    assert made.objective.doubly_stochastic == (1 if attention == "soft" else 0)
    hard = made.hard
    assert (hard.baseline, hard.reward, hard.expectation, hard.anneal) == (
        "moving-average",
        "sentence",
        0.5,
        0,
    )
