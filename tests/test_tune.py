"""The search for hyperparameters in docs/scripts.md, with tiny trainings."""

import re
from pathlib import Path

import optuna
import tiny

from satlib import recipe

DOCS = Path(__file__).parent.parent / "docs"


def test_the_script_keeps_the_best_of_its_trials(tmp_path, monkeypatch):
    """Each trial is a run with values of its own; its score is the best of its log."""
    monkeypatch.chdir(tmp_path)
    tiny.save(tiny.data(), tmp_path / "own")
    chosen = tiny.the_recipe("data.name=own", "training.select=nll", "training.epochs=2")
    Path("own.toml").write_text(chosen.to_toml(), encoding="utf-8")

    text = (DOCS / "scripts.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```python\n([^`]+optuna[^`]+)```$", text, re.MULTILINE)
    lines = lines.replace('"scenes-soft"', '"own.toml"').replace("n_trials=20", "n_trials=2")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = {}
    exec(lines, names)

    trials = names["study"].trials
    assert len(trials) == 2
    for number, trial in enumerate(trials):
        run = tmp_path / "tune" / f"trial-{number}"
        assert trial.value == max(-record["dev_nll"] for record in tiny.log(run))
        varied = recipe.load(str(run / "recipe.toml"))
        assert varied.training.learning_rate == trial.params["training.learning_rate"]
        assert varied.objective.doubly_stochastic == trial.params["objective.doubly_stochastic"]
    assert names["study"].best_value == max(trial.value for trial in trials)
