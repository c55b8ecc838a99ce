"""A run's checkpoint: everything that resuming needs, in one safetensors file that is written atomically; and the folder's lock.

It holds the weights that train, their moving average, hard attention's baseline, the optimiser's state, the random
state and, as JSON in the header, the recipe, the progress, and what identifies the run. On a CPU, resuming from it gives the same
bits as not having stopped.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from filelock import FileLock, Timeout
from msgspec import Struct, field
from torch import Tensor, nn

from satlib.errors import SatlibError
from satlib.files.reading import Count, Size
from satlib.files.weights import read_safetensors, require_finite, write_safetensors
from satlib.model.captioner import Captioner
from satlib.model.objective import BatchLoss, VariationalBound
from satlib.recipe import Recipe, from_dict
from satlib.training.distributed import Ranks
from satlib.training.optimisation import create_optimiser, trained_part

CHECKPOINT, LOCK = "checkpoint.safetensors", ".lock"
FORMAT = "satlib checkpoint 1"
LOGGED = ("nll", "penalty", "entropy", "movement", "boxes", "reward", "baseline")
# Options that may change when a run is resumed, beside [decoding]: how long to train.
_FREE = {("training", "epochs"), ("training", "patience")}


class EpochRecord(Struct):
    """What a line of a run's log always has; the other figures depend on the recipe."""

    epoch: Size
    kept: bool
    dev_nll: float
    dev_bleu4: float
    seconds: float = 0.0


class Progress(Struct, forbid_unknown_fields=True):
    """How far a run has come; together with the weights and the random state, all that resuming needs."""

    epoch: Count = 0  # finished epochs
    batch: Count = 0  # finished batches of the next epoch
    sums: dict[str, float] = {}  # over those batches' captions: nll, penalty, ...
    words: Count = 0
    captions: Count = 0
    sampled: Count = 0  # captions of batches that have a reward: places or words were sampled
    seconds: float = 0.0
    history: list[dict[str, Any]] = []  # one record per finished epoch

    def __post_init__(self) -> None:
        """Refuse a record that is not an `EpochRecord`."""
        msgspec.convert(self.history, list[EpochRecord])

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

    def count(self, name: str) -> int:
        """The divisor that turns a sum into its mean: words for the NLL, captions for the rest."""
        return self.words if name == "nll" else self.sampled if name in ("reward", "baseline") else self.captions

    def so_far(self) -> str:
        """The epoch's mean reward or loss up to now, for a progress bar."""
        if "reward" in self.sums and "nll" not in self.sums:
            return f"reward {self.sums['reward'] / self.count('reward'):.3f}"
        return f"loss {self.sums['nll'] / self.words:.3f}/word"

    def best(self) -> dict[str, Any] | None:
        """The record of the epoch whose model is kept: the last of those marked as the best so far."""
        return next((record for record in reversed(self.history) if record["kept"]), None)


class Header(Struct):
    """The header of checkpoint.safetensors."""

    format: Literal["satlib checkpoint 1"]
    stored_recipe: dict[str, Any] = field(name="recipe")
    captions: str
    progress: Progress
    scaler: dict[str, int | float] = {}


