"""What one's own photographs do: `python benchmarks/own_photographs.py MODEL OLD OWN`, an hour."""

import sys
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

RUNS = [*((own, 0) for own in (0, 25, 50, 100, 200, 400, 694)), (100, 100), (400, 400)]


def main(model: str, *names: str) -> None:
    """Writes each run's processor seconds, and CIDEr on both dev splits with its interval."""
    torch.set_num_threads(1)
    sets = old, own = [datasets.load(name).shortened(700) for name in names]
    both, work, rows = caption_set.joined(sets), Path(tempfile.mkdtemp()), []
    encoder, chosen = (
        encoders.create(f"model:{model}"),
        starting.fitted(recipe.load("own-folder-further"), Path(model)),
    )
    vectors = extract(both, encoder, features.folder(work, both, encoder.name))
    for size, kept in RUNS:
        data = replace(both, examples=old.split("train")[:kept] + own.shortened(size).examples)
        run, start = work / f"{size}-{kept}", time.process_time()
        captioner = (
            loop.train(chosen, data, vectors, run, start=Path(model))
            if size
            else Captioner.load(model)
        )
        rows.append({"own": size, "old": kept, "seconds": round(time.process_time() - start)})
        for part, each in (("old", old), ("own", own)):
            result = evaluate.evaluate(captioner, each, vectors, "dev")
            bounds = intervals(Statistics.restored(result["statistics"]))["CIDEr"]
            rows[-1][f"CIDEr of {part}"] = [result["metrics"]["CIDEr"], *bounds]
        print(rows[-1], flush=True)
    write_json(Path(satlib.__file__).parent / "results" / "own-photographs.json", rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
