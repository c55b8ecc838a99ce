"""Processes of one run, forked from one that has imported everything: torchrun without its four
seconds a process.

Reads jobs from standard input, a line of JSON each:

    {"size": processes, "folder": its run or store, "do": "train" or "features",
     "changes": [section.key=value, ...], "double": float64?, "start": a run?,
     "signal": [rank, update or image, number]?, "seconds": save_seconds?,
     "peak": take the likeliest place in place of a drawn one?}

Answers a line with [exit statuses, what they said]. A run's loss at every batch goes to
losses.json.
"""

import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import tiny
import torch

from satlib.data import features
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model import encoders
from satlib.model.attention import HardAttention
from satlib.training import distributed, loop
from satlib.training.features import extract as extract_features


class Reader(tiny.Reader):
    """In the precision that was asked for."""

    def read(self, image_ids):
        return super().read(image_ids).to(torch.get_default_dtype())


def headed(pretrained):
    """The tiny encoder, with a head that nothing uses."""
    encoder = tiny.build(pretrained)
    encoder.head = torch.nn.Linear(tiny.DIM, 3)
    return encoder


encoders.register("headed", headed)


def train(job):
    """Train as the job says, and write down the loss at every batch."""
    rank, number, kind = job.get("signal", (None, None, None))
    losses = []
    update = loop.Trainer.update

    def so_far(session):
        sums = session.state.progress.sums
        return sums.get("nll", sums.get("reward", 0.0))

    def watched(session, *arguments):
        before = so_far(session)
        update(session, *arguments)
        losses.append(so_far(session) - before)
        # A signal to oneself arrives between two updates, at the same one in every run.
        if (distributed.current().rank, len(losses)) == (rank, number):
            os.kill(os.getpid(), kind)

    loop.Trainer.update = watched
    if "peak" in job:
        # Ranks draw other samples than one process does; the likeliest place is the same for all.
        HardAttention.draw = staticmethod(lambda alpha: alpha.argmax(-1))

    chosen = tiny.the_recipe(*job["changes"])
    data = tiny.data()
    reader = features.Pixels(data) if chosen.encoder.train else Reader()
    folder = Path(job["folder"])
    start = Path(job["start"]) if "start" in job else None
    seconds = job.get("seconds", 600)
    with distributed.launched(torch.device("cpu")) as device:
        options = {"progress": False, "start": start, "save_seconds": seconds}
        loop.train(chosen, data, reader, folder, device, **options)
        if distributed.current().first:
            (folder / "losses.json").write_text(json.dumps(losses))


def extract(job):
    """Compute features as the job says, and say how many images this process encoded."""
    rank, number, kind = job.get("signal", (None, None, None))
    encoded = []
    true = encoders.Encoder.forward

    def forward(encoder, batch):
        encoded.extend(batch)
        if os.environ.get("RANK") == str(rank) and len(encoded) >= number:
            os.kill(os.getpid(), kind)
        return true(encoder, batch)

    encoders.Encoder.forward = forward
    data = tiny.data(20, 2, 1)
    encoder = encoders.create("tiny")
    with distributed.launched(torch.device("cpu")) as device:
        extract_features(data, encoder, Path(job["folder"]), device, 4, False)
        print(f"{len(encoded)} images", file=sys.stderr)


def process(job, rank, port, said):
    """Do a job as one of its processes; the exit status."""
    os.dup2(said, 2)
    # Once after the fork: several threads would later replace torch's pool at the same time.
    torch.set_num_threads(1)
    if job["size"] > 1:
        # What torchrun tells its workers.
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(job["size"]),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }
    if job.get("double"):
        torch.set_default_dtype(torch.float64)

    try:
        if job["do"] == "train":
            train(job)
        else:
            extract(job)
    except SatlibError as error:
        print(f"{rank}: {error}", file=sys.stderr, flush=True)
        return 130 if isinstance(error, loop.Interrupted) else 2

    # Python aborts when a thread of a process group ends after Python itself; Linux has names for
    # threads.
    threads = Path("/proc/self/task").glob("*")
    names = [(thread / "comm").read_text().strip() for thread in threads]
    left = [name for name in names if "gloo" in name]
    if left:
        print(f"{rank}: still alive: {left}", file=sys.stderr, flush=True)
        return 3
    return 0


def free_port():
    """A port that nobody listens on.

    It is below those that a system gives to outgoing connections, one of which could take it again.
    """
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            port = random.randrange(15000, 32000)
            free.bind(("127.0.0.1", port))
            return port


def fork(job, rank, port, said):
    """The number of a new process that does a job and ends with its status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = process(job, rank, port, said)
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            # Not sys.exit: the child must not go on with the loop over standard input.
            os._exit(status)
    return child


def main():
    torch.set_num_threads(1)
    encoders._BUILDERS["tiny"] = tiny.build
    plots.curves_figure = lambda history: plots.Figure(figsize=(0.1, 0.1))

    # What a training imports now is not imported again in each process.
    with tempfile.TemporaryDirectory() as folder:
        chosen = tiny.the_recipe("training.epochs=1")
        loop.train(chosen, tiny.data(), Reader(), Path(folder), progress=False)

    for line in sys.stdin:
        job = json.loads(line)
        port = free_port()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
            children = [fork(job, rank, port, said.fileno()) for rank in range(job["size"])]
            statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            said.seek(0)
            print(json.dumps([statuses, said.read()]), flush=True)


if __name__ == "__main__":
    # Ctrl-C ends this server without a traceback of its own beside that of the tests.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
