"""The bound and its estimators held against the truth, on a case small enough to sum over every path (section 4.1).

With L places and C words there are L^C paths s; for a tiny decoder all of them are run, which gives log p(y|a), the bound L_s
and its gradient exactly. Then each estimator of `objective.VariationalBound` is drawn many times: is its mean the
gradient of the bound, and how large is its variance?

Two variants that no recipe trains with are measured beside them: the estimator of the official Theano code, and a
straight-through Gumbel-softmax (Jang et al., 2017).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from satlib.model.attention import Energy, HardAttention, Look
from satlib.model.decoder import Decoder, Output
from satlib.model.objective import (
    HardConfig,
    VariationalBound,
    coins,
    log_probability,
    negative_log_likelihood,
    word_losses,
)
from satlib.recipe import DecoderConfig

PLACES, WORDS, VOCABULARY, DIM = 4, 3, 5, 3


@dataclass(frozen=True)
class Paths:
    """Every path of a caption, P = L^C of them, in the order of `itertools.product`.

    places: s_1..s_C, (P, C). log_p_place: log p(s_t|s_<t,a), (P, C). log_p_word: log p(y_t|s_1..s_t,a), (P, C).
    """

    places: Tensor
    log_p_place: Tensor
    log_p_word: Tensor

    @property
    def log_p_path(self) -> Tensor:
        """Log p(s|a), (P,)."""
        return self.log_p_place.sum(1)

    @property
    def log_p_caption(self) -> Tensor:
        """Log p(y|s,a), (P,)."""
        return self.log_p_word.sum(1)

    @property
    def log_likelihood(self) -> Tensor:
        """Log p(y|a) = log sum_s p(s|a) p(y|s,a)."""
        return torch.logsumexp(self.log_p_path + self.log_p_caption, 0)

    @property
    def bound(self) -> Tensor:
        """L_s = sum_s p(s|a) log p(y|s,a), equation 10."""
        return (self.log_p_path.exp() * self.log_p_caption).sum()


class PathGradients(NamedTuple):
    """What equation 11 is made of, path by path, over W weights.

    likelihood: d log p(y|s,a) / dW, (P, W). score: d log p(s_t|s_<t,a) / dW, (P, C, W).
    """

    likelihood: Tensor
    score: Tensor


def tiny(seed: int = 0) -> tuple[Decoder, Tensor, Tensor]:
    """A decoder of some 300 weights, annotation vectors (1, L, D) and a caption (1, C), all in double precision."""
    generator = torch.Generator().manual_seed(seed)
    config = DecoderConfig(embedding=3, hidden=4, attention="hard", attention_hidden=4, dropout=0.0)
    decoder = Decoder(config, DIM, VOCABULARY).double()
    with torch.no_grad():
        for weight in decoder.parameters():  # large enough for looks to matter
            weight.copy_(1.5 * torch.randn(weight.shape, generator=generator, dtype=torch.double))
    a = torch.randn(1, PLACES, DIM, generator=generator, dtype=torch.double)
    return decoder.train(), a, torch.randint(0, VOCABULARY, (1, WORDS), generator=generator)


def run_every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Output:
    """Run the decoder along each of the P = L^C paths: a (1, L, D), caption (1, C) -> what it gives for P rows."""
    paths = torch.tensor(list(itertools.product(range(a.shape[1]), repeat=caption.shape[1])))
    with _forced(decoder, paths):
        return decoder(a.expand(len(paths), -1, -1), caption.expand(len(paths), -1))


def every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Paths:
    """The paths of a caption with their log-probabilities: a (1, L, D), caption (1, C)."""
    return paths_of(run_every_path(decoder, a, caption), caption)


def paths_of(output: Output, caption: Tensor) -> Paths:
    """The log-probabilities of what `run_every_path` gave for a caption (1, C)."""
    assert output.places is not None  # every path is sampled
    log_p_word = -word_losses(output.logits, caption.expand(len(output.logits), -1))
    return Paths(output.places, log_probability(output.alphas, output.places), log_p_word)


def path_gradients(paths: Paths, weights: Sequence[Tensor]) -> PathGradients:
    """The gradients that equation 11 weighs by p(s|a) and adds up, of every path on its own: over `weights`, flat and in their order.

    With them any estimator that is a function of sampled paths has its mean and its variance as a sum, without a sample.
    """
    likelihood, score = jacobian(paths.log_p_caption, weights), jacobian(paths.log_p_place.flatten(), weights)
    return PathGradients(likelihood, score.unflatten(0, paths.places.shape))


def jacobian(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The gradient of each value over `weights`, flat and in their order: (R,) -> (R, W)."""
    one_hot = torch.eye(len(values), dtype=values.dtype, device=values.device)
    found = torch.autograd.grad(values, weights, one_hot, retain_graph=True, allow_unused=True, is_grads_batched=True)
    shaped = zip(found, weights, strict=True)
    return torch.cat([values.new_zeros(len(values), w.numel()) if g is None else g.flatten(1) for g, w in shaped], 1)


