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

SURE = ("decoder.dropout=0.0", "training.average=0.9", "training.warmup=5")
HARD = ("decoder.attention=hard", "hard.expectation=0.0", "hard.samples=2", *SURE[:-1])


@pytest.fixture(scope="module")
def do():
    """Do a job of `ranks`; give the exit statuses and what was said."""
    with subprocess.Popen(
        [sys.executable, ranks.__file__],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as server:

        def job(size, folder, *changes, do="train", **more):
            line = {"size": size, "folder": str(folder), "changes": changes, "do": do} | more
            print(json.dumps(line), file=server.stdin)
            return json.loads(server.stdout.readline())

        yield job
        server.stdin.close()


def finished(done):
    statuses, said = done
    assert set(statuses) == {0}, said


def progress(folder):
    return read_safetensors(folder / CHECKPOINT)[0]["progress"]


def record(folder):
    """A run's losses at every batch, what its log says, and the tensors of its checkpoint but for random numbers."""
    tensors = read_safetensors(folder / CHECKPOINT)[1]
    del tensors["random"]
    return (
        json.loads((folder / "losses.json").read_text()),
        without_clock(tiny.log(folder)),
        tensors,
    )


def apart(here, there):
    """The largest relative distance of losses and of figures in the log, and the largest of tensors, each as a whole."""
    (losses, log, tensors), (others, other_log, other_tensors) = here, there
    assert len(losses) == len(others) >= 20
    assert [line.keys() for line in log] == [line.keys() for line in other_log]
    lines = zip(log, other_log, strict=True)
    figures = [
        (line[name], other[name])
        for line, other in lines
        for name in line
        if isinstance(line[name], float)
    ]
    far = [abs(x - y) / max(abs(y), 1e-2) for x, y in [*zip(losses, others, strict=True), *figures]]
    assert tensors.keys() == other_tensors.keys()
    pairs = [
        (value, other_tensors[name]) for name, value in tensors.items() if value.is_floating_point()
    ]
    return max(far), max(((x - y).norm() / y.norm().clamp(min=1e-12)).item() for x, y in pairs)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_row_has_one_rank_and_weights_make_the_mean(rows, size):
    batch = Batch([f"{i}" for i in range(rows)], torch.arange(2 * rows).view(rows, 2))
    losses = torch.randn(rows, dtype=torch.float64)
    shares = [distributed.Ranks(rank, size).share(batch) for rank in range(size)]
    own = [[int(image_id) for image_id in share.image_ids] for share in shares]
    assert sorted(
        i for part, share in zip(own, shares, strict=True) if share.weight for i in part
    ) == list(range(rows))
    for part, share in zip(own, shares, strict=True):
        assert share.captions.tolist() == batch.captions[part].tolist()
        assert len(part) <= math.ceil(rows / size)
    means = [losses[part].mean() * share.weight for part, share in zip(own, shares, strict=True)]
    torch.testing.assert_close(sum(means) / size, losses.mean())


class TestEquality:
    """In float64, where what rounding does is far below 1e-6. With three, rows divide badly and some ranks have none."""

    def test_soft(self, do, tmp_path):
        for size in (1, 3):
            finished(do(size, tmp_path / str(size), *SURE, double=True))
        assert max(apart(record(tmp_path / "3"), record(tmp_path / "1"))) < 1e-9

    @pytest.mark.parametrize("change", ["hard.reward=to-come", "hard.baseline=leave-one-out"])
    def test_hard_with_the_likeliest_place(self, do, tmp_path, change):
        """The moving average of rewards is the joined batch's, too."""
        for size in (1, 3):
            finished(do(size, tmp_path / str(size), *HARD, change, double=True, peak=True))
        assert max(apart(record(tmp_path / "3"), record(tmp_path / "1"))) < 1e-9

    def test_another_number_of_processes_goes_on(self, do, tmp_path):
        finished(do(1, tmp_path / "1", *SURE, double=True))
        do(3, tmp_path / "3", *SURE, double=True, signal=[2, 14, signal.SIGTERM])
        finished(do(2, tmp_path / "3", *SURE, double=True))
        tensors, others = (record(tmp_path / name)[2] for name in "13")
        assert max((tensors[k].double() - others[k].double()).abs().max() for k in tensors) < 1e-9


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
    ("case", "number"), [(case, signal.SIGTERM) for case in CASES] + [("hard", signal.SIGKILL)]
)
def test_stopped_and_resumed_is_the_run_that_was_not(do, tmp_path, case, number):
    """One of two ranks is asked to stop, and all stop after the same batch; or it is killed, and the other one fails."""
    more, killed = {}, number == signal.SIGKILL
    if case == "rewards":
        finished(do(1, tmp_path / "start", "training.epochs=1"))
        more["start"] = str(tmp_path / "start")
    finished(do(2, tmp_path / "whole", *CASES[case], **more))
    stop = {"signal": [1, 11, number], "seconds": 0 if killed else 600}
    statuses, said = do(2, tmp_path / "stopped", *CASES[case], **more, **stop)
    assert statuses == ([1, -number] if killed else [130, 130])
    assert killed or "the same command resumes it" in said
    p = progress(tmp_path / "stopped")
    batches = 7 if case == "rewards" else 9
    assert batches * p["epoch"] + p["batch"] in ((10,) if killed else (11, 12))
    finished(do(2, tmp_path / "stopped", *CASES[case], **more))
    (_, log, tensors), (_, other_log, others) = (
        record(tmp_path / name) for name in ("stopped", "whole")
    )
    assert log == other_log
    assert tensors.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in tensors.items())


