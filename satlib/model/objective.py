"""The training objective (section 4): the decoder's output and captions in, a loss out.

Losses are sums over words and places; training takes their mean over the batch.

Soft attention (section 4.2.1, equation 14):

    L_d = -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2

Hard attention (section 4.1, equations 10 to 12) maximises a lower bound on log p(y|a), because s is
not observed: L_s = sum_s p(s|a) log p(y|s,a) <= log p(y|a). Summing over all s is intractable and
samples cannot be differentiated, so the gradient is estimated from N samples s~:

    1/N sum_n [ d log p(y|s~,a) / dW                                     the likelihood term
              + lambda_r (log p(y|s~,a) - b) d log p(s~|a) / dW          the score-function term
              + lambda_e d H[s~] / dW ]                                  the entropy term

The doubly stochastic penalty is meant for soft attention: it acts on the expected maps, whereas
hard attention sees samples.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.data.text import PAD
from satlib.errors import SatlibError
from satlib.model.attention import entropy, movement, precise
from satlib.model.decoder import Output
from satlib.recipe import HardConfig


def negative_log_likelihood(logits: Tensor, captions: Tensor) -> Tensor:
    """-log p(y|a): logits (B, C, K), captions (B, C) -> (B,); the end mark is a word."""
    return word_losses(logits, captions).sum(1)


def word_losses(logits: Tensor, captions: Tensor) -> Tensor:
    """-log p(y_t|a, y_<t): (B, C, K), (B, C) -> (B, C); 0 after the end mark."""
    logits = precise(logits.flatten(0, 1))  # (B C, K)
    losses = functional.cross_entropy(
        logits, captions.flatten(), ignore_index=PAD, reduction="none"
    )
    return losses.view(captions.shape)


def doubly_stochastic_penalty(alphas: Tensor, within: Tensor | None = None) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2: alphas (B, C, L) -> (B,).

    Each location should receive attention 1 over a caption.

    within: (B, C) bool, the words up to the end mark, if some captions are shorter than C.
    """
    # Padding has maps, too: what the decoder looked at there is not part of the caption.
    if within is not None:
        alphas = alphas * within.unsqueeze(2)
    return (1 - precise(alphas).sum(1)).square().sum(1)


class Bound(NamedTuple):
    """The estimate: `loss` (), whose gradient is minus that of L_s, estimated; and values to log.

    nll: -log p(y|s~,a) per caption and sample (B N,). advantage: reward less baseline, one for each
    sampled place, and that baseline.
    """

    loss: Tensor
    nll: Tensor
    advantage: Tensor
    baseline: Tensor


def coins(config: HardConfig, images: int, device: torch.device, done: float = 1.0) -> Tensor:
    """Which images of a batch take the expectation in place of their sample, (images,) bool.

    done: the share of the training that is done, for annealing.
    """
    # The paper's probability is constant; annealing begins with the smooth, biased expectation.
    fallen = min(1.0, done / config.anneal) if config.anneal else 1.0
    probability = 1 - fallen * (1 - config.expectation)
    return torch.rand(images, device=device) < probability


def leave_one_out(rewards: Tensor) -> Tensor:
    """The mean of the N - 1 others, for each of N samples: (B, N, ...) -> (B, N, ...).

    A baseline by Salimans and Knowles (2014, arXiv:1401.1022) and Kool et al. (2019), called RLOO
    by Ahmadian et al. (2024, arXiv:2402.14740).
    """
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