@contextmanager
def _forced(decoder: Decoder, paths: Tensor) -> Iterator[None]:
    """Let the decoder's samples be those of `paths` (B, C), in turn."""
    attention = decoder.attention
    assert isinstance(attention, HardAttention)
    columns = iter(paths.T)
    attention.draw = lambda alpha: next(columns)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del attention.draw


class EstimatorConfig(HardConfig, frozen=True):
    """`HardConfig`, and the variants that are only studied."""

    official: bool = (
        False  # the Theano code's: one coin per minibatch, mean per-word reward, score terms summed over the batch
    )
    gumbel: float | None = None  # temperature of a straight-through Gumbel-softmax in place of the score function


class OfficialBound(VariationalBound):
    """The official code's estimator: the mean log-probability of a word as reward, and score terms summed over the batch."""

    def rewards(self, log_p: Tensor) -> Tensor:
        """(B, C) -> (B, C)."""
        return log_p.mean(1, keepdim=True).expand_as(log_p)

    def over_batch(self, score: Tensor) -> Tensor:
        """A sum, where the likelihood is a mean: (B N,) -> ()."""
        return score.sum()


class GumbelAttention(HardAttention):
    """Hard attention through a straight-through Gumbel-softmax: one place forward, a softmax of some temperature backward."""

    def __init__(self, energy: Energy, temperature: float) -> None:
        super().__init__(energy)
        self.temperature = temperature

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> Look:
        """As `HardAttention.forward` in training mode; `expected` has no effect."""
        energies = self.energy(keys, h)
        # The argmax of energies with Gumbel noise is a sample of Multinoulli(alpha).
        noisy = energies - torch.empty_like(energies).exponential_().log()
        relaxed = torch.softmax(noisy / self.temperature, dim=1)
        place = noisy.argmax(1)
        one_hot = nn.functional.one_hot(place, relaxed.shape[1]).to(relaxed.dtype)
        weights = one_hot + relaxed - relaxed.detach()
        return Look(torch.bmm(weights.unsqueeze(1), a).squeeze(1), torch.softmax(energies, dim=1), place)


@dataclass(frozen=True)
class Estimate:
    """An estimator against the exact gradient of L_s, over all weights of the decoder.

    worst: the largest distance of a weight's mean from the truth, in standard errors of that mean. bias: the length of the
    mean's error over the length of the truth. noise: the length of one caption's standard deviation over the same.
    """

    name: str
    claims: bool  # to be unbiased
    worst: float
    bias: float
    noise: float


