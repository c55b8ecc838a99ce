"""An attention of one's own: a learner's function, and the class of docs/contributing.md; taken from a file, tried, and trained."""

import re
from pathlib import Path

import pytest
import tiny
import torch

from satlib import cli, recipe
from satlib.errors import SatlibError
from satlib.model import attention, plugged
from satlib.model.captioner import Captioner
from satlib.page import live

RIGHT = """
import torch

def attend(e, a):
    alpha = torch.softmax(e, 1)
    return torch.einsum("bl,bld->bd", alpha, a), alpha
"""


@pytest.fixture
def place(tmp_path):
    def write(code):
        (tmp_path / "mine.py").write_text(code)
        return f"{tmp_path / 'mine.py'}:attend"

    return write


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other(e, a): pass", "defines no function or class attend"),
        (RIGHT.replace('"bl,bld->bd"', '"bl,bld->bl"'), r"must return z \(3, 4\) .* not \(3, 5\)"),
    ],
)
def test_is_refused_with_a_reason(place, code, message):
    with pytest.raises(SatlibError, match=message):
        plugged.load(place(code))
    # A notebook is no file of Python.
    with pytest.raises(SatlibError, match=r"given as FILE\.py:NAME"):
        plugged.load("mine.ipynb:attend")


def test_is_trained(tmp_path, place):
    """The same function as satlib's gives the same weights; and it is this function that the
    training calls.
    """
    attend = plugged.load(place(RIGHT))
    calls = []

    def counted(e, a):
        calls.append(e.shape)
        return attend(e, a)

    def plug(captioner):
        return plugged.plug(captioner, counted, "mine.py:counted")

    ours = tiny.train(tmp_path / "ours", "training.epochs=1")
    own = tiny.train(tmp_path / "own", "training.epochs=1", prepare=plug)
    assert ours.own_attention is None
    assert own.own_attention == "mine.py:counted"
    assert isinstance(own.decoder.attention, plugged.PluggedAttention)
    # A call for every word of every batch.
    assert len(calls) > 10
    torch.testing.assert_close(own.decoder.state_dict(), ours.decoder.state_dict())

    # Hard attention draws a place, which a function of energies and vectors cannot.
    with pytest.raises(SatlibError, match="replaces soft attention"):
        plugged.plug(tiny.decided("hard"), attend, "mine.py:attend")


def test_a_page_refuses_a_function(tmp_path, place, capsys):
    assert cli.main(["page", str(tmp_path / "page"), "--attention", place(RIGHT)]) == 2
    assert "mine.py:attend: give a class" in capsys.readouterr().err

    # Nor a model that was trained with one.
    captioner = tiny.decided("soft")
    captioner.own_attention = "mine.py:attend"
    captioner.save(tmp_path / "own.safetensors")
    with pytest.raises(SatlibError, match=r"trained with the function mine\.py:attend"):
        live.write(tmp_path / "page", [tmp_path / "own.safetensors"])
    assert not (tmp_path / "page").exists()


# A class with weights of its own

CONTRIBUTING = Path(__file__).parent.parent / "docs" / "contributing.md"


@pytest.fixture
def heads(tmp_path, monkeypatch):
    """The page's multi-head attention in a file, and its name; forgotten after the test."""
    monkeypatch.setattr(attention, "_KINDS", dict(attention._KINDS))
    monkeypatch.setattr(recipe, "ATTENTIONS", list(recipe.ATTENTIONS))
    section = CONTRIBUTING.read_text(encoding="utf-8").partition("## Add an attention")[2]
    (tmp_path / "heads.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
    return f"{tmp_path / 'heads.py'}:MultiHead"


def test_heads_equal_their_definition(heads):
    """z = sum_k W_k sum_i alpha_ki a_i over the heads k; the map is the mean of theirs."""
    a = torch.randn(2, 5, 8)
    h = torch.randn(2, 3)
    multi = plugged.load(heads)(8, 3, 6)
    z, alpha, place = multi(a, multi.keys(a), h)

    maps = [torch.softmax(energy(energy.annotation(a), h), 1) for energy in multi.energies]
    contexts = [
        value(torch.einsum("bl,bld->bd", own, a))
        for value, own in zip(multi.values, maps, strict=True)
    ]
    torch.testing.assert_close(z, sum(contexts))
    torch.testing.assert_close(alpha, sum(maps) / 4)
    assert place is None


def test_heads_are_trained_saved_loaded_and_resumed(heads, tmp_path):
    name = "MultiHead"
    attention.register(name, plugged.load(heads))
    own = f"decoder.attention={name}"
    whole = tiny.train(tmp_path / "whole", own, "training.epochs=2")
    tiny.train(tmp_path / "parts", own, "training.epochs=1")
    resumed = tiny.train(tmp_path / "parts", own, "training.epochs=2")
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)

    # Its weights have moved, and are in the file.
    fresh = attention.create(name, whole.encoder.dim, *_sizes(whole))
    energies = whole.decoder.attention.energies
    assert not torch.equal(energies[0].energy.weight, fresh.energies[0].energy.weight)
    loaded = Captioner.load(tmp_path / "whole")
    photo = tiny.draw(tiny.data().examples[0])
    assert loaded.caption([photo])[0].words == whole.caption([photo])[0].words


def test_a_model_whose_class_is_unknown_names_what_is_missing(heads, tmp_path, monkeypatch):
    """satlib runs no code that a model names: the file must be given."""
    name = "MultiHead"
    attention.register(name, plugged.load(heads))
    tiny.train(tmp_path / "run", f"decoder.attention={name}", "training.epochs=1")
    attention._KINDS.pop(name)
    recipe.ATTENTIONS.remove(name)
    with pytest.raises(SatlibError, match=r"MultiHead.*--attention FILE\.py:MultiHead"):
        Captioner.load(tmp_path / "run")


def _sizes(captioner):
    config = captioner.recipe.decoder
    return config.hidden, config.attention_hidden