class VariationalBound(nn.Module):
    """The Monte Carlo estimate of the bound's gradient; `forward` has its terms.

    Rewards and baselines are constants to autograd. Given the past, every baseline here is
    independent of the place whose log-probability it multiplies, so the estimate stays unbiased:

    - moving-average: b_k = 0.9 b_{k-1} + 0.1 log p(y|s~_k,a) over minibatches, from 0, used
      before it is updated (the paper); in proportion to the caption's length, as in the official
      code, whose reward is per word. An average of whole captions would mostly measure how long
      those of the last batches were: on Flickr8k it leaves a mean squared advantage of 314, this
      one 149 nats^2 (benchmarks/baseline.py). For rewards to come, one average for each number of
      words to come.
    - leave-one-out: the mean reward of the caption's N - 1 other samples (`leave_one_out`).
    - learned: the moving average plus a linear function of h_{t-1}, fitted by least squares (as
      in Mnih et al., 2014).
    - none: 0.
    """

    average: Tensor

    def __init__(self, config: HardConfig, hidden: int, longest: int = 41) -> None:
        """The baseline begins at zero; hidden: n; longest: the largest C."""
        super().__init__()
        if config.baseline == "leave-one-out" and config.samples < 2:
            raise SatlibError('hard.baseline = "leave-one-out" needs hard.samples of at least 2')
        self.config = config
        self.longest = longest
        # One moving average; for rewards to come, one for each number of words to come.
        averages = longest + 1 if config.reward == "to-come" else 1
        self.register_buffer("average", torch.zeros(averages))

        self.learned = nn.Linear(hidden, 1) if config.baseline == "learned" else None
        if self.learned is not None:  # it begins as the moving average alone
            nn.init.zeros_(self.learned.weight)
            nn.init.zeros_(self.learned.bias)

    def forward(self, output: Output, captions: Tensor) -> Bound:
        """Estimate from the output for B N rows, and their captions (B N, C).

        A caption's N samples are side by side.
        """
        within = captions != PAD
        losses = word_losses(output.logits, captions)  # (B N, C)
        nll = losses.sum(1)
        assert output.places is not None  # hard attention draws while it trains

        # Only a place that was drawn has a score; an expectation has none.
        sampled = within & (output.places >= 0)
        places = output.places.clamp(min=0)
        log_p_place = log_probability(output.alphas, places) * sampled

        # Detached: the score-function term moves the looks, not the words.
        rewards = self.rewards(-losses.detach())
        baseline, baseline_loss = self._baseline(rewards, output.states, sampled, within)
        advantage = rewards - baseline

        # Minus the three terms of the gradient: likelihood, score function, entropy.
        score = (advantage * log_p_place).sum(1)
        spread = (entropy(output.alphas) * within).sum(1)
        lambda_r = self.config.lambda_r
        lambda_e = self.config.lambda_e
        loss = nll.mean() - lambda_r * score.mean() - lambda_e * spread.mean()
        return Bound(loss + baseline_loss, nll.detach(), advantage[sampled], baseline[sampled])

    def rewards(self, log_p: Tensor) -> Tensor:
        """The reward of each place: log p(y_t|...) (B, C) -> (B, C)."""
        if self.config.reward == "sentence":
            return log_p.sum(1, keepdim=True).expand_as(log_p)
        # A place cannot change the words before it: leaving them out does not change the
        # expectation.
        return _to_come(log_p)

    def _baseline(
        self, rewards: Tensor, states: Tensor, sampled: Tensor, within: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The baseline b of each reward (B N, C), and the loss () that fits a learned one."""
        no_loss = rewards.new_zeros(())
        if self.config.baseline == "none":
            return torch.zeros_like(rewards), no_loss
        if self.config.baseline == "leave-one-out":
            by_caption = rewards.unflatten(0, (-1, self.config.samples))  # (B, N, C)
            return leave_one_out(by_caption).flatten(0, 1), no_loss

        # Read before it is updated: otherwise the baseline would depend on its own reward.
        if self.config.reward == "to-come":
            slots = _to_come(within)  # words to come at each t, 0 after the end mark
            baseline = self.average[slots]
            observed = rewards
        else:
            # The average is that of the longest captions; a shorter one has its share.
            shares = within.sum(1, keepdim=True) / self.longest  # (B N, 1)
            slots = torch.zeros_like(shares, dtype=torch.long)
            baseline = (self.average[slots] * shares).expand_as(rewards)
            # A sentence's reward is the same at each of its words: it counts once.
            observed = rewards[:, :1] / shares
        if self.training:
            self._update_average(slots.flatten(), observed.flatten())
        if self.learned is None:
            return baseline, no_loss

        # The states are constants here: a baseline must not train the decoder.
        inputs = states.detach().to(self.learned.weight.dtype)
        correction = self.learned(inputs).squeeze(2)  # (B N, C)
        residuals = (baseline + correction - rewards).square() * sampled
        loss = residuals.sum() / sampled.sum().clamp(min=1)
        return baseline + correction.detach(), loss

    def _update_average(self, which: Tensor, rewards: Tensor) -> None:
        """Move each moving average towards the mean of its rewards in this batch: (n,), (n,)."""
        rewards = rewards.to(self.average.dtype)
        nothing = torch.zeros_like(self.average)
        counts = nothing.index_add(0, which, torch.ones_like(rewards))
        sums = nothing.index_add(0, which, rewards)

        moved = 0.9 * self.average + 0.1 * sums / counts.clamp(min=1)
        self.average.copy_(torch.where(counts > 0, moved, self.average))


def _to_come(values: Tensor) -> Tensor:
    """The sum of each value and those after it: (B, C) -> (B, C)."""
    return values.flip(1).cumsum(1).flip(1)


def log_probability(alphas: Tensor, places: Tensor) -> Tensor:
    """Log alpha_t at s_t: (B, C, L), (B, C) -> (B, C)."""
    # A weight may round to 0, and its logarithm would be infinite.
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    return precise(chosen).clamp(min=torch.finfo(torch.float32).tiny).log()


# What is added to the loss of a batch for the decoder's output (), and means to log by name.
Term = Callable[[Output], tuple[Tensor, dict[str, Tensor]]]


class BatchLoss(NamedTuple):
    """The loss () of a batch, the means to log, and the captions and words behind them."""

    loss: Tensor
    means: dict[str, Tensor]
    captions: int
    words: int


def caption_loss(
    decoder: Callable[..., Output],
    a: Tensor,
    captions: Tensor,
    doubly_stochastic: float = 1.0,
    bound: VariationalBound | None = None,
    done: float = 1.0,
    terms: Sequence[Term] = (),
) -> BatchLoss:
    """Equation 14; with hard attention the bound of section 4.1 takes the place of log p(y|a).

    a: annotation vectors (B, L, D). captions: ids (B, C), `PAD` after the end mark.
    doubly_stochastic: lambda. done: the share of the training that is done, for an annealed coin.
    terms: added before the penalty.
    """
    if bound is None:
        output = decoder(a, captions)
        loss = negative_log_likelihood(output.logits, captions).mean()
        means = {"nll": loss}
    else:
        # N samples of each caption, side by side.
        N = bound.config.samples
        expected = coins(bound.config, len(a), a.device, done).repeat_interleave(N, 0)
        a = a.repeat_interleave(N, 0)
        captions = captions.repeat_interleave(N, 0)
        output = decoder(a, captions, expected)
        estimate = bound(output, captions)
        loss = estimate.loss
        means = {"nll": estimate.nll.mean()}
        if estimate.advantage.numel():  # over the captions with a sample, about half of them
            means["reward"] = (estimate.advantage + estimate.baseline).mean()
            means["baseline"] = estimate.baseline.mean()

    for term in terms:
        extra, logged = term(output)
        loss = loss + extra
        means |= logged

    # Equation 14's second term, of the words up to the end mark.
    within = captions != PAD
    penalty, of_maps = map_means(output.alphas, within)
    means |= of_maps
    loss = loss + doubly_stochastic * penalty
    return BatchLoss(loss, means, len(captions), int(within.sum()))


def map_means(alphas: Tensor, within: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The penalty of equation 14 (), a mean over captions, and what is logged of their maps.

    alphas: (B, C, L). within: (B, C) bool, the words up to the end mark.
    """
    captions = len(within)
    words = int(within.sum())
    penalty = doubly_stochastic_penalty(alphas, within).mean()
    means = {"penalty": penalty, "entropy": (entropy(alphas) * within).sum() / words}

    if words > captions:  # one word alone has no movement
        moved = movement(alphas) * within[:, 1:]
        means["movement"] = moved.sum() / (words - captions)
    return penalty, means
