"""Does an interrupted and resumed training end with the same bits? `python tools/kills.py --kills 50 --recipe scenes-hard`.

Trains a recipe at small size on a few drawn scenes, once without interruption. Then starts the same `satlib train` repeatedly,
interrupts it with SIGKILL, SIGINT or SIGTERM at random moments, and resumes it until each run has ended. Compares the files:
every tensor of checkpoint and model, including the optimiser's state, and the log except for its timings. The exit status is 1
if anything differs, or if a command fails for another reason than the signal.
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
from satlib.data import folder, scenes
from satlib.model.captioner import read_safetensors
from satlib.training.loop import CHECKPOINT, LOG, MODEL

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
CLOCK = ("seconds", "tokens_per_second")
SMALL = (
    "data.min_count=1", "data.train_images=0", "decoder.embedding=32", "decoder.hidden=32", "decoder.attention_hidden=16",
    "training.batch_size=4", "training.epochs=4", "training.patience=4", "decoding.max_length=10",
)  # fmt: skip


def differences(one: Path, other: Path) -> list[str]:
    """The differences between the folders of two runs: names of tensors, of entries and of files; empty if all bits agree."""
    names, others = ({path.name for path in run.iterdir()} for run in (one, other))
    differing = [f"{name} is in one of them only" for name in sorted(names ^ others)]
    for name in sorted({CHECKPOINT, MODEL} & names & others):
        (header, tensors), (other_header, other_tensors) = (read_safetensors(run / name) for run in (one, other))
        differing += [f"{name}: {key}" for key in sorted(tensors.keys() ^ other_tensors.keys())]
        differing += [
            f"{name}: {key}"
            for key in sorted(tensors.keys() & other_tensors.keys())
            if not _same_bits(tensors[key], other_tensors[key])
        ]
        entries, other_entries = _without_clock(header), _without_clock(other_header)
        differing += [
            f"{name}: {key} of its header"
            for key in entries.keys() | other_entries.keys()
            if entries.get(key) != other_entries.get(key)
        ]
    if LOG in names & others:
        logs = [[json.loads(line) for line in (run / LOG).read_text().splitlines()] for run in (one, other)]
        differing += [LOG] if _without_clock(logs[0]) != _without_clock(logs[1]) else []
    for name in sorted({"recipe.toml", "vocabulary.json"} & names & others):
        differing += [name] if (one / name).read_bytes() != (other / name).read_bytes() else []
    return differing


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors agree bit by bit; 0.0 and -0.0, which compare as equal, differ."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and one.numpy().tobytes() == other.numpy().tobytes()


def _without_clock(value: Any) -> Any:
    """A value from a log or header without its timings."""
    if isinstance(value, dict):
        return {key: _without_clock(entry) for key, entry in value.items() if key not in CLOCK}
    return [_without_clock(entry) for entry in value] if isinstance(value, list) else value


class Failed(Exception):  # noqa: N818 (what happened, not an error of this program)
    """A command ended in an unexpected way; the message says how."""


def interrupted(command: Sequence[str], run: Path, number: signal.Signals, after: float | None, trains: bool) -> bool:
    """Start a command and send it a signal; return whether it was still running at that moment.

    Args:
        command: `satlib train` with its arguments.
        run: its run folder.
        number: the signal.
        after: seconds to wait before the signal; None sends no signal.
        trains: whether to count the seconds from the first new checkpoint instead of from the command's start.

    Raises:
        Failed: the command ended with an error, or did not stop on the signal.
    """
    before = written(run)
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        while trains and written(run) == before and process.poll() is None:
            time.sleep(0.01)
        try:
            process.wait(after)
            running = False
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            process.wait()
            running = True
        output.seek(0)
        last = output.read().strip().splitlines()[-1:]
    # satlib exits with 130 when it is stopped. A very early signal ends Python itself; a very late one has no effect.
    if process.returncode not in ((0, 130, -number) if running else (0,)):
        raise Failed(f"exit status {process.returncode}, {last}")
    return running


def written(run: Path) -> int:
    """The modification time of a run's checkpoint, in nanoseconds; 0 if there is none."""
    try:
        return (run / CHECKPOINT).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def position(run: Path) -> str:
    """The epoch and batch of a run's checkpoint, as "epoch:batch"."""
    if not (run / CHECKPOINT).exists():
        return "start"
    progress = read_safetensors(run / CHECKPOINT)[0]["progress"]
    return f"{progress['epoch']}:{progress['batch']}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Interrupt and compare; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--kills", type=int, default=50, help="total number of interruptions, over as many runs as needed"
    )
    parser.add_argument("--recipe", default="scenes-soft", help="a recipe that maximises the likelihood")
    parser.add_argument("--seed", type=int, default=0, help="seed for the signals and their times")
    parser.add_argument("--images", type=int, default=32, help="number of drawn scenes to train on")
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
        return [*satlib, "train", *common, "--out", str(run), "--checkpoint-every", "0.2"]

    began = time.monotonic()
    with subprocess.Popen(train(root / "whole"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not written(root / "whole") and process.poll() is None:
            time.sleep(0.01)
        loading = time.monotonic() - began
    training = time.monotonic() - began - loading
    if process.returncode:
        print(f"the uninterrupted run failed; to see why, run: {shlex.join(train(Path('run')))}")
        return 1
    print(f"{options.recipe}: {loading:.1f} s to start and {training:.1f} s to train without interruption", flush=True)
    chance, kills, runs, wrong = random.Random(options.seed), 0, 0, 0
    while kills < options.kills:
        runs += 1
        run, stops, running = root / f"run-{runs}", [], True
        try:
            while running:
                # One signal in five comes during start-up. The last command of all gets no signal.
                trains, number = chance.random() < 0.8, chance.choice(SIGNALS)
                after = chance.uniform(0, training / 3 if trains else 1.2 * loading) if kills < options.kills else None
                running = interrupted(train(run), run, number, after, trains)
                kills += running
                stops += [f"{number.name} {position(run)}"] * running
            problems = differences(root / "whole", run)
        except Failed as failed:
            problems = [str(failed)]
        wrong += bool(problems)
        verdict = "the same bits" if not problems else f"DIFFERS in {len(problems)}: {', '.join(problems[:5])}"
        print(f"run {runs}, stopped {len(stops)} times ({', '.join(stops)}): {verdict}", flush=True)
    print(
        f"{kills} interruptions of {runs} runs of {options.recipe}: {wrong} of these runs differ from the uninterrupted one"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
