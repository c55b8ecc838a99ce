"""Muon beside Adam: `python benchmarks/optimisers.py`, ten minutes on one core.

Writes satlib/results/optimisers.json. A fresh decoder of scenes-soft learns from the vectors of its
trained encoder: 500 scenes, four passes, three seeds. Each optimiser has the best of several
learning rates (Adam 2e-3, 5e-3, 1e-2, 2e-2; Muon 4e-3, 8e-3, 1.6e-2), by the dev loss of seed 0 at
the end. The stored runs of Muon still had Jordan's five quintics; with those of today, the run of
seed 0 ends at 0.657 in place of 0.663.
"""

import json
import tempfile
import time
from pathlib import Path

import torch

import satlib
from satlib import recipe
from satlib.data import features, scenes
from satlib.files import write_json
from satlib.model import encoders
from satlib.training import loop
from satlib.training.features import extract

# The encoder is the trained one and does not learn, so its vectors are computed once.
FROZEN = (
    "encoder.name=model:scenes-soft",
    "encoder.train=false",
    "encoder.pretrained=true",
    "encoder.scale=1.4",
    "data.captions=5",
    "decoder.attention_hidden=64",
    "training.warmup=10",
    "training.average=0.9",
    "training.epochs=4",
    "training.epoch_images=0",
)


def main() -> None:
    """Train, and write the dev loss after each epoch and the processor seconds of each run."""
    torch.set_num_threads(1)
    work = Path(tempfile.mkdtemp())
    data = scenes.load(train=500, dev=100, test=1)
    encoder = encoders.create("model:scenes-soft")
    vectors = extract(data, encoder, features.folder(work, data, encoder.name))

    runs = []
    for seed in range(3):
        for optimiser, rate in (("adam", 1e-2), ("muon", 8e-3)):
            chosen = recipe.load(
                "scenes-soft",
                [
                    *FROZEN,
                    f"training.optimiser={optimiser}",
                    f"training.learning_rate={rate}",
                    f"training.seed={seed}",
                ],
            )
            run = work / f"{optimiser}-{seed}"
            # Processor time: other programs on the machine do not count.
            start = time.process_time()
            loop.train(chosen, data, vectors, run)
            seconds = round(time.process_time() - start)

            # A line for each epoch.
            log = (run / loop.LOG).read_text(encoding="utf-8")
            losses = [json.loads(line)["dev_nll"] for line in log.splitlines()]
            runs.append(
                {
                    "optimiser": optimiser,
                    "rate": rate,
                    "seed": seed,
                    "dev_nll": losses,
                    "seconds": seconds,
                }
            )
            print(runs[-1], flush=True)

    write_json(Path(satlib.__file__).parent / "results" / "optimisers.json", runs)


if __name__ == "__main__":
    main()
