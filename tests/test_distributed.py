"""Several processes on one run: the same losses and weights as one, stopped, killed and resumed."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import ranks
import tiny
import torch
from runs import without_clock

from satlib import cli
from satlib.data import scenes
from satlib.data.batches import Batch
from satlib.model.captioner import read_safetensors
from satlib.training import distributed
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.loop import LOG

# Without dropout: several processes draw other masks than one does.
SURE = ("decoder.dropout=0.0", "training.average=0.9")
SOFT = (*SURE, "training.warmup=5")
HARD = (*SURE, "decoder.attention=hard", "hard.expectation=0.0", "hard.samples=2")
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def do():
    """Do a job of `ranks`; give the exit statuses and what was said."""
    with subprocess.Popen(
        [sys.executable, ranks.__file__],
        env=ONE_THREAD,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as server:

        def job(size, folder, *changes, do="train", **more):
            line = {"size": size, "folder": str(folder), "changes": changes, "do": do}
            print(json.dumps(line | more), file=server.stdin)
            return json.loads(server.stdout.readline())

        yield job
        server.stdin.close()


def finished(done):
    statuses, said = done
    assert set(statuses) == {0}, said
    # PyTorch would warn that it searches in vain.
    assert "find_unused_parameters" not in said


def progress(folder):
    return read_safetensors(folder / CHECKPOINT)[0]["progress"]


def record(folder):
    """A run's losses at every batch, its log, and its checkpoint's tensors but random numbers."""
    _, tensors = read_safetensors(folder / CHECKPOINT)
    # Each rank has its own random numbers; the file holds those of the first.
    del tensors["random"]
    losses = json.loads((folder / "losses.json").read_text())
    return losses, without_clock(tiny.log(folder)), tensors


def apart(here, there):
    """The largest relative distance of losses, figures in the log and whole tensors."""
    losses, log, tensors = here
    other_losses, other_log, other_tensors = there

    # All numbers that are compared one by one, in pairs.
    assert len(losses) == len(other_losses) >= 20
    pairs = list(zip(losses, other_losses, strict=True))
    for line, other_line in zip(log, other_log, strict=True):
        assert line.keys() == other_line.keys()
        pairs += [(x, other_line[name]) for name, x in line.items() if isinstance(x, float)]
    distances = [abs(x - y) / max(abs(y), 1e-2) for x, y in pairs]

    assert tensors.keys() == other_tensors.keys()
    for name, x in tensors.items():
        y = other_tensors[name]
        if x.is_floating_point():
            distance = (x - y).norm() / y.norm().clamp(min=1e-12)
            distances.append(distance.item())
    return max(distances)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_row_has_one_rank_and_weights_make_the_mean(rows, size):
    # An image's name is the number of its row.
    names = [f"{i}" for i in range(rows)]
    batch = Batch(names, torch.arange(2 * rows).view(rows, 2))
    losses = torch.randn(rows, dtype=torch.float64)

    seen = []
    total = 0.0
    for rank in range(size):
        share = distributed.Ranks(rank, size).share(batch)
        part = [int(image_id) for image_id in share.image_ids]
        assert share.captions.tolist() == batch.captions[part].tolist()
        assert len(part) <= math.ceil(rows / size)
        # A rank without rows of its own has another's, which weighs nothing.
        if share.weight:
            seen += part
        total += losses[part].mean() * share.weight

    assert sorted(seen) == list(range(rows))
    # torch averages gradients over the ranks.
    torch.testing.assert_close(total / size, losses.mean())


class TestEquality:
    """In float64, where what rounding does is far below 1e-6.

    With three, rows divide badly and some ranks have none.
    """

    def test_soft(self, do, tmp_path):
        one = tmp_path / "1"
        three = tmp_path / "3"
        finished(do(1, one, *SOFT, double=True))
        finished(do(3, three, *SOFT, double=True))
        assert apart(record(three), record(one)) < 1e-9

    def test_an_encoder_with_a_classifier_that_nothing_uses(self, do, tmp_path):
        """PyTorch does not wait for its gradient."""
        changes = ("encoder.name=headed", "encoder.train=true", "encoder.frozen_statistics=true")
        one = tmp_path / "1"
        two = tmp_path / "2"
        finished(do(1, one, *SOFT, *changes, double=True))
        finished(do(2, two, *SOFT, *changes, double=True))
        assert apart(record(two), record(one)) < 1e-9

    @pytest.mark.parametrize("change", ["hard.reward=to-come", "hard.baseline=leave-one-out"])
    def test_hard_with_the_likeliest_place(self, do, tmp_path, change):
        """The moving average of rewards is the joined batch's, too."""
        one = tmp_path / "1"
        three = tmp_path / "3"
        finished(do(1, one, *HARD, change, double=True, peak=True))
        finished(do(3, three, *HARD, change, double=True, peak=True))
        assert apart(record(three), record(one)) < 1e-9

    def test_another_number_of_processes_goes_on(self, do, tmp_path):
        one = tmp_path / "1"
        three = tmp_path / "3"
        finished(do(1, one, *SOFT, double=True))
        do(3, three, *SOFT, double=True, signal=[2, 14, signal.SIGTERM])
        finished(do(2, three, *SOFT, double=True))

        _, _, tensors = record(one)
        _, _, others = record(three)
        # Not `apart`: the losses are only those since the run was resumed.
        for name, x in tensors.items():
            distance = (x.double() - others[name].double()).abs()
            assert distance.max() < 1e-9


