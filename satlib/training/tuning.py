"""Hyperparameter search with Optuna (section 4.3 mentions one): each trial is a training run.

A trial is scored on the dev split. A search is a folder: `journal.log` (Optuna's own record, read
when the search resumes), a run for each trial, `history.json`, and `best.toml`, the best recipe so
far. Trials that fall behind the median, whose loss diverges, or whose values do not go together,
are pruned; `history.json` calls all three "stopped early". The same command resumes an interrupted
search, beginning with the interrupted trial.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from satlib import recipe
from satlib.data.caption_set import CaptionSet
from satlib.data.features import Reader
from satlib.errors import Diverged, SatlibError
from satlib.files import say, write_json, write_text
from satlib.recipe import Recipe
from satlib.training import loop
from satlib.training.validation import dev_score

if TYPE_CHECKING:
    import optuna

# The default search space: of every recipe, of its kind of decoder, of its attention.
SPACE = {
    "": ["training.learning_rate=1e-4..2e-3"],
    "lstm": ["decoder.dropout=0.3..0.6"],
    "transformer": ["decoder.dropout=0.1..0.5", "decoder.layers=1..4"],
    "soft": ["objective.doubly_stochastic=1e-3..1"],
    "hard": ["hard.lambda_r=1e-3..1", "hard.lambda_e=1e-4..1e-1"],
    "none": [],
}


def default_space(chosen: Recipe) -> list[str]:
    """The default search space for a recipe."""
    return SPACE[""] + SPACE[chosen.decoder.kind] + SPACE[chosen.decoder.attention]


def distribution(text: str, chosen: Recipe) -> "tuple[str, optuna.distributions.BaseDistribution]":
    """An option and its values, from "section.key=low..high" or "section.key=a,b,c".

    A range over a factor of ten or more is logarithmic.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    name, _, values = text.partition("=")
    section, _, key = name.partition(".")
    if key not in chosen.to_dict().get(section, {}):
        raise SatlibError(
            f"cannot vary {name!r}, which is no option; satlib recipe --explain lists them"
        )

    if "," in values:
        choices = [recipe.parse_value(value) for value in values.split(",")]
        return name, CategoricalDistribution(choices)

    try:
        low, high = map(float, values.split(".."))
        if not -math.inf < low <= high < math.inf:
            raise ValueError("the lower bound comes first, and both are finite")
    except ValueError as error:
        raise SatlibError(
            f"cannot read {text!r}; write section.key=low..high or section.key=a,b,c"
        ) from error

    log = low > 0 and high / low >= 10
    if isinstance(chosen.to_dict()[section][key], int):
        whole_low = round(low)
        # Rounding may make 0 of the lower end, which has no logarithm.
        return name, IntDistribution(whole_low, round(high), log and whole_low > 0)
    return name, FloatDistribution(low, high, log)


def tune(
    chosen: Recipe,
    data: CaptionSet,
    reader: Reader,
    folder: Path,
    space: Sequence[str],
    trials: int,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Search a space (see `distribution`) until the folder holds `trials` trials.

    Returns them as in `history.json`.

    Raises:
        SatlibError: Optuna is missing, the folder holds another search, or the recipe does not
            accept a value of the space.
        Interrupted: by Ctrl-C or SIGTERM, as for `loop.train`.
    """
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalStorage
    except ImportError as error:
        raise SatlibError('satlib tune needs Optuna; run: pip install "satlib[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    distributions: dict[str, Any] = dict(distribution(text, chosen) for text in space)
    for name, values in distributions.items():
        extremes = getattr(values, "choices", None) or (values.low, values.high)
        # Refused now, not by a trial that every resumed search would begin with.
        for value in extremes:
            _varied(chosen, {name: value})

    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / "journal.log"))),
        study_name=chosen.name,
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
    )

    search = {"recipe": chosen.to_dict(), "space": list(space)}
    if study.user_attrs.get("search", search) != search:
        raise SatlibError(
            f"{folder} holds a search over another recipe or space; name another folder with --out"
        )
    study.set_user_attr("search", search)

    # A trial that was interrupted is asked for again; its run's folder has its checkpoint.
    for killed in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(killed.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(killed.params)

    def run(trial: optuna.Trial) -> float:
        """-> the best dev score."""
        # Values may be valid one by one but not together.
        try:
            varied = _varied(chosen, trial.params)
        except SatlibError as error:
            raise optuna.TrialPruned from error
        best = -math.inf

        def report(record: Mapping[str, Any]) -> None:
            nonlocal best
            best = max(best, dev_score(record, varied.training.select))
            trial.report(best, record["epoch"])
            if trial.should_prune():
                raise optuna.TrialPruned

        run_folder = folder / _run_name(trial.params)
        loop.train(varied, data, reader, run_folder, device, progress, on_epoch=report)
        return best

    history = _write_history(study, chosen, folder)
    while len(history) < trials:
        # A seed for each trial, so that a resumed search proposes the same values.
        study.sampler = optuna.samplers.TPESampler(seed=chosen.training.seed + len(study.trials))
        trial = study.ask(distributions)
        # A loss that diverged is a result, not a failure. An interrupted trial stays "running".
        try:
            study.tell(trial, run(trial))
        except (optuna.TrialPruned, Diverged):
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        history = _write_history(study, chosen, folder)
        if progress:
            say(f"trial {len(history)} of {trials}: {json.dumps(history[-1])}")
    return history


def _varied(chosen: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some other values, by "section.key"."""
    changes = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    return recipe.from_dict(recipe.changed(chosen.to_dict(), changes))


def _run_name(values: Mapping[str, Any]) -> str:
    """The run folder for some values, always the same: a trial finds its checkpoint again."""
    text = json.dumps(values, sort_keys=True)
    return "trial-" + hashlib.sha256(text.encode()).hexdigest()[:10]


def _write_history(study: "optuna.Study", chosen: Recipe, folder: Path) -> list[dict[str, Any]]:
    """Write the trials that ended, completed or pruned, and the best recipe."""
    states = {"COMPLETE": "finished", "PRUNED": "stopped early"}
    history: list[dict[str, Any]] = []
    for trial in study.trials:
        if trial.state.name not in states:
            continue
        # What Optuna calls intermediate values are the best dev scores so far, by epoch.
        history.append(
            {
                "run": _run_name(trial.params),
                "state": states[trial.state.name],
                "value": max(trial.intermediate_values.values(), default=None),
                "epochs": max(trial.intermediate_values, default=0),
                "values": trial.params,
            }
        )
    write_json(folder / "history.json", history)

    finished = [trial for trial in history if trial["state"] == "finished"]
    if finished:
        best = max(finished, key=lambda trial: trial["value"])
        write_text(folder / "best.toml", _varied(chosen, best["values"]).to_toml())
    return history
