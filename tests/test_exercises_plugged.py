"""A learner's own attention: taken from a file, tried, and trained."""

import pytest
import tiny
import torch
from torch import nn

from satlib.errors import SatlibError
from satlib.training import plugged

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
        ("def other(e, a): pass", r"defines no function attend\(\)"),
        (RIGHT.replace('"bl,bld->bd"', '"bl,bld->bl"'), r"must return z \(3, 4\) .* not \(3, 5\)"),
    ],
)
def test_is_refused_with_a_reason(place, code, message):
    with pytest.raises(SatlibError, match=message):
        plugged.load(place(code))
    with pytest.raises(SatlibError, match=r"given as FILE\.py:FUNCTION"):
        plugged.load("mine.ipynb:attend")


def test_is_trained(tmp_path, place):
    """The same function as satlib's gives the same weights; and it is this function that the training calls."""
    attend, calls, weights = plugged.load(place(RIGHT)), [], {}

    def counted(e, a):
        calls.append(e.shape)
        return attend(e, a)

    for name, prepare in (
        ("own", lambda captioner: plugged.plug(captioner, counted, "mine.py:counted")),
        ("ours", None),
    ):
        captioner = tiny.train(tmp_path / name, "training.epochs=1", prepare=prepare)
        weights[name] = captioner.decoder.state_dict()
        assert captioner.own_attention == ("mine.py:counted" if name == "own" else None)
    assert len(calls) > 10
    assert weights["own"].keys() == weights["ours"].keys()
    for name, mine in weights["own"].items():
        torch.testing.assert_close(mine, weights["ours"][name])


def test_only_for_soft_attention(place):
    captioner = nn.Module()
    captioner.decoder = nn.Module()
    captioner.decoder.attention = nn.Module()
    with pytest.raises(SatlibError, match=r"replaces soft attention"):
        plugged.plug(captioner, plugged.load(place(RIGHT)), place(RIGHT))
