"""200 photographs with captions of another kind: a shipped model as it is, continued on them, and the same model from nothing.

    python benchmarks/own_captions.py --data data --entities annotations.zip

The photographs are from Flickr8k's dev and test splits, which the shipped model has not seen in training. Their captions become
inventories: the phrases that Flickr30k Entities marks in a caption, without what stands between them ("a brown dog, a red ball, the
grass"). 120 are for training, 40 choose the epoch, 40 are reported. Everything goes through satlib's own commands.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from satlib.data import datasets
from satlib.data.entities import Entities
from satlib.evaluation.statistics import Statistics, differences

MODEL, PHOTOGRAPHS = "flickr8k-lite0-soft", 200
SPLITS = ("train",) * 3 + ("dev", "test")
SHORT = ("--set", "training.epochs=20", "--set", "data.min_count=1", "--set", "training.batch_size=32")


def write_folder(data: Path, entities: Entities, folder: Path) -> None:
    """Photographs and captions.csv, as a user would write them."""
    flickr = datasets.load("flickr8k", data)
    rows = []
    for example in (*flickr.split("test"), *flickr.split("dev")):
        found = entities.sentences(example.image_id)
        lists = [[" ".join(one.words[p.start : p.end]) for p in one.phrases if p.entity != "0"] for one in found]
        inventories = [", ".join(phrases) for phrases in lists if len(phrases) > 1]
        if len(inventories) < 4:
            continue
        number = len({row[0] for row in rows})
        if number == PHOTOGRAPHS:
            break
        assert example.path is not None
        shutil.copy(example.path, folder / example.image_id)
        rows += [(example.image_id, text, SPLITS[number % len(SPLITS)]) for text in inventories]
    with open(folder / "captions.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption", "split"), *rows])


def satlib(*arguments: object) -> str:
    """Run a command; what it printed."""
    done = subprocess.run([sys.executable, "-m", "satlib", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets, with flickr8k in it")
    parser.add_argument("--entities", type=Path, required=True, help="Flickr30k Entities")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        own = work / "inventories"
        own.mkdir()
        write_folder(options.data, Entities(options.entities), own)
        home = ("--data", work)
        sizes = ("--set", "decoder.embedding=512", "--set", "decoder.hidden=512")
        given = ("own-folder", "--set", f"data.name={own}", *SHORT, *home)
        print(satlib("features", *given))
        print(satlib("train", *given, "--start", MODEL, "--out", work / "continued"))
        print(satlib("train", *given, *sizes, "--out", work / "fresh"))
        results = {
            "as it is": satlib("evaluate", MODEL, "--data-set", own, "--out", work / "as it is", "--json", *home),
            "continued": satlib("evaluate", work / "continued", "--json", *home),
            "from nothing": satlib("evaluate", work / "fresh", "--json", *home),
        }
        columns = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr")
        print("| | " + " | ".join(columns) + " |\n| ---" + " | ---:" * len(columns) + " |")
        stored = {}
        for name, text in results.items():
            metrics = json.loads(text)["metrics"]
            print(f"| {name} | " + " | ".join(f"{metrics[column]:.1f}" for column in columns) + " |")
            stored[name] = json.loads(Path(json.loads(text)["file"]).read_text(encoding="utf-8"))
        of_images = {name: Statistics.of(result["statistics"]) for name, result in stored.items()}
        for other in ("as it is", "from nothing"):
            found = differences(of_images["continued"], of_images[other])
            cells = ["{:+.1f} ({:.1f} to {:.1f})".format(*found[column]) for column in columns]
            print(f"| continued, less {other} | " + " | ".join(cells) + " |")
        for name, result in stored.items():
            print(f"\n{name}:", *list(result["captions"].values())[:3], sep="\n  ")


if __name__ == "__main__":
    main()
