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


@pytest.mark.parametrize("name", recipe.names())
def test_every_recipe_is_read_and_says_what_it_is(name):
    loaded = recipe.load(name)
    assert loaded.name == name
    assert all(part.split("@")[0] in encoders.names() for part in loaded.encoder.name.split("+"))
    assert loaded.data.name in (*NAMES, "FOLDER")
    text = (importlib.resources.files("satlib.recipes") / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")


@pytest.mark.parametrize("name", [name for name in recipe.names() if name.endswith("-none")])
def test_a_recipe_without_attention_differs_from_its_twin_in_attention_alone(name):
    """Decoding is chosen for each on dev."""
    changed = differences(name, name.removesuffix("-none") + "-soft")
    assert changed.pop("decoder.attention") == ("none", "soft")
    assert {name.partition(".")[0] for name in changed} <= {"decoding"}


@pytest.mark.parametrize("name", [name for name in recipe.names() if name.endswith("-hard")])
def test_hard_attention_differs_from_soft_in_attention_alone(name):
    """The penalty is soft attention's: with hard attention it is off."""
    changed = differences(name, name.removesuffix("-hard") + "-soft")
    assert changed.pop("decoder.attention") == ("hard", "soft")
    assert changed.pop("objective.doubly_stochastic", (0, 0))[0] == 0
    assert {name.partition(".")[0] for name in changed} == {"hard"}


def test_the_twins_are_there():
    assert {"flickr8k-none", "flickr8k-lite0-none", "scenes-none"} <= set(recipe.names())
    assert {"scenes-hard", "flickr8k-hard", "flickr30k-hard", "coco-hard"} <= set(recipe.names())


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_the_papers_own_training(attention):
    """Section 4.3, and equations 11 to 14: no averaging of weights, no learned baseline, no annealing."""
    made = recipe.load(f"flickr8k-paper-{attention}")
    assert (made.training.optimiser, made.training.average, made.training.select) == ("rmsprop", 0, "bleu4")
    assert (made.data.vocabulary_size, made.data.min_count) == (10_000, 1)
    assert made.objective.doubly_stochastic == (1 if attention == "soft" else 0)
    hard = made.hard
    assert (hard.baseline, hard.reward, hard.expectation, hard.anneal) == ("moving-average", "sentence", 0.5, 0)


@pytest.mark.parametrize(
    ("attention", "theirs"), [("soft", {"objective", "decoding"}), ("hard", {"objective", "hard", "decoding"})]
)
def test_rewards_begin_where_cross_entropy_ended(attention, theirs):
    """The model is that of flickr8k-soft or -hard; only what is maximised, and how, may differ."""
    changed = differences(f"flickr8k-{attention}-reward", f"flickr8k-{attention}")
    assert changed["objective.maximise"] == ("reward", "likelihood")
    assert {name.partition(".")[0] for name in changed} == {"reward", "training", *theirs}


def test_flickr30k_is_trained_as_flickr8k():
    assert differences("flickr30k-soft", "flickr8k-soft") == {"data.name": ("flickr30k", "flickr8k")}


def test_coco_has_the_sizes_of_the_official_code():
    coco = recipe.load("coco-soft")
    assert (coco.decoder.embedding, coco.decoder.hidden, coco.data.vocabulary_size) == (512, 1800, 10_000)
    assert (coco.training.batch_size, coco.training.learning_rate, coco.training.optimiser) == (64, 2e-4, "adam")
    assert coco.objective.doubly_stochastic == 1


def test_your_own_folder_is_named_by_a_change():
    assert recipe.load("own-folder", ["data.name=../my photos"]).data.name == "../my photos"
