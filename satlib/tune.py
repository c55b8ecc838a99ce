"""A search for hyperparameters (section 4.3 used one): Optuna proposes, training answers, the dev split judges.

A search is a folder: `journal.log` (Optuna's own record, which resuming reads), a run for each trial, `history.json`,
`history.png`, and `best.toml`, the best recipe so far. Trials that fall behind are stopped early. The same command goes on
after a stop, first with the trial that was stopped. The test split is never looked at.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from satlib import plots, recipe, training
from satlib.datasets import CaptionSet
from satlib.errors import SatlibError
from satlib.features import Reader
from satlib.files import write_json, write_text
from satlib.recipe import Recipe
from satlib.validation import dev_score

if TYPE_CHECKING:
    import optuna

# What is worth varying, where nothing else is asked for. A range of a factor of 10 or more is searched on a logarithmic scale.
SPACE = (
    "training.learning_rate=1e-4..2e-3",
    "decoder.dropout=0.3..0.6",
    "decoder.attention_hidden=128,256,512",
    "objective.label_smoothing=0..0.15",
)
SPACE_SOFT = ("objective.doubly_stochastic=1e-3..1",)
SPACE_HARD = ("hard.lambda_r=1e-3..1", "hard.lambda_e=1e-4..1e-1")


@dataclass(frozen=True)
class Knob:
    """A value of the recipe that varies: between low and high, or among choices."""

    name: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Knob":
        """Read "section.key=low..high" or "section.key=a,b,c".

        Raises:
            SatlibError: it is neither.
        """
        name, equals, values = text.partition("=")
        name = recipe.current_name(name.strip())
        if equals and ".." in values:
            try:
                low, high = (float(value) for value in values.split("..", 1))
            except ValueError:
                low = high = math.nan
            if low < high and math.isfinite(high):
                return cls(name, low, high, whole=_kind(name) is int)
        elif equals and len(values.split(",")) > 1:
            read = [recipe.parse_value(value) for value in values.split(",")]
            return cls(name, choices=tuple(read))
        raise SatlibError(
            f"cannot read {text!r}; write what varies as section.key=low..high or section.key=a,b,c, for example "
            "training.learning_rate=1e-4..1e-3"
        )

    @property
    def log(self) -> bool:
        """Whether it is searched on a logarithmic scale."""
        return not self.choices and self.low > 0 and self.high / self.low >= 10

    def suggest(self, trial: "optuna.Trial") -> Any:
        """Let Optuna choose a value."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.whole:
            return trial.suggest_int(self.name, round(self.low), round(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)


def _kind(name: str) -> type:
    """The type of a recipe's value."""
    section, _, key = name.partition(".")
    fields = dataclasses.fields(getattr(Recipe("any"), section)) if hasattr(Recipe("any"), section) else ()
    for each in fields:
        if each.name == key:
            return type(each.default)
    raise SatlibError(f"a recipe has no value {name!r} to vary; see one of satlib's recipes for the names")


def default_space(chosen: Recipe) -> list[Knob]:
    """What is varied for a recipe when nothing is named."""
    more = {"soft": SPACE_SOFT, "hard": SPACE_HARD}.get(chosen.decoder.attention, ())
    return [Knob.read(text) for text in (*SPACE, *more)]


def tune(
    chosen: Recipe,
    data: CaptionSet,
    reader: Reader,
    folder: Path,
    space: Sequence[Knob],
    trials: int,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Search until there are `trials` trials in all; give them as `history.json` has them.

    Args:
        chosen: the recipe that is varied.
        data: its captions.
        reader: of its images.
        folder: the search's.
        space: what varies.
        trials: how many in all, those of earlier calls and those that were stopped early included.
        device: where.
        progress: show bars.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM; the same call goes on.
        SatlibError: Optuna is not installed, or the folder holds a search over another space.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise SatlibError(
            'satlib tune needs Optuna; run: pip install "satlib[course]", or pip install optuna'
        ) from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.create_study(
        storage=storage, study_name=chosen.name, direction="maximize", load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
    )  # fmt: skip
    asked = {"recipe": chosen.to_dict(), "space": [dataclasses.asdict(knob) for knob in space]}
    asked = json.loads(json.dumps(asked))
    before = study.user_attrs.get("asked")
    if before is not None and before != asked:
        raise SatlibError(f"{folder} holds a search over another recipe or another space; name another with --folder")
    study.set_user_attr("asked", asked)
    stopped = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.RUNNING]
    for trial in stopped:  # by a kill: its run's folder has the checkpoint
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    while len(_counted(study)) < trials:
        study.sampler = optuna.samplers.TPESampler(seed=chosen.training.seed + len(study.trials))
        trial = study.ask()
        values = {knob.name: knob.suggest(trial) for knob in space}
        varied = recipe.from_dict(_changed(chosen, values))
        try:
            worth = _run(varied, data, reader, folder / _name(values), device, progress, trial)
        except training.Interrupted:
            raise  # the trial stays "running", and is what the next call begins with
        except optuna.TrialPruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, worth)
        history = _write(study, chosen, folder)
        if progress:
            last = history[-1]
            worth_text = f"{last['value']:.3f}" if last["value"] is not None else "nothing yet"
            print(f"trial {len(history)} of {trials}: {last['state']}, {worth_text}; {_told(last['values'])}")
    return _write(study, chosen, folder)


def _run(
    varied: Recipe,
    data: CaptionSet,
    reader: Reader,
    run: Path,
    device: str | torch.device,
    progress: bool,
    trial: "optuna.Trial",
) -> float:
    """Train a trial to its end or until it is pruned; what it is worth on dev, higher is better."""
    import optuna

    best = -math.inf

    def judge(record: Mapping[str, Any]) -> None:
        nonlocal best
        best = max(best, dev_score(record, varied.training.select))
        trial.report(best, record["epoch"])
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        training.train(varied, data, reader, run, device, progress, on_epoch=judge)
    except optuna.TrialPruned:
        raise
    except SatlibError as error:
        if isinstance(error, training.Interrupted) or "lower training.learning_rate" not in str(error):
            raise
        raise optuna.TrialPruned from error  # it diverged: a bad choice, and an answer
    return best


def _changed(chosen: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    nested = chosen.to_dict()
    for name, value in values.items():
        section, _, key = name.partition(".")
        nested[section][key] = value
    return nested


def _name(values: Mapping[str, Any]) -> str:
    """The same values have the same folder, so that a stopped trial goes on from its checkpoint."""
    return "trial-" + hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def _counted(study: "optuna.Study") -> list["optuna.trial.FrozenTrial"]:
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _write(study: "optuna.Study", chosen: Recipe, folder: Path) -> list[dict[str, Any]]:
    history = [
        {
            "run": _name(trial.params),
            "state": "finished" if trial.state.name == "COMPLETE" else "stopped early",
            "value": trial.value
            if trial.state.name == "COMPLETE"
            else (max(trial.intermediate_values.values(), default=None)),
            "epochs": len(trial.intermediate_values),
            "values": trial.params,
        }
        for trial in _counted(study)
    ]
    write_json(folder / "history.json", history)
    finished = [each for each in history if each["state"] == "finished"]
    if finished:
        best = max(finished, key=lambda each: each["value"])
        write_text(folder / "best.toml", recipe.from_dict(_changed(chosen, best["values"])).to_toml())
    measure = {"bleu4": "dev BLEU-4", "nll": "minus dev NLL", "reward": "dev reward"}[chosen.training.select]
    if history:
        plots.save(plots.search_figure(history, measure), folder / "history.png")
    return history


def _told(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )
