"""Does an interrupted training end with the bits of one that was not? `python tools/kills.py --kills 50 --recipe scenes-hard`.

Trains a recipe at small size on a few drawn scenes, once from beginning to end. Then starts the same `satlib train` again and
again, interrupts it by SIGKILL, SIGINT or SIGTERM at random moments, and resumes it until each run has ended. Compares the
files: every tensor of checkpoint and model, the optimiser's state among them, and the log but for its clock. Exit status 1 where
anything differs, or where a command fails for another reason than the signal.
"""

import argparse
import json
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from satlib import recipe
from satlib.captioner import read_safetensors
from satlib.datasets import folder, scenes
from satlib.training import CHECKPOINT, LOG, MODEL

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
CLOCK = ("seconds", "tokens_per_second")
SMALL = (
    "data.min_count=1", "data.train_images=0", "decoder.embedding=32", "decoder.hidden=32", "decoder.attention_hidden=16",
    "training.batch_size=4", "training.epochs=4", "training.patience=4", "decoding.max_length=10",
)  # fmt: skip


def differences(one: Path, other: Path) -> list[str]:
    """What two runs' folders say differently: names of tensors, of entries and of files; empty where they are the same bits."""
    names, others = ({path.name for path in run.iterdir()} for run in (one, other))
    found = [f"{name} is in one of them only" for name in sorted(names ^ others)]
    for name in sorted({CHECKPOINT, MODEL} & names & others):
        (header, tensors), (other_header, other_tensors) = (read_safetensors(run / name) for run in (one, other))
        found += [f"{name}: {key}" for key in sorted(tensors.keys() ^ other_tensors.keys())]
        found += [
            f"{name}: {key}"
            for key in sorted(tensors.keys() & other_tensors.keys())
            if not _same_bits(tensors[key], other_tensors[key])
        ]
        here, there = _without_clock(header), _without_clock(other_header)
        found += [
            f"{name}: {key} of its header" for key in here.keys() | there.keys() if here.get(key) != there.get(key)
        ]
    if LOG in names & others:
        logs = [[json.loads(line) for line in (run / LOG).read_text().splitlines()] for run in (one, other)]
        found += [LOG] if _without_clock(logs[0]) != _without_clock(logs[1]) else []
    for name in sorted({"recipe.toml", "vocabulary.json"} & names & others):
        found += [name] if (one / name).read_bytes() != (other / name).read_bytes() else []
    return found


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Also of signed zeros, which compare as equal."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.numpy().tobytes() == other.numpy().tobytes()


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(each) for key, each in value.items() if key not in CLOCK}
    return [_without_clock(each) for each in value] if isinstance(value, list) else value


class Failed(Exception):  # noqa: N818 (what happened, not an error of this program)
    """A command ended otherwise than it should have; says how."""


def interrupted(command: Sequence[str], run: Path, number: signal.Signals, after: float | None, trains: bool) -> bool:
    """Start a command and send it a signal; whether it was still running then.

    Args:
        command: `satlib train`.
        run: its folder.
        number: the signal.
        after: seconds from the command's start, or from the moment when it has written a checkpoint; None: no signal.
        trains: the latter.

    Raises:
        Failed: it ended by itself with an error, or took the signal otherwise than by stopping.
    """
    before = written(run)
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        while trains and written(run) == before and process.poll() is None:
            time.sleep(0.01)
        try:
            process.wait(after)
            running = False
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            process.wait()
            running = True
        said.seek(0)
        last = said.read().strip().splitlines()[-1:]
    # 130 is satlib's for a stop. Before satlib listens a signal ends Python itself; close to the end it comes too late.
    if process.returncode not in ((0, 130, -number) if running else (0,)):
        raise Failed(f"exit status {process.returncode}, {last}")
    return running


def written(run: Path) -> int:
    """When a run's checkpoint was written, 0 where there is none."""
    try:
        return (run / CHECKPOINT).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def position(run: Path) -> str:
    """How far a run's checkpoint is."""
    if not (run / CHECKPOINT).exists():
        return "start"
    progress = read_safetensors(run / CHECKPOINT)[0]["progress"]
    return f"{progress['epoch']}:{progress['batch']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Interrupt and compare; give the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--kills", type=int, default=50, help="interruptions, over as many runs as that takes")
    parser.add_argument("--recipe", default="scenes-soft", help="a recipe that maximises the likelihood")
    parser.add_argument("--seed", type=int, default=0, help="of signals and moments")
    parser.add_argument("--images", type=int, default=32, help="drawn scenes to train on")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as for satlib train")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as root:
        return _compare(options, Path(root))


def _compare(options: argparse.Namespace, root: Path) -> int:
    folder.save(scenes.load(options.images, 4, 0), root / "scenes")
    changes = [f"data.name={root / 'scenes'}", *SMALL, *options.set]
    common = [options.recipe, "--device", "cpu", "--data", str(root)]
    common += [word for change in changes for word in ("--set", change)]
    satlib = [sys.executable, "-m", "satlib"]
    if not recipe.load(options.recipe, changes).encoder.train:
        subprocess.run([*satlib, "features", *common], check=True, capture_output=True)

    def train(run: Path) -> list[str]:
        return [*satlib, "train", *common, "--run", str(run), "--checkpoint-every", "0.2"]

    began = time.monotonic()
    with subprocess.Popen(train(root / "whole"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not written(root / "whole") and process.poll() is None:
            time.sleep(0.01)
        loading = time.monotonic() - began
    training = time.monotonic() - began - loading
    if process.returncode:
        print(f"the run without a stop failed; try: {shlex.join(train(Path('run')))}")
        return 1
    print(f"{options.recipe}: {loading:.1f} s to begin and {training:.1f} s to train without a stop", flush=True)
    chance, kills, runs, wrong = random.Random(options.seed), 0, 0, 0
    while kills < options.kills:
        runs += 1
        run, stops, running = root / f"run-{runs}", [], True
        try:
            while running:
                # One signal in five comes while Python loads, or at the very beginning. The last command is left alone.
                trains, number = chance.random() < 0.8, chance.choice(SIGNALS)
                after = chance.uniform(0, training / 3 if trains else 1.2 * loading) if kills < options.kills else None
                running = interrupted(train(run), run, number, after, trains)
                kills += running
                stops += [f"{number.name} {position(run)}"] * running
            found = differences(root / "whole", run)
        except Failed as failed:
            found = [str(failed)]
        wrong += bool(found)
        verdict = "the same bits" if not found else f"DIFFERS in {len(found)}: {', '.join(found[:5])}"
        print(f"run {runs}, stopped {len(stops)} times ({', '.join(stops)}): {verdict}", flush=True)
    print(
        f"{kills} interruptions of {runs} runs of {options.recipe}: {wrong} of these runs differ from the one without a stop"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
