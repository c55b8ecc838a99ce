"""Two processes started from this one train as one does."""

import json

import pytest

from satlib import datasets, encoders, features, recipe, training
from satlib.course import processes
from satlib.datasets import folder, scenes

CHANGES = (
    "data.min_count=1", "decoder.embedding=8", "decoder.hidden=8", "decoder.attention_hidden=4", "decoder.dropout=0.0",
    "training.batch_size=5", "training.average=0.0", "training.epochs=1", "decoding.max_length=4",
)  # fmt: skip


def test_two_processes(tmp_path):
    folder.save(scenes.load(4, 1, 0), tmp_path / "few")
    changes = (f"data.name={tmp_path / 'few'}", *CHANGES)
    data = datasets.load(str(tmp_path / "few"))
    store = features.extract(data, encoders.create("efficientnet-lite0"), tmp_path / "store", progress=False)
    training.train(recipe.load("own-folder", changes), data, store, tmp_path / "one", progress=False)
    processes.train(2, "own-folder", changes, store.folder, tmp_path / "two")
    (one,), (two,) = (
        [json.loads(line) for line in (tmp_path / name / training.LOG).read_text().splitlines()]
        for name in ("one", "two")
    )
    assert two["train_nll"] == pytest.approx(one["train_nll"], rel=1e-5)
    assert two["dev_nll"] == pytest.approx(one["dev_nll"], rel=1e-5)


def test_a_mistake_comes_out(tmp_path):
    with pytest.raises(Exception, match="nowhere"):
        processes.train(2, "own-folder", (f"data.name={tmp_path / 'nowhere'}",), tmp_path, tmp_path / "run")
