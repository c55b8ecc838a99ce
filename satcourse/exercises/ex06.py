"""Exercises of notebook 06: hard attention, from a draw to the estimator."""

from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Answer, distribution, exercise, gradients, numbers
from satlib.beyond.rewards import advantages
from satlib.model import objective
from satlib.model.attention import entropy

B, C, L, N = 3, 4, 5, 3


def _short_of_one() -> Tensor:
    """Weights (1, L) that sum to a little less than 1 in float32, as about every third softmax does."""
    return next(alpha for seed in count() if (alpha := distribution(1, L, seed=seed)).cumsum(1)[0, -1] < 1)


@exercise("6.1", "A place is drawn", difficulty=2, minutes=10, equation="equation 8")
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The place whose stretch of the line from 0 to 1 a dart hits: alpha (B, L), darts (B,) -> (B,)."""
    return (darts.unsqueeze(1) >= alpha.cumsum(1)[:, :-1]).sum(1)


draw.says = "eight darts, places of weight 0 and 1 among their targets, and weights that sum to a little less than 1"
draw.cases = lambda: [
    (torch.tensor([[0.45, 0.25, 0.15, 0.1, 0.05]]).repeat(4, 1), torch.tensor([0.01, 0.46, 0.8, 0.99])),
    (torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.3, 0.7, 0.0])),
    (_short_of_one(), torch.tensor([1 - 2**-24])),
]
draw.mistakes = {
    "this is the place with the largest weight, whatever the dart": lambda alpha, darts: alpha.argmax(1),
    "a dart just below 1 flies past the last place: rounded weights sum to a little less; leave the last edge out": lambda alpha, darts: (
        (darts.unsqueeze(1) >= alpha.cumsum(1)).sum(1)
    ),
}


@exercise("6.2", "The bound, summed over every path", difficulty=2, minutes=4, equation="equation 10")
def bound(log_p_path: Tensor, log_p_caption: Tensor) -> Tensor:
    """L_s over all paths."""
    return (log_p_path.exp() * log_p_caption).sum()


bound.says = "the bound of 8 and of 25 paths, as satlib sums it"
bound.cases = lambda: [
    (distribution(8).log(), -numbers(8, seed=1).abs() * 3),
    (distribution(25, seed=2, sharp=2.0).log(), -numbers(25, seed=3).abs() * 5),
]
bound.mistakes = {
    "this is log p(y|a), which the bound lies below": lambda path, caption: torch.logsumexp(path + caption, 0),
    "the paths count alike: weigh each by its probability": lambda path, caption: caption.mean(),
}


def _at_both(answer: Answer, log_p: Tensor, reward: Tensor, baseline: float) -> Any:
    """The gradients of a learner's loss at log p(s|a) and at the reward."""
    loss = answer(log_p.requires_grad_(), reward.requires_grad_(), baseline)
    return gradients(loss, {"log p(s|a)": log_p, "the reward, log p(y|s,a)": reward})


@exercise("6.3", "The score-function gradient", difficulty=3, minutes=15, equation="equations 11 and 12")
def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the score-function estimate."""
    return -((reward - baseline).detach() * log_p_place).mean()


score_loss.says = "its gradients: of log p(s|a) the estimate, of the reward nothing"
score_loss.cases = lambda: [
    (-numbers(4).abs(), -3 * numbers(4, seed=1).abs(), 0.0),
    (-numbers(3, seed=2).abs(), numbers(3, seed=3), -2.0),
]
score_loss.observe = _at_both
score_loss.mistakes = {
    "baseline not subtracted: take it off the reward": lambda log_p, reward, b: score_loss(log_p, reward, 0.0),
    "reward not detached: its own gradient flows back too": lambda log_p, reward, b: -((reward - b) * log_p).mean(),
}


def _baseline(answer: Answer, baseline: float, log_p: Tensor) -> Any:
    """Advantage and new baseline; whether either hangs on the graph."""
    log_p.requires_grad_()
    output = answer(baseline, log_p)
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        return output
    tied = [isinstance(value, Tensor) and value.requires_grad for value in output]
    return {"the advantage": output[0], "the new baseline": output[1], "parts of the graph": tied}


@exercise("6.4", "A baseline that follows", difficulty=2, minutes=4, equation="section 4.1")
def moving_average(baseline: float, log_p: Tensor) -> tuple[Tensor, float]:
    """What a batch's rewards exceed the old baseline by, and the new one."""
    return (log_p - baseline).detach(), 0.9 * baseline + 0.1 * log_p.mean().item()


