"""Recipes: what is read is what was written, and every mistake is one line that says what may stand there."""

import math
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from satlib import recipe
from satlib.errors import SatlibError


def test_shipped_recipes_survive_being_written(tmp_path):
    for loaded in map(recipe.load, recipe.names()):
        written = tmp_path / "recipe.toml"
        written.write_text(loaded.to_toml(), encoding="utf-8")
        assert recipe.load(str(written)) == loaded
        assert recipe.from_dict(loaded.to_dict()) == loaded


@given(
    name=st.text(
        st.characters(codec="utf-8", min_codepoint=32, exclude_characters='/\\:*?"<>|'), min_size=1, max_size=60
    ).filter(lambda name: not name.startswith(".")),
    data=st.text(st.characters(codec="utf-8")),
    rate=st.floats(0, 1e300),
    seed=st.integers(0, 2**63 - 1),
    train=st.booleans(),
)
def test_any_values_survive_being_written(name, data, rate, seed, train):
    """Names in any script, emoji and control characters, numbers of any size."""
    values = {"data": {"name": data}, "encoder": {"train": train}, "training": {"learning_rate": rate, "seed": seed}}
    made = recipe.from_dict({"name": name, **values})
    assert recipe.from_dict(recipe.tomllib.loads(made.to_toml())) == made


def test_what_is_not_given_is_the_default(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[training]\nepochs = 3\nlearning_rate = 1\n", encoding="utf-8")
    loaded = recipe.load(str(path))
    assert loaded.name == "mine"
    assert loaded.training == msgspec.structs.replace(recipe.TrainingConfig(), epochs=3, learning_rate=1.0)
    assert isinstance(loaded.training.learning_rate, float)  # a whole number serves as a number
    assert loaded.decoder == recipe.DecoderConfig()


@pytest.mark.parametrize(
    ("change", "section", "key", "value"),
    [
        ("training.epochs=3", "training", "epochs", 3),
        (" training.epochs = 3 ", "training", "epochs", 3),
        ("training.learning_rate=1e-3", "training", "learning_rate", 1e-3),
        ("encoder.train=true", "encoder", "train", True),
        ("decoder.attention=none", "decoder", "attention", "none"),
        ('decoder.attention="none"', "decoder", "attention", "none"),
        ("encoder.name=timm:resnet18", "encoder", "name", "timm:resnet18"),
        ("data.name=../my photos", "data", "name", "../my photos"),
        ("data.name=a=b", "data", "name", "a=b"),
    ],
)
def test_changes_are_read_as_toml_or_as_text(change, section, key, value):
    changes = ["training.epochs=7", change]  # the last one wins
    assert getattr(getattr(recipe.load("flickr8k-soft", changes), section), key) == value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("training.epochs", "section.key=value"),
        ("epochs=3", "section.key=value"),
        ("name=other", "section.key=value"),
        ("name.other=1", "cannot read the change 'name.other=1'"),
        ("trainin.epochs=3", "no section 'trainin' (did you mean training?); the sections are data"),
        ("training.epoch=3", "[training] has no 'epoch' (did you mean epochs?); it has optimiser"),
        ("training.beam=3", "[training] has no 'beam' (did you mean decoding.beam?); it has optimiser"),
        ("training.epochs=three", "training.epochs must be a whole number, not 'three'"),
        ("training.epochs=true", "training.epochs must be a whole number, not True"),
        ("training.learning_rate=true", "training.learning_rate must be a number, not True"),
        ("encoder.train=1", "encoder.train must be true or false, not 1"),
        ("data.name=2014", "data.name must be a text in quotes, not 2014"),
        ("decoder.attention=hardish", "decoder.attention must be one of soft"),
        (
            "training.patience=0",
            "must be at least 1, not 0; training.patience is the number of epochs without a better dev score",
        ),
        (
            "training.select=best",
            "must be one of bleu4, nll, reward, not 'best'; training.select is the dev score that selects",
        ),
    ],
)
def test_a_wrong_change_is_one_line(change, says):
    refused(lambda: recipe.load("flickr8k-soft", [change]), says)


NUMBERS = [
    (section, key, option)
    for section in recipe.SECTIONS
    for key, option in recipe.declared(section).items()
    if type(option.default) in (int, float)
]


def beyond(limit, sign):
    """The next number above (sign 1) or below (sign -1)."""
    return limit + sign if isinstance(limit, int) else math.nextafter(limit, sign * math.inf)


def test_each_limit_is_held():
    """The limit itself, or the number next to it, is accepted, and what lies beyond is refused."""
    for section, key, option in NUMBERS:
        meta, kind = option.meta, type(option.default)
        limits = (meta.ge, -1, "at least"), (meta.gt, -1, "above"), (meta.lt, 1, "below"), (meta.le, 1, "at most")
        for limit, sign, words in limits:
            if limit is None:
                continue
            edge = kind(limit)
            valid, invalid = (edge, beyond(edge, sign)) if " " in words else (beyond(edge, -sign), edge)
            assert getattr(getattr(recipe.from_dict({section: {key: valid}}), section), key) == valid
            with pytest.raises(SatlibError) as caught:
                recipe.from_dict({section: {key: invalid}})
            assert re.match(rf"{section}\.{key} must be .*{words} {limit:,}.*, not {invalid}; ", str(caught.value))


