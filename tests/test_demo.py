"""The demo from end to end at a tiny size: what it prints and writes, and what it leaves alone."""

import json
import re

from satcourse import demo
from satlib import recipe
from satlib.data.text import Vocabulary
from satlib.model import encoders, installed
from satlib.model.captioner import Captioner

TINY = (
    "data.train_images=32",
    "training.epoch_images=16",
    "training.epochs=2",
    "decoder.embedding=8",
    "decoder.hidden=8",
    "decoder.attention_hidden=8",
    "decoding.max_length=3",
)


def test_the_demo_shows_everything_and_starts_over(tmp_path, monkeypatch, capsys):
    # In place of the captioner for photographs: one with random weights and few words.
    chosen = recipe.load(
        "flickr8k-lite0-soft", [change for change in TINY if change.startswith("deco")]
    )
    captioner = Captioner(chosen, Vocabulary(["a", "dog"]), encoders.create("efficientnet-lite0"))
    captioner.save(tmp_path / "tiny.safetensors")
    scene_model = installed.model("scenes-soft")
    monkeypatch.setattr(
        installed, "model", lambda name=None: scene_model if name else tmp_path / "tiny.safetensors"
    )
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java: METEOR costs seconds, and is not needed
    monkeypatch.setattr(demo, "PHOTOGRAPHS", {"dog.jpg": "a dog leaps"})
    opened = []
    monkeypatch.setattr(demo.webbrowser, "open", opened.append)
    out = tmp_path / "shown"
    printed, pictures = [], []
    for _ in range(2):
        demo.run(out, TINY, dev=2, test=3)
        printed.append(re.sub(r"^\[ *\d+ s\]", "", capsys.readouterr().out, flags=re.MULTILINE))
        pictures.append({path.name: path.read_bytes() for path in out.iterdir() if path.is_file()})
    assert printed[0] == printed[1]
    assert pictures[0] == pictures[1]
    assert set(pictures[0]) == {"everywhere.png", "birth.webp", "photo-dog.png"}
    assert opened == [(out / "everywhere.png").as_uri()] * 2
    assert re.findall(r"^ +(\d+)  \w", printed[0], re.M) == ["1", "2"], "a caption after each step"
    evaluation = json.loads((out / "training" / "evaluation-test.json").read_text())
    assert f" {evaluation['metrics']['exact match']:.0f} % are described right" in printed[0]
    assert "a dog leaps" in printed[0]


def test_another_run_is_left_alone(tmp_path):
    file = tmp_path / "recipe.toml"
    for name in ("scenes-soft", demo.NAME):
        file.write_text(f'name = "{name}"\n')
        demo.forget(tmp_path)
        assert file.exists() == (name != demo.NAME)
