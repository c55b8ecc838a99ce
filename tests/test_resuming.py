"""A run that was interrupted ends with the bits of the run that was not: shipped recipes, their own encoders and optimisers."""

import contextlib
import os
import signal

import pytest
import torch
from tools_path import kills

from satlib import datasets, plots, recipe, training
from satlib.captioner import Captioner, read_safetensors
from satlib.datasets import scenes, shards
from satlib.features import Pixels
from satlib.streaming import Pictures

SMALL = (
    "data.name=scenes", "data.min_count=1", "decoder.embedding=16", "decoder.hidden=16", "decoder.attention_hidden=8",
    "training.batch_size=4", "training.epochs=2", "decoding.max_length=8",
)  # fmt: skip
SCENES_ENCODER = ("encoder.name=small", "encoder.pretrained=false", "encoder.train=true", "encoder.scale=1")
CASES = {
    "soft": ("scenes-soft",),
    "hard": ("scenes-hard",),
    "none": ("scenes-none",),
    "averaged": ("scenes-soft", "training.average=0.9"),
    "RMSProp": ("flickr8k-soft-rmsprop", *SCENES_ENCODER),
    "fine-tuned": ("flickr8k-lite0-soft", "encoder.train=true"),
    "frozen": ("flickr8k-lite0-soft",),
    "soft rewards": ("flickr8k-soft-reward", *SCENES_ENCODER),
    "hard rewards": ("flickr8k-hard-reward", *SCENES_ENCODER),
    "taught": ("scenes-hard",),
    "streamed": ("scenes-soft", "data.train_images=0", "data.buffer=6"),
}


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch):
    monkeypatch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Five scenes to train on, two to judge by; as drawn, and in shards."""
    drawn = scenes.load(5, 2, 0)
    folder = tmp_path_factory.mktemp("shards")
    shards.write(drawn, folder, ["train", "dev"], images_per_shard=2, progress=False)
    return drawn, datasets.load(str(folder))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Models to begin with or to learn from, by attention."""
    made = {}
    for attention in ("soft", "hard"):
        made[attention] = tmp_path_factory.mktemp(attention)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))
            train((f"scenes-{attention}", "training.epochs=1"), data, made[attention])
    return made


def train(case, data, folder, **more):
    name, *changes = case
    chosen = recipe.load(name, [*SMALL, *changes])
    streamed = any(change.startswith("data.buffer") for change in changes)
    reader = Pictures() if streamed else Pixels(data[0])
    return training.train(chosen, data[streamed], reader, folder, progress=False, **more)


@contextlib.contextmanager
def stopped(epoch, batch):
    """A request to stop when so many epochs, and so many batches of the next, are done."""
    update = training._Session._update

    def watched(session, *arguments):
        update(session, *arguments)
        if (session.progress.epoch, session.progress.batch) == (epoch, batch):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Session, "_update", watched)
        yield


@pytest.mark.parametrize("name", CASES)
def test_stopped_in_each_epoch_and_resumed_is_the_run_that_was_not(name, data, trained, tmp_path):
    more = {}
    if "rewards" in name:
        more["start"] = trained[name.split()[0]]
    if name == "taught":
        more["teachers"] = [(Captioner.load(trained["soft"]), Pixels(data[0]))]
    train(CASES[name], data, tmp_path / "whole", **more)
    for moment in ((0, 1), (1, 1)):
        with stopped(*moment), pytest.raises(training.Interrupted):
            train(CASES[name], data, tmp_path / "stopped", **more)
        progress = read_safetensors(tmp_path / "stopped" / training.CHECKPOINT)[0]["progress"]
        assert (progress["epoch"], progress["batch"]) == moment
        torch.manual_seed(7)  # another process has other random numbers
    train(CASES[name], data, tmp_path / "stopped", **more)
    assert kills.differences(tmp_path / "whole", tmp_path / "stopped") == []