CASES = {
    "soft, with dropout": (),
    "hard": ("decoder.attention=hard", "hard.baseline=learned"),
    "an encoder that trains": (
        "encoder.train=true",
        "encoder.pretrained=false",
        "training.epochs=2",
    ),
    "rewards": ("objective.maximise=reward", "training.batch_size=3"),
}


@pytest.mark.parametrize(
    ("case", "number"),
    [
        *[(case, signal.SIGTERM) for case in CASES],
        ("hard", signal.SIGKILL),
    ],
)
def test_stopped_and_resumed_is_the_run_that_was_not(do, tmp_path, case, number):
    """One of two ranks is asked to stop, and all stop after the same batch; or it is killed, and
    the other one fails.
    """
    killed = number == signal.SIGKILL
    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    changes = CASES[case]
    more = {}
    if case == "rewards":
        # Rewards are for a model that says something already.
        more["start"] = str(tmp_path / "start")
        finished(do(1, tmp_path / "start", "training.epochs=1"))
    finished(do(2, whole, *changes, **more))

    # Who is killed cannot save, so a checkpoint is written after every batch.
    seconds = 0 if killed else 600
    statuses, said = do(2, stopped, *changes, **more, signal=[1, 11, number], seconds=seconds)
    if killed:
        assert statuses == [1, -number]
    else:
        assert statuses == [130, 130]
        assert "the same command resumes it" in said

    # The signal came after batch 11, and a kill before that batch's checkpoint; the other rank may
    # learn of a stop a batch later.
    at = progress(stopped)
    batches = 7 if case == "rewards" else 9
    done = batches * at["epoch"] + at["batch"]
    assert done in ((10,) if killed else (11, 12))

    finished(do(2, stopped, *changes, **more))
    _, log, tensors = record(stopped)
    _, other_log, others = record(whole)
    assert log == other_log
    assert tensors.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in tensors.items())


def test_features_are_the_same_bytes_also_after_a_process_was_killed(do, tmp_path):
    one = tmp_path / "one"
    three = tmp_path / "three"
    killed = tmp_path / "killed"
    finished(do(1, one, do="features"))
    finished(do(3, three, do="features"))

    statuses, _ = do(2, killed, do="features", signal=[1, 11, signal.SIGKILL])
    assert statuses == [1, -signal.SIGKILL]
    statuses, said = do(3, killed, do="features")
    assert statuses == [0] * 3

    # Of its 23 images, each process had done two batches of 4.
    counts = re.findall(r"(\d+) images", said)
    assert sum(map(int, counts)) == 7
    for path in one.iterdir():
        assert path.read_bytes() == (three / path.name).read_bytes()
        assert path.read_bytes() == (killed / path.name).read_bytes()


def test_torchrun(tmp_path, capsys):
    """The launcher, on a folder of photographs: one of two processes is killed; one goes on with
    the run.
    """
    root = tmp_path / "photographs"
    run = tmp_path / "run"
    tiny.save(scenes.load(5, 1, 0), root)
    command = ["train", "own-folder", "--out", str(run), "--device", "cpu"]
    for change in (
        f"data.name={root}",
        "data.min_count=1",
        "encoder.name=small",
        "encoder.pretrained=false",
        "encoder.train=true",
        "decoder.embedding=8",
        "decoder.hidden=8",
        "training.batch_size=2",
        "training.average=0.0",
        "training.patience=9999",
        "decoding.max_length=4",
    ):
        command += ["--set", change]

    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    # So many epochs that it cannot end before it is killed.
    words = [*launch, "-m", "satlib", *command, "--set", "training.epochs=9999"]
    with subprocess.Popen(
        words,
        env=ONE_THREAD,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        # The first line of the log says that an epoch is over.
        while not (run / LOG).exists():
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(0.05)

        find = ["pgrep", "-P", str(launcher.pid)]
        workers = subprocess.run(find, capture_output=True, text=True, check=True)
        os.kill(max(map(int, workers.stdout.split())), signal.SIGKILL)
        told, _ = launcher.communicate(timeout=120)
        assert launcher.returncode == 1

    # One rank speaks for all.
    assert told.count("epoch 1: train") == 1
    epoch = progress(run)["epoch"]
    assert epoch >= 1
    assert cli.main([*command, "--set", f"training.epochs={epoch + 1}"]) == 0
    assert f"{run} resumes after epoch {epoch}" in "".join(capsys.readouterr())
