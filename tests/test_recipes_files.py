"""The recipes that satlib carries are whole, and those of a comparison differ in one thing alone.

Those that are stored with models and evaluations can still be read.
"""

import importlib.resources
import json
from pathlib import Path

import pytest

from satlib import recipe
from satlib.data.datasets import NAMES
from satlib.errors import SatlibError
from satlib.model import encoders

ABSENT = object()


def differences(one, other):
    """section.key: (value, value) of every value in which two recipes differ but their names."""
    left = recipe.load(one).to_dict()
    right = recipe.load(other).to_dict()
    assert left.pop("name") == one
    assert right.pop("name") == other

    found = {}
    for section in left.keys() | right.keys():
        for key in left[section].keys() | right[section].keys():
            first = left[section].get(key, ABSENT)
            second = right[section].get(key, ABSENT)
            if first != second:
                found[f"{section}.{key}"] = (first, second)
    return found


def test_every_recipe_is_read_and_says_what_it_is():
    for name in recipe.names():
        loaded = recipe.load(name)
        assert loaded.name == name

        # An encoder is one of satlib's, or that of a model which another recipe trains.
        trained = [f"{recipe.OF_MODEL}runs/{model}" for model in recipe.names()]
        for part in loaded.encoder.name.split("+"):
            encoder, *_ = part.split("@")
            assert encoder in {*encoders.NAMES, *trained}, name
        data_sets = set(loaded.data.name.split("+"))
        assert data_sets <= {*NAMES, "FOLDER", "coco_small"}, name

        # As it is installed, not as it lies in a checkout.
        file = importlib.resources.files("satlib.recipes") / f"{name}.toml"
        assert file.read_text(encoding="utf-8").startswith("# "), name


def test_twins_differ_in_attention_alone():
    """And in what belongs to it: decoding, chosen on dev, without attention; `[hard]` with hard."""
    twins = []
    for name in recipe.names():
        if name.endswith(("-none", "-hard")) and "paper" not in name:
            twins.append(name)
    assert set(twins) == {"flickr8k-none", "scenes-none", "scenes-hard", "flickr8k-hard"}

    for name in twins:
        model, attention = name.rsplit("-", 1)
        changed = differences(name, f"{model}-soft")
        assert changed.pop("decoder.attention") == (attention, "soft")

        if attention == "none":
            allowed = {"decoding"}
        else:
            allowed = {"hard"}
            # The penalty is for expected maps: with sampled ones it is off.
            penalty, _ = changed.pop("objective.doubly_stochastic", (0, 0))
            assert penalty == 0
        sections = {option.partition(".")[0] for option in changed}
        assert sections <= allowed, name


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_what_the_paper_says_of_its_training(attention):
    """Section 4.3, and equations 11 to 14: no averaging, no learned baseline, no annealing."""
    paper = recipe.load(f"flickr8k-paper-{attention}")
    # RMSProp on Flickr8k, stopped by BLEU; a fixed vocabulary of 10,000.
    assert paper.training.optimiser == "rmsprop"
    assert paper.training.average == 0
    assert paper.training.select == "bleu4"
    assert paper.data.vocabulary_size == 10_000
    assert paper.data.min_count == 1
    assert paper.objective.doubly_stochastic == (1 if attention == "soft" else 0)
    assert paper.hard.baseline == "moving-average"
    assert paper.hard.reward == "sentence"
    assert paper.hard.expectation == 0.5
    assert paper.hard.anneal == 0


def test_the_recipes_of_stored_evaluations_are_read():
    """All but those of options that are gone: rewards of METEOR, and a sparse softmax."""
    refused = set()
    for path in sorted((Path(recipe.__file__).parent / "results").glob("*/*.json")):
        values = json.loads(path.read_text(encoding="utf-8"))["recipe"]
        try:
            recipe.from_dict(values)
        except SatlibError:
            refused.add(path.parent.name)
    # They keep those options: a record must say how the model was trained.
    assert refused == {"flickr8k-hard-reward", "flickr8k-lite0-reward", "flickr8k-lite02-sparse"}
