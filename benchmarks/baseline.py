"""What hard attention's baseline leaves of the reward: `python benchmarks/baseline.py`.

The rewards are log p(y|a) of the dev captions of 200 photographs of Flickr8k by the captioner that
comes with satlib. Batches of 64 captions of one length are drawn, and the mean square of reward
less baseline is printed for one average of whole captions, one for each length, and one per word
(`objective.VariationalBound`). The first epoch of 470 batches begins at 0.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import torch

from satlib.data import datasets
from satlib.data.batches import SameLengthBatches, pairs
from satlib.data.features import Pixels
from satlib.model.captioner import Captioner
from satlib.model.objective import negative_log_likelihood

EPOCH = 470  # batches
BATCH = 64
MOMENTUM = 0.9  # of the moving average
Rewards = dict[int, list[float]]


@torch.inference_mode()
def rewards() -> Rewards:
    """Log p(y|a) of dev captions, by their number of words with the end mark."""
    captioner = Captioner.load("flickr8k-lite0-coco")
    data = datasets.load("flickr8k")
    data = replace(data, examples=data.split("dev")[:200])
    pixels = Pixels(data)
    dev = pairs(data.examples, captioner.vocabulary, 40)

    found = defaultdict(list)
    for batch in SameLengthBatches(dev, 32).epoch(0):
        a = captioner.annotations(pixels.read(batch.image_ids))
        nll = negative_log_likelihood(captioner.decoder(a, batch.captions).logits, batch.captions)
        found[batch.captions.shape[1]].extend((-nll).tolist())
    return found


def remaining_variance(found: Rewards, each_length: bool, per_word: bool) -> np.ndarray:
    """The mean square of reward less baseline in each of ten epochs, in nats^2."""
    rng = np.random.default_rng(0)
    lengths = np.repeat(list(found), [len(own) for own in found.values()])  # of all captions
    baselines = np.zeros(max(found) + 1)  # moving averages
    squares = []
    for _ in range(10 * EPOCH):
        # The captions of a batch have one length.
        C = int(rng.choice(lengths))
        reward = rng.choice(found[C], BATCH)  # (BATCH,)

        serving = C if each_length else 0  # which baseline serves this batch
        units = C if per_word else 1  # a baseline is of a word, or of a whole caption
        advantage = reward - baselines[serving] * units
        squares.append(np.square(advantage).mean())

        kept = MOMENTUM * baselines[serving]
        baselines[serving] = kept + (1 - MOMENTUM) * reward.mean() / units
    return np.reshape(squares, (10, EPOCH)).mean(1)


def main() -> None:
    """Print the first epoch and the mean of ten, for each baseline."""
    found = rewards()
    for name, each_length, per_word in (
        ("one average of whole captions", False, False),
        ("one for each length", True, False),
        ("one per word", False, True),
    ):
        squares = remaining_variance(found, each_length, per_word)
        print(f"{name}: first epoch {squares[0]:.0f}, ten epochs {squares.mean():.0f} nats^2")


if __name__ == "__main__":
    main()
