"""The demo from end to end at a tiny size: what it prints and writes, and what it leaves alone."""

import itertools
import re

from PIL import Image

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
    changes = [change for change in TINY if change.startswith("deco")]
    chosen = recipe.load("flickr8k-lite0-soft", changes)
    encoder = encoders.create("efficientnet-lite0")
    small = tmp_path / "tiny.safetensors"
    Captioner(chosen, Vocabulary(["a", "dog"]), encoder).save(small)
    scene_model = installed.model("scenes-soft")
    monkeypatch.setattr(installed, "model", lambda name=None: scene_model if name else small)
    monkeypatch.setattr(demo, "PHOTOGRAPHS", {"dog.jpg": "a dog leaps"})
    # So little training makes no caption right.
    verdicts = itertools.cycle([True, False, True])
    monkeypatch.setattr(demo.scenes, "exact_match", lambda text, scene: next(verdicts))
    opened = []
    monkeypatch.setattr(demo.webbrowser, "open", opened.append)

    # A minute between any two readings of the processor's clock.
    clock = itertools.count(step=60)
    monkeypatch.setattr(demo.time, "process_time", lambda: next(clock))

    # Twice, so that the second finds what the first one left.
    out = tmp_path / "shown"
    printed = []
    pictures = []
    for _ in range(2):
        demo.run(out, TINY, dev=2, test=3)
        lines = capsys.readouterr().out
        printed.append(re.sub(r"^\[ *\d+ s\]", "", lines, flags=re.MULTILINE))
        pictures.append({path.name: path.read_bytes() for path in out.iterdir() if path.is_file()})

    assert printed[0] == printed[1]
    assert pictures[0] == pictures[1]
    assert set(pictures[0]) == {"everywhere.png", "birth.webp", "photo-dog.png"}
    with Image.open(out / "birth.webp") as film:
        assert (film.n_frames, film.info["loop"]) == (2, 3)
    assert opened == [(out / "everywhere.png").as_uri()] * 2

    # Two epochs of 16 images, each a single batch.
    assert re.findall(r"^ +(\d+)  \w", printed[0], re.M) == ["1", "2"], "a caption after each step"
    told = " 67 % are described right in every detail: 2 exact captions per processor minute."
    assert told in printed[0], "two of three"
    assert "a dog leaps" in printed[0]


def test_another_run_is_left_alone(tmp_path):
    file = tmp_path / "recipe.toml"
    for name in ("scenes-soft", demo.NAME):
        # Whose run a folder is, its recipe's name says.
        file.write_text(f'name = "{name}"\n')
        demo.forget(tmp_path)
        assert file.exists() == (name != demo.NAME)
