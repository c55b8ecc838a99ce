"""Two processes started from a notebook train as one does."""

import json
import multiprocessing

import pytest

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
    arguments = (2, "own-folder", changes, store.folder, tmp_path / "two")
    starter = multiprocessing.get_context("spawn").Process(target=processes.train, args=arguments)
    starter.start()
    starter.join()
    logs = [(tmp_path / name / loop.LOG).read_text().splitlines() for name in ("one", "two")]
    (one,), (two,) = ([json.loads(line) for line in lines] for lines in logs)
    for name in ("train_nll", "dev_nll"):
        assert two[name] == pytest.approx(one[name], rel=1e-5)
