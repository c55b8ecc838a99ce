"""A run's state: weights, optimiser (section 4.3) and progress; its checkpoint, a safetensors file; and the lock of its folder.

A checkpoint holds the weights that train, their moving average, hard attention's baseline, the optimiser's and the random state
and, as JSON in the header, the recipe and the progress.
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
from torch import Tensor, nn

from satlib.errors import SatlibError
from satlib.files import read_safetensors, require_finite, write_safetensors
from satlib.model.captioner import Captioner
from satlib.model.objective import VariationalBound
from satlib.recipe import from_dict
from satlib.training.muon import Muon

CHECKPOINT, LOCK = "checkpoint.safetensors", ".lock"
_FREE = {
    "training.epochs",
    "training.patience",
}  # may change when a run is resumed, like the name and [decoding]


class Progress(Struct):
    """How far a run has come, and what it has logged."""

    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the next epoch
    sums: dict[str, float] = {}  # over those batches' captions: nll, penalty, ...
    words: int = 0
    captions: int = 0
    sampled: int = 0  # captions of batches in which places or words were sampled
    seconds: float = 0.0
    history: list[dict[str, Any]] = []  # one record per finished epoch

    def means(self) -> dict[str, float]:
        """Of the epoch so far: the NLL per word, rewards per sampled caption, all else per caption."""
        counts = {"nll": self.words, "reward": self.sampled, "baseline": self.sampled}
        return {name: total / counts.get(name, self.captions) for name, total in self.sums.items()}

    def so_far(self) -> str:
        """The epoch's loss or reward so far, for a progress bar."""
        means = self.means()
        return (
            f"loss {means['nll']:.3f}/word" if "nll" in means else f"reward {means['reward']:.3f}"
        )

    def best(self) -> dict[str, Any] | None:
        """The record of the epoch whose model is kept."""
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
        """Of a new run; `captions` is a hash, `low` the precision of matrix products."""
        recipe, device = captioner.recipe, captioner.device
        self.captioner, self.captions, self.low, self.progress = (
            captioner,
            captions,
            low,
            Progress(),
        )
        modules = {"model": trained_part(captioner)}
        self.bound: VariationalBound | None = None  # hard attention's estimator, with its baseline
        if recipe.decoder.attention == "hard" and recipe.objective.maximise == "likelihood":
            self.bound = VariationalBound(
                recipe.hard, recipe.decoder.hidden, recipe.data.max_length + 1
            ).to(device)
            modules["bound"] = self.bound
        self.learning = nn.ModuleDict(modules)
        self.averaged = captioner  # with the moving average of the weights
        if recipe.training.average:
            self.averaged = copy.deepcopy(captioner)
            modules["average"] = trained_part(self.averaged)
        self.stored = nn.ModuleDict(modules)
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=low == torch.float16
        )  # small gradients underflow
        self.optimiser = create_optimiser(captioner, self.bound)

    def save(self, folder: Path) -> None:
        """Write the checkpoint of a run atomically."""
        tensors = dict(self.stored.state_dict())
        for i, values in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{key}": value for key, value in values.items()}
        tensors["random"] = torch.get_rng_state()
        if self.captioner.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.captioner.device)
        header = Header(
            self.captioner.recipe.to_dict(), self.captions, self.progress, self.scaler.state_dict()
        )
        write_safetensors(folder / CHECKPOINT, tensors, header)

    def restore(self, header: Header, tensors: dict[str, Tensor], folder: Path) -> None:
        """Take over a checkpoint's values, or raise a SatlibError: it is another run's, or a value is not finite."""
        other, advice = f"{folder} was begun with", "name another folder with --out"
        if header.captions != self.captions:
            raise SatlibError(f"{other} other captions or boxes; {advice}")
        before, now = from_dict(header.recipe).to_dict(), self.captioner.recipe.to_dict()
        for section in now.keys() - {"name", "decoding"}:
            for key, value in now[section].items():
                if value != before[section][key] and f"{section}.{key}" not in _FREE:
                    raise SatlibError(f"{other} another {section}.{key}; {advice}")
        require_finite(tensors, folder / CHECKPOINT)
        self.progress = header.progress
        moments = {
            name: tensors.pop(name) for name in list(tensors) if name.startswith("optimiser.")
        }
        _restore_optimiser(self.optimiser, moments)
        if (
            self.scaler.is_enabled() and header.scaler
        ):  # absent in a checkpoint from a device without fp16
            self.scaler.load_state_dict(header.scaler)
        torch.set_rng_state(tensors.pop("random"))
        random = tensors.pop("random.cuda", None)
        if random is not None and self.captioner.device.type == "cuda":
            torch.cuda.set_rng_state(random, self.captioner.device)
        self.stored.load_state_dict(tensors)


