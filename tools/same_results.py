"""Does a change of the code change a result? Record what satlib computes before it and after it, and compare.

    python tools/same_results.py record BEFORE.json --flickr8k FOLDER --entities PATH    # in the old checkout
    python tools/same_results.py record AFTER.json --flickr8k FOLDER --entities PATH     # in the new one
    python tools/same_results.py compare BEFORE.json AFTER.json

Everything goes through the command line, so the same script runs on both. It records, on one machine: captions, scores and
attention measures of every shipped model; the scores of every stored result's captions; the table of results; all options of
every recipe; and the weights after short training runs. Photographs are the first of each split of Flickr8k. The comparison
prints each difference, down to the last digit and bit, and exits with status 1 if there is one.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open

ROOT = Path(__file__).resolve().parent.parent
SCENES, PHOTOGRAPHS = (
    ("scenes-soft", "scenes-hard"),
    ("flickr8k-lite0-soft", "flickr8k-lite0-boxes", "flickr8k-hard-reward"),
)
SHORT = ("data.train_images=192", "training.epochs=1")
ON_SCENES = {
    "soft": ("scenes-soft",),
    "hard": ("scenes-hard",),
    "several samples": ("scenes-hard", "--set", "hard.samples=3", "--set", "hard.baseline=leave-one-out"),
    "learned baseline": ("scenes-hard", "--set", "hard.reward=to-come", "--set", "hard.baseline=learned"),
    "reward": (
        "scenes-soft",
        "--start",
        "scenes-soft",
        "--set",
        "objective.maximise=reward",
        "--set",
        "training.batch_size=16",
    ),
    "distillation": ("scenes-soft", "--teacher", "SOFT", "--set", "training.average=0.99"),
}
ON_PHOTOGRAPHS = {
    "frozen": ("flickr8k-lite0-soft", "--set", "training.epochs=1"),
    "boxes": ("flickr8k-lite0-boxes", "--set", "training.epochs=1", "--entities", "ENTITIES"),
    "reward": ("flickr8k-hard-reward", "--start", "flickr8k-hard-reward", "--set", "training.epochs=1"),
}
KEPT = 150  # photographs of each split
SCORE = "evaluate" if (ROOT / "satcourse").is_dir() else "score"  # the command that scores captions from a file


def satlib(*arguments: str, data: Path | None = None) -> str:
    """Run a command of the checkout that this script stands in; give what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "satlib", *arguments, *(["--data", str(data)] if data else [])]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    print("$ satlib", *arguments, "->", done.returncode, flush=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def weights(path: Path) -> str:
    """The SHA-256 of all tensors of a model, names included."""
    digest = hashlib.sha256()
    with safe_open(path, "pt") as file:
        for name in sorted(file.keys()):
            digest.update(name.encode() + file.get_tensor(name).contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def small_flickr8k(source: Path, target: Path) -> None:
    """The first photographs of each split of Flickr8k, in its own layout."""
    texts = target / "flickr8k" / "Flickr8k_text"
    texts.mkdir(parents=True)
    names = set()
    for split in ("train", "dev", "test"):
        listed = (source / "Flickr8k_text" / f"Flickr_8k.{split}Images.txt").read_text(encoding="utf-8").split()[:KEPT]
        (texts / f"Flickr_8k.{split}Images.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
        names |= set(listed)
    lines = (source / "Flickr8k_text" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (texts / "Flickr8k.token.txt").write_text(
        "".join(line for line in lines if line.split("#")[0] in names), encoding="utf-8"
    )
    images = target / "flickr8k" / "Flicker8k_Dataset"
    images.mkdir()
    for name in names:
        shutil.copy(source / "Flicker8k_Dataset" / name, images)


def evaluation(model: str, folder: Path, data: Path | None = None) -> dict[str, Any]:
    """All of a model's evaluation: settings, captions, scores, statistics of each image."""
    satlib("evaluate", model, "--out", str(folder), data=data)
    return json.loads((folder / "evaluation-test.json").read_text(encoding="utf-8"))


def recipes() -> dict[str, Any]:
    """Each recipe with all its options."""
    names = [path.stem for path in sorted((ROOT / "satlib" / "recipes").glob("*.toml"))]
    return {name: tomllib.loads(satlib("recipe", name)) for name in names}


def score(file: Path, out: Path, data: Path) -> dict[str, Any]:
    """The scores of stored captions."""
    satlib(SCORE, str(file), "--out", str(out), data=data)
    again = json.loads((out / "evaluation-test.json").read_text(encoding="utf-8"))
    return {key: again[key] for key in ("metrics", "protocol", "statistics")}


def grounding(model: str, out: Path, *arguments: str, data: Path | None = None) -> list[Any]:
    """What `satlib ground` writes."""
    satlib("ground", model, "--out", str(out), *arguments, data=data)
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]


def training(run: Path, *arguments: str, data: Path | None = None) -> str:
    """The weights after a training run."""
    satlib("train", *arguments, "--out", str(run), data=data)
    return weights(run / "model.safetensors")


def record(file: Path, flickr8k: Path, entities: Path, folder: Path) -> None:
    """Write everything that is compared into a file, part by part; parts that are there already are left."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    full, data = folder / "full", folder / "data"
    full.mkdir()
    (full / "flickr8k").symlink_to(flickr8k.resolve())
    small_flickr8k(flickr8k, data)

    def part(name: str, make: Callable[[], Any]) -> None:
        if name not in found:
            found[name] = make()
            file.write_text(json.dumps(found, indent=1), encoding="utf-8")

    part("recipes", recipes)
    part("table", lambda: satlib("table", "--markdown").splitlines())
    for path in sorted((ROOT / "satlib" / "results").glob("*/evaluation-test.json")):
        part(f"score {path.parent.name}", lambda path=path: score(path, folder / path.parent.name, full))
    for model in SCENES:
        part(f"evaluate {model}", lambda model=model: evaluation(model, folder / f"e-{model}"))
        part(f"ground {model}", lambda model=model: grounding(model, folder / f"g-{model}"))
    changes = [word for change in SHORT for word in ("--set", change)]
    for label, arguments in ON_SCENES.items():
        words = [str(folder / "scenes-soft") if word == "SOFT" else word for word in (*arguments, *changes)]
        if label == "distillation" and not (folder / "scenes-soft").exists():
            training(folder / "scenes-soft", *ON_SCENES["soft"], *changes)
        part(f"train scenes {label}", lambda label=label, words=words: training(folder / f"scenes-{label}", *words))
    for model in PHOTOGRAPHS:
        if f"ground {model}" not in found or any(f"train photographs {label}" not in found for label in ON_PHOTOGRAPHS):
            satlib("features", model, data=data)
        part(f"evaluate {model}", lambda model=model: evaluation(model, folder / f"e-{model}", data))
        boxes = ("--entities", str(entities), "--split", "dev")
        part(
            f"ground {model}",
            lambda model=model, boxes=boxes: grounding(model, folder / f"g-{model}", *boxes, data=data),
        )
    for label, arguments in ON_PHOTOGRAPHS.items():
        words = [str(entities) if word == "ENTITIES" else word for word in arguments]
        run = folder / f"photographs-{label}"
        part(f"train photographs {label}", lambda run=run, words=words: training(run, *words, data=data))


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    """What differs, one line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(before.keys() | after.keys(), key=str)
        missing = [
            f"{place}.{name}: only {'before' if name in before else 'after'}"
            for name in names
            if (name in before) != (name in after)
        ]
        both = [name for name in names if name in before and name in after]
        return missing + [line for name in both for line in differences(before[name], after[name], f"{place}.{name}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [line for i, (one, other) in pairs for line in differences(one, other, f"{place}[{i}]")]
    return (
        []
        if before == after and type(before) is type(after)
        else [f"{place}: {str(before)[:200]} -> {str(after)[:200]}"]
    )


def main() -> int:
    """Record or compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--flickr8k", type=Path, required=True)
    recording.add_argument("--entities", type=Path, required=True)
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs=2)
    options = parser.parse_args()
    if options.command == "record":
        with tempfile.TemporaryDirectory() as folder:
            record(options.file, options.flickr8k, options.entities, Path(folder))
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in options.files)
    lines = differences(before, after)
    print("\n".join(lines) or f"no difference in {len(before)} records")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
