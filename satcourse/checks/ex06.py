"""Exercises of notebook 06: hard attention, from a draw to the estimator."""

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.checks.calls import Failed
from satcourse.checks.task import (
    Answer,
    Case,
    distribution,
    exercise,
    gradients,
    numbers,
    with_gradients,
)
from satlib.model.objective import leave_one_out as mean_of_others

B, C, L, N = 3, 4, 5, 3


@exercise("6.1", "A place is drawn", difficulty=2, minutes=7, equation="equation 8")
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The number of the place that each dart hits, (B,): the places lie end to end, each as long
    as its weight.
    """
    edges = alpha.cumsum(1)[:, :-1]  # (B, L - 1): where one place ends and the next begins
    return (darts[:, None] >= edges).sum(1)


def _darts() -> list[tuple[Tensor, Tensor]]:
    typical = torch.tensor([[0.45, 0.25, 0.15, 0.1, 0.05]]).repeat(4, 1)
    inside = torch.tensor([0.01, 0.46, 0.8, 0.99])

    # A place of weight 0 is never hit, not even by the dart 0.0, which lies on its edge.
    with_zeros = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]])
    on_an_edge = torch.tensor([0.3, 0.7, 0.0])

    # Rounding leaves the weights of a softmax a little short of 1, and a dart may lie beyond them.
    short = torch.tensor([[0.5, 0.3, 0.2 - 1e-6]])
    beyond = torch.tensor([1 - 2**-24])
    return [
        (typical, inside),
        (with_zeros, on_an_edge),
        (short, beyond),
    ]


def _edge_to_the_place_before(alpha: Tensor, darts: Tensor) -> Tensor:
    edges = alpha.cumsum(1)[:, :-1]
    return (darts[:, None] > edges).sum(1)


def _weights_as_edges(alpha: Tensor, darts: Tensor) -> Tensor:
    return (darts[:, None] >= alpha[:, :-1]).sum(1)


def _first_edge_beyond(alpha: Tensor, darts: Tensor) -> Tensor:
    beyond = alpha.cumsum(1) > darts[:, None]
    # Where no edge is beyond the dart, this is the argmax of zeros.
    return beyond.float().argmax(1)


def _last_edge_too(alpha: Tensor, darts: Tensor) -> Tensor:
    # A dart beyond the sum of the weights has passed L edges, and there is no place L.
    return (darts[:, None] >= alpha.cumsum(1)).sum(1)


draw.says = "darts on edges, places of weight 0 and 1, and weights that sum to less than 1"
draw.cases = _darts
draw.mistakes = {
    "a dart on an edge hits the place that begins there": _edge_to_the_place_before,
    "an edge is a running sum of weights: cumsum": _weights_as_edges,
    "places are counted from 0": lambda alpha, darts: draw(alpha, darts) + 1,
    "weights may sum to a little less than 1: then no edge is beyond the dart, "
    "and argmax gives 0": _first_edge_beyond,
    "each dart is for the places of its own row: give it an axis of size 1": (
        lambda alpha, darts: torch.searchsorted(alpha.cumsum(1), darts, right=True)
    ),
    "this is the nearest edge: a dart hits the place that it lies in": (
        lambda alpha, darts: (alpha.cumsum(1) - darts[:, None]).abs().argmin(1)
    ),
    "weights may sum to a little less than 1: leave the last edge out": _last_edge_too,
}


@exercise(
    "6.2",
    "The bound, summed over every path",
    difficulty=2,
    minutes=9,
    equation="equation 10",
)
def bound(p_place: Answer, p_word: Answer, L: int, C: int) -> tuple[float, float]:
    """L_s, the mean of log p(y|s,a) under p(s|a), and log p(y|a), the log of the mean of
    p(y|s,a).
    """
    p_path = []
    p_caption = []
    for path in itertools.product(range(L), repeat=C):
        # Every place and every word depends on all places up to it.
        beginnings = [path[:t] for t in range(1, C + 1)]
        p_path.append(math.prod(map(p_place, beginnings)))
        p_caption.append(math.prod(map(p_word, beginnings)))

    p = torch.tensor(p_path).double()  # p(s|a) of each path: (L^C,)
    q = torch.tensor(p_caption).double()  # p(y|s,a): (L^C,)
    # Jensen's inequality: a mean of logarithms is at most the logarithm of the mean.
    return (p @ q.log()).item(), (p @ q).log().item()


def _chances(L: int, C: int, seed: int) -> Case:
    """The probabilities of each beginning's last place and word, and the sizes."""
    begun = []
    for t in range(C):
        begun += itertools.product(range(L), repeat=t)

    places = {}
    for number, path in enumerate(begun):
        # Another distribution after each beginning: a place depends on those before it.
        alpha = distribution(L, seed=seed + number).tolist()
        for place, weight in enumerate(alpha):
            places[*path, place] = weight

    p_words = numbers(len(places), seed=seed).sigmoid().tolist()
    words = dict(zip(places, p_words, strict=True))
    return _looked_up(places), _looked_up(words), L, C


