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
    with pytest.raises(SatlibError, match=r"given as FILE\.py:NAME"):
        plugged.load("mine.ipynb:attend")


def test_is_trained(tmp_path, place):
    """The same function as satlib's gives the same weights; and it is this function that the training calls."""
    attend, calls = plugged.load(place(RIGHT)), []

    def counted(e, a):
        calls.append(e.shape)
        return attend(e, a)

    ours = tiny.train(tmp_path / "ours", "training.epochs=1")
    own = tiny.train(
        tmp_path / "own",
        "training.epochs=1",
        prepare=lambda it: plugged.plug(it, counted, "mine.py:counted"),
    )
    assert (ours.own_attention, own.own_attention) == (None, "mine.py:counted")
    assert isinstance(own.decoder.attention, plugged.PluggedAttention)
    assert len(calls) > 10
    torch.testing.assert_close(own.decoder.state_dict(), ours.decoder.state_dict())
    with pytest.raises(SatlibError, match="replaces soft attention"):
        plugged.plug(tiny.decided("hard"), attend, "mine.py:attend")
