"""One run, many processes: those that torchrun starts, with torch's DistributedDataParallel over gloo (CPU) or NCCL (CUDA).

Of every batch, rank r of W takes rows r, r + W, r + 2W, ... Rows of a batch have one length, so ranks have equal work. The
loss is a mean over rows, n_r of n on rank r, and DistributedDataParallel takes the mean of the ranks' gradients; so each is
weighed by w_r = W n_r / n, and what comes out is the whole batch's gradient, however the rows divide:

    1/W sum_r w_r grad(mean of rank r) = sum_r n_r/n grad(mean of rank r) = grad(mean of all rows)

A rank without a row of its own goes through the batch's first one with weight 0, because the others wait for it.

Random numbers (dropout, sampled places and words, coins) each rank draws for its own rows, from a stream that (seed, batch,
rank) alone decides: masks differ between ranks and from those of one process, and a checkpoint needs no rank but the first.
Not the same as in one process: a learned baseline (hard attention) weighs ranks by rows, not by sampled places; and BatchNorm
in an encoder that trains sees, on CPUs, the rank's own rows alone (on CUDA it becomes SyncBatchNorm).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from satlib.batching import Batch
from satlib.errors import SatlibError

Value = TypeVar("Value")
# How long ranks wait for the first one's evaluation. A process that dies is noticed at once.
PATIENCE = timedelta(hours=2)
LOST = ("gloo", "onnection", "Broken pipe")  # what the errors of a lost connection speak of


@dataclass(frozen=True)
class Ranks:
    """This process's place among those of the run, and what they do together; alone, nothing."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files, evaluates and speaks."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This rank's rows of a batch, with the weight of their loss."""
        if self.size == 1:
            return batch
        rows = slice(self.rank, None, self.size) if self.rank < len(batch.image_ids) else slice(0, 1)
        own = len(batch.image_ids[self.rank :: self.size])
        return Batch(batch.image_ids[rows], batch.captions[rows], self.size * own / len(batch.image_ids))

    def seed(self, seed: int, step: int) -> None:
        """Begin the random numbers of a batch; one process alone goes on with those that it has."""
        if self.size > 1:
            torch.manual_seed(int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1, np.uint64)[0]))

    def parallel(self, work: Callable[..., Value], parts: Sequence[nn.Module], partly: bool) -> Callable[..., Value]:
        """`work`, from a batch to its loss, such that gradients of its `parts` are averaged over the ranks.

        All begin with the parts as the first rank has them. partly: some parameters may have no part in a loss.
        """
        if self.size == 1:
            return work
        module = _Work()
        module.work, module.parts = work, nn.ModuleList(parts)
        if next(module.parameters()).is_cuda:
            nn.SyncBatchNorm.convert_sync_batchnorm(module)
            return DistributedDataParallel(module, find_unused_parameters=partly)
        made = DistributedDataParallel(module, find_unused_parameters=partly)
        made.register_comm_hook(None, _mean_by_rank)
        return made

    def total(self, values: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
        """Sums over the ranks, of those `names` that any of them has; each rank gives the same ones."""
        if self.size == 1:
            return dict(values)
        table = torch.tensor([[values.get(name, 0.0), name in values] for name in names], dtype=torch.float64)
        distributed.all_reduce(table)
        return {name: total for name, (total, there) in zip(names, table.tolist(), strict=True) if there}

    def mean(self, value: Tensor, weight: float) -> None:
        """Put the ranks' weighted mean in the place of a tensor; `weight` is that of the rank's share."""
        if self.size > 1:
            distributed.all_reduce(value.mul_(weight / self.size))

    def from_first(self, make: Callable[[], Value]) -> Value:
        """What the first rank makes, or its mistake, on every rank."""
        if self.size == 1:
            return make()
        try:
            told: list[Any] = [make() if self.first else None]
        except SatlibError as error:
            told = [error]
        distributed.broadcast_object_list(told)
        if isinstance(told[0], SatlibError):
            raise told[0]
        return told[0]

    def any(self, mine: bool = False) -> bool:
        """Whether it is so on any rank; all wait for one another."""
        if self.size == 1:
            return mine
        found = torch.tensor([float(mine)])
        distributed.all_reduce(found)
        return found.item() > 0


class _Work(nn.Module):
    """A function of a batch, as a module that owns what learns in it."""

    def forward(self, *batch: Any) -> Any:
        """As `work`."""
        return self.work(*batch)


def _mean_by_rank(_: object, bucket: distributed.GradBucket) -> torch.futures.Future[Tensor]:
    """The mean of the ranks' gradients, added up in the order of ranks.

    gloo's own sum begins at a rank that depends on where a gradient lies in its bucket, and DistributedDataParallel fills its buckets
    otherwise after the first batch: from three ranks on, a run that was resumed would round otherwise than one that was not.
    """
    own, size = bucket.buffer(), distributed.get_world_size()
    parts = [torch.empty_like(own) for _ in range(size)]
    gathered = distributed.all_gather(parts, own, async_op=True).get_future()
    return gathered.then(lambda _: sum(parts[1:], parts[0]) / size)


def current() -> Ranks:
    """The ranks of the `launched` block that this is in."""
    return Ranks(distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else Ranks()


@contextmanager
def launched(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes of the run, for the length of a `with`; gives this one's device.

    Raises:
        SatlibError: a machine has fewer GPUs than processes, or another process has ended.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:  # torchrun's, as LOCAL_RANK is
        yield device
        return
    local = int(os.environ["LOCAL_RANK"])
    if device.type == "mps" or (device.type == "cuda" and local >= torch.cuda.device_count()):
        raise SatlibError(
            f"process {local + 1} of this machine has no GPU; lower --nproc-per-node, or add --device cpu"
        )
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield device
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and not any(word in str(error) for word in LOST):
            raise
        raise SatlibError(
            "another process of this run has ended, and this one with it; the same command goes on from the last checkpoint"
        ) from error
    distributed.destroy_process_group()
