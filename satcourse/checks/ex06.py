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
    generator,
    gradients,
    numbers,
    with_gradients,
)
from satlib.data.text import END
from satlib.model.attention import entropy
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
def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the mean of (reward - baseline) times that of log p(s|a),
    with none for the reward.
    """
    # Detached: it weighs the gradient of log p(s|a), and is not itself increased.
    advantage = (reward - baseline).detach()
    return -(advantage * log_p_place).mean()


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


@exercise(
    "6.8",
    "The whole estimator",
    difficulty=3,
    minutes=14,
    equation="section 4.1, the final learning rule",
)
def estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
) -> Tensor:
    """Minus the mean over captions of log p + lambda_r [log p - baseline] log p(s) + lambda_e H,
    each a sum over words, [] a constant.
    """
    log_p = log_p_word.sum(1)  # log p(y|s,a): (B,)
    # A constant: log p already has its gradient from the first term.
    advantage = (log_p - baseline).detach()

    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)  # of the places drawn: (B, C)
    score = (advantage.unsqueeze(1) * chosen.log()).sum(1)  # (B,)

    H = entropy(alphas).sum(1)  # (B,)
    return -(log_p + lambda_r * score + lambda_e * H).mean()


def _loss_and_gradients(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """A learner's loss, and its gradients at log p(y_t) and at the energies."""
    # At the energies, not at alpha: an answer may normalise alpha again.
    energies = alphas.log().requires_grad_()
    loss = answer(log_p_word.requires_grad_(), torch.softmax(energies, -1), *rest)
    result = gradients(loss, {"log p(y_t)": log_p_word, "the energies": energies})
    # What is no number has no gradients: the engine says what was expected in its place.
    if result is loss:
        return result
    # Where a weight is 0 the entropy has no gradient, but a value.
    if not alphas.all():
        result = {}
    return {"the loss": torch.as_tensor(loss).detach(), **result}


def _sampled_captions() -> list[Case]:
    several = (
        -numbers(B, C).abs() - 0.1,
        distribution(B, C, L),
        torch.arange(B * C).view(B, C) % L,
    )
    single = (
        -numbers(1, 2, seed=2).abs() - 0.1,
        distribution(1, 2, 3, seed=3),
        torch.tensor([[2, 1]]),
    )
    on_one_place = single[0], torch.eye(3)[single[2]], single[2]
    # The baseline, lambda_r and lambda_e; once without entropy.
    return [
        (*several, -5.0, 1.0, 0.5),
        (*single, -1.0, 0.5, 0.0),
        # Weights of 0: there alpha log alpha is not a number.
        (*on_one_place, -1.0, 0.5, 0.5),
    ]


def _with_reward(reward: Tensor, *inputs: Any) -> Tensor:
    """The loss with another reward, (B, C): that of the look before each word."""
    log_p_word, alphas, places, baseline, lambda_r, lambda_e = inputs
    # Without the paper's reward, in whose place the other one is put.
    loss = estimator(log_p_word, alphas, places, baseline, 0.0, lambda_e)
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    score = ((reward - baseline) * chosen.log()).sum(1)
    return loss - lambda_r * score.mean()


def _caption_not_detached(log_p_word: Tensor, *rest: Any) -> Tensor:
    return _with_reward(log_p_word.sum(1, keepdim=True), log_p_word, *rest)


def _words_to_come(log_p_word: Tensor, *rest: Any) -> Tensor:
    # A running sum from the caption's end.
    reward = log_p_word.detach().flip(1).cumsum(1).flip(1)
    return _with_reward(reward, log_p_word, *rest)


def _own_word(log_p_word: Tensor, *rest: Any) -> Tensor:
    return _with_reward(log_p_word.detach(), log_p_word, *rest)


def _entropy_as_a_loss(log_p_word: Tensor, *rest: Any) -> Tensor:
    *others, lambda_e = rest
    return estimator(log_p_word, *others, -lambda_e)


estimator.says = "the loss and both of its gradients"
estimator.cases = _sampled_captions
estimator.observe = _loss_and_gradients
estimator.given = lambda log_p_word, alphas, places, baseline, lambda_r, lambda_e: (
    f"baseline = {baseline:g}, lambda_r = {lambda_r:g}, lambda_e = {lambda_e:g}"
)
estimator.mistakes = {
    "reward not detached: it teaches through the likelihood term alone": _caption_not_detached,
    "rewarded for the words to come: no bias, less noise, "
    "but the paper rewards the whole caption": _words_to_come,
    "each look is rewarded for its own word alone: the reward is the whole caption's": _own_word,
    "this takes the likeliest places: log p(s) is that of the places drawn": (
        lambda log_p_word, alphas, places, *rest: estimator(
            log_p_word, alphas, alphas.argmax(2), *rest
        )
    ),
    "the entropy is a gain: the loss falls with it": _entropy_as_a_loss,
}


