"""The demo from end to end at a tiny size: what it prints and writes, and what it leaves alone."""

import json
import re

from satcourse import demo
from satlib import recipe
from satlib.data.text import Vocabulary
from satlib.model import encoders, shipped
from satlib.model.captioner import Captioner

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


def test_the_demo_shows_everything_and_starts_over(tmp_path, monkeypatch, capsys):
    # In place of the trained model: one with random weights and few words.
    chosen = recipe.load("flickr8k-lite0-soft", [change for change in TINY if change.startswith("deco")])
    captioner = Captioner(chosen, Vocabulary(["a", "dog"]), encoders.create("efficientnet-lite0"))
    captioner.save(tmp_path / "tiny.safetensors")
    monkeypatch.setattr(shipped, "model", lambda name=None: tmp_path / "tiny.safetensors")
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java: METEOR costs seconds, and is not needed
    monkeypatch.setattr(demo, "PHOTOGRAPHS", {"dog.jpg": "a dog leaps"})
    out = tmp_path / "shown"
    printed, pictures = [], []
    for _ in range(2):
        demo.run(out, TINY, **SIZES)
        printed.append(re.sub(r"^\[ *\d+ s\]", "", capsys.readouterr().out, flags=re.MULTILINE))
        pictures.append({path.name: path.read_bytes() for path in out.glob("*.png")})
    assert printed[0] == printed[1]
    assert pictures[0] == pictures[1]
    assert set(pictures[0]) == {"scene-1.png", "scene-2.png", "scene-3.png", "photo-dog.png"}
    evaluation = json.loads((out / "training" / "evaluation-test.json").read_text())
    assert re.search(rf"exact match +{evaluation['metrics']['exact match']:.1f} %", printed[0])


def test_another_run_is_left_alone(tmp_path):
    file = tmp_path / "recipe.toml"
    for name in ("scenes-soft", demo.NAME):
        file.write_text(f'name = "{name}"\n')
        demo.forget(tmp_path)
        assert file.exists() == (name != demo.NAME)
