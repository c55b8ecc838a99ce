"""Hyperparameter search with Optuna (section 4.3 mentions one): each trial is a training run, scored on the dev split.

A search is a folder: `journal.log` (Optuna's own record, read when the search resumes), a run for each trial, `history.json`,
and `best.toml`, the best recipe so far. Trials that fall behind the median are pruned, and so are trials whose
loss diverges; `history.json` calls both "stopped early". The same command resumes an interrupted search, beginning with the
interrupted trial. The test split is not used.
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

from satlib import recipe
from satlib.data.caption_set import CaptionSet
from satlib.data.features import Reader
from satlib.errors import Diverged, SatlibError
from satlib.files.atomic import write_json, write_text
from satlib.recipe import Recipe
from satlib.training import loop
from satlib.training.validation import dev_score

if TYPE_CHECKING:
    import optuna

# The default search space. A range that spans a factor of 10 or more is searched on a logarithmic scale.
SPACE = ("training.learning_rate=1e-4..2e-3",)
SPACE_LSTM = ("decoder.dropout=0.3..0.6",)
SPACE_LSTM_ATTENTION = ("decoder.attention_hidden=128,256,512",)
SPACE_TRANSFORMER = ("decoder.dropout=0.1..0.5", "decoder.layers=1..4")
SPACE_SOFT = ("objective.doubly_stochastic=1e-3..1",)
SPACE_HARD = ("hard.lambda_r=1e-3..1", "hard.lambda_e=1e-4..1e-1")


@dataclass(frozen=True)
class Knob:
    """A hyperparameter of the recipe and its values: a range from low to high, or choices.

    Of an integer (`whole`), the bounds are rounded.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def read(cls, text: str) -> "Knob":
        """Parse "section.key=low..high" or "section.key=a,b,c".

        Raises:
            SatlibError: the text has neither form, or the recipe has no such value.
        """
        name, equals, values = text.partition("=")
        name = name.strip()
        if equals and ".." in values:
            try:
                low, high = (float(value) for value in values.split("..", 1))
            except ValueError:
                low = high = math.nan
            if low < high and math.isfinite(high):
                section, _, key = name.partition(".")
                options = recipe.declared(section) if section in recipe.SECTIONS else {}
                if key not in options:
                    raise SatlibError(f"a recipe has no value {name!r}; see one of satlib's recipes for the names")
                return cls(name, low, high, whole=type(options[key][0]) is int)
        elif equals and len(values.split(",")) > 1:
            return cls(name, choices=tuple(recipe.parse_value(value) for value in values.split(",")))
        raise SatlibError(
            f"cannot read {text!r}; write section.key=low..high or section.key=a,b,c, for example "
            "training.learning_rate=1e-4..1e-3"
        )

    @property
    def log(self) -> bool:
        """Whether the range is searched on a logarithmic scale: it spans a factor of 10 or more."""
        return not self.choices and self.low > 0 and self.high / self.low >= 10

    def suggest(self, trial: "optuna.Trial") -> Any:
        """Let Optuna choose a value for the trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.whole:
            return trial.suggest_int(self.name, round(self.low), round(self.high), log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)


def default_space(chosen: Recipe) -> list[Knob]:
    """The default search space for a recipe, which depends on its decoder and attention."""
    kind, attention = chosen.decoder.kind, chosen.decoder.attention
    of_decoder = SPACE_TRANSFORMER if kind == "transformer" else SPACE_LSTM
    of_attention = {"soft": SPACE_SOFT, "hard": SPACE_HARD}.get(attention, ())
    of_both = SPACE_LSTM_ATTENTION if kind == "lstm" and attention != "none" else ()
    return [Knob.read(text) for text in (*SPACE, *of_decoder, *of_attention, *of_both)]


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
    """Search until the folder holds `trials` trials; return them as in `history.json`.

    Args:
        chosen: the recipe to vary.
        data: the captions.
        reader: reads the annotation vectors or pixels of the images.
        folder: the folder of the search.
        space: the hyperparameters to vary.
        trials: the total number of trials, including those of earlier calls and pruned ones.
        device: the device to train on.
        progress: show progress bars and a line for each trial.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM; the same call resumes the search.
        SatlibError: Optuna is not installed, or the folder holds a search over another recipe or space.
    """
    study = _open_study(chosen, space, folder)
    history = _write_history(study, chosen, folder)
    while len(history) < trials:
        _run_trial(study, chosen, data, reader, folder, space, device, progress)
        history = _write_history(study, chosen, folder)
        if progress:
            last = history[-1]
            score = f"{last['value']:.3f}" if last["value"] is not None else "no score yet"
            values = ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in last["values"].items()
            )
            print(f"trial {len(history)} of {trials}: {last['state']}, {score}; {values}")
    return history


def _open_study(chosen: Recipe, space: Sequence[Knob], folder: Path) -> "optuna.Study":
    """Create or load the folder's search, and enqueue again the trials that were killed."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise SatlibError('satlib tune needs Optuna; run: pip install "satlib[tune]"') from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    storage = JournalStorage(JournalFileBackend(str(folder / "journal.log")))
    study = optuna.create_study(
        storage=storage, study_name=chosen.name, direction="maximize", load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
    )  # fmt: skip
    asked = json.loads(json.dumps({"recipe": chosen.to_dict(), "space": [dataclasses.asdict(knob) for knob in space]}))
    before = study.user_attrs.get("asked")
    if before is not None and before != asked:
        raise SatlibError(
            f"{folder} holds a search over another recipe or another space; choose another folder with --out"
        )
    study.set_user_attr("asked", asked)
    killed = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.RUNNING]
    for trial in killed:  # the trial's run folder has its checkpoint
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    return study


