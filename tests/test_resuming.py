"""Resuming is bit for bit not having stopped; what a kill leaves is whole; what training does, against hand-made numbers."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from satlib import recipe, training
from satlib.batching import Pair, SameLengthBatches
from satlib.captioner import Captioner, read_safetensors
from satlib.datasets import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.files import replacing

COLOURS, ANIMALS = ("red", "blue", "green"), ("dog", "cat", "bird", "fish")
SMALL = (
    "data.min_count=1",
    "encoder.name=small",
    "encoder.pretrained=false",
    "encoder.train=true",  # the reader gives annotation vectors all the same, so that none is computed
    "decoder.embedding=8",
    "decoder.hidden=12",
    "decoder.attention_hidden=6",
    "training.batch_size=4",
    "training.epochs=2",
    "training.learning_rate=0.01",
    "decoding.max_length=8",
)


def example(i, split="train"):
    colour, animal = COLOURS[i % 3], ANIMALS[i % 4]
    return Example(f"{split}-{i}", split, (f"A {colour} {animal}.", f"There is a {colour} {animal} here."))


DATA = CaptionSet("tiny", tuple([example(i) for i in range(12)] + [example(i, "dev") for i in range(4)]))


class Vectors:
    """Annotation vectors that say what the caption says; can send a signal at the n-th batch, or spoil an image."""

    def __init__(self, signal_at=None, number=signal.SIGTERM, spoilt=None):
        self.reads, self.signal_at, self.number, self.spoilt = 0, signal_at, number, spoilt

    def read(self, keys):
        self.reads += 1
        if self.reads == self.signal_at:
            os.kill(os.getpid(), self.number)
        a = torch.zeros(len(keys), 49, 128)
        for row, key in enumerate(keys):
            i = int(key.split("-")[1])
            a[row, i % 49, i % 3] = a[row, (i + 7) % 49, 8 + i % 4] = 20.0
            if key == self.spoilt:
                a[row, 0, 0] = math.nan
        return a


def tiny(*changes):
    return recipe.load("flickr8k-lite0-soft", [*SMALL, *changes])


def run(folder, reader=None, *changes, data=DATA):
    return training.train(tiny(*changes), data, reader or Vectors(), folder, progress=False)


def tensors(folder):
    return {
        (file, name): value
        for file in (training.MODEL, training.CHECKPOINT)
        for name, value in read_safetensors(folder / file)[1].items()
    }


def records(folder):
    lines = [json.loads(line) for line in (folder / training.LOG).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def assert_same_run(one, other):
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    assert not [name for name in first if not torch.equal(first[name], second[name])]
    assert records(one) == records(other)


@pytest.mark.parametrize(
    "changes",
    [
        ("training.optimiser=adam", "training.average=0.9", "decoder.dropout=0.5"),
        ("training.optimiser=rmsprop", "training.average=0.0", "training.schedule=constant"),
    ],
)
@pytest.mark.parametrize(("signal_at", "number"), [(3, signal.SIGTERM), (9, signal.SIGINT)])
def test_resuming_is_bit_for_bit_not_having_stopped(tmp_path, changes, signal_at, number):
    run(tmp_path / "whole", None, *changes)
    with pytest.raises(training.Interrupted, match="the same command goes on"):
        run(tmp_path / "stopped", Vectors(signal_at, number), *changes)
    run(tmp_path / "stopped", None, *changes)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_another_seed_is_another_run(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b", None, "training.seed=1")
    assert records(tmp_path / "a") != records(tmp_path / "b")


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
import test_resuming as t
class Slow(t.Vectors):
    def read(self, keys):
        time.sleep(0.01)
        return super().read(keys)
print("ready", flush=True)
t.run(Path({folder!r}), Slow(), "training.epochs=6", "training.patience=6")
"""


def test_kill_9_leaves_whole_files_and_going_on_ends_at_the_same_weights(tmp_path):
    run(tmp_path / "whole", None, "training.epochs=6", "training.patience=6")
    folder = tmp_path / "killed"
    script = textwrap.dedent(KILLED.format(tests=os.path.dirname(__file__), folder=str(folder)))
    kills = 0
    for moment in (0.3, 0.9, 1.6):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.stdout.close()
        for path in folder.glob("*.safetensors"):
            read_safetensors(path)  # raises where a file is not whole
        if (folder / training.LOG).exists():
            records(folder)
    assert kills
    run(folder, None, "training.epochs=6", "training.patience=6")
    assert_same_run(tmp_path / "whole", folder)


def test_a_loss_that_is_not_finite_names_its_batch_and_keeps_the_checkpoint(tmp_path):
    run(tmp_path, None, "training.epochs=1", "training.batch_size=2")
    before = (tmp_path / training.CHECKPOINT).read_bytes()
    with pytest.raises(SatlibError, match=r"the loss is nan at batch \d+ of epoch 2, images .*train-5") as caught:
        run(tmp_path, Vectors(spoilt="train-5"), "training.epochs=2", "training.batch_size=2")
    assert "\n" not in str(caught.value)
    assert (tmp_path / training.CHECKPOINT).read_bytes() == before


def test_a_folder_of_another_run_is_refused(tmp_path):
    run(tmp_path, None, "training.epochs=1")
    with pytest.raises(SatlibError, match=r"begun with another decoder.dropout"):
        run(tmp_path, None, "decoder.dropout=0.25")
    other = CaptionSet("tiny", (*DATA.examples, Example("train-99", "train", ("A purple cow.",))))
    with pytest.raises(SatlibError, match="other training captions"):
        run(tmp_path, None, data=other)
    (tmp_path / training.CHECKPOINT).unlink()
    with pytest.raises(SatlibError, match="finished model without a checkpoint"):
        run(tmp_path)