moving_average.says = "the advantage, the new baseline, and that neither hangs on the graph"
moving_average.cases = lambda: [(0.0, -numbers(4).abs() * 5), (-8.0, -numbers(3, seed=1).abs() * 5)]
moving_average.observe = _baseline
moving_average.mistakes = {
    "neither is detached: rewards are numbers here": lambda b, log_p: (log_p - b, 0.9 * b + 0.1 * log_p.mean()),
    "the baseline was updated before its use: it would know the very samples that it is taken off": lambda b, log_p: (
        moving_average(moving_average(b, log_p)[1], log_p)[0],
        moving_average(b, log_p)[1],
    ),
}


leave_one_out = exercise(
    "6.5", "The other samples as a baseline", difficulty=2, minutes=8, equation="Kool et al. (2019)"
)(objective.leave_one_out)
leave_one_out.says = "captions of 3 and of 4 samples"
leave_one_out.cases = lambda: [(numbers(B, N),), (numbers(4, 4, seed=1),)]
leave_one_out.mistakes = {
    "a sample is in its own baseline: leave it out": lambda r: r.mean(1, keepdim=True).expand_as(r),
    "the others' sum is divided by N: there are N - 1 of them": lambda r: (r.sum(1, keepdim=True) - r) / r.shape[1],
}


def _through(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """The loss and its gradients, at the energies: an answer may normalise alpha again, which changes nothing there."""
    energies = alphas.log().requires_grad_()
    loss = answer(log_p_word.requires_grad_(), torch.softmax(energies, -1), *rest)
    result = gradients(loss, {"log p(y_t)": log_p_word, "the energies": energies})
    return result if result is loss else {"the loss": torch.as_tensor(loss).detach(), **result}


@exercise("6.6", "The whole estimator", difficulty=3, minutes=20, equation="section 4.1, the final learning rule")
def estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
    *,
    detach: bool = True,
) -> Tensor:
    """A loss whose gradient is minus the paper's estimate, or minus one whose reward is not detached."""
    log_p = log_p_word.sum(1)
    advantage = log_p.unsqueeze(1) - baseline
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    score = ((advantage.detach() if detach else advantage) * chosen.log()).sum(1)
    return -(log_p + lambda_r * score + lambda_e * entropy(alphas).sum(1)).mean()


estimator.says = "the loss and both of its gradients, against satlib's VariationalBound"
estimator.cases = lambda: [
    (-numbers(B, C).abs() - 0.1, distribution(B, C, L), torch.arange(B * C).view(B, C) % L, -5.0, 1.0, 0.5),
    (-numbers(1, 2, seed=2).abs() - 0.1, distribution(1, 2, 3, seed=3), torch.tensor([[2, 1]]), -1.0, 0.5, 0.0),
]
estimator.observe = _through
estimator.given = lambda *x: f"baseline = {x[3]:g}, lambda_r = {x[4]:g}, lambda_e = {x[5]:g}"
estimator.mistakes = {
    "reward not detached: log p(y|s,a) teaches through the likelihood term alone": partial(estimator, detach=False),
    "the entropy term has the wrong sign": lambda p, a, s, b, r, e: estimator(p, a, s, b, r, -e),
}


@exercise("6.7", "GRPO's advantage", difficulty=2, minutes=6, equation="Shao et al. (2024), section 4.1")
def group_advantage(rewards: Tensor) -> Tensor:
    """GRPO's advantages: (B, N) -> (B, N)."""
    return advantages(rewards, "group")


group_advantage.says = "groups of 4 and 5, one of them with equal rewards"
group_advantage.cases = lambda: [
    (numbers(B, 4),),
    (torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]]),),
]
group_advantage.tolerance = 1e-3
group_advantage.mistakes = {
    "not divided by the group's standard deviation": lambda r: r - r.mean(1, keepdim=True),
    "equal rewards give NaN: their deviation is 0": lambda r: (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True),
}


@exercise("6.8", "A reward that learns", difficulty=3, minutes=5, equation="equation 12", kind="bug")
def reinforce_loss(log_p: Tensor, log_likelihood: Tensor, baseline: float, *, detach: bool = True) -> Tensor:
    """A loss whose gradient is minus equation 12 with a baseline: log p of the sampled path (N,), log p(y|s,a) (N,) -> ()."""
    advantage = log_likelihood - baseline
    return -(log_likelihood + (advantage.detach() if detach else advantage) * log_p).mean()


reinforce_loss.start = partial(reinforce_loss, detach=False)
reinforce_loss.says = "the gradients at both log-probabilities, with a baseline and without"
reinforce_loss.cases = lambda: [
    (distribution(4, seed=1).log(), -5 - numbers(4, seed=2).abs(), baseline) for baseline in (-5.5, 0.0)
]
reinforce_loss.observe = _at_both
reinforce_loss.mistakes = {
    "now the likelihood itself learns nothing": lambda log_p, reward, b: reinforce_loss(log_p, reward.detach(), b),
}
