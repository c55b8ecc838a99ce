"""A run's state: weights, optimiser (section 4.3) and progress; and its checkpoint.

A checkpoint is a safetensors file with the weights that train, their moving average, hard
attention's baseline, the optimiser's state, the random state and, as JSON in the header, the recipe
and the progress.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor, nn

from satlib.errors import SatlibError
from satlib.files import read_safetensors, require_finite, write_safetensors
from satlib.model.captioner import Captioner
from satlib.model.objective import VariationalBound
from satlib.recipe import from_dict
from satlib.training.muon import Muon
from satlib.training.rmsprop import RMSProp

CHECKPOINT = "checkpoint.safetensors"
# What may change when a run is resumed, beside the recipe's name and [decoding].
_FREE = {"training.epochs", "training.patience"}


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
        """Of the epoch so far: NLL per word, rewards per sampled caption, others per caption."""
        counts = {"nll": self.words, "reward": self.sampled, "baseline": self.sampled}
        return {name: total / counts.get(name, self.captions) for name, total in self.sums.items()}

    def so_far(self) -> str:
        """The epoch's loss or reward so far, for a progress bar."""
        means = self.means()
        if "nll" in means:
            return f"loss {means['nll']:.3f}/word"
        return f"reward {means['reward']:.3f}"

    def best(self) -> dict[str, Any] | None:
        """The record of the epoch whose model is kept."""
        kept = [record for record in self.history if record["kept"]]
        return kept[-1] if kept else None


class Header(Struct):
    """The header of checkpoint.safetensors."""

    recipe: dict[str, Any]
    captions: str  # SHA-256 of the vocabulary, the training captions and their boxes
    progress: Progress
    scaler: dict[str, int | float] = {}
    # 2: RMSProp keeps other moments, and hard attention's average is in proportion to the length.
    format: Literal["satlib checkpoint 2"] = "satlib checkpoint 2"


class RunState:
    """Everything that changes while a run trains."""

    def __init__(self, captioner: Captioner, captions: str, dtype: torch.dtype) -> None:
        """Of a new run; `captions` is a hash, `dtype` the precision of matrix products."""
        recipe = captioner.recipe
        device = captioner.device
        self.captioner = captioner
        self.captions = captions
        self.dtype = dtype
        self.progress = Progress()
        learning = {"model": trained_part(captioner)}

        # Hard attention's estimator, which keeps or learns the baseline of its rewards.
        self.bound: VariationalBound | None = None
        if recipe.decoder.attention == "hard" and recipe.objective.maximise == "likelihood":
            longest = recipe.data.max_length + 1  # with the end mark
            bound = VariationalBound(recipe.hard, recipe.decoder.hidden, longest)
            self.bound = bound.to(device)
            learning["bound"] = self.bound
        self.learning = nn.ModuleDict(learning)

        # Dev captions and the saved model come from the average; without one, from the weights.
        self.averaged = captioner
        stored = dict(learning)
        if recipe.training.average:
            self.averaged = copy.deepcopy(captioner)
            stored["average"] = trained_part(self.averaged)
        self.stored = nn.ModuleDict(stored)

        # In float16 small gradients would underflow.
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        self.optimiser = create_optimiser(captioner, self.bound)

    def save(self, folder: Path) -> None:
        """Write the checkpoint of a run atomically."""
        tensors = dict(self.stored.state_dict())
        for i, values in self.optimiser.state_dict()["state"].items():
            for key, value in values.items():
                tensors[f"optimiser.{i}.{key}"] = value
        tensors["random"] = torch.get_rng_state()
        if self.captioner.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.captioner.device)

        header = Header(
            self.captioner.recipe.to_dict(), self.captions, self.progress, self.scaler.state_dict()
        )
        write_safetensors(folder / CHECKPOINT, tensors, header)

    def restore(self, header: Header, tensors: dict[str, Tensor], folder: Path) -> None:
        """Take over a checkpoint's values.

        Raises:
            SatlibError: it is another run's, damaged, or a value is not finite.
        """
        self._require_same_run(header, folder)
        require_finite(tensors, folder / CHECKPOINT)
        self.progress = header.progress
        try:
            self._take(header, tensors)
        # Tensors that are missing, of other shapes, or too many.
        except (RuntimeError, KeyError, ValueError, IndexError) as error:
            raise SatlibError(
                f"{folder / CHECKPOINT} does not fit its own header; copy it again, or name "
                "another folder with --out"
            ) from error

    def _take(self, header: Header, tensors: dict[str, Tensor]) -> None:
        """Take over a checkpoint's tensors: what follows from them is the same as in its run."""
        weights = {}
        moments = {}
        for name, value in tensors.items():
            if name.startswith("optimiser."):
                moments[name] = value
            elif not name.startswith("random"):
                weights[name] = value

        # A missing or an unknown weight is an error here.
        self.stored.load_state_dict(weights)
        _restore_optimiser(self.optimiser, moments)
        # A checkpoint from a device without fp16 has no scale.
        if self.scaler.is_enabled() and header.scaler:
            self.scaler.load_state_dict(header.scaler)

        torch.set_rng_state(tensors["random"])
        if "random.cuda" in tensors and self.captioner.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.captioner.device)

    def _require_same_run(self, header: Header, folder: Path) -> None:
        """Refuse a checkpoint of other captions, or of a recipe that differs in what matters."""
        other = f"{folder} was begun with"
        advice = "name another folder with --out"
        if header.captions != self.captions:
            raise SatlibError(f"{other} other captions or boxes; {advice}")

        before = from_dict(header.recipe).to_dict()
        now = self.captioner.recipe.to_dict()
        for section in now.keys() - {"name", "decoding"}:
            for key, value in now[section].items():
                if value != before[section][key] and f"{section}.{key}" not in _FREE:
                    raise SatlibError(f"{other} another {section}.{key}; {advice}")