def test_a_checkpoint_cut_short_is_not_taken_for_a_whole_one(tmp_path):
    run(tmp_path, None, "training.epochs=1")
    path = tmp_path / training.CHECKPOINT
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SatlibError, match="damaged or cut short"):
        run(tmp_path)


def test_train_and_dev_are_needed(tmp_path):
    with pytest.raises(SatlibError, match="needs images in both its train and its dev split"):
        run(tmp_path, data=CaptionSet("tiny", DATA.examples[:12]))


def test_patience_stops_early(tmp_path):
    run(tmp_path, None, "training.epochs=50", "training.patience=2", "training.learning_rate=0.0")
    assert len(records(tmp_path)) == 3  # nothing learnt: the first epoch stays the best, and two are waited for


@pytest.mark.parametrize(("select", "key", "best"), [("bleu4", "dev_bleu4", max), ("nll", "dev_nll", min)])
def test_the_epoch_that_is_kept(tmp_path, select, key, best):
    run(tmp_path, None, "training.epochs=5", "training.learning_rate=0.03", f"training.select={select}")
    log = records(tmp_path)
    kept = [record for record in log if record["kept"]][-1]
    assert kept[key] == best(record[key] for record in log)


def test_a_full_disk_leaves_the_old_file_whole(tmp_path):
    """A real limit on the size of files, in a process of its own; the write fails in its middle."""
    script = f"""
import resource, signal, sys
from pathlib import Path
import torch
from satlib.captioner import write_safetensors
from satlib.errors import SatlibError
from satlib.files import write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path({str(tmp_path)!r}) / "weights.safetensors"
write_safetensors(path, {{"a": torch.ones(3)}}, {{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (lambda: write_safetensors(path, {{"a": torch.ones(10_000)}}, {{}}), lambda: write_text(path, "a" * 10_000)):
    try:
        write()
    except SatlibError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done
    assert all("cannot write" in line and "free some space" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
    with replacing(tmp_path / "new") as partial:
        partial.write_text("x")
    assert (tmp_path / "new").read_text() == "x"


def test_learning_rate_by_hand():
    config = tiny("training.warmup=4", "training.schedule=cosine").training
    factors = [training.learning_rate_factor(config, step, 100) for step in (0, 1, 3, 50, 100)]
    assert factors == pytest.approx(
        [0.25, 0.5 * 0.5 * (1 + math.cos(math.pi / 100)), 0.5 * (1 + math.cos(3 * math.pi / 100)), 0.5, 0], abs=1e-12
    )
    constant = tiny("training.warmup=0", "training.schedule=constant").training
    assert training.learning_rate_factor(constant, 77, 100) == 1


def test_average_by_hand(tmp_path):
    captioner = run(tmp_path)
    other = Captioner.load(tmp_path)
    with torch.no_grad():
        captioner.decoder.output.bias.fill_(1.0)
        other.decoder.output.bias.fill_(3.0)
    training.update_average(captioner, other, 0.75)
    torch.testing.assert_close(captioner.decoder.output.bias, torch.full_like(other.decoder.output.bias, 1.5))


def test_rmsprop_is_graves_form():
    """n and g are moving averages of the squared and the plain gradient; the step is -lr grad / sqrt(n - g^2 + eps), with momentum."""
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    captioner = type("Holder", (), {"decoder": torch.nn.ParameterList([weight]), "encoder": torch.nn.Identity()})()
    optimiser = training._optimiser(captioner, tiny("training.optimiser=rmsprop"))
    expected, n, g, delta = weight.detach().clone(), 0.0, 0.0, 0.0
    for step in range(4):
        gradient = torch.tensor([0.3 + step, -0.1 * step])
        weight.grad = gradient.clone()
        optimiser.step()
        n, g = 0.95 * n + 0.05 * gradient**2, 0.95 * g + 0.05 * gradient
        delta = 0.9 * delta + gradient / ((n - g**2).sqrt() + 1e-4)
        expected = expected - 0.01 * delta
        torch.testing.assert_close(weight.detach(), expected)


def test_the_model_learns_eight_captions_by_heart(tmp_path):
    data = CaptionSet(
        "tiny",
        tuple(
            Example(f"{split}-{i}", split, example(i).references[:1]) for split in ("train", "dev") for i in range(8)
        ),
    )
    changes = (
        "training.epochs=80",
        "training.patience=80",
        "training.average=0.0",
        "decoder.dropout=0.0",
        "decoding.beam=1",
    )
    captioner = run(tmp_path, None, *changes, "training.learning_rate=0.02", data=data)
    keys = [e.key for e in data.split("dev")]
    found = [captioner.read(h[0]).text for h in captioner.hypotheses(Vectors().read(keys), beam=1)]
    assert found == [e.references[0].lower().rstrip(".") for e in data.split("dev")]
    vocabulary = captioner.vocabulary
    pairs = [Pair(e.key, (*vocabulary.encode(e.references[0]), 0)) for e in data.split("dev")]
    assert training.dev_nll(captioner, Vectors(), pairs, 4) < 0.2
    assert len(SameLengthBatches(pairs, 4)) == 2
