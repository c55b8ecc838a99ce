"""A learner's own attention: taken from a file, tried, and trained."""

import pytest
import tiny
import torch

from satlib.errors import SatlibError
from satlib.model import plugged

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