def estimators() -> dict[str, tuple[EstimatorConfig, bool]]:
    """The options by name, and whether each claims to be unbiased."""
    exact = EstimatorConfig(expectation=0.0, lambda_e=0.0)
    found = {}
    for reward in ("sentence", "to-come"):
        for baseline in ("none", "moving-average", "leave-one-out", "learned"):
            samples = 4 if baseline == "leave-one-out" else 1
            config = replace(exact, reward=reward, baseline=baseline, samples=samples)
            found[f"reward {reward}, baseline {baseline}" + (f", {samples} samples" if samples > 1 else "")] = (
                config,
                True,
            )
    found["expectation for half of the images"] = (replace(exact, expectation=0.5), False)
    found["entropy term, lambda_e 0.01"] = (replace(exact, lambda_e=0.01), False)
    found["official variant"] = (replace(exact, official=True, expectation=0.5, lambda_r=0.1, lambda_e=0.002), False)
    found["Gumbel-softmax, temperature 1"] = (replace(exact, gumbel=1.0), False)
    return found


def measure(
    name: str,
    config: EstimatorConfig,
    claims: bool,
    draws: int = 400,
    rows: int = 64,
    seed: int = 0,
    minibatch: tuple[Tensor, Tensor] | None = None,
) -> Estimate:
    """Draw an estimator `draws` times over `rows` captions each and compare its mean with the exact gradient.

    Args:
        name: for the table.
        config: the estimator.
        claims: whether it claims to be unbiased.
        draws: independent estimates.
        rows: B N, captions times samples of each.
        seed: of the case and of the samples.
        minibatch: annotation vectors (M, L, D) and captions (M, C), of which every draw has equally many; by default the case's
            one caption.
    """
    decoder, *one = tiny(seed)
    a, captions = minibatch or one
    weights = list(decoder.parameters())
    bounds = [every_path(decoder, *each).bound for each in zip(a.split(1), captions.split(1), strict=True)]
    truth = _flat(torch.autograd.grad(-torch.stack(bounds).mean(), weights))
    torch.manual_seed(seed)
    bound = (OfficialBound if config.official else VariationalBound)(config, decoder.config.hidden, longest=WORDS)
    bound = bound.double()
    if config.gumbel is not None:
        assert isinstance(decoder.attention, HardAttention)
        decoder.attention = GumbelAttention(decoder.attention.energy, config.gumbel)
    images = rows // config.samples
    which = (torch.arange(images) % len(a)).repeat_interleave(config.samples)
    a, captions = a[which], captions[which]

    def draw() -> Tensor:
        expected = coins(config, 1 if config.official else images, a.device).expand(images)
        output = decoder(a, captions, expected.repeat_interleave(config.samples))
        if config.gumbel is not None:
            return negative_log_likelihood(output.logits, captions).mean()
        return bound(output, captions).loss

    _fit_baseline(bound, draw)
    torch.manual_seed(seed + 1)  # the same samples for every estimator, as far as they draw alike
    drawn = torch.stack([_flat(torch.autograd.grad(draw(), weights, allow_unused=True), weights) for _ in range(draws)])
    error, deviation = drawn.mean(0) - truth, drawn.std(0)
    standard_error = deviation / draws**0.5
    moving = standard_error > 1e-12 * truth.norm()
    worst = (error[moving] / standard_error[moving]).abs().max().item()
    return Estimate(
        name,
        claims,
        worst,
        (error.norm() / truth.norm()).item(),
        # Of one caption, however many were averaged in a draw; for N samples, of one caption with its N.
        (deviation.norm() * images**0.5 / truth.norm()).item(),
    )


def _fit_baseline(bound: VariationalBound, draw: Callable[[], Tensor], steps: int = 80) -> None:
    """Let the bound's baselines converge, and then hold them: they are measured as they are late in training."""
    learner = torch.optim.Adam(bound.parameters(), 0.05) if bound.learned is not None else None
    for _ in range(steps):
        loss = draw()
        if learner is not None:
            learner.zero_grad()
            torch.autograd.backward(loss, inputs=list(bound.parameters()))
            learner.step()
    bound.eval()


def _flat(gradients: Sequence[Tensor | None], weights: Sequence[Tensor] = ()) -> Tensor:
    shaped = (
        gradients
        if not weights
        else [
            torch.zeros_like(weight) if gradient is None else gradient
            for gradient, weight in zip(gradients, weights, strict=True)
        ]
    )
    return torch.cat([gradient.flatten() for gradient in shaped if gradient is not None])
