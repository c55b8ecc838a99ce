"""What training minimises (section 4), exactly in the paper's scale: sums over words and places, a mean over the batch.

Soft attention (section 4.2.1, equation 14):  L_d = -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2.

Hard attention (section 4.1, equations 10 to 12) has a bound in place of log p(y|a), because s is not known:
L_s = sum_s p(s|a) log p(y|s,a) <= log p(y|a). It cannot be summed over all s, and a sample cannot be differentiated, so its
gradient is estimated from N samples s~:

    1/N sum_n [ d log p(y|s~,a) / dW                                     the likelihood term
              + lambda_r (log p(y|s~,a) - b) d log p(s~|a) / dW          the score-function term, with a baseline b
              + lambda_e d H[s~] / dW ]                                  the entropy term

The doubly stochastic penalty is for soft attention: it acts on the expected maps, and what a hard caption looks at are samples.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.decoder import Output
from satlib.errors import SatlibError
from satlib.options import option


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
    """sum_i (1 - sum_t alpha_ti)^2: alphas (B, C, L) -> (B,). Every place should get its share of attention over a caption."""
    return (1 - _precise(alphas).sum(1)).square().sum(1)


def entropy(alphas: Tensor) -> Tensor:
    """H[s_t] in nats: alphas (..., L) -> (...)."""
    precise = _precise(alphas)
    return -torch.xlogy(precise, precise).sum(-1)


def movement(alphas: Tensor) -> Tensor:
    """How far the map moves from each word to the next: alphas (B, C, L) -> (B, C - 1), total variation, 0 to 1."""
    return _precise(alphas).diff(dim=1).abs().sum(-1) / 2


@dataclass(frozen=True)
class HardConfig:
    """The estimator of the gradient of hard attention's bound (section 4.1); no effect with soft attention."""

    estimator: str = option(
        "score-function",
        "the estimator: score-function (the paper's) or gumbel (straight-through, Jang et al., 2017)",
        choices=("score-function", "gumbel"),
    )
    samples: int = option(1, "N, the number of attention paths sampled per caption", at_least=1)
    expectation: float = option(
        0.5,
        "the probability that an image uses the expected context vector in place of a sampled one",
        at_least=0,
        below=1,
    )
    anneal: float = option(
        0.0,
        "the share of training over which that probability falls from 1 to hard.expectation; 0 keeps it constant",
        at_least=0,
        below=1,
    )
    reward: str = option(
        "sentence",
        "the reward of a place: sentence (the paper's: log p of the whole caption) or to-come (log p of the words from t on)",
        choices=("sentence", "to-come"),
    )
    baseline: str = option(
        "moving-average",
        "the baseline that is subtracted from the reward: moving-average (the paper's), none, other-samples (their mean "
        "reward) or learned (a linear function of the LSTM state, added to the moving average)",
        choices=("moving-average", "none", "other-samples", "learned"),
    )
    lambda_r: float = option(1.0, "lambda_r, the weight of the score-function term", at_least=0)
    lambda_e: float = option(0.01, "lambda_e, the weight of the entropy term", at_least=0)
    temperature: float = option(1.0, "the temperature of the Gumbel-softmax", at_least=1e-3)
    official: bool = option(
        False,
        "whether to follow the official Theano code: one coin per minibatch, mean reward per word, no division by the batch size",
    )


class Bound(NamedTuple):
    """What the estimator gives: `loss` (), whose gradient is minus the estimate, and what to log.

    nll: -log p(y|s~,a) per caption and sample (B N,). advantage: reward less baseline, one for each place that was sampled,
    and that baseline.
    """

    loss: Tensor
    nll: Tensor
    advantage: Tensor
    baseline: Tensor


def coins(config: HardConfig, images: int, device: torch.device, done: float = 1.0) -> Tensor:
    """Which images of a batch take the expectation, (images,): a coin per image, or one for all in the official variant.

    Args:
        config: of the coin.
        images: the batch's.
        device: of the answer.
        done: share of the training that is done, of use where the coin's probability is annealed.
    """
    fallen = min(1.0, done / config.anneal) if config.anneal else 1.0
    probability = 1 - fallen * (1 - config.expectation)
    tossed = torch.rand(1 if config.official else images, device=device) < probability
    return tossed.expand(images)


