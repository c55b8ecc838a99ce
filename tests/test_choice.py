"""What is decided on dev: by one rule, and with the scores that `satlib evaluate` gives for the same values."""

import json

import pytest
import tiny

from satlib.evaluation import evaluate
from satlib.model.captioner import Captioner
from satlib.training import choice

BEAMS, EXPONENTS = (3, 1, 2), (1.0, 0.0, 0.6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    tiny.train(folder, "training.epochs=4")
    return folder


def candidate(cider, **values):
    return choice.Candidate(values, {"CIDEr": cider}, {})


def test_the_rule_by_hand():
    """The greatest CIDEr; of equal ones the smaller beam, then the smaller exponent, in whatever order they were tried."""
    tried = [
        candidate(50.0, beam=5, length_normalisation=0.0),
        candidate(53.4, beam=4, length_normalisation=1.0),
        candidate(53.4, beam=3, length_normalisation=1.2),
        candidate(53.4, beam=3, length_normalisation=0.7),
        candidate(53.3, beam=1, length_normalisation=0.0),
    ]
    for order in (tried, tried[::-1]):
        assert choice.Choice(order).best.values == {"beam": 3, "length_normalisation": 0.7}


def test_every_candidate_has_the_scores_of_an_evaluation(run, monkeypatch):
    """One pass for all exponents of a beam gives what one evaluation for each gives; without Java, which takes a minute."""
    monkeypatch.setenv("PATH", "")
    captioner, data = Captioner.load(run), tiny.data()
    made = choice.choose_decoding(captioner, data, tiny.Reader(), BEAMS, EXPONENTS, progress=False)
    tried = made.record()["tried"]
    values = [(each["beam"], each["length_normalisation"]) for each in tried]
    assert values == [(1, 0.0), *((beam, x) for beam in (2, 3) for x in (0.0, 0.6, 1.0))]
    for (beam, exponent), record in zip(values, tried, strict=True):
        alone = evaluate.evaluate(captioner, data, tiny.Reader(), "dev", beam, exponent, progress=False)
        assert record["CIDEr"] == pytest.approx(alone["metrics"]["CIDEr"], abs=1e-4)
        assert record["BLEU-4"] == pytest.approx(alone["metrics"]["BLEU-4 (no brevity penalty)"], abs=1e-4)
    assert len({record["CIDEr"] for record in tried}) > 1
    assert made.best.scores["CIDEr"] == pytest.approx(max(record["CIDEr"] for record in tried), abs=1e-4)


def test_a_later_decision_keeps_the_earlier_one(run, tmp_path):
    captioner, data = Captioner.load(run), tiny.data()
    (tmp_path / "log.jsonl").write_text((run / "log.jsonl").read_text())
    shares = choice.choose_share(captioner, captioner, data, tiny.Reader(), (1.0, 0.5), progress=False)
    choice.write_record("average", shares, data, tmp_path)
    made = choice.choose_decoding(captioner, data, tiny.Reader(), (2,), (0.0, 1.0), progress=False)
    choice.write_decoding(made, captioner, data, tmp_path)
    (evaluation,) = tmp_path.glob("evaluation-*.json")
    assert evaluation.name == "evaluation-dev.json"
    assert json.loads(evaluation.read_text())["split"] == "dev"
    written = json.loads((tmp_path / "choice.json").read_text())
    assert written["average"]["chosen"]["share"] == 0.5
    assert [each["length_normalisation"] for each in written["decoding"]["tried"]] == [0, 1]
    assert (written["rule"], written["data"], written["split"], written["images"]) == (choice.RULE, "tiny", "dev", 6)
    log = tiny.log(run)
    best = max(log, key=lambda record: record["dev_bleu4"])  # the first of the best
    assert written["epoch"]["chosen"] == best["epoch"]
    assert written["epoch"]["dev_bleu4"] == best["dev_bleu4"]