def trained_part(captioner: Captioner) -> nn.Module:
    """What training changes: the whole captioner, or its decoder where the encoder is frozen."""
    return captioner if captioner.recipe.encoder.train else captioner.decoder


@torch.no_grad()
def update_average(averaged: Captioner, current: Captioner, decay: float) -> None:
    """Averaged <- decay averaged + (1 - decay) current, for all weights that train; counters are copied."""
    means, values = trained_part(averaged).state_dict(), trained_part(current).state_dict()
    for mean, value in zip(means.values(), values.values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)


def create_optimiser(captioner: Captioner, bound: nn.Module | None = None) -> torch.optim.Optimizer:
    """The recipe's optimiser over all weights that train: the decoder's, a learned baseline's, and the encoder's if it trains."""
    recipe, config = captioner.recipe, captioner.recipe.training
    learning = [*captioner.decoder.parameters(), *(bound.parameters() if bound else ())]
    groups = [{"params": learning, "lr": config.learning_rate}]
    if recipe.encoder.train:
        rate = config.encoder_learning_rate if recipe.encoder.pretrained else config.learning_rate
        tuned = [
            parameter for parameter in captioner.encoder.parameters() if parameter.requires_grad
        ]
        groups.append({"params": tuned, "lr": rate})
    if config.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(
            groups, fused=True
        )  # one pass over the weights
    elif config.optimiser == "rmsprop":
        # Graves (2013), equations 38 to 45: the squared mean gradient is subtracted from the second moment, and momentum
        # follows.
        optimiser = torch.optim.RMSprop(groups, alpha=0.95, momentum=0.9, eps=1e-4, centered=True)
    else:
        named = dict(captioner.decoder.named_parameters())
        # Each row of these is one word's own: as a matrix, they have no directions to learn.
        words = {named.get("embedding.weight"), named.get("output.weight")}
        optimiser = Muon(
            {
                **group,
                "params": [
                    w for w in group["params"] if (w.dim() > 1 and w not in words) == matrices
                ],
                "orthogonal": matrices,
            }
            for group in groups
            for matrices in (False, True)
        )
    for group in optimiser.param_groups:
        group["base"] = group["lr"]
    return optimiser


def find(folder: Path) -> tuple[Header, dict[str, Tensor]] | None:
    """The header and tensors of a run's checkpoint, None without one; what a killed process left half written goes."""
    for left_over in folder.glob(".*.partial"):
        left_over.unlink(missing_ok=True)
    if not (folder / CHECKPOINT).is_file():
        return None
    return read_safetensors(
        folder / CHECKPOINT, Header, "that of a checkpoint", "name another folder with --out"
    )


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back: tensors by "optimiser.i.key", of the i-th parameter."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        _, i, key = name.split(".")
        parameter = parameters[int(i)]
        if value.shape == parameter.shape:
            # A file's tensors are contiguous, but fused Adam walks weights and moments in memory order: the moments of a
            # channels-last weight must have its layout.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state[int(i)][key] = value
    optimiser.load_state_dict(
        {"state": state, "param_groups": optimiser.state_dict()["param_groups"]}
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, created if needed: a second process would mix its files with those of the first.

    The lock ends with its process. Its file stays: deleting it could let two processes in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise SatlibError(
            f"{folder} is in use by another process; wait for it, or name another folder"
        ) from error