@exercise("6.9", "A rollout", difficulty=3, minutes=9)
def tell(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    """Words (B, C), one dart for each, drawn from the softmax, END after the end; and the sum of
    their log p, up to and with END.
    """
    words = torch.full((len(darts),), -1)  # -1 stands for the beginning
    ended = torch.zeros(len(darts)).bool()
    log_p: Any = 0.0
    told = []
    for dart in darts.T:
        logits, state = step(state, words)
        policy = logits.log_softmax(1)  # (B, K)
        words = draw(policy.exp(), dart).masked_fill(ended, END)

        chosen = policy.gather(1, words[:, None])[:, 0]  # (B,)
        # The mask of before this word: END itself counts.
        log_p = log_p + chosen.masked_fill(ended, 0.0)
        ended = ended | (words == END)
        told.append(words)
    return torch.stack(told, 1), log_p


def _policy(K: int, seed: int) -> Answer:
    """A step whose logits depend on the last word and on how many there were."""
    table = numbers(K + 1, K, seed=seed).requires_grad_()

    def step(count: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        # Row 0 is for the beginning, -1.
        logits = table[words + 1] * (1 + count.unsqueeze(1))
        return logits, count + 1

    policy: Any = step
    policy.table = table
    return policy


def _told(answer: Answer, step: Any, state: Tensor, darts: Tensor) -> Any:
    """What a learner samples, and its gradient."""
    result = answer(step, state, darts)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    words, log_p = result
    # Nothing to differentiate: it is compared as it is, and the message names what differs.
    if getattr(log_p, "ndim", 0) != 1:
        return result

    try:
        slope = gradients(log_p.sum(), {"the policy's logits": step.table})
    except RuntimeError:
        raise Failed(
            "the gradients need a mask that it changes in place: `ended = ended | ...`, not `|=`"
        ) from None
    return {"the words": words, "log p of the captions": log_p.detach(), **slope}


def _rollouts(K: int, captions: int, seed: int) -> Case:
    """Darts for some captions of 5 words by a policy of K words."""
    darts = torch.rand(captions, 5, generator=generator(seed))
    # The state counts the words so far.
    return _policy(K, seed), torch.zeros(captions), darts


def _unmasked(step: Answer, state: Any, darts: Tensor, silent: bool = True) -> Any:
    """The words, and their log p (B, C) after the end, too; not `silent`, words go on there."""
    words = torch.full((len(darts),), -1)
    ended = torch.zeros(len(darts)).bool()
    told = []
    log_p = []
    for dart in darts.T:
        logits, state = step(state, words)
        policy = logits.log_softmax(1)
        words = draw(policy.exp(), dart).masked_fill(ended & silent, END)
        log_p.append(policy.gather(1, words[:, None])[:, 0])
        ended = ended | (words == END)
        told.append(words)
    return torch.stack(told, 1), torch.stack(log_p, 1)


def _log_p_goes_on(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts)
    return words, log_p.sum(1)


def _words_go_on(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts, silent=False)
    is_end = (words == END).long()
    # More ends up to a word than the word itself is.
    ended_before = is_end.cumsum(1) > is_end
    return words, log_p.masked_fill(ended_before, 0.0).sum(1)


def _end_left_out(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    words, log_p = _unmasked(step, state, darts)
    return words, log_p.masked_fill(words == END, 0.0).sum(1)


def _begins_with_end(step: Answer, state: Any, darts: Tensor) -> tuple[Tensor, Tensor]:
    # END is 0, so that only -1 is changed.
    return tell(lambda s, words: step(s, words.clamp(min=END)), state, darts)


tell.says = "the words, their log-probability and its gradient, with captions that end early"
tell.cases = lambda: [
    _rollouts(K=4, captions=6, seed=1),
    _rollouts(K=3, captions=6, seed=4),
    _rollouts(K=3, captions=1, seed=10),
]
tell.observe = _told
tell.mistakes = {
    "log p goes on after the end: there it counts 0": _log_p_goes_on,
    "the words go on after the end: there they are END": _words_go_on,
    "END itself counts: use the mask of those that had ended before it": _end_left_out,
    "-1 stands for the beginning": _begins_with_end,
}


@exercise(
    "6.10",
    "Rewards at work",
    difficulty=3,
    minutes=8,
    equation="Ahmadian et al. (2024)",
)
def practise(policy: nn.Module, attempt: Answer, optimiser: Any, steps: int) -> None:
    """Each step: minus the mean of (reward - mean reward of the other tries) log p; its gradient,
    clipped to a norm of 5.
    """
    for _ in range(steps):
        reward, log_p = attempt()
        # The other tries are independent of this one: as a baseline they add no bias.
        advantage = reward - leave_one_out(reward)
        loss = -(advantage * log_p).mean()

        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 5.0)
        optimiser.step()


def _practised(answer: Answer, scale: int, steps: int) -> Any:
    """A policy's weights afterwards, and how often it was asked."""
    policy = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(policy.weight)
    words = torch.tensor([[0, 1, 2], [3, 0, 0]])
    reward = scale * torch.tensor([[1.0, 0.0, 0.5], [1.0, 0.0, 0.2]])
    asked = []

    def attempt() -> tuple[Tensor, Tensor]:
        asked.append(steps)
        log_p = policy.weight.log_softmax(1).gather(1, words)
        # A new tensor each time: a learner may change it.
        return reward.clone(), log_p

    optimiser = torch.optim.SGD(policy.parameters(), 0.1)
    answer(policy, attempt, optimiser, steps)
    return {
        "steps": len(asked),
        "the policy's weights afterwards": policy.weight.detach(),
    }


def _carelessly(
    policy: nn.Module,
    attempt: Answer,
    optimiser: Any,
    steps: int,
    *,
    empties: bool = True,
    baseline: Answer = leave_one_out,
    longest: float = 5.0,
    clip: Answer = nn.utils.clip_grad_norm_,
) -> None:
    """`practise`, which may forget to empty the gradients, or have another baseline or clipping."""
    for _ in range(steps):
        reward, log_p = attempt()
        loss = -((reward - baseline(reward)) * log_p).mean()
        if empties:
            optimiser.zero_grad()
        loss.backward()
        clip(policy.parameters(), longest)
        optimiser.step()


def _divided_by_the_deviation(reward: Tensor) -> Tensor:
    return reward - (reward - _row_mean(reward)) / (reward.std(1, keepdim=True) + 1e-6)


practise.says = "a small policy after 1 to 4 steps, with gradients of moderate size and huge ones"
practise.cases = lambda: [
    (1, 1),
    (2, 3),
    # Rewards of up to 30 and 300: there the gradient is longer than 5.
    (30, 2),
    (300, 4),
]
practise.observe = _practised
practise.given = lambda scale, steps: f"steps = {steps}, rewards of up to {scale}"
practise.mistakes = {
    "gradients add up: zero_grad() before each backward()": partial(_carelessly, empties=False),
    "no baseline: take off the mean reward of the other tries": partial(
        _carelessly, baseline=torch.zeros_like
    ),
    "one mean of all tasks' rewards: each row has a mean of its own": partial(
        _carelessly, baseline=torch.mean
    ),
    "the advantage is not divided by a standard deviation": partial(
        _carelessly, baseline=_divided_by_the_deviation
    ),
    "gradients are not clipped to a norm of 5": partial(_carelessly, longest=math.inf),
    "each number is clipped to 5: the norm of all of them is": partial(
        _carelessly, clip=nn.utils.clip_grad_value_
    ),
}


@exercise(
    "6.11",
    "On trial: what the rewards taught",
    difficulty=2,
    minutes=6,
    equation="Chen et al. (2021)",
)
def pass_at(successes: Tensor, k: int) -> float:
    """The chance that of k different tries of a scene's N at least one succeeds, and its mean over
    the scenes.
    """
    N = successes.shape[1]
    chances = []
    for c in successes.sum(1).tolist():
        # Of all choices of k tries, the share that holds only failures.
        all_fail = math.comb(N - c, k) / math.comb(N, k)
        chances.append(1 - all_fail)
    return sum(chances) / len(chances)


def _tries() -> list[tuple[Tensor, int]]:
    some = numbers(5, 8, seed=8) > 1
    one_each = torch.eye(4).bool()
    return [
        (some, 1),
        # With all 8 tries the chance is 0 or 1.
        (some, 8),
        (some, 3),
        (one_each, 4),
    ]


def _share_of_successes(successes: Tensor, k: int) -> float:
    return successes.float().mean().item()


def _first_tries(successes: Tensor, k: int) -> float:
    return successes[:, :k].any(1).float().mean().item()


def _with_replacement(successes: Tensor, k: int) -> float:
    all_fail = (1 - successes.double().mean(1)) ** k
    return (1 - all_fail).mean().item()


pass_at.says = "one try, all of them, and some: any of them counts, whichever k are taken"
pass_at.cases = _tries
pass_at.mistakes = {
    "the artefact lives: "
    "this mean rises if a policy only repeats its best tries": _share_of_successes,
    "the first k tries alone: average over all choices of k": _first_tries,
    "with replacement: choose k different tries": _with_replacement,
    "the chance that all k succeed: it is enough that one does": (
        lambda successes, k: 1 - pass_at(~successes, k)
    ),
    "all scenes' tries thrown together: a chance for each scene, then their mean": (
        lambda successes, k: pass_at(successes.view(1, -1), k)
    ),
    "too few to choose k from: the N tries of a scene stand in its row": (
        lambda successes, k: pass_at(successes.T, k)
    ),
    "one rate for all scenes: a chance for each scene, then their mean": (
        lambda successes, k: 1 - (1 - successes.double().mean().item()) ** k
    ),
}