def test_features_are_the_same_bytes_also_after_a_process_was_killed(do, tmp_path):
    finished(do(1, tmp_path / "one", do="features"))
    finished(do(3, tmp_path / "three", do="features"))
    statuses, _ = do(2, tmp_path / "killed", do="features", signal=[1, 11, signal.SIGKILL])
    assert statuses == [1, -signal.SIGKILL]
    statuses, said = do(3, tmp_path / "killed", do="features")
    assert statuses == [0] * 3
    # Of its 23 images, each process had done two batches of 4.
    assert sum(int(count) for count in re.findall(r"(\d+) images", said)) == 7
    for path in (tmp_path / "one").iterdir():
        for other in ("three", "killed"):
            assert path.read_bytes() == (tmp_path / other / path.name).read_bytes()


def test_torchrun(tmp_path, capsys):
    """The launcher, on a folder of photographs: one of two processes is killed; one goes on with the run."""
    root, run = tmp_path / "photographs", tmp_path / "run"
    tiny.save(scenes.load(5, 1, 0), root)
    changes = (
        f"data.name={root}", "data.min_count=1", "encoder.name=small", "encoder.pretrained=false", "encoder.train=true",
        "decoder.embedding=8", "decoder.hidden=8", "training.batch_size=2", "training.average=0.0", "training.patience=9999",
        "decoding.max_length=4",
    )  # fmt: skip
    command = ["train", "own-folder", "--out", str(run), "--device", "cpu"]
    command += [word for change in changes for word in ("--set", change)]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "satlib",
    ]
    with subprocess.Popen(
        [*launch, *command, "--set", "training.epochs=9999"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        while not (run / LOG).exists():
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(0.05)
        workers = subprocess.run(
            ["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True
        )
        os.kill(max(int(number) for number in workers.stdout.split()), signal.SIGKILL)
        told, _ = launcher.communicate(timeout=120)
        assert launcher.returncode == 1
    assert told.count("epoch 1: train") == 1
    epoch = progress(run)["epoch"]
    assert epoch >= 1
    assert cli.main([*command, "--set", f"training.epochs={epoch + 1}"]) == 0
    assert f"{run} resumes after epoch {epoch}" in "".join(capsys.readouterr())
