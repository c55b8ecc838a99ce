"""Two processes started from this one train as one does."""

import json
import multiprocessing

import pytest
import torch

from satcourse.lessons import patches, processes
from satlib import recipe
from satlib.data import datasets, folder, scenes
from satlib.model import encoders
from satlib.training import loop
from satlib.training.features import extract

CHANGES = (
    f"encoder.name={patches.NAME}",
    "data.min_count=1", "decoder.embedding=8", "decoder.hidden=8", "decoder.attention_hidden=4", "decoder.dropout=0.0",
    "training.batch_size=5", "training.average=0.0", "training.epochs=1", "decoding.max_length=4",
)  # fmt: skip


@pytest.mark.slow
def test_two_processes(tmp_path):
    folder.save(scenes.load(4, 1, 0), tmp_path / "few")
    changes = (f"data.name={tmp_path / 'few'}", *CHANGES)
    data = datasets.load(str(tmp_path / "few"))
    store = extract(data, encoders.create(patches.NAME), tmp_path / "store", progress=False)
    loop.train(recipe.load("own-folder", changes), data, store, tmp_path / "one", progress=False)
    # From a process of its own, as from a notebook: threads that other tests have left in this one do not survive a fork.
    starter = multiprocessing.get_context("spawn").Process(
        target=processes.train, args=(2, "own-folder", changes, store.folder, tmp_path / "two")
    )
    starter.start()
    starter.join()
    assert starter.exitcode == 0
    (one,), (two,) = (
        [json.loads(line) for line in (tmp_path / name / loop.LOG).read_text().splitlines()] for name in ("one", "two")
    )
    assert two["train_nll"] == pytest.approx(one["train_nll"], rel=1e-5)
    assert two["dev_nll"] == pytest.approx(one["dev_nll"], rel=1e-5)


def test_a_mistake_comes_out(tmp_path):
    with pytest.raises(Exception, match="nowhere"):
        processes.train(2, "own-folder", (f"data.name={tmp_path / 'nowhere'}",), tmp_path, tmp_path / "run")


def test_a_place_is_its_own_pixels():
    image = torch.zeros(1, 3, 224, 224)
    image[:, :, 64:96, 160:192] = 255.0  # row 2, column 5 of 7 x 7 places of 32 pixels
    a = encoders.create(patches.NAME)(image)
    assert a.shape == (1, 49, 48)
    bright = a[0].sum(1)
    assert bright.argmax() == 2 * 7 + 5
    assert bright.unique().numel() == 2
