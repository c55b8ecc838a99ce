"""The search: it finds what is known to be better, goes on after a stop, and writes down all that it did."""

import json
import math

import pytest
import tiny

from satlib import recipe
from satlib.errors import Diverged, SatlibError
from satlib.training import loop, tuning

SPACE = [tuning.Knob.read("training.learning_rate=1e-5..3e-2"), tuning.Knob.read("decoder.energy=additive,general")]


def search(path, trials, *changes, space=SPACE):
    chosen = tiny.the_recipe("training.select=nll", *changes)
    return tuning.tune(chosen, tiny.data(), tiny.Reader(), path, space, trials, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    search(folder, 12)
    return folder


class TestSearch:
    def test_history_says_what_was_tried_and_what_it_was_worth(self, folder):
        history = json.loads((folder / "history.json").read_text())
        assert len(history) == 12
        for trial in history:
            assert set(trial["values"]) == {"training.learning_rate", "decoder.energy"}
            assert 1e-5 <= trial["values"]["training.learning_rate"] <= 3e-2
            log = tiny.log(folder / trial["run"])
            assert len(log) == trial["epochs"]
            assert trial["value"] == pytest.approx(max(-record["dev_nll"] for record in log))
            assert trial["state"] == ("finished" if len(log) == 3 else "stopped early")

    def test_trials_that_fall_behind_are_stopped_early(self, folder):
        history = json.loads((folder / "history.json").read_text())
        early = [trial for trial in history if trial["state"] == "stopped early"]
        assert early
        assert max(trial["value"] for trial in early) < max(trial["value"] for trial in history)

    def test_best_is_the_best_finished(self, folder):
        history = json.loads((folder / "history.json").read_text())
        best = max((t for t in history if t["state"] == "finished"), key=lambda t: t["value"])
        found = recipe.load(str(folder / "best.toml"))
        assert found.training.learning_rate == best["values"]["training.learning_rate"]
        assert found.decoder.energy == best["values"]["decoder.energy"]
        assert found.training.learning_rate > 1e-3  # three short epochs: small steps get nowhere

    def test_again_is_done_and_more_goes_on(self, folder):
        before = json.loads((folder / "history.json").read_text())
        assert search(folder, 12) == before
        more = search(folder, 14)
        assert more[:12] == before
        assert len(more) == 14

    def test_another_space_is_refused(self, folder):
        with pytest.raises(SatlibError, match="another space"):
            search(folder, 13, space=SPACE[:1])
        with pytest.raises(SatlibError, match="another recipe"):
            search(folder, 13, "decoder.hidden=17")


def test_a_stopped_trial_is_what_the_next_call_begins_with(tmp_path, monkeypatch):
    """Stopped in its second epoch, the trial's run goes on from its checkpoint and ends as if nothing had happened."""
    whole = search(tmp_path / "whole", 2)
    true_train = loop.train

    def stopped(varied, data, reader, run, *rest, on_epoch, **more):
        def stop(record):
            on_epoch(record)
            if record["epoch"] == 1:
                raise loop.Interrupted("stopped")

        return true_train(varied, data, reader, run, *rest, on_epoch=stop, **more)

    monkeypatch.setattr(loop, "train", stopped)
    with pytest.raises(loop.Interrupted):
        search(tmp_path / "stopped", 2)
    monkeypatch.setattr(loop, "train", true_train)
    (begun,) = [path for path in (tmp_path / "stopped").iterdir() if path.is_dir()]
    resumed = search(tmp_path / "stopped", 2)
    assert (resumed[0]["run"], resumed[0]["value"]) == (begun.name, whole[0]["value"])
    assert resumed[0]["values"] == whole[0]["values"]


def test_a_choice_that_diverges_is_an_answer(tmp_path, monkeypatch):
    def diverge(*arguments, **more):
        raise Diverged("the loss is nan at batch 1")

    monkeypatch.setattr(loop, "train", diverge)
    assert [trial["state"] for trial in search(tmp_path, 2)] == ["stopped early"] * 2
    assert not (tmp_path / "best.toml").exists()


def test_knobs():
    for text, knob in (
        ("training.learning_rate=1e-4..1e-2", tuning.Knob("training.learning_rate", 1e-4, 1e-2)),
        ("decoder.hidden=256..1024", tuning.Knob("decoder.hidden", 256, 1024, whole=True)),
        ("decoder.energy=additive,dot", tuning.Knob("decoder.energy", choices=("additive", "dot"))),
        ("decoder.gate=true,false", tuning.Knob("decoder.gate", choices=(True, False))),
    ):
        assert tuning.Knob.read(text) == knob
    # A wide range is searched on a logarithmic scale.
    assert tuning.Knob.read("training.learning_rate=1e-4..1e-2").log
    assert not tuning.Knob.read("decoder.dropout=0.3..0.6").log
    assert not tuning.Knob.read("objective.label_smoothing=0..0.15").log


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training.learning_rate=1e-3", "write section.key=low"),
        ("training.learning_rate=a..b", "write section.key=low"),
        ("training.rate=1..2", "has no value 'training.rate'"),
    ],
)
def test_what_cannot_vary(text, message):
    with pytest.raises(SatlibError, match=message):
        tuning.Knob.read(text)


def test_the_default_space_fits_the_recipe():
    both = {"training.learning_rate", "objective.label_smoothing", "decoder.dropout"}
    for change, own in (
        ("decoder.attention=soft", {"decoder.attention_hidden", "objective.doubly_stochastic"}),
        ("decoder.attention=hard", {"decoder.attention_hidden", "hard.lambda_r", "hard.lambda_e"}),
        ("decoder.attention=none", set()),
        ("decoder.kind=transformer", {"decoder.layers", "objective.doubly_stochastic"}),
    ):
        space = tuning.default_space(tiny.the_recipe(change))
        assert {knob.name for knob in space} == both | own
        assert len(space) == len(both | own)
        assert all(math.isfinite(knob.high) for knob in space)