class VariationalBound(nn.Module):
    """The Monte Carlo estimate of the bound's gradient, each term of the equation above one line of `forward`.

    Rewards and baselines are constants to autograd. Every baseline here is independent of the place whose log-probability it
    multiplies, given what came before it, so that it leaves the estimate unbiased:

    moving-average: b_k = 0.9 b_{k-1} + 0.1 log p(y|s~_k,a) over minibatches, from 0, used before it is updated (the paper). For
        rewards to come, one such average for each number of words to come.
    other-samples: the mean reward of the caption's N - 1 other samples (Mnih and Rezende, 2016).
    learned: the moving average and a linear function of h_{t-1}, fitted to what it leaves by least squares (as in Mnih et al., 2014).
    none: 0.
    """

    average: Tensor

    def __init__(self, config: HardConfig, hidden: int, label_smoothing: float = 0.0, longest: int = 41) -> None:
        """Begin with a baseline that knows nothing.

        Args:
            config: the estimator's options.
            hidden: n.
            label_smoothing: of the words' losses.
            longest: C at most.

        Raises:
            SatlibError: the other samples are asked for and there is only one.
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
        """Estimate from the decoder's output for B captions, N samples each, those of one caption side by side.

        Args:
            output: of B N rows.
            captions: ids (B N, C).
        """
        config = self.config
        losses = word_losses(output.logits, captions, self.label_smoothing)
        likelihood = -losses.sum(1)
        loss = -likelihood.mean()
        if config.estimator == "gumbel" or output.places is None:
            return Bound(loss, -likelihood.detach(), loss.new_empty(0), loss.new_empty(0))
        sampled = output.places >= 0
        log_p_place = log_probability(output.alphas, output.places.clamp(min=0)) * sampled
        rewards = self._rewards(-losses.detach())
        baseline, fit = self._baseline(rewards, output.states, sampled)
        advantage = rewards - baseline
        score = (advantage * log_p_place).sum(1)
        spread = entropy(output.alphas).sum(1)
        # The official code's score term is a sum over the batch where the likelihood is a mean.
        loss = (
            loss
            - config.lambda_r * (score.sum() if config.official else score.mean())
            - config.lambda_e * spread.mean()
        )
        return Bound(loss + fit, -likelihood.detach(), advantage[sampled], baseline[sampled])

    def _rewards(self, log_p: Tensor) -> Tensor:
        """What each place is rewarded with: log p(y_t|...) (B, C) -> (B, C)."""
        if self.config.official:
            return log_p.mean(1, keepdim=True).expand_as(log_p)
        if self.config.reward == "sentence":
            return log_p.sum(1, keepdim=True).expand_as(log_p)
        # A place cannot change the words before it: leaving them out changes no expectation.
        return log_p.flip(1).cumsum(1).flip(1)

    def _baseline(self, rewards: Tensor, states: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """What is taken off the rewards (B N, C), and the loss of the learned one (0 for the others)."""
        kind, nothing = self.config.baseline, rewards.new_zeros(())
        if kind == "none":
            return torch.zeros_like(rewards), nothing
        if kind == "other-samples":
            grouped = rewards.unflatten(0, (-1, self.config.samples))
            others = (grouped.sum(1, keepdim=True) - grouped) / (self.config.samples - 1)
            return others.flatten(0, 1), nothing
        words = rewards.shape[1]
        if self.config.reward == "to-come" and not self.config.official:
            kept = torch.arange(words, 0, -1, device=rewards.device)  # words to come at each t
        else:
            kept = torch.zeros(words, dtype=torch.long, device=rewards.device)
        baseline = self.average[kept].expand_as(rewards)
        if self.training:
            self.average[kept] = 0.9 * self.average[kept] + 0.1 * rewards.mean(0).to(self.average.dtype)
        if self.learned is None:
            return baseline, nothing
        correction = self.learned(states.detach().to(self.learned.weight.dtype)).squeeze(2)
        misses = (baseline + correction - rewards).square() * sampled
        return baseline + correction.detach(), misses.sum() / sampled.sum().clamp(min=1)


def log_probability(alphas: Tensor, places: Tensor) -> Tensor:
    """Log alpha_t at s_t: (B, C, L), (B, C) -> (B, C)."""
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    return _precise(chosen).clamp(min=torch.finfo(torch.float32).tiny).log()


def _precise(values: Tensor) -> Tensor:
    """At least float32: sums and logarithms of bf16 and float16 lose too much."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
