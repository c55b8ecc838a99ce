"""What training on one's own photographs does to a model.

    python benchmarks/own_photographs.py MODEL OLD OWN

takes an hour and writes satlib/results/own-photographs.json. MODEL was trained on the data set OLD,
and is trained further on photographs of OWN, with or without some of OLD. The dev captions of OWN
alone decide which epoch of a run is kept.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

import satlib
from satlib import recipe
from satlib.data import caption_set, datasets, features
from satlib.evaluation import evaluate
from satlib.evaluation.statistics import Statistics, intervals
from satlib.files import write_json
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import loop, starting
from satlib.training.features import extract

# How many photographs of one's own each run has, and how many old ones; the last two runs show
# whether old ones keep the model from forgetting.
RUNS = [(own, 0) for own in (0, 25, 50, 100, 200, 400, 694)] + [(100, 100), (400, 400)]


def main() -> None:
    """Write each run's processor seconds, and CIDEr on both dev splits with its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "old", "own"):
        parser.add_argument(name, metavar=name.upper())
    options = parser.parse_args()
    model = Path(options.model)

    torch.set_num_threads(1)
    old = datasets.load(options.old).shortened(700)
    own = datasets.load(options.own).shortened(700)
    both = caption_set.joined([old, own])
    work = Path(tempfile.mkdtemp())

    # The encoder does not learn: its vectors are computed once, for all runs.
    encoder = encoders.create(f"model:{model}")
    vectors = extract(both, encoder, features.folder(work, both, encoder.name))
    chosen = starting.fitted(recipe.load("own-folder-further"), model)

    rows = []
    for own_count, old_count in RUNS:
        start = time.process_time()
        if own_count:
            # Of the old set training photographs alone: the dev split that decides is one's own.
            examples = old.split("train")[:old_count] + own.shortened(own_count).examples
            data = replace(both, examples=examples)
            run = work / f"{own_count}-{old_count}"
            captioner = loop.train(chosen, data, vectors, run, start=model)
        else:
            captioner = Captioner.load(model)
        row = {
            "own": own_count,
            "old": old_count,
            "seconds": round(time.process_time() - start),
        }

        # Does it describe one's own photographs better, and has it forgotten the old ones?
        for part, each in (("old", old), ("own", own)):
            result = evaluate.evaluate(captioner, each, vectors, "dev")
            bounds = intervals(Statistics.restored(result["statistics"]))["CIDEr"]
            row[f"CIDEr of {part}"] = [result["metrics"]["CIDEr"], *bounds]
        rows.append(row)
        print(row, flush=True)

    write_json(Path(satlib.__file__).parent / "results" / "own-photographs.json", rows)


if __name__ == "__main__":
    main()
