"""Lower bounds on log p(y|a) and estimates of their gradients, summed over every outcome of a case as small as `estimators.tiny`.

A caption's P paths s are drawn from the attention, q(s) = p(s|a), and weighed by w(s) = p(y|s,a). The K-sample bound is
L_K = E[log 1/K sum_k w(s_k)] <= log p(y|a), over K independent paths (IWAE: Burda et al., 2016, arXiv:1509.00519); L_1 is L_s.
"""

import itertools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from satcourse.lessons.estimators import GumbelAttention, PathGradients, Paths, Weigh, gumbel_softmax, jacobian
from satlib.model.attention import HardAttention
from satlib.model.decoder import Decoder
from satlib.model.objective import leave_one_out, word_losses


class Drawn(NamedTuple):
    """The P paths of a caption as drawn from q: log q(s) and log w(s) (P,), and their gradients over W weights (P, W)."""

    log_q: Tensor
    log_w: Tensor
    d_log_q: Tensor
    d_log_w: Tensor


class Estimates(NamedTuple):
    """All that an estimator can give: probability (S,), which sums to 1, and gradient (S, W), to be ascended."""

    probability: Tensor
    gradient: Tensor

    @property
    def mean(self) -> Tensor:
        """(W,)."""
        return self.probability @ self.gradient

    @property
    def variance(self) -> Tensor:
        """The sum over all weights: ()."""
        return self.probability @ (self.gradient - self.mean).square().sum(1)


def from_attention(paths: Paths, gradients: PathGradients) -> Drawn:
    """Paths drawn as the decoder draws them."""
    return Drawn(paths.log_p_path, paths.log_p_caption, gradients.score.sum(1), gradients.likelihood)


def independent(log_q: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """All outcomes of K independent draws, regardless of order: paths (S, K) and probabilities (S,)."""
    drawn = list(itertools.combinations_with_replacement(range(len(log_q)), K))
    orders = [math.factorial(K) / math.prod(map(math.factorial, map(s.count, set(s)))) for s in drawn]
    rows = torch.tensor(drawn)
    return rows, log_q.new_tensor(orders) * log_q[rows].sum(1).exp()


def bound(drawn: Drawn, K: int) -> Tensor:
    """L_K: ()."""
    rows, probability = independent(drawn.log_q, K)
    return probability @ (torch.logsumexp(drawn.log_w[rows], 1) - math.log(K))


def score_function(drawn: Drawn, K: int, baseline: float | Literal["leave-one-out"]) -> Estimates:
    """L_1 by the mean of K score-function estimates; a baseline is a number, or "leave-one-out" (`objective.leave_one_out`)."""
    rows, probability = independent(drawn.log_q.detach(), K)
    rewards = drawn.log_w.detach()[rows]
    b = leave_one_out(rewards) if baseline == "leave-one-out" else baseline
    gradient = drawn.d_log_w[rows] + (rewards - b).unsqueeze(2) * drawn.d_log_q[rows]
    return Estimates(probability, gradient.mean(1))


def vimco_signal(log_w: Tensor) -> Tensor:
    """L - b_k: L = log 1/K sum_j w_j, and b_k has the geometric mean of the others for w_k. (S, K) -> (S, K)."""
    replaced = log_w.unsqueeze(1).repeat(1, log_w.shape[1], 1)  # (S, K, K): row k without w_k
    replaced.diagonal(dim1=1, dim2=2).copy_(leave_one_out(log_w))
    return torch.logsumexp(log_w, 1, keepdim=True) - torch.logsumexp(replaced, 2)


def vimco(drawn: Drawn, K: int, signal: Callable[[Tensor], Tensor] = vimco_signal) -> Estimates:
    """L_K by K paths, sum_k [w_k / sum_j w_j d log w_k + (L - b_k) d log q_k] (Mnih and Rezende, 2016, arXiv:1602.06725)."""
    rows, probability = independent(drawn.log_q.detach(), K)
    log_w = drawn.log_w.detach()[rows]  # (S, K)
    likelihood = torch.softmax(log_w, 1).unsqueeze(2) * drawn.d_log_w[rows]
    gradient = likelihood + signal(log_w).unsqueeze(2) * drawn.d_log_q[rows]
    return Estimates(probability, gradient.sum(1))


def soft_log_p(decoder: Decoder, a: Tensor, caption: Tensor) -> Tensor:
    """Log p(y|a) of soft attention with the same weights (), which is no bound: a (1, L, D), caption (1, C)."""
    return -word_losses(decoder(a, caption, torch.tensor([True])).logits, caption).sum()


def mixed(hard: Estimates, soft: Tensor) -> Estimates:
    """The paper's mix (section 4.1, end): with probability 0.5 the expectation's gradient (W,) in place of a sampled path's."""
    probability = torch.cat([hard.probability.new_tensor([0.5]), 0.5 * hard.probability])
    return Estimates(probability, torch.cat([soft.unsqueeze(0), hard.gradient]))


def gumbel(decoder: Decoder, a: Tensor, caption: Tensor, draws: int, weigh: Weigh = gumbel_softmax) -> Estimates:
    """The straight-through Gumbel-softmax, the only one that is drawn: its noise is continuous. `draws` in hundreds."""
    attention, weights, gradients = decoder.attention, list(decoder.parameters()), []
    assert isinstance(attention, HardAttention)
    decoder.attention = GumbelAttention(attention.energy, weigh)
    captions = caption.expand(100, -1)
    for _ in range(draws // 100):  # all at once, each draw would be differentiated by the gradient of every other
        log_p = -word_losses(decoder(a.expand(100, -1, -1), captions).logits, captions).sum(1)
        gradients.append(jacobian(log_p, weights))
    decoder.attention = attention
    gradient = torch.cat(gradients)
    return Estimates(gradient.new_full((len(gradient),), 1 / len(gradient)), gradient)