def _looked_up(chances: dict[Any, float]) -> Answer:
    def chance(path: Any) -> float:
        if not path:
            raise Failed("path[:0] is empty, and has no last place: begin with path[:1]")
        return chances[path]

    return chance


def _whole_path_alone(p_place: Answer, p_word: Answer, L: int, C: int) -> tuple[float, float]:
    # Factors of 1 leave the one that is asked for the whole path.
    def at_the_end(chance: Answer) -> Answer:
        return lambda path: chance(path) if len(path) == C else 1.0

    return bound(at_the_end(p_place), at_the_end(p_word), L, C)


def _likelihood_twice(*inputs: Any) -> tuple[float, float]:
    _, log_likelihood = bound(*inputs)
    return log_likelihood, log_likelihood


def _paths_alike(p_place: Answer, *rest: Any) -> tuple[float, float]:
    p_word, L, C = rest
    mean_log_p, _ = bound(lambda path: 1 / L, p_word, L, C)
    _, log_likelihood = bound(p_place, p_word, L, C)
    return mean_log_p, log_likelihood


def _joint(
    p_place: Answer, p_word: Answer, L: int, C: int, *, weight_too: bool = True
) -> tuple[float, float]:
    def both(path: tuple[int, ...]) -> float:
        return p_place(path) * p_word(path)

    mean_log_joint, _ = bound(both if weight_too else p_place, both, L, C)
    _, log_likelihood = bound(p_place, p_word, L, C)
    return mean_log_joint, log_likelihood


def _only_paths(allowed: Answer) -> Answer:
    """Beginnings that are not allowed have no chance."""

    def answer(p_place: Answer, *rest: Any) -> tuple[float, float]:
        return bound(lambda path: p_place(path) * allowed(path), *rest)

    return answer


bound.says = "2 places and 2 words, 4 and 3, and 3 places for a single word"
bound.cases = lambda: [
    _chances(L=2, C=2, seed=0),
    _chances(L=4, C=3, seed=1),
    # Of a single word the whole path is the only beginning.
    _chances(L=3, C=1, seed=2),
]
bound.parts = ("L_s", "log p(y|a)")
bound.given = lambda p_place, p_word, L, C: f"L = {L}, C = {C}"
bound.mistakes = {
    "multiply over path[:1], path[:2], ...: this takes the whole path alone": _whole_path_alone,
    "both are log p(y|a): in L_s the logarithm stands inside the sum": _likelihood_twice,
    "L_s is a mean over paths: weigh each by its probability": _paths_alike,
    "p(y|a) is a mean over paths, too: weigh each p(y|s,a) by p(s|a)": (
        lambda p_place, p_word, L, C: (
            bound(p_place, p_word, L, C)[0],
            bound(lambda path: 1.0, p_word, L, C)[1],
        )
    ),
    "the joint probability of places and words: in L_s the weight is p(s|a), "
    "and the logarithm that of p(y|s,a)": _joint,
    "the logarithm is of p(s|a) p(y|s,a): in L_s it is that of p(y|s,a) alone": partial(
        _joint, weight_too=False
    ),
    "no place comes twice here: a path may come back, as in product(range(L), repeat=C)": (
        _only_paths(lambda path: len({*path}) == len(path))
    ),
    "paths in rising order alone: another order is another path": _only_paths(
        lambda path: [*path] == sorted(path)
    ),
}


