"""A learner's own attention: taken from a file or a notebook, checked, and trained."""

import argparse

import nbformat
import pytest
import tiny
import torch
from tools_path import editions, exercises
from torch import nn

from satlib import cli
from satlib.errors import SatlibError
from satlib.training import plugged

RIGHT = """
import torch

def attend(e, a):
    alpha = torch.softmax(e, 1)
    return torch.einsum("bl,bld->bd", alpha, a), alpha
"""
LISTED = RIGHT.replace("return ", "return [").replace(", a), alpha", ", a), alpha]")


@pytest.fixture
def place(tmp_path):
    def write(code, name="mine.py"):
        (tmp_path / name).write_text(code)
        return f"{tmp_path / name}:attend"

    return write


def test_of_a_notebook_definitions_and_what_catches_up_are_taken(tmp_path):
    """An `attend` that uses `weights`, exercise 4.2, which the learner has left blank."""
    cell, catch_up = nbformat.v4.new_code_cell, {"satlib": {"exercise": "4.2", "role": "catch-up"}}
    cells = [
        cell("%matplotlib inline\nimport torch\nSCALE = 2.0\nraise RuntimeError('a training that takes hours')"),
        cell("from satcourse.exercises import reference\ndef weights(e):\n    ..."),
        cell('weights = reference("4.2")', metadata=catch_up),
        cell("decoder.temperature = 1.0"),
        cell("def weigh(e):\n    return weights(SCALE * e)"),
        cell("def attend(e, a):\n    return 0"),
        cell("def attend(e, a):\n    alpha = weigh(e)\n    return (alpha.unsqueeze(2) * a).sum(1), alpha"),
        cell("check('4.8', attend)", metadata={"satlib": {"exercise": "4.8", "role": "check"}}),
        cell("attend = None", metadata={"satlib": {"exercise": "4.8", "role": "catch-up"}}),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "mine.ipynb")
    attend = plugged.load(f"{tmp_path / 'mine.ipynb'}:attend")
    e, a = torch.randn(2, 3), torch.randn(2, 3, 4)
    torch.testing.assert_close(attend(e, a)[1], torch.softmax(2 * e, 1))


def test_of_the_solutions_notebook(tmp_path):
    (source,) = exercises.sources(["04"])
    nbformat.write(exercises.generate(source, editions.SOLVED), tmp_path / "solved.ipynb")
    assert plugged.load(f"{tmp_path / 'solved.ipynb'}:attend")
    nbformat.write(exercises.generate(source, editions.WORK), tmp_path / "blank.ipynb")
    with pytest.raises(SatlibError, match=r"must return two tensors, \(z, alpha\), not NoneType"):
        plugged.load(f"{tmp_path / 'blank.ipynb'}:attend")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def other(e, a): pass", r"defines no function attend\(\)"),
        ("def attend(e, a: pass", r"cannot be run: SyntaxError"),
        ("def attend(e, a): return e", r"must return two tensors"),
        (RIGHT.replace('"bl,bld->bd"', '"bl,bld->bl"'), r"returns z of shape \(3, 5\).*must be \(3, 4\)"),
        (RIGHT.replace("softmax(e, 1)", "softmax(e, 1)[:, :2]"), r"raises RuntimeError"),
        (RIGHT.replace("softmax(e, 1)", "softmax(e.detach(), 1)"), r"passes no gradient"),
        (RIGHT.replace("softmax(e, 1)", "log(e)"), r"with NaN or infinity"),
    ],
)
def test_is_refused_with_a_reason(place, code, message):
    assert plugged.load(place(LISTED))  # a list of two will do
    with pytest.raises(SatlibError, match=message):
        plugged.load(place(code))


def test_no_such_file(tmp_path):
    with pytest.raises(SatlibError, match=r"does not exist"):
        plugged.load(f"{tmp_path}/none.py:attend")
    for wrong in ("attend", "mine.txt:attend", "mine.py:", "mine.py"):
        with pytest.raises(SatlibError, match=r"given as FILE.py:FUNCTION"):
            plugged.load(wrong)


def test_is_trained(tmp_path, place, capsys):
    """The same function as satlib's gives the same weights; and it is this function that the training calls."""
    attend, calls, weights = plugged.load(place(RIGHT)), [], {}

    def counted(e, a):
        calls.append(e.shape)
        return attend(e, a)

    for name, prepare in (
        ("own", lambda captioner: plugged.plug(captioner, counted, "mine.py:counted")),
        ("satlib", None),
    ):
        weights[name] = tiny.train(tmp_path / name, "training.epochs=1", prepare=prepare).decoder.state_dict()
    assert len(calls) > 10
    assert weights["own"].keys() == weights["satlib"].keys()
    for name, mine in weights["own"].items():
        torch.testing.assert_close(mine, weights["satlib"][name])
    for run, said in (("own", "trained with --attention mine.py:counted"), ("satlib", "")):
        capsys.readouterr()
        cli._captioner(tmp_path / run, argparse.Namespace(device="cpu"))
        assert said in capsys.readouterr().err if said else capsys.readouterr().err == ""


def test_the_command_line_says_what_is_wrong_before_anything_is_begun(tmp_path, capsys, place):
    command = ["train", "scenes-soft", "--out", str(tmp_path / "run")]
    assert cli.main([*command, "--attention", place("def attend(e, a): return e")]) == 2
    assert "must return two tensors, (z, alpha), not Tensor" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_only_for_soft_attention(place):
    captioner = nn.Module()
    captioner.decoder = nn.Module()
    captioner.decoder.attention = nn.Module()
    with pytest.raises(SatlibError, match=r"replaces soft attention"):
        plugged.plug(captioner, plugged.load(place(RIGHT)), place(RIGHT))
