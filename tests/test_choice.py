"""What is decided on dev has the scores that `satlib evaluate` gives for the same values."""

import pytest
import tiny

from satlib.evaluation import evaluate
from satlib.model.captioner import Captioner
from satlib.training.validation import choose_decoding


def test_every_candidate_has_the_score_of_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")  # without Java, which takes a minute
    tiny.train(tmp_path, "training.epochs=4")
    captioner, data = Captioner.load(tmp_path), tiny.data()
    scores = choose_decoding(captioner, data, tiny.Reader(), (3, 1, 2), (1.0, 0.0))
    assert set(scores) == {(1, 0.0), (2, 0.0), (2, 1.0), (3, 0.0), (3, 1.0)}
    assert list(scores) == sorted(scores, key=lambda values: (-scores[values], values))
    assert len(set(scores.values())) > 1
    for (beam, exponent), score in scores.items():
        alone = evaluate.evaluate(captioner, data, tiny.Reader(), "dev", beam, exponent, progress=False)
        assert score == pytest.approx(alone["metrics"]["CIDEr"])
