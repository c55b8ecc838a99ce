"""Training in several processes, started by torchrun.

DistributedDataParallel connects them, over gloo (CPU) or NCCL (CUDA). Rank r of W takes the images
r, r + W, r + 2W, ... of every batch, each with its captions. The loss is a mean over captions, of
which rank r has n_r of n, and DistributedDataParallel averages the gradients of the ranks. A rank's
loss is therefore weighted by w_r = W n_r / n:

    1/W sum_r w_r grad(mean of rank r) = sum_r n_r/n grad(mean of rank r) = grad(mean of all)

A rank without images processes the first one with weight 0, because the other ranks wait for its
gradients.

Each rank draws its random numbers from a stream that depends only on (seed, batch, rank). Two
things differ from training in one process: a learned baseline weights ranks by captions and not by
sampled places, and BatchNorm in a trained encoder sees only the rank's own images on CPUs. From
three CPU ranks on, gloo's sums round differently after a resume.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from satlib.data.batches import Batch
from satlib.errors import SatlibError

Value = TypeVar("Value")
# How long ranks wait while the first one evaluates; a process that dies is noticed at once.
PATIENCE = timedelta(hours=2)


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the collective operations, which do nothing in a run of one."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files, evaluates and prints."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This rank's images of a batch with their captions, and the weight of their loss."""
        if self.size == 1:
            return batch
        images = torch.arange(len(batch.image_ids))
        own = images[self.rank :: self.size]
        # Without an image of its own, a rank computes the first one's loss at weight 0.
        spare = self.rank >= len(images)
        if spare:
            own = images[:1]

        # Which of the own images (rows) each caption of the batch (columns) describes.
        describes = own.unsqueeze(1) == batch.by_caption(images)  # (own images, B)
        rows, captions = describes.nonzero(as_tuple=True)
        weight = self.size * len(captions) / len(batch.captions)
        return Batch(
            [batch.image_ids[image] for image in own],
            batch.captions[captions],
            rows=None if batch.rows is None else rows,
            weight=0.0 if spare else weight,
        )

    def seed(self, seed: int, step: int) -> None:
        """Seed this rank's random numbers for a batch."""
        # Mixed, not added up: else rank 1 at one step would draw what rank 0 draws at the next.
        (state,) = np.random.SeedSequence((seed, step, self.rank)).generate_state(1, np.uint64)
        torch.manual_seed(int(state))

    def parallel(self, loss: Callable[..., Value], learning: nn.Module) -> Callable[..., Value]:
        """`loss`, with gradients averaged over the ranks.

        learning: the module whose weights train, each of which the loss uses.
        """
        if self.size == 1:
            return loss
        module = _LossModule(loss, learning)
        if next(module.parameters()).is_cuda:
            nn.SyncBatchNorm.convert_sync_batchnorm(module)
        return DistributedDataParallel(module)

    def mean(self, value: Tensor, weight: float) -> None:
        """Replace a tensor by its mean over the ranks, weighted like their shares of a batch."""
        if self.size > 1:
            distributed.all_reduce(value.mul_(weight / self.size))

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What `make` returns or raises (a SatlibError) on the first rank, on every rank."""
        if self.size == 1:
            return make()
        values: list[Any] = [None]
        if self.first:
            # An error is sent as well: the other ranks would wait for the value forever.
            try:
                values = [make()]
            except SatlibError as error:
                values = [error]
        distributed.broadcast_object_list(values)
        if isinstance(values[0], SatlibError):
            raise values[0]
        return values[0]

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks in their order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def any(self, mine: bool) -> bool:
        """Whether `mine` is true on any rank; all ranks wait for each other."""
        return any(self.gather(mine))

    def wait(self) -> None:
        """Return once every rank has called it."""
        self.gather(None)


class _LossModule(nn.Module):
    """A loss as a module that owns what learns, as DistributedDataParallel expects it."""

    def __init__(self, loss: Callable[..., Any], learning: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self.learning = learning

    def forward(self, *batch: Any) -> Any:
        return self.loss(*batch)


def current() -> Ranks:
    """The ranks of the enclosing `launched` block."""
    if not distributed.is_initialized():
        return Ranks()
    return Ranks(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def launched(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes of the run within a `with` block; yields this process's device."""
    # torchrun sets WORLD_SIZE and LOCAL_RANK.
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return

    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    # This module's functions take the group at the time of its import as a default. Imported later,
    # by DistributedDataParallel, it would keep the group and gloo's threads alive after this block,
    # and a thread that outlives Python's clean-up may abort the process.
    import_module("torch.distributed.nn")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    yield device

    # Not after an error: the other processes may still wait in a collective operation, and torchrun
    # ends them all.
    distributed.destroy_process_group()
    # Frees what still holds the group, such as a parallel module.
    gc.collect()
