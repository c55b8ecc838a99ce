"""What satlib writes is whole and strict; what it reads is of the declared form, or refused in one
line that names the file.
"""

import gc
import math
from contextlib import suppress

import numpy as np
import pytest
import torch

from satlib.errors import SatlibError
from satlib.files import (
    collector_paused,
    read_json,
    read_lines,
    read_safetensors,
    replacing,
    require_finite,
    write_json,
    write_safetensors,
    write_text,
)
from satlib.model import installed
from satlib.model.captioner import Captioner


@pytest.mark.parametrize("value", [math.nan, -math.inf, np.float64("nan")])
def test_a_number_that_json_does_not_have_leaves_the_old_file(tmp_path, value):
    path = tmp_path / "evaluation.json"
    write_json(path, {"old": 1})
    # Nested, because a check of the top level alone would not be enough.
    with pytest.raises(SatlibError, match=r"cannot write .*evaluation\.json"):
        write_json(path, {"metrics": {"map entropy": [0.5, value]}})
    assert read_json(path, dict[str, int], "an evaluation") == {"old": 1}
    # No half-written file stays beside it.
    assert [file.name for file in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "file", "old")
    with suppress(RuntimeError), replacing(tmp_path / "file") as partial:
        partial.write_text("half", encoding="utf-8")
        raise RuntimeError

    contents = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert contents == {"file": "old"}


def test_text_has_the_same_line_breaks_everywhere(tmp_path):
    path = tmp_path / "lines.txt"
    write_text(path, "one\n\ntwo\n")
    # Windows would write \r\n.
    assert path.read_bytes() == b"one\n\ntwo\n"
    assert read_lines(path) == [(1, "one"), (3, "two")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": [1, 2',
        # Python's own reader takes it, but it is no JSON.
        b'{"a": NaN}',
        # So deep that a recursive reader would end with RecursionError.
        b"[" * 100_000,
        b'{"a": "\xff"}',
        b'{"a": "x"}',
    ],
)
def test_json_that_is_damaged_or_of_another_form(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(SatlibError, match=r"x\.json is not"):
        read_json(path, dict[str, int], "right")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "a.json").write_text('["ä"]', encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json", list[str], "a list") == ["ä"]


def test_weights(tmp_path):
    """Written and read to the bit; a pickle, a truncated file and a value that is not finite are
    refused.
    """
    path = tmp_path / "w.safetensors"
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(3)}
    write_safetensors(path, tensors, {"x": 1})
    header, read = read_safetensors(path)
    assert header == {"x": 1}
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)

    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SatlibError, match="damaged or truncated"):
        read_safetensors(path)

    # A pickle can run code when it is read.
    torch.save(tensors, path)
    with pytest.raises(SatlibError, match="pickle"):
        read_safetensors(path)

    tensors = {"a": torch.ones(2), "b": torch.tensor([1.0, math.nan])}
    with pytest.raises(SatlibError, match="b holds values that are not finite"):
        require_finite(tensors, path)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": None},
        {"vocabulary": ["a", 7]},
        {"encoder": {}},
    ],
)
def test_a_model_with_another_header(tmp_path, changes):
    header, tensors = read_safetensors(installed.model("scenes-soft"))
    write_safetensors(tmp_path / "m.safetensors", tensors, header | changes)
    with pytest.raises(SatlibError, match=r"m\.safetensors"):
        Captioner.load(tmp_path / "m.safetensors")


def test_the_collector_rests_only_in_the_block():
    with suppress(ZeroDivisionError), collector_paused():
        assert not gc.isenabled()
        1 / 0  # noqa: B018
    assert gc.isenabled()

    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
