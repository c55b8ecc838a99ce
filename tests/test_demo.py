"""The demo from end to end at a tiny size: what it prints and writes, and what it leaves alone."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from satcourse import demo
from satlib import recipe
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model import encoders, shipped
from satlib.model.captioner import Caption, Captioner

TINY = (
    "data.train_images=16",
    "training.epochs=1",
    "training.batch_size=32",
    "decoder.embedding=8",
    "decoder.hidden=8",
    "decoder.attention_hidden=8",
    "decoding.max_length=3",
)
SIZES = {"dev": 2, "test": 3, "progress": False}


@pytest.fixture
def tiny_model(tmp_path, monkeypatch):
    """In place of the trained model: one with random weights and few words."""
    changes = [change for change in TINY if change.startswith("deco")]
    vocabulary = Vocabulary.from_captions(["a dog", "a red boat"], 10, 1)
    captioner = Captioner(
        recipe.load("flickr8k-lite0-soft", changes), vocabulary, encoders.create("efficientnet-lite0")
    )
    captioner.save(tmp_path / "tiny.safetensors")
    monkeypatch.setattr(shipped, "model", lambda name=shipped.PHOTOGRAPHS: tmp_path / "tiny.safetensors")


def test_the_demo_shows_everything_and_starts_over(tmp_path, tiny_model, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java: METEOR costs seconds, and is not needed
    monkeypatch.setattr(demo, "people", list)
    monkeypatch.setattr(demo, "PHOTOGRAPHS", ("chelsea.png",))
    out = tmp_path / "shown"
    printed, pictures = [], []
    for _ in range(2):
        demo.run(out, TINY, **SIZES)
        printed.append(re.sub(r"^\[ *\d+ s\]", "", capsys.readouterr().out, flags=re.MULTILINE))
        pictures.append({path.name: path.read_bytes() for path in out.glob("*.png")})
    assert printed[0] == printed[1]
    assert pictures[0] == pictures[1]
    assert set(pictures[0]) == {"scene-1.png", "scene-2.png", "scene-3.png", "photo-chelsea.png"}
    evaluation = json.loads((out / "training" / "evaluation-test.json").read_text())
    assert re.search(rf"exact match +{evaluation['metrics']['exact match']:.1f} %", printed[0])


def test_photographs_like_the_training_set_come_first(tmp_path, capsys):
    unlike = {"b": False, "d": False, "a": True, "c": True}
    paths = [tmp_path / f"{name}.png" for name in unlike]
    for path in paths:
        Image.new("RGB", (8 + "abcd".index(path.stem), 8)).save(path)

    def caption(photos):
        name = "abcd"[photos[0].width - 8]
        return [Caption([name], -1.0, torch.full((2, 7, 7), 1 / 49), torch.ones(2), unlike=unlike[name])]

    demo._describe(SimpleNamespace(caption=caption, view="whole"), sorted(paths), tmp_path)
    lines = [line.split(" ")[-1] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line in unlike] == ["b", "d", "a", "c"]


def test_a_folder_that_is_not_a_demo_s_is_left_alone(tmp_path, tiny_model):
    other = tmp_path / "training" / "recipe.toml"
    other.parent.mkdir()
    other.write_text('name = "scenes-soft"\n')
    with pytest.raises(SatlibError, match=r"not made by satlib demo.*--out"):
        demo.run(tmp_path, TINY, **SIZES)
    assert other.read_text() == 'name = "scenes-soft"\n'


def test_without_a_checkout_the_photographs_are_said_to_be_in_the_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "FOLDER", tmp_path / "none")
    with pytest.raises(SatlibError, match="repository"):
        demo.photographs()
