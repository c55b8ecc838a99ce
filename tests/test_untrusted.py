"""What a file of another form is told, in words: a place, what must be there, and what is."""

import json
from typing import Any

import pytest
import torch

from satlib import recipe
from satlib.data import karpathy
from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.files import weights
from satlib.files.reading import decode, read_json
from satlib.files.weights import read_safetensors, write_safetensors
from satlib.model import shipped
from satlib.model.captioner import Captioner, Header


def message(value, kind):
    with pytest.raises(SatlibError) as raised:
        decode(json.dumps(value), kind, "x.json", "right", "write it again")
    text = str(raised.value)
    assert text.startswith("x.json is not right (")
    assert text.endswith("); write it again")
    return text.removeprefix("x.json is not right (").removesuffix("); write it again")


def test_a_missing_field_and_another_kind():
    assert message([], karpathy.Karpathy) == "it must be an object, not a list"
    assert (
        message({"images": [{"filename": "a", "split": "test"}]}, karpathy.Karpathy) == "images[0].sentences is missing"
    )
    assert message({"images": [{"filename": "", "split": "", "sentences": []}]}, karpathy.Karpathy).startswith(
        "images[0].filename: "
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "x is not valid JSON (it breaks off); again"),
        (b'{"a": [1, 2', "x is not valid JSON (it breaks off); again"),
        (b'{"a": NaN}', "x is not valid JSON (NaN, byte 6, is not a number of JSON); again"),
        (b"[-Infinity]", "x is not valid JSON (Infinity, byte 2, is not a number of JSON); again"),
        (b"[" * 100_000, "x is not valid JSON (it is nested too deeply); again"),
        (b"9" * 5000, "x is not right (integer value out of range); again"),
        (b'{"a": "\xff"}', "x is not UTF-8 text (byte 7); save it as UTF-8, or again"),
    ],
    ids=["empty", "cut", "NaN", "infinity", "deep", "huge", "bytes"],
)  # fmt: skip
def test_what_is_not_json(content, said):
    with pytest.raises(SatlibError) as raised:
        decode(content, Any, "x", "right", "again")
    assert str(raised.value) == said


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "a.json").write_text('["ä"]', encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json", list[str], "a list") == ["ä"]


@pytest.fixture(scope="module")
def model():
    return read_safetensors(shipped.model("scenes-soft"))


class TestModels:
    """The header and the tensors of a model that a stranger has changed."""

    def refused(self, folder, header, tensors):
        write_safetensors(folder / "m.safetensors", tensors, header)
        with pytest.raises(SatlibError) as raised:
            Captioner.load(folder / "m.safetensors")
        return str(raised.value)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"recipe": None}, "recipe must be an object, not null"),
            ({"vocabulary": "a b c"}, "vocabulary must be a list, not text"),
            ({"vocabulary": ["a", 7]}, "vocabulary[1] must be text, not a whole number"),
            ({"encoder": {}}, "encoder.name is missing"),
            ({"familiarity": {"directions": "", "scales": [], "threshold": 1}}, "familiarity.scales: "),
        ],
    )
    def test_headers(self, tmp_path, model, changes, said):
        assert said in self.refused(tmp_path, model[0] | changes, model[1])

    def test_8_bits_without_their_scale(self, tmp_path, model):
        header, tensors = model
        packed = dict(weights.packed(tensors, "int8"))
        name = next(name for name in packed if name.endswith(":scale"))
        said = "is stored in 8 bits, but its scales are missing or do not fit; copy the file again"
        assert said in self.refused(
            tmp_path, header, {other: value for other, value in packed.items() if other != name}
        )
        assert said in self.refused(tmp_path, header, packed | {name: packed[name][:-1]})

    def test_a_number_format_that_satlib_does_not_write(self, tmp_path, model):
        header, tensors = model
        name = next(iter(tensors))
        said = self.refused(tmp_path, header, tensors | {name: tensors[name].to(torch.complex64)})
        assert f"{name} is stored as torch.complex64" in said


def test_every_shipped_file_has_its_form():
    """No shipped model, evaluation or recipe is refused."""
    for name in shipped.models():
        read_safetensors(shipped.model(name), Header)
    evaluations = shipped.evaluations()
    assert len(evaluations) > 10
    for path in evaluations:
        evaluate.read(path)
    for name in recipe.names():
        recipe.load(name)