def trained_part(captioner: Captioner) -> nn.Module:
    """What training changes: the whole captioner, or its decoder where the encoder is frozen."""
    return captioner if captioner.recipe.encoder.train else captioner.decoder


@torch.no_grad()
def update_average(averaged: Captioner, current: Captioner, decay: float) -> None:
    """Averaged <- decay averaged + (1 - decay) current, for all weights that train.

    Counters, such as batch normalisation's, are copied.
    """
    means = trained_part(averaged).state_dict()
    values = trained_part(current).state_dict()
    for mean, value in zip(means.values(), values.values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)


def create_optimiser(captioner: Captioner, bound: nn.Module | None = None) -> torch.optim.Optimizer:
    """The recipe's optimiser over all weights that train.

    They are the decoder's, a learned baseline's, and the encoder's if it trains. Each group keeps
    its peak learning rate as "base".
    """
    recipe = captioner.recipe
    config = recipe.training
    learning = list(captioner.decoder.parameters())
    if bound is not None:
        learning += bound.parameters()
    groups: list[dict[str, Any]] = [{"params": learning, "lr": config.learning_rate}]

    if recipe.encoder.train:
        # Weights that already see well need smaller steps than fresh ones.
        rate = config.learning_rate
        if recipe.encoder.pretrained:
            rate = config.encoder_learning_rate
        tuned = [weight for weight in captioner.encoder.parameters() if weight.requires_grad]
        groups.append({"params": tuned, "lr": rate})

    optimiser: torch.optim.Optimizer
    if config.optimiser == "adam":
        # Fused: one pass over the weights.
        optimiser = torch.optim.Adam(groups, fused=True)
    elif config.optimiser == "rmsprop":
        optimiser = RMSProp(groups, {})  # no defaults: each group has its learning rate
    else:
        optimiser = Muon(_muon_groups(captioner, groups))
    for group in optimiser.param_groups:
        group["base"] = group["lr"]
    return optimiser


def _muon_groups(captioner: Captioner, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each group as two: its vectors, for Adam, and its matrices, which Muon makes orthogonal."""
    # Each row of these is one word's own: as a matrix, they have no directions to learn.
    named = dict(captioner.decoder.named_parameters())
    words = {named.get("embedding.weight"), named.get("output.weight")}

    halves = []
    for group in groups:
        vectors, matrices = [], []
        for weight in group["params"]:
            if weight.dim() > 1 and weight not in words:
                matrices.append(weight)
            else:
                vectors.append(weight)
        # In this order: a checkpoint numbers the weights by it.
        halves.append(group | {"params": vectors, "orthogonal": False})
        halves.append(group | {"params": matrices, "orthogonal": True})
    return halves


def find(folder: Path) -> tuple[Header, dict[str, Tensor]] | None:
    """The header and tensors of a run's checkpoint, None without one."""
    if not (folder / CHECKPOINT).is_file():
        return None
    return read_safetensors(
        folder / CHECKPOINT, Header, "that of a checkpoint", "name another folder with --out"
    )


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser its state back: tensors by "optimiser.i.key", of the i-th parameter."""
    parameters = []
    for group in optimiser.param_groups:
        parameters += group["params"]

    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        _, i, key = name.split(".")
        parameter = parameters[int(i)]
        if value.shape == parameter.shape:
            # A file's tensors are contiguous, but fused Adam walks weights and moments in memory
            # order: the moments of a channels-last weight must have its layout.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state[int(i)][key] = value

    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
