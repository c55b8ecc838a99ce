"""Recipes: what is read is what was written, and a mistake names the option and what was meant."""

import msgspec
import pytest
from refusals import refused

from satlib import recipe
from satlib.errors import SatlibError


def test_shipped_recipes_survive_being_written(tmp_path):
    written = tmp_path / "recipe.toml"
    for loaded in map(recipe.load, recipe.names()):
        written.write_text(loaded.to_toml(), encoding="utf-8")
        assert recipe.load(str(written)) == loaded
        assert recipe.from_dict(loaded.to_dict()) == loaded

        # What explains the options is a recipe, too.
        explained = f'name = "{loaded.name}"\n{recipe.explained(loaded)}'
        written.write_text(explained, encoding="utf-8")
        assert recipe.load(str(written)) == loaded


def test_each_option_is_declared_with_a_meaning():
    for section, kind in recipe.SECTIONS.items():
        fields = [field.name for field in msgspec.structs.fields(kind)]
        meanings = recipe.meanings(section)
        assert list(meanings) == fields
        # A type without a text would print the limits of its numbers in place of a meaning.
        assert not any("Meta(" in meaning for meaning in meanings.values())


@pytest.mark.parametrize(
    ("section", "option", "valid"),
    [
        ("data", "name", "str"),
        ("reward", "samples", "int >= 2 and <= 1000"),
        ("encoder", "scale", "float > 0"),
        ("hard", "expectation", "float >= 0 and < 1"),
        ("decoder", "kind", '"lstm", "transformer"'),
    ],
)
def test_a_meaning_begins_with_the_valid_values(section, option, valid):
    assert recipe.meanings(section)[option].startswith(f"{valid}: ")


def test_what_is_not_given_is_the_default(tmp_path):
    path = tmp_path / "mine.toml"
    # Some editors on Windows begin a file with a byte order mark.
    path.write_text("\ufeff[training]\nepochs = 3\nlearning_rate = 1\n", encoding="utf-8")
    loaded = recipe.load(str(path))
    assert loaded.name == "mine"
    default = recipe.TrainingConfig()
    expected = msgspec.structs.replace(default, epochs=3, learning_rate=1.0)
    assert loaded.training == expected
    # A whole number serves as a number.
    assert isinstance(loaded.training.learning_rate, float)
    assert loaded.decoder == recipe.DecoderConfig()


def test_hard_attention_has_no_penalty_unless_it_is_given():
    """The doubly stochastic penalty acts on expected maps; hard attention sees samples."""
    hard = {"name": "x", "decoder": {"attention": "hard"}}
    assert recipe.from_dict(hard).objective.doubly_stochastic == 0
    given = {**hard, "objective": {"doubly_stochastic": 0.5}}
    assert recipe.from_dict(given).objective.doubly_stochastic == 0.5


def test_an_earlier_recipe_of_whole_photographs_is_read():
    """An option of earlier versions, in the headers of their models, with what is left of it."""
    given = {"name": "x", "encoder": {"name": "small", "view": "whole"}}
    assert recipe.from_dict(given) == recipe.from_dict({"name": "x", "encoder": {"name": "small"}})
    assert given["encoder"]["view"] == "whole"


@pytest.mark.parametrize(
    ("change", "option", "value"),
    [
        (" training.epochs = 3 ", "training.epochs", 3),
        ("training.learning_rate=1e-3", "training.learning_rate", 1e-3),
        ("encoder.train=true", "encoder.train", True),
        ("decoder.attention=none", "decoder.attention", "none"),
        ('decoder.attention="none"', "decoder.attention", "none"),
        ("data.name=my = photos", "data.name", "my = photos"),
    ],
)
def test_changes(change, option, value):
    section, key = option.split(".")
    loaded = recipe.load("flickr8k-soft", [change])
    assert getattr(getattr(loaded, section), key) == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.lerning_rate=1", ("lerning_rate", "did you mean training.learning_rate?")),
        ("training.beam=3", ("beam", "did you mean decoding.beam?")),
        ("trainin.epochs=2", ("trainin", "did you mean training?")),
        ("decoder.attention=sfot", ("sfot", "decoder.attention", '"soft", "hard", "none"')),
        ("training.epochs=0", ("training.epochs", ">= 1")),
        ("training.epochs=many", ("training.epochs", "int")),
        ("training.schedule=half", ("half", "training.schedule")),
        ("training.average=1.0", ("training.average", "< 1")),
        ("training.learning_rate=nan", ("training.learning_rate",)),
        ("training.epochs", ("section.key=value",)),
        # An option of earlier versions.
        ("decoder.normaliser=sparsemax", ("normaliser",)),
        ("encoder.view=crop", ("view",)),
    ],
)
def test_a_mistake_names_the_option_and_what_was_meant(change, words):
    refused(lambda: recipe.load("flickr8k-soft", [change]), *words)


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        # Random weights that are never trained; augmented pictures whose vectors are kept.
        (("encoder.pretrained=false",), "encoder.train"),
        (("training.augment=true",), "encoder.train = true"),
        (("training.select=reward",), "objective.maximise"),
        (("decoder.kind=transformer", "decoder.attention=none"), "decoder.attention"),
        (("decoder.kind=transformer", "decoder.heads=3"), "decoder.heads"),
        (("decoder.attention=none", "objective.boxes=1"), "objective.boxes"),
    ],
)
def test_what_does_not_go_together(changes, option):
    refused(lambda: recipe.load("flickr8k-soft", changes), option)


def test_no_such_recipe(tmp_path):
    refused(lambda: recipe.load("flickr8k-sotf"), "flickr8k-sotf", "did you mean flickr8k-soft?")
    missing = str(tmp_path / "none.toml")
    refused(lambda: recipe.load(missing), "none.toml does not exist")

    broken = tmp_path / "broken.toml"
    broken.write_text("[training\n")
    refused(lambda: recipe.load(str(broken)), "broken.toml is not TOML")


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", ".hidden", "x" * 61, "a\n"])
def test_a_name_that_leads_out_of_the_folder(name):
    # A run's folder has the recipe's name.
    with pytest.raises(SatlibError):
        recipe.from_dict({"name": name})
