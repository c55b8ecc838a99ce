"""The captioners that come with satlib: each opens, is what its recipe says, and describes what it was made for."""

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
        training = replace(now.training, precision=model.recipe.training.precision)
        assert model.recipe == replace(now, training=training), name


@pytest.mark.parametrize("name", ["scenes-soft", "scenes-hard"])
def test_a_model_for_scenes_gets_most_of_them_right(models, name):
    data = scenes.load(1, 1, 40)
    captions = models[name].caption([data.photo(example) for example in data.split("test")])
    right = [
        scenes.exact_match(c.text, scenes.scene(e.image_id))
        for c, e in zip(captions, data.split("test"), strict=True)
    ]
    assert sum(right) > 0.8 * len(right)


def test_the_model_for_photographs_names_what_it_knows(models):
    known = {path.stem: path for path in demo.photographs()}
    for name, thing in {
        "dog": "dog",
        "tennis": "tennis",
        "train": "train",
        "cows": "cows",
        "elephants": "elephant",
    }.items():
        [caption] = models[installed.PHOTOGRAPHS].caption([known[name]])
        assert thing in caption.words, caption.text


def test_a_model_that_does_not_come_with_satlib_is_named_with_those_that_do():
    with pytest.raises(SatlibError, match=r"the model scenes-softer does not exist.*scenes-soft"):
        installed.model("scenes-softer")


def test_without_their_package_the_models_for_photographs_are_named_with_the_command_that_installs_it(
    monkeypatch,
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "satlib_models" else find(name)
    )
    assert installed.models() == ["scenes-hard", "scenes-soft"]
    with pytest.raises(
        SatlibError, match=r"is not installed; .*non-commercial.*pip install \./satlib-models"
    ):
        installed.model()
