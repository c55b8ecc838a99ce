"""Soft and hard attention from the same weights, trained for the same steps: is it the bound that improves hard attention?

    python benchmarks/further.py

The decoder of scenes-soft is trained further on 200 scenes, as in notebook 06, by one objective after another, with 32 passes of
the decoder in each of 300 steps, and measured on 60 others. A row is the mean over the seeds, with half their range.
"""

import argparse

import torch

from satcourse.lessons import further
from satlib.data import scenes
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.recipe import HardConfig

PASSES = 32


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    soft = Captioner.load(shipped.model("scenes-soft"), "cpu")
    data = scenes.load(200, 0, 60)
    train, test = further.captions(soft, data, "train"), further.captions(soft, data, "test")
    start = further.held_out(soft.decoder, test)
    average, hidden, dim = start.sampled, soft.decoder.config.hidden, train.vectors.shape[2]
    plain = HardConfig(expectation=0.0, lambda_e=0.0)
    mix = HardConfig(expectation=0.5, lambda_e=0.0, lambda_r=0.1)
    others = HardConfig(expectation=0.0, lambda_e=0.0, baseline="leave-one-out", samples=4)
    objectives = {
        "soft attention": ("soft", 1, lambda: further.soft_loss),
        "L_s, moving average": ("hard", 1, lambda: further.hard_loss(plain, hidden, average)),
        "L_s, 0.5 mix, lambda_r 0.1": ("hard", 1, lambda: further.hard_loss(mix, hidden, average)),
        "L_s, leave-one-out, 4 paths": ("hard", 4, lambda: further.hard_loss(others, hidden, average)),
        "L_4, VIMCO": ("hard", 4, lambda: further.vimco_loss(4)),
        "L_1, learned posterior, 4 paths": ("hard", 4, lambda: further.PosteriorLoss(soft.decoder, dim, 4)),
    }
    print("| trained by | log p(y\\|s,a), sampled | L_16 | log p(y\\|a), expected | entropy of a map |")
    print("| --- | ---: | ---: | ---: | ---: |")
    print("| nothing: the start | " + " | ".join(f"{value:.2f}" for value in start) + " |", flush=True)
    for name, (attention, K, loss) in objectives.items():
        found = []
        for seed in range(args.seeds):
            decoder = further.train(soft.decoder, attention, loss(), train, PASSES // K, args.steps, seed)
            found.append(further.held_out(decoder, test))
        runs = torch.tensor(found)
        ranges = (runs.amax(0) - runs.amin(0)) / 2
        shown = (f"{mean:.2f} ± {half:.2f}" for mean, half in zip(runs.mean(0), ranges, strict=True))
        print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