def _run_trial(
    study: "optuna.Study",
    chosen: Recipe,
    data: CaptionSet,
    reader: Reader,
    folder: Path,
    space: Sequence[Knob],
    device: str | torch.device,
    progress: bool,
) -> None:
    """Let Optuna choose values, train with them until the end or until the trial is pruned, and report the result.

    A trial that is interrupted stays "running": the next call begins with it.
    """
    import optuna

    study.sampler = optuna.samplers.TPESampler(seed=chosen.training.seed + len(study.trials))
    trial = study.ask()
    values = {knob.name: knob.suggest(trial) for knob in space}
    varied = recipe.from_dict(_changed(chosen, values))
    best = -math.inf

    def report(record: Mapping[str, Any]) -> None:
        nonlocal best
        best = max(best, dev_score(record, varied.training.select))
        trial.report(best, record["epoch"])
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        loop.train(varied, data, reader, folder / _run_name(values), device, progress, on_epoch=report)
    except (optuna.TrialPruned, Diverged):  # a loss that diverged is a result, not a failure
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    else:
        study.tell(trial, best)


def _changed(chosen: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe as a dict, with some values replaced."""
    nested = chosen.to_dict()
    for name, value in values.items():
        section, _, key = name.partition(".")
        nested[section][key] = value
    return nested


def _run_name(values: Mapping[str, Any]) -> str:
    """The run folder for some values; the same for the same values, so that an interrupted trial resumes from its checkpoint."""
    return "trial-" + hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]


def _write_history(study: "optuna.Study", chosen: Recipe, folder: Path) -> list[dict[str, Any]]:
    """Write the trials that ended, completed or pruned, the best recipe, and their figure."""
    states = {"COMPLETE": "finished", "PRUNED": "stopped early"}
    history: list[dict[str, Any]] = [
        {
            "run": _run_name(trial.params),
            "state": states[trial.state.name],
            "value": trial.value
            if trial.state.name == "COMPLETE"
            else max(trial.intermediate_values.values(), default=None),
            "epochs": len(trial.intermediate_values),
            "values": trial.params,
        }
        for trial in study.trials
        if trial.state.name in states
    ]
    write_json(folder / "history.json", history)
    finished = [trial for trial in history if trial["state"] == "finished"]
    if finished:
        best = max(finished, key=lambda trial: trial["value"])
        write_text(folder / "best.toml", recipe.from_dict(_changed(chosen, best["values"])).to_toml())
    return history
