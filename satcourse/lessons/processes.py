"""Distributed training on one machine, started from a notebook (notebook 08); elsewhere, torchrun starts the processes."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import multiprocessing

from satcourse.lessons import patches  # noqa: F401 (a spawned process must know this encoder, too)
from satlib import recipe
from satlib.data import datasets
from satlib.data.features import FeatureStore
from satlib.training import distributed, loop


def train(size: int, name: str, changes: Sequence[str], store: Path, run: Path) -> None:
    """Train a recipe with `size` processes on this machine's CPU, over gloo, from a feature store into the folder of a run.

    The processes are forked on Linux without CUDA, so that nothing has to be imported again; otherwise they are spawned.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    method = "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"
    multiprocessing.start_processes(_rank, (size, port, name, tuple(changes), store, run), size, start_method=method)


def _rank(rank: int, size: int, port: int, name: str, changes: Sequence[str], store: Path, run: Path) -> None:
    torch.set_num_threads(1)  # the parent's threads do not exist after a fork
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    chosen = recipe.load(name, changes)
    data = datasets.load(chosen.data.name)
    with distributed.launched(torch.device("cpu")) as device:
        loop.train(chosen, data, FeatureStore(store), run, device, progress=False)
