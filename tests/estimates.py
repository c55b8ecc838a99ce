"""Each estimator of `objective.VariationalBound`, drawn many times on a case small enough to sum over every path, against the truth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor

from satcourse.lessons.estimators import WORDS, GumbelAttention, every_path, tiny
from satlib.model.attention import HardAttention
from satlib.model.objective import HardConfig, VariationalBound, coins, negative_log_likelihood


class EstimatorConfig(HardConfig, frozen=True):
    """`HardConfig`, and a variant that is only studied."""

    gumbel: float | None = None  # temperature of a straight-through Gumbel-softmax in place of the score function


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
    found["Gumbel-softmax, temperature 1"] = (replace(exact, gumbel=1.0), False)
    return found


def measure(name: str, config: EstimatorConfig, claims: bool, draws: int, rows: int = 64, seed: int = 0) -> Estimate:
    """Draw an estimator `draws` times over `rows` captions each and compare its mean with the exact gradient.

    Args:
        name: for the table.
        config: the estimator.
        claims: whether it claims to be unbiased.
        draws: independent estimates.
        rows: B N, captions times samples of each.
        seed: of the case and of the samples.
    """
    decoder, a, captions = tiny(seed)
    weights = list(decoder.parameters())
    truth = flat(torch.autograd.grad(-every_path(decoder, a, captions).bound, weights))
    torch.manual_seed(seed)
    bound = VariationalBound(config, decoder.config.hidden, longest=WORDS).double()
    if config.gumbel is not None:
        assert isinstance(decoder.attention, HardAttention)
        decoder.attention = GumbelAttention(decoder.attention.energy, config.gumbel)
    images = rows // config.samples
    a, captions = (each.expand(images * config.samples, *each.shape[1:]) for each in (a, captions))

    def draw() -> Tensor:
        expected = coins(config, images, a.device)
        output = decoder(a, captions, expected.repeat_interleave(config.samples))
        if config.gumbel is not None:
            return negative_log_likelihood(output.logits, captions).mean()
        return bound(output, captions).loss

    _fit_baseline(bound, draw)
    torch.manual_seed(seed + 1)  # the same samples for every estimator, as far as they draw alike
    drawn = torch.stack([flat(torch.autograd.grad(draw(), weights, allow_unused=True), weights) for _ in range(draws)])
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


def flat(gradients: Sequence[Tensor | None], weights: Sequence[Tensor] = ()) -> Tensor:
    """All in a row; None, of a weight that has no part in the result, is zeros."""
    if weights:
        gradients = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, weights, strict=True)]
    return torch.cat([gradient.flatten() for gradient in gradients])
