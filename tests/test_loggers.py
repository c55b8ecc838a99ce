"""A run's log for TensorBoard, read back by TensorBoard itself, and for trackio, from its database; a stand-in where trackio is not."""

import json
import sqlite3
import sys
import types

import pytest
import tiny

from satlib import recipe
from satlib.errors import SatlibError
from satlib.training import loggers, loop

RECORD = {"event": "epoch", "epoch": 1, "kept": True, "train_nll": 2.5, "dev_bleu4": 12.5, "learning_rate": 0.1}
FIGURES = {"kept": 1.0, "train/nll": 2.5, "dev/bleu4": 12.5, "learning_rate": 0.1}


def logged(record):
    """What the log of an epoch has to hold, by the names that the two libraries show."""
    return {
        name.replace("train_", "train/").replace("dev_", "dev/"): float(value)
        for name, value in record.items()
        if name not in ("event", "epoch")
    }


def test_the_figures_of_an_epoch():
    assert loggers.figures(RECORD) == FIGURES


def test_tensorboard_reads_every_epoch_of_a_run_that_was_resumed(tmp_path):
    """After one epoch, with a log that was lost, and after the last: each epoch once, as log.jsonl has it."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tiny.train(tmp_path, "training.epochs=1", "training.logger=none")
    tiny.train(tmp_path, "training.epochs=2", "training.logger=tensorboard")
    tiny.train(tmp_path, "training.epochs=3", "training.logger=tensorboard")
    records = [json.loads(line) for line in (tmp_path / loop.LOG).read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == set(logged(records[0]))
    for name in found.Tags()["scalars"]:
        events = [(event.step, event.value) for event in found.Scalars(name)]
        assert events == [(record["epoch"], pytest.approx(logged(record)[name], rel=1e-6)) for record in records]


def test_trackio_has_every_epoch_in_its_database(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    for epochs in (1, 2):
        tiny.train(tmp_path / "my run", f"training.epochs={epochs}", "training.logger=trackio")
    records = [json.loads(line) for line in (tmp_path / "my run" / loop.LOG).read_text().splitlines()]
    with sqlite3.connect(tmp_path / "trackio" / "satlib.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert [(run, step) for run, step, _ in rows] == [("my run", 1), ("my run", 2)]
    for (*_, metrics), record in zip(rows, records, strict=True):
        assert json.loads(metrics).items() >= logged(record).items()


def test_trackio_is_called_as_it_says(tmp_path, monkeypatch):
    calls = []
    stand_in = types.SimpleNamespace(
        init=lambda project, name, **more: calls.append((project, name, more["resume"], more["config"]["name"])),
        log=lambda metrics, step: calls.append((metrics, step)),
        finish=lambda: calls.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "trackio", stand_in)
    used = recipe.load("scenes-soft", ["training.logger=trackio"])
    with loggers.opened(used, tmp_path / "run", [RECORD]) as log:
        log({**RECORD, "epoch": 2})
    assert calls == [("satlib", "run", "allow", "scenes-soft"), (FIGURES, 2), "finished"]
    with loggers.opened(used, tmp_path / "run", [], first=False) as log:
        log(RECORD)
    assert len(calls) == 3


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])
def test_what_is_not_installed_is_named_before_training(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    with pytest.raises(SatlibError, match=f'training.logger = "{name}" needs {name}; run: pip install {name}'):
        tiny.train(tmp_path / "run", f"training.logger={name}")
    assert not (tmp_path / "run").exists()
