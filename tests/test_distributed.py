"""Several processes on one run: the same losses and weights as one, stopped, killed and resumed."""

import csv
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
import torch

from satlib import cli
from satlib.data import scenes
from satlib.data.batches import Batch
from satlib.model.captioner import read_safetensors
from satlib.training import distributed
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.loop import LOG

CLOCK = ("seconds", "tokens_per_second")
SURE = ("decoder.dropout=0.0", "training.average=0.9", "training.warmup=5")
HARD = ("decoder.attention=hard", "hard.expectation=0.0", "hard.samples=2")


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
            print(
                json.dumps({"size": size, "folder": str(folder), "changes": changes, "do": do} | more),
                file=server.stdin,
            )
            return json.loads(server.stdout.readline())

        yield job
        server.stdin.close()


@pytest.fixture(scope="module")
def once(do, tmp_path_factory):
    """Do a training the first time that it is asked for; give its `record`."""
    made = {}

    def run(size, *changes, **more):
        key = (size, changes, *more.items())
        if key not in made:
            made[key] = tmp_path_factory.mktemp("once")
            finished(do(size, made[key], *changes, **more))
        return record(made[key])

    return run


def finished(done):
    statuses, said = done
    assert set(statuses) == {0}, said


def record(folder):
    """A run's losses at every batch, what its log says, and the tensors of its checkpoint but for random numbers."""
    log = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    tensors = read_safetensors(folder / CHECKPOINT)[1]
    del tensors["random"]
    losses = json.loads((folder / "losses.json").read_text())
    return losses, [{k: v for k, v in line.items() if k not in CLOCK} for line in log], tensors


def apart(here, there):
    """The largest relative distance of losses and of figures in the log, and the largest of tensors, each as a whole."""
    (losses, log, tensors), (others, other_log, other_tensors) = here, there
    assert len(losses) == len(others) >= 20
    assert [line.keys() for line in log] == [line.keys() for line in other_log]
    lines = zip(log, other_log, strict=True)
    figures = [(line[name], other[name]) for line, other in lines for name in line if isinstance(line[name], float)]
    far = [abs(x - y) / max(abs(y), 1e-2) for x, y in [*zip(losses, others, strict=True), *figures]]
    assert tensors.keys() == other_tensors.keys()
    pairs = [(value, other_tensors[name]) for name, value in tensors.items() if value.is_floating_point()]
    return max(far), max(((x - y).norm() / y.norm().clamp(min=1e-12)).item() for x, y in pairs)


class TestShares:
    @pytest.mark.parametrize("rows", [1, 2, 3, 7, 8])
    @pytest.mark.parametrize("size", [1, 2, 3, 5])
    def test_every_row_has_one_rank_and_weights_make_the_mean(self, rows, size):
        batch = Batch([f"{i}" for i in range(rows)], torch.arange(2 * rows).view(rows, 2))
        losses = torch.randn(rows, dtype=torch.float64)
        shares = [distributed.Ranks(rank, size).share(batch) for rank in range(size)]
        assert sorted(image_id for share in shares if share.weight for image_id in share.image_ids) == sorted(
            batch.image_ids
        )
        for share in shares:
            assert share.captions.tolist() == batch.captions[[int(image_id) for image_id in share.image_ids]].tolist()
            assert len(share.image_ids) <= math.ceil(rows / size)
        means = [losses[[int(image_id) for image_id in share.image_ids]].mean() * share.weight for share in shares]
        torch.testing.assert_close(sum(means) / size, losses.mean())


class TestEquality:
    def test_soft(self, do, once, tmp_path):
        """In float64, where what rounding does is far below 1e-6. With three, rows divide badly and some ranks have none."""
        finished(do(3, tmp_path, *SURE, double=True))
        assert max(apart(record(tmp_path), once(1, *SURE, double=True))) < 1e-9

    @pytest.mark.parametrize("change", ["hard.reward=sentence", "hard.reward=to-come", "hard.baseline=leave-one-out"])
    def test_hard_with_the_likeliest_place(self, do, once, tmp_path, change):
        """The moving average of rewards is the joined batch's, too."""
        finished(do(3, tmp_path, *HARD, *SURE[:-1], change, double=True, peak=True))
        one = once(1, *HARD, *SURE[:-1], change, double=True, peak=True)
        assert max(apart(record(tmp_path), one)) < 1e-9


CASES = {
    "soft, with dropout": (),
    "hard": ("decoder.attention=hard", "hard.baseline=learned"),
    "an encoder that trains": ("encoder.train=true", "encoder.pretrained=false", "training.epochs=2"),
}