def test_what_a_strangers_model_may_ask_for_is_limited():
    """Lengths, widths and sizes that reserve memory or time when a model is loaded or captions one image."""
    assert {f"{section}.{key}" for section, key, option in NUMBERS if option.meta.le is not None} >= {
        "decoding.beam",
        "decoding.max_length",
        "decoder.embedding",
        "decoder.hidden",
        "decoder.attention_hidden",
        "data.vocabulary_size",
        "data.max_length",
    }


@pytest.mark.parametrize("name", ["../../x", "/etc/x", ".hidden", "a/b", "a\\b", "a\nb", "", "..", "x" * 61, "C:x"])
def test_a_name_that_leads_out_of_its_folder(name):
    for usual in ("scenes-soft", "lr0.001", "二", "my recipe", "x" * 60):
        assert recipe.from_dict({"name": usual}).name == usual
    refused(lambda: recipe.from_dict({"name": name}), "cannot be that of a folder, as runs/NAME needs it")


def test_the_ranges_that_matter():
    """By hand: what the limits are is not read from the declarations alone."""
    assert {f"{section}.{key}" for section, key, option in NUMBERS if option.meta.lt == 1} == {
        "decoder.dropout",
        "objective.label_smoothing",
        "hard.expectation",
        "hard.anneal",
        "training.average",
        "training.drop_places",
        "training.drop_dimensions",
    }
    assert recipe.declared("reward")["samples"].meta.ge == 2
    assert recipe.declared("data")["vocabulary_size"].meta.ge == 3
    assert recipe.declared("encoder")["scale"].meta.ge == 0  # 0: measured


def test_every_option_is_declared():
    """With a meaning that continues "OPTION is", a default of the annotated type, and choices that include the default."""
    for section, kind in recipe.SECTIONS.items():
        assert list(recipe.declared(section)) == list(kind.__struct_fields__)
        assert kind.__doc__
        for key, option in recipe.declared(section).items():
            assert option.meaning
            assert option.meaning[-1] not in ".,;", (section, key)
            assert "\n" not in option.meaning
            assert not option.choices or option.default in option.choices
            msgspec.convert({key: option.default}, kind)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1" + 400 * "0"])
def test_numbers_are_finite(tmp_path, value):
    """In a file as by --set; a whole number of 400 digits is beyond every float."""
    for section, key, option in NUMBERS:
        if type(option.default) is float:
            (tmp_path / "mine.toml").write_text(f"[{section}]\n{key} = {value}\n")
            says = f"{section}.{key} must be a finite number"
            refused(lambda: recipe.load("flickr8k-soft", [f"{section}.{key}={value}"]), says)  # noqa: B023
            refused(lambda: recipe.load(str(tmp_path / "mine.toml")), says)


def test_a_frozen_encoder_has_trained_weights():
    refused(lambda: recipe.from_dict({"encoder": {"pretrained": False}}), "encoder.pretrained = true", "encoder.train")
    assert not recipe.from_dict({"encoder": {"pretrained": False, "train": True}}).encoder.pretrained


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[training\nepochs = 3\n", "is not TOML"),
        (b"[training]\nepochs = \n", "line 2"),
        (b"[training]\nepochs = 3", "ends within a line; if it was cut off, copy it again"),
        (b"", "is empty; begin with a copy of another: satlib recipe"),
        (b"[data]\nname = 'scenes'\n\n[encoder]\n", "[encoder] of the recipe is empty; the file may be cut off"),
        (b"training = 3\n", "[training] of the recipe must be a table"),
        (b"[model]\nsize = 3\n", "no section 'model'; the sections are data, encoder"),
        (b"[training]\nsize = 3\n", "[training] has no 'size'; it has optimiser"),
        (b'name = "\xff"\n', "not UTF-8"),
        (b"name = 3\n", "name must be a text in quotes, not 3"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, says):
    path = tmp_path / "mine.toml"
    path.write_bytes(text)
    message = refused(lambda: recipe.load(str(path)), says)
    if "TOML" in message or "UTF-8" in message:
        assert str(path) in message


def test_unknown_recipes_name_those_that_there_are(tmp_path):
    refused(lambda: recipe.load("flickr8k"), "'flickr8k'", "flickr8k-soft", ".toml")
    refused(lambda: recipe.load(""), "flickr8k-soft")
    refused(lambda: recipe.load(str(tmp_path / "none.toml")), "none.toml does not exist", "flickr8k-soft")
    refused(lambda: recipe.load(str(tmp_path)), "choose one of")


def test_a_byte_order_mark_is_no_part_of_a_recipe(tmp_path):
    """Notepad may write one."""
    path = tmp_path / "mine.toml"
    path.write_text("[training]\nepochs = 3\n", encoding="utf-8-sig")
    assert recipe.load(str(path)).training.epochs == 3
