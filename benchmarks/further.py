"""Soft and hard attention from the same weights, trained for the same steps: is it the bound that improves hard attention?

    python benchmarks/further.py

The decoder of scenes-soft is trained further on 200 scenes, as in notebook 06, by one objective after another, with 32 passes of
the decoder in each of 300 steps, and measured on 60 others. A row is the mean over the seeds, with half their range.
"""

import argparse
import math

import torch
from torch import Tensor, nn

from satcourse.lessons import further
from satcourse.lessons.bounds import vimco_signal
from satcourse.lessons.further import Loss
from satcourse.lessons.posterior import Posterior
from satlib.data import scenes
from satlib.model import shipped
from satlib.model.attention import Energy, HardAttention, Look
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder
from satlib.model.objective import leave_one_out, log_probability, negative_log_likelihood
from satlib.recipe import HardConfig

PASSES = 32


def vimco_loss(K: int) -> Loss:
    """L_K by VIMCO (`bounds.multi_sample`)."""

    def loss(decoder: Decoder, a: Tensor, words: Tensor) -> Tensor:
        words = words.repeat_interleave(K, 0)
        output = decoder(a.repeat_interleave(K, 0), words)
        log_w = -negative_log_likelihood(output.logits, words).unflatten(0, (-1, K))
        log_q = log_probability(output.alphas, output.places).sum(1).unflatten(0, (-1, K))
        bound = torch.logsumexp(log_w, 1) - math.log(K)
        return -(bound + (vimco_signal(log_w.detach()) * log_q).sum(1)).mean()

    return loss


class _Posterior(HardAttention):
    """Hard attention whose places are drawn from q(s_t|s_<t, y_<=t, a) in place of alpha_t: of one batch, a (B, L, D), y (B, C, m)."""

    def __init__(self, energy: Energy, q: Posterior, a: Tensor, y: Tensor) -> None:
        super().__init__(energy)
        self.q, self.q_keys, self.y, self.log_q = q, q.energy.keys(a), iter(y.unbind(1)), []

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> Look:
        alpha = torch.softmax(self.energy(keys, h), 1)
        log_q = self.q.log_weights(alpha, self.q_keys, h, next(self.y))
        place = self.draw(log_q.exp())
        self.log_q.append(log_q.gather(1, place.unsqueeze(1)))
        return Look(a[torch.arange(len(a)), place], alpha, place)


class PosteriorLoss(nn.Module):
    """The bound by a learned posterior (`posterior.Posterior`), which is trained with the decoder; N paths, leave-one-out baseline."""

    def __init__(self, decoder: Decoder, annotation_dim: int, N: int) -> None:
        super().__init__()
        self.q, self.N = Posterior(decoder, annotation_dim, decoder.config.attention_hidden), N

    def forward(self, decoder: Decoder, a: Tensor, words: Tensor) -> Tensor:
        """A (B, L, D), captions (B, C): ()."""
        a, words = (each.repeat_interleave(self.N, 0) for each in (a, words))
        attention = decoder.attention
        assert isinstance(attention, HardAttention)
        decoder.attention = drawing = _Posterior(attention.energy, self.q, a, decoder.embed(words))
        output = decoder(a, words)
        decoder.attention = attention
        log_q = torch.cat(drawing.log_q, 1).sum(1)
        log_w = (
            -negative_log_likelihood(output.logits, words)
            + log_probability(output.alphas, output.places).sum(1)
            - log_q
        )
        rewards = log_w.detach().unflatten(0, (-1, self.N))
        return -(log_w + (rewards - leave_one_out(rewards)).flatten() * log_q).mean()


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
        "L_4, VIMCO": ("hard", 4, lambda: vimco_loss(4)),
        "L_1, learned posterior, 4 paths": ("hard", 4, lambda: PosteriorLoss(soft.decoder, dim, 4)),
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
