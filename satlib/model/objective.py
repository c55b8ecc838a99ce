"""The training losses (section 4): annotation vectors and captions in, loss out, in the paper's scale.

Losses are sums over words and places and means over the batch. `caption_loss` is what training on captions minimises,
`reward_loss` what training on rewards minimises; the terms of both come first.

Soft attention (section 4.2.1, equation 14):  L_d = -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2.

Hard attention (section 4.1, equations 10 to 12) maximises a lower bound on log p(y|a), because s is not observed:
L_s = sum_s p(s|a) log p(y|s,a) <= log p(y|a). Summing over all s is intractable and samples cannot be differentiated, so
the gradient is estimated from N samples s~:

    1/N sum_n [ d log p(y|s~,a) / dW                                     the likelihood term
              + lambda_r (log p(y|s~,a) - b) d log p(s~|a) / dW          the score-function term, with a baseline b
              + lambda_e d H[s~] / dW ]                                  the entropy term

The doubly stochastic penalty is meant for soft attention: it acts on the expected maps, whereas hard attention sees samples.

Beyond the paper, two more losses: distillation (Hinton et al., 2015) mixes in the cross-entropy with other models' word
probabilities, and self-critical sequence training (Rennie et al., 2017) maximises the expected reward of sampled captions:

    1/N sum_n (r(y^n) - b_n) d log p(y^n|a) / dW,    b_n the mean reward of the N - 1 other captions

which is unbiased, since b_n does not depend on y^n.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.errors import SatlibError
from satlib.model.decoder import Decoder, Output, State
from satlib.model.search import Rollout, rollout
from satlib.recipe import HardConfig


def negative_log_likelihood(logits: Tensor, captions: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-log p(y|a): logits (B, C, K), captions (B, C) -> (B,), summed over the words, the end mark included.

    With label smoothing a share of each target is spread evenly over the vocabulary (Szegedy et al., 2016).
    """
    return word_losses(logits, captions, label_smoothing).sum(1)


