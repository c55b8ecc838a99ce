"""What the exercises 6.10 to 6.12 enumerate: the estimates of a gradient from every place, for one word."""

import torch
from torch import Tensor

from satcourse.exercises.task import distribution, numbers

L = 5


def expected_estimate(e: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """The mean over all places, weighted by alpha, of (r_i - b) grad log alpha_i: energies e (L,), rewards (L,) -> (L,)."""
    return torch.softmax(e, 0) @ estimates(e, reward, baseline)


def scores(e: Tensor) -> Tensor:
    """Row i: the gradient of log alpha_i with respect to e."""
    return torch.eye(len(e), dtype=e.dtype) - torch.softmax(e, 0)


def estimates(e: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """Row i: the estimate of a sample that drew place i."""
    return (reward - baseline).unsqueeze(1) * scores(e)


def by_autograd(e: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """The gradient of the expected reward itself: it does not depend on the baseline."""
    e = e.detach().requires_grad_()
    return torch.autograd.grad(torch.softmax(e, 0) @ reward, e)[0]


def by_loop(e: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """As `expected_estimate`, place by place, by autograd."""
    total = torch.zeros_like(e)
    for i in range(len(e)):
        leaf = e.detach().requires_grad_()
        log_alpha = torch.log_softmax(leaf, 0)
        total += log_alpha[i].exp().detach() * (reward[i] - baseline) * torch.autograd.grad(log_alpha[i], leaf)[0]
    return total


def variance(e: Tensor, reward: Tensor, baseline: float) -> float:
    """The variance of one sample's estimate, summed over the energies, exactly."""
    alpha = torch.softmax(e, 0)
    estimates = (reward - baseline).unsqueeze(1) * (torch.eye(len(e), dtype=e.dtype) - alpha)
    mean = (alpha.unsqueeze(1) * estimates).sum(0)
    return (alpha @ (estimates - mean).square().sum(1)).item()


def share_of_variance() -> float:
    """Even weights on four places, rewards -10, -11, -12 and -13: the variance with b = -11.5 as a share of that with b = 0."""
    e, reward = torch.zeros(4, dtype=torch.float64), -torch.arange(10.0, 14.0, dtype=torch.float64)
    return variance(e, reward, reward.mean().item()) / variance(e, reward, 0.0)


def reinforce_loss(log_p: Tensor, log_likelihood: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus equation 12 with a baseline: log p of the sampled path (N,), log p(y | s, a) (N,) -> ()."""
    advantage = (log_likelihood - baseline).detach()
    return -(log_likelihood + advantage * log_p).mean()


def its_own_reward_learns(log_p: Tensor, log_likelihood: Tensor, baseline: float) -> Tensor:
    """The bug of 6.12: the gradient goes through the reward too."""
    advantage = log_likelihood - baseline
    return -(log_likelihood + advantage * log_p).mean()


def gradients(loss: object, log_p: Tensor, log_likelihood: Tensor, baseline: float) -> object:
    """The gradients of a learner's loss at its two inputs; what it gives, if that is no number."""
    leaves = log_p.requires_grad_(), log_likelihood.requires_grad_()
    value = loss(*leaves, baseline)
    if not isinstance(value, Tensor) or value.dim():
        return value
    result = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else (None, None)
    names = "gradient at log p(s | a)", "gradient at log p(y | s, a)"
    return {name: torch.zeros(len(log_p)) if each is None else each for name, each in zip(names, result, strict=True)}


def cases() -> list[tuple[Tensor, Tensor, float]]:
    """Energies, rewards and a baseline, for one word."""
    return [
        (numbers(L, seed=1), -3 - numbers(L, seed=2).abs(), 0.0),
        (numbers(L, seed=3), -3 - numbers(L, seed=4).abs(), -3.5),
        (numbers(3, seed=5), numbers(3, seed=6), 10.0),
    ]


def samples() -> list[tuple[Tensor, Tensor, float]]:
    """Log-probabilities of sampled paths, log-likelihoods of captions along them, and a baseline."""
    return [
        (distribution(4, seed=1).log(), -5 - numbers(4, seed=2).abs(), -5.5),
        (distribution(3, seed=3).log(), -9 - numbers(3, seed=4).abs(), 0.0),
        (distribution(8, seed=5).log(), -6 + numbers(8, seed=6), -6.0),
    ]
