"""Attention: energies, weights and the context vector (section 3.1.2, equations 4 to 6; section 4).

An energy scores each location i by its annotation vector and the decoder's state, e_ti = f_att(a_i, h_{t-1}). A softmax over
the locations turns energies into weights alpha_ti, and phi combines weights and annotation vectors into the context vector z_t.
The part of an energy that depends on the annotation vectors only, its `keys`, is computed once per image.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class AdditiveEnergy(nn.Module):
    """The attention MLP of the paper: e_ti = v . tanh(W_a a_i + W_h h_{t-1} + b)."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        self.annotation = nn.Linear(annotation_dim, width)
        self.state = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys (B, L, width), h (B, n) -> e (B, L)."""
        return self.energy(torch.tanh(keys + self.state(h).unsqueeze(1))).squeeze(2)


class AttentionOutput(NamedTuple):
    """The result of one attention step.

    z: the context vector (B, D), before the gate. alpha: the weights (B, L). place: the sampled or chosen location s_t as an
    index (B,), -1 in rows where z is an expectation; None if z is an expectation in all rows.
    """

    z: Tensor
    alpha: Tensor
    place: Tensor | None = None


class _Scored(nn.Module):
    """Attention by an energy; `keys` are W_a a + b (B, L, width), computed once per image."""

    def __init__(self, energy: AdditiveEnergy) -> None:
        super().__init__()
        self.energy = energy

    def keys(self, a: Tensor) -> Tensor:
        return self.energy.annotation(a)


class SoftAttention(_Scored):
    """Deterministic attention (section 4.2): z_t = sum_i alpha_ti a_i, the expectation of the context vector."""

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """Attend to a (B, L, D) in state h (B, n)."""
        alpha = torch.softmax(self.energy(keys, h), dim=1)
        return AttentionOutput(expectation(alpha, a), alpha)


class HardAttention(_Scored):
    """Stochastic attention (section 4.1): s_t ~ Multinoulli(alpha_t), and z_t = sum_i s_ti a_i is one annotation vector.

    In training a location is sampled; the loss provides the gradient of the samples (`objective.VariationalBound`). Outside
    training, `look` says how z is formed: "expected" (z = sum_i alpha_ti a_i, as in the official code), "probable" (the
    location with the largest weight) or "sample".
    """

    def __init__(self, energy: AdditiveEnergy, look: str = "expected") -> None:
        super().__init__(energy)
        self.look = look

    def draw(self, alpha: Tensor) -> Tensor:
        """Sample s_t ~ Multinoulli(alpha_t) as an index: (B, L) -> (B,)."""
        return torch.multinomial(alpha.detach(), 1).squeeze(1)

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """Attend to a (B, L, D) in state h (B, n).

        expected (B,): the rows whose sample is replaced by its expectation (section 4.1, end).
        """
        alpha = torch.softmax(self.energy(keys, h), dim=1)
        if not self.training and self.look == "expected":
            return AttentionOutput(expectation(alpha, a), alpha)
        place = self.draw(alpha) if self.training or self.look == "sample" else alpha.argmax(1)
        z = a[torch.arange(len(a), device=a.device), place]
        if expected is not None:
            z = torch.where(expected.unsqueeze(1), expectation(alpha, a), z)
            place = place.masked_fill(expected, -1)
        return AttentionOutput(z, alpha, place)


class NoAttention(nn.Module):
    """No attention: z_t is the mean annotation vector at every word. The baseline for the others."""

    def keys(self, a: Tensor) -> Tensor:
        """The mean annotation vector (B, 1, D), once per image."""
        return a.mean(1, keepdim=True)

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """The mean annotation vector; every location has weight 1 / L."""
        return AttentionOutput(keys.squeeze(1), keys.new_full(a.shape[:2], 1 / a.shape[1]))


def expectation(alpha: Tensor, a: Tensor) -> Tensor:
    """sum_i alpha_i a_i: (B, L), (B, L, D) -> (B, D)."""
    return (alpha.unsqueeze(1) @ a).squeeze(1)


def entropy(alphas: Tensor) -> Tensor:
    """H[s_t] in nats: alphas (..., L) -> (...)."""
    p = precise(alphas)
    return -torch.xlogy(p, p).sum(-1)


def movement(alphas: Tensor) -> Tensor:
    """Total variation between the maps of consecutive words, 0 to 1: alphas (B, C, L) -> (B, C - 1)."""
    return precise(alphas).diff(dim=1).abs().sum(-1) / 2


def precise(values: Tensor) -> Tensor:
    """At least float32: sums and logarithms in bf16 or float16 lose too much precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


Attention = SoftAttention | HardAttention | NoAttention


def create(attention: str, annotation_dim: int, hidden: int, width: int) -> Attention:
    """Attention "soft", "hard" or "none" for annotation vectors of D and states of n numbers; width: hidden units."""
    if attention == "none":
        return NoAttention()
    kind = {"soft": SoftAttention, "hard": HardAttention}[attention]
    return kind(AdditiveEnergy(annotation_dim, hidden, width))
