"""An interrupted run ends with the bits of one that was not.

Shipped recipes, with their own encoders and optimisers.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import tiny
import torch
from runs import differences

from satlib import recipe
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.evaluation import plots
from satlib.files import read_safetensors
from satlib.training import loop
from satlib.training.checkpoint import CHECKPOINT

SMALL = (
    "data.min_count=1",
    "decoder.embedding=16",
    "decoder.hidden=16",
    "decoder.attention_hidden=8",
    "training.batch_size=4",
    "training.epochs=2",
    "decoding.max_length=8",
)
SCENES_ENCODER = (
    "encoder.name=small",
    "encoder.pretrained=false",
    "encoder.train=true",
    "encoder.scale=1",
)
CASES = {
    "soft": ("scenes-soft",),
    "hard": ("scenes-hard",),
    "fp16": ("scenes-soft", "training.precision=fp16", "training.average=0.9"),
    "RMSProp": ("flickr8k-paper-soft", *SCENES_ENCODER),
    "tuned by its recipe": ("flickr8k-lite0-tuned",),
    "frozen": ("flickr8k-lite0-soft",),
    "soft rewards": ("flickr8k-lite0-reward", *SCENES_ENCODER),
    "hard rewards": ("flickr8k-lite0-reward", "decoder.attention=hard", *SCENES_ENCODER),
}


@pytest.fixture(autouse=True, scope="module")
def _no_drawing():
    # Curves take longer to draw than these runs to train.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))
        yield


@pytest.fixture(scope="module")
def data():
    """Three scenes to train on, one to judge by."""
    return scenes.load(3, 1, 0)


def train(case, data, folder, **more):
    name, *changes = case
    loaded = recipe.load(name, ["data.name=scenes", *SMALL, *changes])
    return loop.train(loaded, data, Pixels(data), folder, progress=False, **more)


@pytest.mark.parametrize("name", CASES)
def test_stopped_in_each_epoch_and_resumed_is_the_run_that_was_not(
    name, data, tmp_path, monkeypatch
):
    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    more = {}
    if "rewards" in name:
        # Training on rewards begins with a model that already captions.
        attention, _ = name.split()
        more["start"] = tmp_path / "start"
        train((f"scenes-{attention}", "training.epochs=1"), data, more["start"])
    train(CASES[name], data, whole, **more)

    # After the first batch of each epoch.
    moments = [(0, 1), (1, 1)]
    left = [*moments]
    update = loop.Trainer.update

    def watched(session, *arguments):
        update(session, *arguments)
        progress = session.state.progress
        moment = (progress.epoch, progress.batch)
        # Each only once: a resumed run comes past it again.
        if moment in left:
            left.remove(moment)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "update", watched)
    for epoch, batch in moments:
        with pytest.raises(loop.Interrupted):
            train(CASES[name], data, stopped, **more)
        header, _ = read_safetensors(stopped / CHECKPOINT)
        assert header["progress"]["epoch"] == epoch
        assert header["progress"]["batch"] == batch
        # Another process has other random numbers.
        torch.manual_seed(7)
    train(CASES[name], data, stopped, **more)
    assert differences(whole, stopped) == []


def test_the_command_interrupted_by_signals(tmp_path):
    """`satlib train` is stopped by SIGKILL, SIGINT and SIGTERM, and resumed until it ends."""
    tiny.save(scenes.load(4, 4, 0), tmp_path / "scenes")
    command = [sys.executable, "-m", "satlib", "train", "scenes-soft", "--quiet"]
    command += ["--device", "cpu", "--checkpoint-every", "0.1"]
    for change in (*SMALL, "data.train_images=0", f"data.name={tmp_path / 'scenes'}"):
        command += ["--set", change]

    def begun(name):
        words = [*command, "--out", str(tmp_path / name)]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    start = time.monotonic()
    with begun("whole") as process:
        assert process.wait() == 0, process.stderr.read()
    seconds = time.monotonic() - start

    # Between half and nine tenths of that time a training has begun and is not over.
    chance = random.Random(0)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        with begun("stopped") as process:
            time.sleep(seconds * chance.uniform(0.5, 0.9))
            process.send_signal(number)
            _, message = process.communicate()
        # A late signal has no effect; an early one may meet a module that exec() makes, and then
        # Python ends itself by SIGINT.
        assert process.returncode in (0, 130, -number, -signal.SIGINT), message

    with begun("stopped") as process:
        assert process.wait() == 0, process.stderr.read()
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []
