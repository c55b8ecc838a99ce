"""The captioners that come with satlib: each opens, fits its recipe, and describes its pictures."""

import importlib.util

import pytest
from msgspec.structs import replace

from satcourse import demo
from satlib import recipe
from satlib.data import scenes
from satlib.errors import SatlibError
from satlib.model import installed
from satlib.model.captioner import Captioner


@pytest.fixture(scope="module")
def models():
    return {name: Captioner.load(installed.model(name)) for name in installed.models()}


def test_a_model_opens_and_was_made_by_the_recipe_of_its_name_as_it_is_now(models):
    for name, model in models.items():
        now = recipe.load(name)
        # But for how its numbers were computed, which a recipe for any machine leaves open.
        precision = model.recipe.training.precision
        training = replace(now.training, precision=precision)
        assert model.recipe == replace(now, training=training), name


@pytest.mark.parametrize("name", ["scenes-soft", "scenes-hard"])
def test_a_model_for_scenes_gets_most_of_them_right(models, name):
    # Scenes of the test split, which no training saw.
    data = scenes.load(1, 1, 40)
    examples = data.split("test")
    captions = models[name].caption([data.photo(example) for example in examples])

    right = 0
    for caption, example in zip(captions, examples, strict=True):
        scene = scenes.scene(example.image_id)
        if scenes.exact_match(caption.text, scene):
            right += 1
    assert right > 0.8 * len(examples)


def test_the_model_for_photographs_names_what_it_knows(models):
    model = models[installed.PHOTOGRAPHS]
    known = {path.stem: path for path in demo.photographs()}
    # By the photograph's name, the word that its caption must have.
    things = {
        "dog": "dog",
        "tennis": "tennis",
        "train": "train",
        "cows": "cows",
        "elephants": "elephant",
    }
    for name, thing in things.items():
        (caption,) = model.caption([known[name]])
        assert thing in caption.words, caption.text


def test_a_model_that_does_not_come_with_satlib_is_named_with_those_that_do():
    with pytest.raises(SatlibError, match=r"the model scenes-softer does not exist.*scenes-soft"):
        installed.model("scenes-softer")


def test_without_their_package_the_models_for_photographs_are_named_with_the_command_that_installs_it(
    monkeypatch,
):
    find = importlib.util.find_spec

    def without_it(name):
        return None if name == "satlib_models" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", without_it)
    assert installed.models() == ["scenes-hard", "scenes-soft"]
    # Whoever installs them should know the terms.
    message = r"is not installed; .*non-commercial.*pip install \./satlib-models"
    with pytest.raises(SatlibError, match=message):
        installed.model()