class TestStops:
    def same(self, folder, whole):
        (_, log, tensors), (_, other_log, others) = record(folder), whole
        assert log == other_log
        assert tensors.keys() == others.keys()
        assert all(torch.equal(value, others[name]) for name, value in tensors.items())

    @pytest.mark.parametrize("case", CASES)
    def test_asked_to_stop_and_resumed_is_the_run_that_was_not(self, do, tmp_path, case, once):
        """One rank is asked, all stop after the same batch, one says so."""
        statuses, said = do(2, tmp_path, *CASES[case], signal=[1, 11, signal.SIGTERM])
        assert statuses == [130, 130]
        assert "the same command resumes it" in said
        progress = read_safetensors(tmp_path / CHECKPOINT)[0]["progress"]
        assert 9 * progress["epoch"] + progress["batch"] in (11, 12)
        finished(do(2, tmp_path, *CASES[case]))
        self.same(tmp_path, once(2, *CASES[case]))

    def test_killed_and_resumed_is_the_run_that_was_not(self, do, tmp_path, once):
        case = "soft, with dropout"
        statuses, _ = do(2, tmp_path, *CASES[case], signal=[1, 12, signal.SIGKILL], seconds=0)
        assert statuses == [1, -signal.SIGKILL]
        progress = read_safetensors(tmp_path / CHECKPOINT)[0]["progress"]
        assert (progress["epoch"], progress["batch"]) == (1, 2)
        finished(do(2, tmp_path, *CASES[case]))
        self.same(tmp_path, once(2, *CASES[case]))

    def test_another_number_of_processes_goes_on(self, do, tmp_path):
        finished(do(2, tmp_path / "a", *SURE, double=True))
        do(3, tmp_path / "b", *SURE, double=True, signal=[2, 14, signal.SIGTERM])
        finished(do(1, tmp_path / "b", *SURE, double=True))
        tensors, others = (record(tmp_path / name)[2] for name in "ab")
        assert max((tensors[k].double() - others[k].double()).abs().max() for k in tensors) < 1e-9

    def test_rewards(self, do, tmp_path):
        finished(do(1, tmp_path / "start", "training.epochs=2"))
        changes = ("objective.maximise=reward", "training.batch_size=3")
        for name, number in (("whole", None), ("stopped", 9)):
            stop = {"signal": [0, number, signal.SIGTERM]} if number else {}
            do(2, tmp_path / name, *changes, start=str(tmp_path / "start"), **stop)
        finished(do(2, tmp_path / "stopped", *changes))
        self.same(tmp_path / "stopped", record(tmp_path / "whole"))
        assert all(line["train_reward"] > 0 for line in record(tmp_path / "whole")[1])


class TestFeatures:
    def test_the_same_bytes(self, do, tmp_path):
        finished(do(1, tmp_path / "one", do="features"))
        finished(do(3, tmp_path / "more", do="features"))
        names = sorted(path.name for path in (tmp_path / "one").iterdir())
        assert sorted(path.name for path in (tmp_path / "more").iterdir()) == names
        assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "more" / name).read_bytes() for name in names)

    @pytest.mark.parametrize("size", [1, 3])
    def test_killed_and_gone_on_with(self, do, tmp_path, size):
        finished(do(1, tmp_path / "one", do="features"))
        statuses, said = do(2, tmp_path / "more", do="features", signal=[1, 11, signal.SIGKILL])
        assert statuses == [1, -signal.SIGKILL]
        statuses, said = do(size, tmp_path / "more", do="features")
        assert statuses == [0] * size
        # Of its 23 images, each process had done two batches of 4.
        assert sum(int(count) for count in re.findall(r"(\d+) images", said)) == 7
        for path in (tmp_path / "one").iterdir():
            assert path.read_bytes() == (tmp_path / "more" / path.name).read_bytes()


def test_torchrun(tmp_path, capsys):
    """The launcher itself, on a folder of photographs: one of two processes is killed, and one process goes on with the run."""
    root = tmp_path / "photographs"
    root.mkdir()
    with open(root / "captions.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for i in range(6):
            scene = scenes.scene(f"train-{i:06}")
            scene.photo().save(root / f"{i}.png")
            table.writerows([f"{i}.png", caption, "dev" if i > 4 else "train"] for caption in scene.captions[:2])
    changes = (
        f"data.name={root}", "data.min_count=1", "encoder.name=small", "encoder.pretrained=false", "encoder.train=true",
        "decoder.embedding=8", "decoder.hidden=8", "training.batch_size=2", "training.average=0.0", "training.patience=9999",
        "decoding.max_length=4",
    )  # fmt: skip
    command = ["train", "own-folder", "--out", str(tmp_path / "run"), "--device", "cpu"]
    command += [word for change in changes for word in ("--set", change)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "satlib"]
    with subprocess.Popen(
        [*launch, *command, "--set", "training.epochs=9999"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        while not (tmp_path / "run" / LOG).exists():
            assert launcher.poll() is None, launcher.stderr.read()
            time.sleep(0.05)
        workers = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
        os.kill(max(int(number) for number in workers.stdout.split()), signal.SIGKILL)
        told, _ = launcher.communicate(timeout=120)
        assert launcher.returncode == 1
    assert told.count("epoch 1: train") == 1
    epoch = read_safetensors(tmp_path / "run" / CHECKPOINT)[0]["progress"]["epoch"]
    assert epoch >= 1
    assert cli.main([*command, "--set", f"training.epochs={epoch + 1}"]) == 0
    assert f"{tmp_path / 'run'} resumes after epoch {epoch}" in "".join(capsys.readouterr())
