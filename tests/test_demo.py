"""The demo from end to end at a tiny size: what it prints, what it writes, and what it leaves alone."""

import importlib.util
import json
import os
import re
import signal
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from satcourse import demo
from satlib import recipe
from satlib.data import images
from satlib.data.text import Vocabulary
from satlib.errors import Interrupted, SatlibError
from satlib.model import encoders, shipped
from satlib.model.captioner import Caption, Captioner
from satlib.model.familiarity import Familiarity
from satlib.training import loop

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
    path = tmp_path / "tiny.safetensors"
    vocabulary = Vocabulary.from_captions(["a dog", "a red boat"], 10, 1)
    made = Captioner(recipe.load("flickr8k-lite0-soft", changes), vocabulary, encoders.create("efficientnet-lite0"))
    made.familiarity = Familiarity(torch.zeros(1, 1280, dtype=torch.int8), torch.ones(1), 0.5)  # everything is unlike
    made.save(path)
    monkeypatch.setattr(shipped, "model", lambda name=shipped.PHOTOGRAPHS: path)


@pytest.fixture
def two_photographs(monkeypatch):
    monkeypatch.setattr(demo, "people", lambda: [demo._FOLDER / "rocket.jpg"])
    monkeypatch.setattr(demo, "PHOTOGRAPHS", ("chelsea.png", "rocket.jpg"))


def test_the_demo_shows_everything_and_starts_over(tmp_path, tiny_model, two_photographs, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java: METEOR costs seconds, and is not needed
    monkeypatch.setattr("sys.argv", ["bin/satlib", "demo"])
    out = tmp_path / "shown"
    printed, pictures = [], []
    for _ in range(2):
        demo.run(out, TINY, **SIZES)
        printed.append(re.sub(r"^\[ *\d+ s\]", "", capsys.readouterr().out, flags=re.MULTILINE))
        pictures.append({path.name: path.read_bytes() for path in out.glob("*.png")})
    assert printed[0] == printed[1]
    assert pictures[0] == pictures[1]

    assert set(pictures[0]) == {"scene-1.png", "scene-2.png", "scene-3.png", "photo-chelsea.png", "photo-rocket.png"}
    for name in pictures[0]:
        assert str(out / name) in printed[0]
        with Image.open(out / name) as picture:
            assert min(picture.size) > 200
    evaluation = json.loads((out / "training" / "evaluation-test.json").read_text())
    assert evaluation["images"] == 3
    assert re.search(rf"exact match +{evaluation['metrics']['exact match']:.1f} %", printed[0])
    assert (out / "training" / "curves.png").is_file()
    assert "METEOR is missing" in printed[0]
    assert "bin/satlib caption YOUR_PHOTO.jpg" in printed[0]
    photos = [line for line in printed[0].splitlines() if "photo-" in line]
    assert [name for line in photos for name in ("chelsea", "rocket") if name in line] == [
        "rocket",
        "chelsea",
    ]  # once each
    assert "   Unlike its training photographs, so expect mistakes:\n   " + photos[0].strip() in printed[0]
    assert "Like its training" not in printed[0]


@pytest.mark.parametrize("known", [True, False])
def test_photographs_like_the_training_set_come_first(tmp_path, monkeypatch, capsys, known):
    """In the order given within each group, and each group says what it is."""
    unlike = {"b": False, "d": False, "a": True, "c": True} if known else dict.fromkeys("abcd")
    paths = [tmp_path / f"{name}.png" for name in "abcd"]
    for side, path in enumerate(paths, 8):
        Image.new("RGB", (side, 8)).save(path)

    def caption(photos):
        name = "abcd"[photos[0].width - 8]
        return [Caption([f"word-{name}"], -1.0, torch.full((2, 7, 7), 1 / 49), torch.ones(2), unlike=unlike[name])]

    demo._describe(SimpleNamespace(caption=caption, view="whole"), paths, tmp_path / "out")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    described = {name: f"{tmp_path / 'out' / f'photo-{name}.png'}: word-{name}" for name in "abcd"}
    like = ["Like its training photographs, which does not make every caption true:", described["b"], described["d"]]
    far = ["Unlike its training photographs, so expect mistakes:", described["a"], described["c"]]
    unknown = ["The model cannot tell whether these are like its training photographs:", *described.values()]
    assert lines == ([*like, *far] if known else unknown)


def test_a_demo_that_is_stopped_says_that_the_next_begins_again(tmp_path, tiny_model, monkeypatch):
    update = loop.Trainer.update

    def stopped(trainer, *arguments):
        update(trainer, *arguments)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Trainer, "update", stopped)
    for _ in range(2):  # the second is stopped just as early: it has not gone on from the first
        with pytest.raises(Interrupted, match="the same command begins it again"):
            demo.run(tmp_path, TINY, **SIZES)


def test_a_folder_that_is_not_a_demo_s_is_left_alone(tmp_path, tiny_model):
    other = tmp_path / "training" / "recipe.toml"
    other.parent.mkdir()
    other.write_text('name = "scenes-soft"\n')
    with pytest.raises(SatlibError, match=r"not made by satlib demo.*--out"):
        demo.run(tmp_path, TINY, **SIZES)
    assert other.read_text() == 'name = "scenes-soft"\n'


def test_a_missing_model_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    without(monkeypatch, "satlib_models")
    with pytest.raises(SatlibError, match="the model flickr8k-lite0-boxes is not installed; it is in the package"):
        demo.run(tmp_path / "out", TINY, **SIZES)
    assert not (tmp_path / "out").exists()


def without(monkeypatch, *packages):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else find(name))


def test_the_photographs_are_there():
    paths = demo.people() + demo.photographs()
    assert [path.name for path in paths[:2]] == ["camera.png", "grace_hopper.jpg"]
    assert {path.name for path in demo._FOLDER.iterdir()} == {*demo.PEOPLE, *demo.PHOTOGRAPHS}
    for path in paths:
        assert images.open_photo(path).mode == "RGB"