@exercise(
    "6.3",
    "The score-function gradient",
    difficulty=3,
    minutes=10,
    equation="equations 11 and 12",
)
def score_loss(log_p_path: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the mean of (reward - baseline) times that of log p(s|a),
    with none for the reward.
    """
    # Detached: it weighs the gradient of log p(s|a), and is not itself increased.
    advantage = (reward - baseline).detach()
    return -(advantage * log_p_path).mean()


def _gradients_at_both(answer: Answer, log_p: Tensor, reward: Tensor, baseline: float) -> Any:
    """The gradients of a learner's loss at log p(s|a) and at the reward."""
    # The value of the loss is free: only what it teaches is asked for.
    loss = answer(log_p.requires_grad_(), reward.requires_grad_(), baseline)
    leaves = {
        "log p(s|a)": log_p,
        "the reward, log p(y|s,a)": reward,
    }
    return gradients(loss, leaves)


def _samples() -> list[tuple[Tensor, Tensor, float]]:
    with_a_baseline = (-numbers(4, seed=2).abs(), numbers(4, seed=3), 0.3)
    without_one = (-numbers(4).abs(), -3 * numbers(4, seed=1).abs(), 0.0)
    return [with_a_baseline, without_one]


def _reward_not_detached(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    advantage = reward - baseline
    return -(advantage * log_p_place).mean()


score_loss.says = "its gradients: of log p(s|a) the estimate, of the reward nothing"
score_loss.cases = _samples
score_loss.observe = _gradients_at_both
score_loss.mistakes = {
    "reward not detached: its own gradient flows back too": _reward_not_detached,
    "this is the gradient of p(s|a): log p(s|a) is given, and its gradient is asked for": (
        lambda log_p_place, *rest: score_loss(log_p_place.exp(), *rest)
    ),
}


@exercise("6.4", "Bias and noise", difficulty=2, minutes=6)
def bias_and_noise(p: Tensor, estimates: Tensor, truth: Tensor) -> tuple[float, float]:
    """The mean estimate's distance from the truth, and the estimates' root mean square distance
    from their mean, both by the truth's length.
    """
    mean = p @ estimates  # (W,)
    bias = (mean - truth).norm()

    # From their mean, not from the truth: else the bias would be counted twice.
    squared_distance = (estimates - mean).square().sum(1)  # (S,)
    noise = (p @ squared_distance).sqrt()

    length = truth.norm()
    return (bias / length).item(), (noise / length).item()


def _estimators() -> list[tuple[Tensor, Tensor, Tensor]]:
    # Where the truth is small, bias and noise are large beside it.
    p_six = distribution(6, seed=1)
    six_estimates = numbers(6, 4, seed=2)
    small_truth = 0.1 * numbers(4, seed=3)

    p_three = distribution(3, seed=3)
    three_estimates = numbers(3, 5, seed=4)
    truth = numbers(5, seed=5)
    return [
        (p_six, six_estimates, small_truth),
        (p_three, three_estimates, truth),
    ]


def _noise_around_the_truth(p: Tensor, estimates: Tensor, truth: Tensor) -> tuple[float, float]:
    bias, _ = bias_and_noise(p, estimates, truth)
    squared_distance = (estimates - truth).square().sum(1)
    noise = (p @ squared_distance).sqrt()
    return bias, (noise / truth.norm()).item()


def _mean_distances(p: Tensor, estimates: Tensor, truth: Tensor) -> tuple[float, float]:
    bias = p @ (estimates - truth).norm(dim=1)
    noise = p @ (estimates - p @ estimates).norm(dim=1)
    return (bias / truth.norm()).item(), (noise / truth.norm()).item()


bias_and_noise.says = "estimators of 6 and of 3 possible estimates"
bias_and_noise.cases = _estimators
bias_and_noise.parts = ("the bias", "the noise")
bias_and_noise.mistakes = {
    "measured from the truth, bias is in the noise: "
    "take the distance from the mean": _noise_around_the_truth,
    "a mean of distances: bias is the mean estimate's distance, "
    "and noise the root of a mean of squares": _mean_distances,
}


@exercise(
    "6.5",
    "The other samples as a baseline",
    difficulty=2,
    minutes=4,
    equation="Kool et al. (2019)",
)
def leave_one_out(rewards: Tensor) -> Tensor:
    """For each sample the mean reward of the others in its row, (B, N)."""
    return mean_of_others(rewards)


def _row_mean(rewards: Tensor) -> Tensor:
    return rewards.mean(1, keepdim=True).expand_as(rewards)


def _advantage(rewards: Tensor) -> Tensor:
    return rewards - leave_one_out(rewards)


def _of_all(rewards: Tensor) -> Tensor:
    return (rewards.sum() - rewards) / (rewards.numel() - 1)


leave_one_out.says = "captions of 3 and of 4 samples"
leave_one_out.cases = lambda: [
    (numbers(2, N),),
    (numbers(5, 4, seed=1),),
]
leave_one_out.mistakes = {
    "a sample is in its own baseline: leave it out": _row_mean,
    "this is the reward less its baseline: the baseline alone is asked": _advantage,
    "the mean over captions, axis 0: the others are in the row": (
        lambda rewards: leave_one_out(rewards.T).T
    ),
    "the mean over all captions: the others of its own row alone": _of_all,
    "a row's sum needs its axis: keepdim=True": (
        lambda rewards: (rewards.sum(1) - rewards) / (rewards.shape[1] - 1)
    ),
    "its own reward is still in the sum: take it off before you divide": (
        lambda rewards: leave_one_out(rewards) + rewards / (rewards.shape[1] - 1)
    ),
}


@exercise(
    "6.6",
    "A dart with a gradient",
    difficulty=3,
    minutes=7,
    equation="Jang et al. (2017)",
)
def gumbel_softmax(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Forward one-hot, at the largest energy + noise; backward the softmax of (energies + noise) /
    temperature over the places.
    """
    relaxed = torch.softmax((energies + noise) / temperature, 1)  # (B, L)
    one_hot = nn.functional.one_hot(relaxed.argmax(1), relaxed.shape[1])

    # The difference of the two is 0, but only the first has a gradient.
    return one_hot + relaxed - relaxed.detach()


# Its gradient is right, but several places are read at once.
def _soft_forward_too(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    return torch.softmax((energies + noise) / temperature, 1)


def _noise_not_divided(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    return gumbel_softmax(energies, noise * temperature, temperature)


gumbel_softmax.says = "one place forward, the softmax's gradient backward, at two temperatures"
gumbel_softmax.cases = lambda: [
    (numbers(B, L), numbers(B, L, seed=1), 1.0),
    (numbers(2, 4, seed=2), numbers(2, 4, seed=3), 0.5),
]
gumbel_softmax.observe = with_gradients("the energies")
gumbel_softmax.mistakes = {
    "soft on the way forward, too: one place is read": _soft_forward_too,
    "divide energies *and* noise by the temperature": _noise_not_divided,
    "gumbel_softmax draws noise of its own, and here it is given": (
        lambda energies, noise, temperature: nn.functional.gumbel_softmax(
            energies + noise, temperature, hard=True
        )
    ),
}


@exercise(
    "6.7",
    "What each path adds",
    difficulty=3,
    minutes=8,
    equation="Mnih and Rezende (2016)",
)
def vimco(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    """For each row, the sum over k of softmax(log_w)_k d_log_w_k + signal_k d_log_q_k."""
    # The mean of the others' logarithms is the logarithm of their geometric mean.
    stand_in = leave_one_out(log_w)  # (S, K)
    signal = _signal(log_w, stand_in)  # (S, K)
    share = log_w.softmax(1)  # (S, K)
    return (share.unsqueeze(2) * d_log_w + signal.unsqueeze(2) * d_log_q).sum(1)


def _signal(log_w: Tensor, stand_in: Tensor) -> Tensor:
    """The bound with each w_k, less the bound with its stand-in in its place: (S, K)."""
    itself = torch.eye(log_w.shape[1], dtype=torch.bool)
    # Row k of the last two axes is a group without w_k: (S, K, K).
    replaced = torch.where(itself, stand_in.unsqueeze(2), log_w.unsqueeze(1))
    return log_w.logsumexp(1, keepdim=True) - replaced.logsumexp(2)


def _groups(S: int, K: int, least: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """S groups of K paths, and gradients over 5 weights."""
    log_w = numbers(S, K, seed=K, scale=2.0) + least
    d_log_w = numbers(S, K, 5, seed=10 + K)
    d_log_q = numbers(S, K, 5, seed=20 + K)
    return log_w, d_log_w, d_log_q


def _with_stand_in(stand_in: Tensor, log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    return _with_signal(_signal(log_w, stand_in), log_w, d_log_w, d_log_q)


def _with_signal(signal: Tensor, log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    share = log_w.softmax(1)
    return (share.unsqueeze(2) * d_log_w + signal.unsqueeze(2) * d_log_q).sum(1)


def _plain_mean(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    stand_in = leave_one_out(log_w.exp()).log()
    return _with_stand_in(stand_in, log_w, d_log_w, d_log_q)


def _sign_reversed(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    # The signal is a factor of d_log_q alone.
    return vimco(log_w, d_log_w, -d_log_q)


def _less_the_others(log_w: Tensor, *gradients: Tensor) -> Tensor:
    return _with_signal(log_w - leave_one_out(log_w), log_w, *gradients)


def _bound_for_all(log_w: Tensor, *gradients: Tensor) -> Tensor:
    bound = log_w.logsumexp(1, keepdim=True) - math.log(log_w.shape[1])
    return _with_signal(bound, log_w, *gradients)


def _nothing_stands_in(log_w: Tensor, *gradients: Tensor) -> Tensor:
    return _with_stand_in(torch.full_like(log_w, -math.inf), log_w, *gradients)


def _row_of_itself(log_w: Tensor, *gradients: Tensor) -> Tensor:
    itself = torch.eye(log_w.shape[1], dtype=torch.bool)
    stand_in = leave_one_out(log_w)
    replaced = torch.where(itself, stand_in.unsqueeze(2), log_w.unsqueeze(2))
    signal = log_w.logsumexp(1, keepdim=True) - replaced.logsumexp(2)
    return _with_signal(signal, log_w, *gradients)


def _even_shares(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    return _shares_of_1(log_w, d_log_w / log_w.shape[1], d_log_q)


def _shares_of_1(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    # `vimco` multiplies by the share again.
    share = log_w.softmax(1).unsqueeze(2)
    return vimco(log_w, d_log_w / share, d_log_q)


vimco.says = "groups of 2, 3 and 4 paths"
vimco.cases = lambda: [
    _groups(S=B, K=4),
    _groups(S=2, K=3),
    # Of two paths the other one alone is the stand-in.
    _groups(S=2, K=2),
    # The exponential of these is 0 in float32.
    _groups(S=2, K=3, least=-200.0),
]
vimco.mistakes = {
    "the others' plain mean stands in for w_k, or nothing does: "
    "take their *geometric* mean": _plain_mean,
    "the signal has the wrong sign: the bound with w_k, less the one without it": _sign_reversed,
    "each gradient of log w counts by the path's share: softmax": _shares_of_1,
    "shares of 1 / K: a path's share is its softmax": _even_shares,
    "the signal is log w_k less the stand-in: take the bounds with each of them": _less_the_others,
    "the bound is the signal of every path: take off the one without w_k": _bound_for_all,
    "w_k is left out, and nothing is in its place: the stand-in is": _nothing_stands_in,
    "row k holds w_k again and again: it holds the others, and the stand-in for w_k": (
        _row_of_itself
    ),
}
