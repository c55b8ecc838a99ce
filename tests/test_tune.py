"""The search: it finds what is known to be better, resumes after a stop, and writes down all that it tried."""

import json

import pytest
import tiny

from satlib import recipe
from satlib.errors import Diverged, SatlibError
from satlib.training import loop, tuning

SPACE = ["training.learning_rate=1e-5..3e-2", "decoder.gate=true,false"]


def search(path, trials, *changes, space=SPACE):
    chosen = tiny.the_recipe("training.select=nll", *changes)
    return tuning.tune(chosen, tiny.data(), tiny.Reader(), path, space, trials, progress=False)


def test_a_search(tmp_path):
    """Twelve trials: their history, the pruned ones, the best recipe; more trials continue, another search is refused."""
    history = search(tmp_path, 12)
    assert json.loads((tmp_path / "history.json").read_text()) == history
    for trial in history:
        log = tiny.log(tmp_path / trial["run"])
        assert trial["value"] == pytest.approx(max(-record["dev_nll"] for record in log))
        assert trial["state"] == ("finished" if len(log) == 3 else "stopped early")
    early = [trial["value"] for trial in history if trial["state"] == "stopped early"]
    assert early
    assert max(early) < max(trial["value"] for trial in history)
    best = max(
        (trial for trial in history if trial["state"] == "finished"),
        key=lambda trial: trial["value"],
    )
    chosen = recipe.load(str(tmp_path / "best.toml"))
    assert (
        chosen.training.learning_rate == best["values"]["training.learning_rate"] > 1e-3
    )  # small steps get nowhere
    assert chosen.decoder.gate == best["values"]["decoder.gate"]
    more = search(tmp_path, 13)
    assert more[:12] == history
    assert len(more) == 13
    with pytest.raises(SatlibError, match="another recipe or space"):
        search(tmp_path, 14, space=SPACE[:1])


def test_values_that_come_again_have_the_score_of_their_run(tmp_path):
    with pytest.raises(
        SatlibError, match=r"cannot vary 'decoder\.gat'"
    ):  # before anything is written
        search(tmp_path, 1, space=["decoder.gat=true,false"])
    for wrong in ("decoder.dropout=0.9..3", "decoder.dropout=0.3..0.1"):
        with pytest.raises(SatlibError, match=r"decoder\.dropout"):
            search(tmp_path, 1, space=[wrong])
    assert not list(tmp_path.iterdir())
    scores = {}
    for trial in search(tmp_path, 4, space=["decoder.gate=true,false"]):
        scores.setdefault(trial["run"], set()).add(trial["value"])
    assert len(scores) <= 2
    assert all(len(values) == 1 and None not in values for values in scores.values())


def test_an_interrupted_trial_is_resumed(tmp_path, monkeypatch):
    """Interrupted in its second epoch, the trial resumes from its checkpoint and ends as if nothing had happened."""
    whole, train = search(tmp_path / "whole", 1), loop.train

    def interrupted(*arguments, on_epoch, **more):
        def stop(record):
            on_epoch(record)
            raise loop.Interrupted("stopped")

        return train(*arguments, on_epoch=stop, **more)

    monkeypatch.setattr(loop, "train", interrupted)
    with pytest.raises(loop.Interrupted):
        search(tmp_path / "stopped", 1)
    monkeypatch.setattr(loop, "train", train)
    assert search(tmp_path / "stopped", 1) == whole


def test_a_trial_that_diverges_is_a_result(tmp_path, monkeypatch):
    def diverge(*arguments, **more):
        raise Diverged("the loss is nan at batch 1")

    monkeypatch.setattr(loop, "train", diverge)
    assert [trial["state"] for trial in search(tmp_path, 2)] == ["stopped early"] * 2
    assert not (tmp_path / "best.toml").exists()


def test_a_space_that_cannot_be_read(tmp_path):
    with pytest.raises(SatlibError, match="cannot read"):
        search(tmp_path, 1, space=["training.learning_rate=a..b"])


@pytest.mark.parametrize(
    "change", ["attention=soft", "attention=hard", "attention=none", "kind=transformer"]
)
def test_the_default_space_fits_the_recipe(tmp_path, change):
    """A trial of it trains: a whole number stays one, and no option is of another decoder."""
    chosen = tiny.the_recipe(f"decoder.{change}")
    space = tuning.default_space(chosen)
    assert len({text.partition("=")[0] for text in space}) == len(space)
    (trial,) = search(tmp_path, 1, f"decoder.{change}", space=space)
    assert trial["value"] < 0