def word_losses(logits: Tensor, captions: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-log p(y_t|a, y_<t): (B, C, K), (B, C) -> (B, C)."""
    losses = functional.cross_entropy(
        _precise(logits.flatten(0, 1)), captions.flatten(), reduction="none", label_smoothing=label_smoothing
    )
    return losses.view(captions.shape)


def doubly_stochastic_penalty(alphas: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2: alphas (B, C, L) -> (B,). Each location should receive attention 1 over a caption."""
    return (1 - _precise(alphas).sum(1)).square().sum(1)


def entropy(alphas: Tensor) -> Tensor:
    """H[s_t] in nats: alphas (..., L) -> (...)."""
    precise = _precise(alphas)
    return -torch.xlogy(precise, precise).sum(-1)


def movement(alphas: Tensor) -> Tensor:
    """Total variation between the maps of consecutive words, 0 to 1: alphas (B, C, L) -> (B, C - 1)."""
    return _precise(alphas).diff(dim=1).abs().sum(-1) / 2


def distillation_loss(logits: Tensor, q: Tensor) -> Tensor:
    """-sum_t sum_k q_tk log p_tk, the cross-entropy with teachers' probabilities q: (B, C, K), (B, C, K) -> (B,)."""
    return -(q * logits.to(q.dtype).log_softmax(2)).sum((1, 2))


def box_loss(alphas: Tensor, covers: Tensor) -> Tensor:
    """-sum_t log sum_i c_ti alpha_ti over the words with boxes: alphas (B, C, L), the cells' shares in the boxes c (B, C, L) -> (B,).

    The sum over i is the mass in the boxes (the "attention correctness" of Liu et al., 2017).
    """
    mass = (_precise(alphas) * covers).sum(2)
    named = covers.any(2)
    return -(mass.clamp(min=torch.finfo(mass.dtype).tiny).log() * named).sum(1)


class Bound(NamedTuple):
    """The estimate: `loss` (), whose gradient is minus the estimated gradient of L_s, and values to log.

    nll: -log p(y|s~,a) per caption and sample (B N,). advantage: reward less baseline, one for each sampled place, and that
    baseline.
    """

    loss: Tensor
    nll: Tensor
    advantage: Tensor
    baseline: Tensor


def coins(config: HardConfig, images: int, device: torch.device, done: float = 1.0) -> Tensor:
    """Which images of a batch take the expectation in place of their sample, (images,) bool: one coin per image.

    Args:
        config: the coin's probability and its annealing.
        images: number of images in the batch.
        device: of the result.
        done: share of the training that is done, 0 to 1; matters where the probability is annealed.
    """
    fallen = min(1.0, done / config.anneal) if config.anneal else 1.0
    probability = 1 - fallen * (1 - config.expectation)
    return torch.rand(images, device=device) < probability


class VariationalBound(nn.Module):
    """The Monte Carlo estimate of the bound's gradient; each term of the equation above is one line of `forward`.

    Rewards and baselines are constants to autograd. Given the past, every baseline here is independent of the place whose
    log-probability it multiplies, so the estimate stays unbiased:

    - moving-average: b_k = 0.9 b_{k-1} + 0.1 log p(y|s~_k,a) over minibatches, from 0, used before it is updated (the paper).
      For rewards to come, one such average for each number of words to come.
    - other-samples: the mean reward of the caption's N - 1 other samples (Mnih and Rezende, 2016).
    - learned: the moving average plus a linear function of h_{t-1}, fitted to the residual by least squares (as in Mnih et al., 2014).
    - none: 0.
    """

    average: Tensor

    def __init__(self, config: HardConfig, hidden: int, label_smoothing: float = 0.0, longest: int = 41) -> None:
        """Initialise the baseline to zero.

        Args:
            config: the estimator's options.
            hidden: n.
            label_smoothing: of the words' losses.
            longest: the largest C.

        Raises:
            SatlibError: baseline "other-samples" with a single sample.
        """
        super().__init__()
        if config.baseline == "other-samples" and config.samples < 2:
            raise SatlibError('hard.baseline = "other-samples" needs hard.samples of at least 2')
        self.config = config
        self.label_smoothing = label_smoothing
        self.register_buffer("average", torch.zeros(longest + 1 if config.reward == "to-come" else 1))
        self.learned = nn.Linear(hidden, 1) if config.baseline == "learned" else None
        if self.learned is not None:
            nn.init.zeros_(self.learned.weight)
            nn.init.zeros_(self.learned.bias)

    def forward(self, output: Output, captions: Tensor) -> Bound:
        """Estimate from the decoder's output for B captions with N samples each, those of one caption side by side.

        Args:
            output: of B N rows.
            captions: ids (B N, C).
        """
        losses = word_losses(output.logits, captions, self.label_smoothing)
        nll = losses.sum(1)
        if output.places is None:
            return Bound(nll.mean(), nll.detach(), nll.new_empty(0), nll.new_empty(0))
        sampled = output.places >= 0
        log_p_place = log_probability(output.alphas, output.places.clamp(min=0)) * sampled
        rewards = self.rewards(-losses.detach())
        baseline, baseline_loss = self._baseline(rewards, output.states, sampled)
        advantage = rewards - baseline
        score = (advantage * log_p_place).sum(1)
        spread = entropy(output.alphas).sum(1)
        loss = nll.mean() - self.config.lambda_r * self.over_batch(score) - self.config.lambda_e * spread.mean()
        return Bound(loss + baseline_loss, nll.detach(), advantage[sampled], baseline[sampled])

    def rewards(self, log_p: Tensor) -> Tensor:
        """The reward of each place: log p(y_t|...) (B, C) -> (B, C)."""
        if self.config.reward == "sentence":
            return log_p.sum(1, keepdim=True).expand_as(log_p)
        # A place cannot change the words before it: leaving them out does not change the expectation.
        return log_p.flip(1).cumsum(1).flip(1)

    def over_batch(self, score: Tensor) -> Tensor:
        """The score-function terms of a batch as one number: (B N,) -> ()."""
        return score.mean()

    def _baseline(self, rewards: Tensor, states: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """The baseline b of each reward (B N, C), and the loss that fits the learned one (0 for the others)."""
        kind, no_loss = self.config.baseline, rewards.new_zeros(())
        if kind == "none":
            return torch.zeros_like(rewards), no_loss
        if kind == "other-samples":
            grouped = rewards.unflatten(0, (-1, self.config.samples))
            others = (grouped.sum(1, keepdim=True) - grouped) / (self.config.samples - 1)
            return others.flatten(0, 1), no_loss
        words = rewards.shape[1]
        if self.config.reward == "to-come":
            which = torch.arange(words, 0, -1, device=rewards.device)  # words to come at each t
        else:
            which = torch.zeros(words, dtype=torch.long, device=rewards.device)
        baseline = self.average[which].expand_as(rewards)
        if self.training:
            self.average[which] = 0.9 * self.average[which] + 0.1 * rewards.mean(0).to(self.average.dtype)
        if self.learned is None:
            return baseline, no_loss
        correction = self.learned(states.detach().to(self.learned.weight.dtype)).squeeze(2)
        residuals = (baseline + correction - rewards).square() * sampled
        return baseline + correction.detach(), residuals.sum() / sampled.sum().clamp(min=1)


class BatchLoss(NamedTuple):
    """The loss () of a batch, the means to log by name, and the numbers of captions and words behind them."""

    loss: Tensor
    means: dict[str, Tensor]
    captions: int
    words: int


def caption_loss(
    decoder: Callable[..., Output],
    a: Tensor,
    captions: Tensor,
    doubly_stochastic: float = 1.0,
    label_smoothing: float = 0.0,
    bound: VariationalBound | None = None,
    done: float = 1.0,
    distillation: float = 0.0,
    teachers: Tensor | None = None,
    boxes: float = 0.0,
    covers: Tensor | None = None,
) -> BatchLoss:
    """Equation 14; with hard attention the bound of section 4.1 takes the place of log p(y|a).

    Args:
        decoder: gives an `Output` from annotation vectors, captions and (with a bound) the images that take the expectation.
        a: annotation vectors (B, L, D).
        captions: ids (B, C), all of one length, the end mark last.
        doubly_stochastic: lambda.
        label_smoothing: of the words' losses; a bound has its own.
        bound: the estimator of hard attention's bound, with N samples of each caption.
        done: share of the training that is done, for an annealed coin.
        distillation: weight w of the teachers' term; 1 - w is left for the captions'.
        teachers: their mean word probabilities (B, C, K); None without distillation.
        boxes: weight of the loss that draws maps into boxes.
        covers: the shares of the cells in the words' boxes (B, C, L), 0 for words without boxes; None without supervision.
    """
    if bound is None:
        output = decoder(a, captions)
        loss = negative_log_likelihood(output.logits, captions, label_smoothing).mean()
        means = {"nll": loss}
    else:
        expected = coins(bound.config, len(a), a.device, done)
        a, captions, expected = (rows.repeat_interleave(bound.config.samples, 0) for rows in (a, captions, expected))
        output = decoder(a, captions, expected)
        estimate = bound(output, captions)
        loss, means = estimate.loss, {"nll": estimate.nll.mean()}
        if estimate.advantage.numel():  # over the captions with a sample, about half of them
            means |= {"reward": (estimate.advantage + estimate.baseline).mean(), "baseline": estimate.baseline.mean()}
    if teachers is not None:
        teachers = teachers.repeat_interleave(len(captions) // len(teachers), 0)
        loss = torch.lerp(loss, distillation_loss(output.logits, teachers).mean(), distillation)
    if covers is not None:
        covers = covers.repeat_interleave(len(captions) // len(covers), 0)
        outside = box_loss(output.alphas, covers)
        loss = loss + boxes * outside.mean()
        means |= {"boxes": outside.sum() / covers.any(2).sum().clamp(min=1)}
    penalty = doubly_stochastic_penalty(output.alphas).mean()
    means |= {"penalty": penalty, "entropy": entropy(output.alphas).mean()}
    if captions.shape[1] > 1:
        means |= {"movement": movement(output.alphas).mean()}
    return BatchLoss(loss + doubly_stochastic * penalty, means, len(captions), captions.numel())


def reward_loss(
    decoder: Decoder,
    a: Tensor,
    reward: Callable[[Rollout], Tensor],
    samples: int,
    max_length: int,
    temperature: float = 1.0,
    doubly_stochastic: float = 0.0,
    expected: Tensor | None = None,
) -> BatchLoss:
    """Minus the expected reward of sampled captions, and the penalty on their maps (Rennie et al., 2017).

    Args:
        decoder: samples captions as it is: in training mode with dropout, hard attention by its `look`.
        a: annotation vectors (B, L, D).
        reward: gives the rewards (B N,) of the captions sampled for all images, those of one image side by side.
        samples: N captions of each image.
        max_length: of a caption in words.
        temperature: words are drawn from p(y_t)^(1/temperature).
        doubly_stochastic: lambda.
        expected: (B,) bool, with hard attention: the images that take the expectation in place of a sample.
    """
    rows = torch.arange(len(a), device=a.device).repeat_interleave(samples)
    first = decoder.initial_state(a)
    view = decoder.view(a, expected).select(rows)
    sampled = rollout(decoder, view, State(first.h[rows], first.c[rows]), max_length, temperature)
    rewards, within = reward(sampled), within_caption(sampled)
    penalty = doubly_stochastic_penalty(sampled.alphas * within.unsqueeze(2)).mean()
    words = int(within.sum())
    means = {
        "reward": rewards.mean(),
        "penalty": penalty,
        "entropy": (entropy(sampled.alphas) * within).sum() / words,
        "movement": (movement(sampled.alphas) * within[:, 1:]).sum() / max(words - len(rows), 1),
    }
    loss = self_critical(log_policy(sampled), rewards, samples) + doubly_stochastic * penalty
    return BatchLoss(loss, means, len(rows), words)


def self_critical(log_p: Tensor, rewards: Tensor, samples: int) -> Tensor:
    """Minus the self-critical estimate: log p and rewards (B N,) -> (); its gradient makes rewarded captions likelier."""
    grouped = rewards.unflatten(0, (-1, samples))
    others = (grouped.sum(1, keepdim=True) - grouped) / (samples - 1)
    return -((grouped - others).flatten() * log_p).mean()


def log_policy(sampled: Rollout) -> Tensor:
    """Log-probability of everything drawn for each caption (B,): its words and, with hard attention, its places."""
    log_p = sampled.log_policy.sum(1)
    if sampled.places is not None:
        drawn = within_caption(sampled) & (sampled.places >= 0)
        log_p = log_p + (log_probability(sampled.alphas, sampled.places.clamp(min=0)) * drawn).sum(1)
    return log_p


def within_caption(sampled: Rollout) -> Tensor:
    """True up to each caption's end mark, (B, C)."""
    return torch.arange(sampled.words.shape[1], device=sampled.words.device) < sampled.lengths.unsqueeze(1)


def log_probability(alphas: Tensor, places: Tensor) -> Tensor:
    """Log alpha_t at s_t: (B, C, L), (B, C) -> (B, C)."""
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    return _precise(chosen).clamp(min=torch.finfo(torch.float32).tiny).log()


def _precise(values: Tensor) -> Tensor:
    """At least float32: sums and logarithms in bf16 or float16 lose too much precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
