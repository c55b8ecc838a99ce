"""Files that an older satlib wrote: models load, runs resume, and evaluations are read, in today's words."""

import json

import pytest
import tiny

from satlib.errors import SatlibError
from satlib.evaluation import plots, table
from satlib.model import encoders, origins
from satlib.model.captioner import Captioner, read_safetensors, write_safetensors
from satlib.training import loop

EARLIER = ["taught by a", "begun from b", "mixed with 0.3 of c", "mixed with 0.5 of another d"]
NOW = ("distilled from a", "begun from b", "weights averaged with 0.3 of c", "weights averaged with 0.5 of another d")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
    monkeypatch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))


def train(run, *changes):
    return loop.train(tiny.the_recipe(*changes), tiny.data(), tiny.Reader(), run, progress=False)


def as_before(path, **hard):
    """Rewrite a file's header as satlib wrote it before options were renamed and removed."""
    header, tensors = read_safetensors(path)
    made = header["recipe"]
    made["objective"]["teaching"] = made["objective"].pop("distillation")
    made["hard"] |= {"estimator": "score-function", "temperature": 1.0, "official": False} | hard
    del made["training"]["loop"]
    header["origins"] = EARLIER
    write_safetensors(path, tensors, header)


@pytest.mark.parametrize("hard", [{}, {"estimator": "gumbel", "temperature": 0.5}])
def test_a_model_loads(tmp_path, hard):
    train(tmp_path, "training.epochs=1", "objective.distillation=0.3", "decoder.attention=hard")
    as_before(tmp_path / loop.MODEL, **hard)
    loaded = Captioner.load(tmp_path)
    assert loaded.recipe == tiny.the_recipe("training.epochs=1", "objective.distillation=0.3", "decoder.attention=hard")
    assert loaded.origins == NOW


def test_a_run_is_resumed(tmp_path):
    train(tmp_path, "training.epochs=1", "objective.distillation=0.3")
    as_before(tmp_path / loop.CHECKPOINT)
    with pytest.raises(SatlibError, match=r"another objective\.distillation"):
        train(tmp_path, "training.epochs=2")
    train(tmp_path, "training.epochs=2", "objective.distillation=0.3")
    assert read_safetensors(tmp_path / loop.CHECKPOINT)[0]["origins"] == list(NOW)


def test_a_run_with_an_option_that_is_gone_is_not_resumed(tmp_path):
    train(tmp_path, "training.epochs=1", "decoder.attention=hard")
    as_before(tmp_path / loop.CHECKPOINT, estimator="gumbel")
    with pytest.raises(SatlibError, match=r'was started with hard\.estimator = "gumbel", which recipes no longer have'):
        train(tmp_path, "training.epochs=2", "decoder.attention=hard")


def test_an_evaluation_is_read(tmp_path):
    evaluation = {
        "recipe": "r", "data": "flickr8k", "split": "test", "encoder": "vgg19", "attention": "soft", "beam": 5,
        "protocol": "p", "metrics": {"BLEU-4": 20.0}, "origins": EARLIER,
    }  # fmt: skip
    (tmp_path / "evaluation-test.json").write_text(json.dumps(evaluation))
    (row,) = (row for row in table.rows([tmp_path / "evaluation-test.json"]) if row.ours)
    said = "soft, distilled from a, weights of 2 such models averaged, weights averaged with 0.3 of c, beam 5"
    assert said in row.model


def test_words_of_today_are_left_alone():
    assert origins.current(NOW) == NOW
