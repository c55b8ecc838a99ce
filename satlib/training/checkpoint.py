"""A run's state, and its checkpoint: everything that resuming needs, in one safetensors file; and the lock of a run's folder.

A checkpoint holds the weights that train, their moving average, hard attention's baseline, the optimiser's and the random state
and, as JSON in the header, the recipe and the progress. On a CPU, resuming from it gives the same bits as not having stopped.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock, Timeout
from msgspec import Struct
from torch import Tensor

from satlib.errors import SatlibError
from satlib.files.weights import read_safetensors, require_finite, write_safetensors
from satlib.model.captioner import Captioner
from satlib.model.objective import BatchLoss, VariationalBound
from satlib.recipe import from_dict
from satlib.training.distributed import Ranks
from satlib.training.optimisation import create_optimiser, trained_part

CHECKPOINT, LOCK = "checkpoint.safetensors", ".lock"
LOGGED = ("nll", "penalty", "entropy", "movement", "boxes", "reward", "baseline")
# Options that may change when a run is resumed, beside the name and [decoding]: how long to train.
_FREE = {"training.epochs", "training.patience"}


class Progress(Struct):
    """How far a run has come, and what it has logged."""

    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the next epoch
    sums: dict[str, float] = {}  # over those batches' captions: nll, penalty, ...
    words: int = 0
    captions: int = 0
    sampled: int = 0  # captions of batches that have a reward: places or words were sampled
    seconds: float = 0.0
    history: list[dict[str, Any]] = []  # one record per finished epoch

    def add(self, result: BatchLoss, weight: float, ranks: Ranks) -> None:
        """Count a batch of which this process computed `result`; 0 is the weight of a share without a row of its own."""
        own = result.captions * (weight > 0)
        sums = {name: value.item() * own for name, value in result.means.items()}
        counts = {"words": result.words * (weight > 0), "captions": own, "sampled": own * ("reward" in sums)}
        self.batch += 1
        for name, value in ranks.total(sums | counts, (*LOGGED, *counts)).items():
            if name in counts:
                setattr(self, name, getattr(self, name) + int(value))
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """The means of the epoch so far: of the NLL per word, of samples' values per sampled caption, else per caption."""
        counts = {"nll": self.words, "reward": self.sampled, "baseline": self.sampled}
        return {name: total / counts.get(name, self.captions) for name, total in self.sums.items()}

    def so_far(self) -> str:
        """The epoch's mean loss or reward up to now, for a progress bar."""
        means = self.means()
        return f"loss {means['nll']:.3f}/word" if "nll" in means else f"reward {means['reward']:.3f}"

    def best(self) -> dict[str, Any] | None:
        """The record of the epoch whose model is kept: the last of those marked as the best so far."""
        return next((record for record in reversed(self.history) if record["kept"]), None)


class Header(Struct):
    """The header of checkpoint.safetensors."""

    recipe: dict[str, Any]
    captions: str  # SHA-256 of the vocabulary, the training captions and their boxes
    progress: Progress
    scaler: dict[str, int | float] = {}
    format: Literal["satlib checkpoint 1"] = "satlib checkpoint 1"


class RunState:
    """Everything that changes while a run trains."""

    def __init__(self, captioner: Captioner, captions: str, low: torch.dtype) -> None:
        """The state of a new run; `captions` is a hash, `low` the precision of matrix products."""
        recipe, device = captioner.recipe, captioner.device
        self.captioner, self.captions = captioner, captions
        self.averaged = (
            copy.deepcopy(captioner) if recipe.training.average else captioner
        )  # the moving average's weights
        self.bound: VariationalBound | None = None  # hard attention's estimator, with its baseline
        if recipe.decoder.attention == "hard" and recipe.objective.maximise == "likelihood":
            self.bound = VariationalBound(recipe.hard, recipe.decoder.hidden, recipe.data.max_length + 1).to(device)
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=low == torch.float16
        )  # small gradients underflow in fp16
        self.optimiser = create_optimiser(captioner, self.bound)
        self.progress = Progress()

    def modules(self) -> dict[str, torch.nn.Module]:
        """What has weights, by the prefix of their names in a checkpoint."""
        modules = {"model.": trained_part(self.captioner)}
        if self.averaged is not self.captioner:
            modules["average."] = trained_part(self.averaged)
        return modules if self.bound is None else {**modules, "bound.": self.bound}

    def restore(self, header: Header, tensors: dict[str, Tensor], folder: Path) -> None:
        """Take over a checkpoint's values.

        Raises:
            SatlibError: it is another run's, or a value is not finite.
        """
        if header.captions != self.captions:
            raise SatlibError(f"{folder} was begun with other captions or boxes; name another folder with --out")
        before, now = from_dict(header.recipe).to_dict(), self.captioner.recipe.to_dict()
        for section in now.keys() - {"name", "decoding"}:
            for key in now[section]:
                if before[section][key] != now[section][key] and f"{section}.{key}" not in _FREE:
                    raise SatlibError(
                        f"{folder} was begun with another {section}.{key}; name another folder with --out"
                    )
        require_finite(tensors, folder / CHECKPOINT)
        self.progress = header.progress
        for prefix, module in self.modules().items():
            module.load_state_dict(_part(tensors, prefix))
        restore_optimiser(self.optimiser, _part(tensors, "optimiser."))
        if self.scaler.is_enabled() and header.scaler:  # absent in a checkpoint from a device without fp16
            self.scaler.load_state_dict(header.scaler)
        torch.set_rng_state(tensors["random"])
        if self.captioner.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.captioner.device)


def save(folder: Path, state: RunState) -> None:
    """Write a run's checkpoint atomically."""
    tensors = {
        prefix + name: value
        for prefix, module in state.modules().items()
        for name, value in module.state_dict().items()
    }
    for i, values in state.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{i}.{key}": value for key, value in values.items()}
    tensors["random"] = torch.get_rng_state()
    if state.captioner.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(state.captioner.device)
    header = Header(state.captioner.recipe.to_dict(), state.captions, state.progress, state.scaler.state_dict())
    write_safetensors(folder / CHECKPOINT, tensors, header)


def find(folder: Path) -> tuple[Header, dict[str, Tensor]] | None:
    """The header and tensors of a run's checkpoint, None without one; files that a killed process left half written go."""
    for left_over in folder.glob(".*.partial"):
        left_over.unlink(missing_ok=True)
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    return read_safetensors(path, Header, "that of a checkpoint", "name another folder with --out")


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back: tensors by "i.key", of the i-th parameter."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        i, key = name.split(".")
        parameter = parameters[int(i)]
        if value.shape == parameter.shape:
            # A file's tensors are contiguous. torch's fused Adam walks weights and moments in memory order: those of a
            # channels-last weight must have its layout.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state[int(i)][key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, created if needed: a second process would mix its checkpoints with the first one's.

    The operating system releases the lock when its process ends. The lock's file stays: deleting it could let two processes in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SatlibError(f"{folder} is in use by another process; name another folder with --out") from error
    try:
        yield
    finally:
        lock.release()
