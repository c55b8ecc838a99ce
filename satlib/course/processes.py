"""Several processes on one small training, started from a notebook (notebook 08); on a real machine torchrun starts them."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import multiprocessing

from satlib import datasets, distributed, recipe, training
from satlib.course import patches  # noqa: F401 (a process that starts afresh must know this encoder, too)
from satlib.features import FeatureStore


def train(size: int, name: str, changes: Sequence[str], store: Path, run: Path) -> None:
    """Train a recipe by `size` processes on this machine's CPU, over gloo.

    They are forks of this one where that is safe, so that nothing has to be imported again; else they are started afresh.

    Args:
        size: how many.
        name: the recipe's, with `changes` to it.
        changes: "section.key=value" each.
        store: the folder of the features.
        run: the folder of the run.

    Raises:
        torch.multiprocessing.ProcessRaisedException: what the first of them that failed has to say.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    method = "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"
    multiprocessing.start_processes(_rank, (size, port, name, tuple(changes), store, run), size, start_method=method)


def _rank(rank: int, size: int, port: int, name: str, changes: Sequence[str], store: Path, run: Path) -> None:
    torch.set_num_threads(1)  # threads of the parent are not there after a fork
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    chosen = recipe.load(name, changes)
    data = datasets.load(chosen.data.name)
    with distributed.launched(torch.device("cpu")) as device:
        training.train(chosen, data, FeatureStore(store), run, device, progress=False)