@dataclass
class RunState:
    """Everything that changes while a run trains."""

    captioner: Captioner
    averaged: Captioner  # the moving average of its weights; the captioner itself without one
    bound: VariationalBound | None
    optimiser: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    progress: Progress

    @classmethod
    def fresh(cls, captioner: Captioner, low: torch.dtype) -> "RunState":
        """The state of a new run; `low` is the precision of its matrix products (`satlib.model.device.precision`)."""
        recipe, device, bound = captioner.recipe, captioner.device, None
        averaged = copy.deepcopy(captioner) if recipe.training.average else captioner
        if recipe.decoder.attention == "hard" and recipe.objective.maximise == "likelihood":
            smoothing, longest = recipe.objective.label_smoothing, recipe.data.max_length + 1
            bound = VariationalBound(recipe.hard, recipe.decoder.hidden, smoothing, longest).to(device)
        # Small gradients underflow in fp16: the loss is scaled up, as far as large ones allow.
        scaler = torch.amp.GradScaler(device.type, enabled=low == torch.float16)
        optimiser = create_optimiser(captioner, recipe, _present(bound=bound).values())
        return cls(captioner, averaged, bound, optimiser, scaler, Progress())

    @property
    def helpers(self) -> dict[str, nn.Module]:
        """What learns with the captioner but is no part of it."""
        return _present(bound=self.bound)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of a checkpoint by name."""
        tensors = {f"model.{name}": value for name, value in trained_part(self.captioner).state_dict().items()}
        if self.averaged is not self.captioner:
            tensors |= {f"average.{name}": value for name, value in trained_part(self.averaged).state_dict().items()}
        for part, helper in self.helpers.items():
            tensors |= {f"{part}.{name}": value for name, value in helper.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{key}": value for key, value in state.items()}
        tensors["random"] = torch.get_rng_state()
        if self.captioner.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.captioner.device)
        return tensors

    def restore(self, header: Header, tensors: dict[str, Tensor], path: Path) -> None:
        """Take over a checkpoint's values.

        Raises:
            SatlibError: a value is not finite, or a tensor does not fit.
        """
        require_finite(tensors, path)
        self.progress = header.progress
        try:
            trained_part(self.captioner).load_state_dict(_part(tensors, "model."))
            if self.averaged is not self.captioner:
                trained_part(self.averaged).load_state_dict(_part(tensors, "average."))
            for part, helper in self.helpers.items():
                helper.load_state_dict(_part(tensors, f"{part}."))
        except RuntimeError as error:  # names or shapes that do not fit
            raise SatlibError(
                f"{path} does not fit its recipe ({str(error).splitlines()[-1].strip()}): another version of satlib made it; "
                "name another folder with --out"
            ) from error
        try:
            restore_optimiser(self.optimiser, _part(tensors, "optimiser."))
            # Absent in a checkpoint from another device, on which precision "auto" meant something else.
            if self.scaler.is_enabled() and header.scaler:
                self.scaler.load_state_dict(header.scaler)
            torch.set_rng_state(tensors["random"])
            if self.captioner.device.type == "cuda" and "random.cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random.cuda"], self.captioner.device)
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise SatlibError(
                f"{path} is damaged: the optimiser's or the random numbers' state does not fit ({error}); copy the run again, or "
                "name another folder with --out"
            ) from error


@dataclass(frozen=True)
class Identity:
    """What a checkpoint must share with the run that resumes from it."""

    recipe: Recipe
    captions: str  # SHA-256 of the vocabulary, the training captions and their boxes

    def check(self, header: Header, path: Path) -> None:
        """Compare with a checkpoint's header.

        Raises:
            SatlibError: it is another run's; says which part differs.
        """
        if header.captions != self.captions:
            raise SatlibError(f"{path} was made with other training captions or boxes; name another folder with --out")
        before, now = from_dict(header.stored_recipe).to_dict(), self.recipe.to_dict()
        for section in now:
            if section in ("name", "decoding"):
                continue
            for key in now[section]:
                if before[section][key] != now[section][key] and (section, key) not in _FREE:
                    raise SatlibError(
                        f"{path.parent} was begun with another {section}.{key}; name another folder with --out, or "
                        "repeat the first command"
                    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, created if needed: a second process would mix its checkpoints with the first one's.

    The operating system releases the lock when its process ends. The lock's file stays: deleting it could let two processes in.

    Raises:
        SatlibError: another process holds the folder, or it cannot be written.
    """
    lock, created = FileLock(folder / LOCK), not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise SatlibError(
            f"{folder} is in use by another process; wait until it has ended, or name another folder with --out"
        ) from error
    except OSError as error:
        raise SatlibError(f"cannot write {folder}: {error.strerror}; choose another folder with --out") from error
    try:
        yield
    finally:
        if [path.name for path in folder.iterdir()] == [LOCK]:  # the run was refused before it wrote anything
            (folder / LOCK).unlink()
            if created:
                folder.rmdir()
        lock.release()


def save(path: Path, state: RunState, identity: Identity) -> None:
    """Write a checkpoint atomically."""
    header = Header(
        FORMAT,
        identity.recipe.to_dict(),
        identity.captions,
        state.progress,
        state.scaler.state_dict(),
    )
    write_safetensors(path, state.tensors(), header)


def read(path: Path) -> tuple[Header, dict[str, Tensor]]:
    """The header and tensors of a checkpoint.

    Raises:
        SatlibError: the file is damaged, or is no checkpoint.
    """
    return read_safetensors(
        path, Header, "that of a checkpoint", "copy the run again, or name another folder with --out"
    )


def find(folder: Path) -> tuple[Header, dict[str, Tensor]] | None:
    """The header and tensors of a run's checkpoint, None without one; files that a killed process left half written go."""
    for left_over in folder.glob(".*.partial"):
        left_over.unlink(missing_ok=True)
    path = folder / CHECKPOINT
    return read(path) if path.is_file() else None


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back: tensors by "i.key", of the i-th parameter."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        i, key = name.split(".")
        parameter = parameters[int(i)]
        if value.shape not in (parameter.shape, ()) or not value.is_floating_point():
            raise ValueError(f"{name} has the shape {tuple(value.shape)} and the type {value.dtype}")
        if value.shape == parameter.shape:
            # A file's tensors are contiguous. torch's fused Adam walks weights and moments in memory order: those of a
            # channels-last weight must have its layout.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state[int(i)][key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _present(**helpers: nn.Module | None) -> dict[str, nn.Module]:
    return {name: helper for name, helper in helpers.items() if helper is not None}
