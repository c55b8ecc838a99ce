"""Attention: energies, weights and the context vector (section 3.1.2, equations 4 to 6; section 4).

An energy scores each location i by its annotation vector and the decoder's state, e_ti = f_att(a_i,
h_{t-1}). A softmax over the locations turns energies into weights alpha_ti, and phi combines
weights and annotation vectors into the context vector z_t. What depends on the annotation vectors
only, the `keys`, is computed once per image.

To try an attention of your own, override `weights` or `read` of `Attention`, and `register` it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from satlib import recipe
from satlib.errors import SatlibError


class AttentionOutput(NamedTuple):
    """The result of one attention step.

    z: the context vector (B, D), before the gate. alpha: the weights (B, L). place: the sampled or
    chosen location s_t as an index (B,), -1 in rows where z is an expectation; None if z is an
    expectation in all rows.
    """

    z: Tensor
    alpha: Tensor
    place: Tensor | None = None


class Attention(nn.Module):
    """A step of attention in two moves: `weights` says where to look, `read` what is seen there."""

    def keys(self, a: Tensor) -> Tensor:
        """What depends on the annotation vectors a (B, L, D) only: a tensor with B rows."""
        raise NotImplementedError

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Where to look, in state h (B, n): the weights, and the place that is drawn.

        The weights are alpha (B, L), or (B, heads, L) with several heads. The place is an index
        (B,), -1 in rows that take the expectation; None if no place is drawn. expected (B,): see
        `HardAttention`.
        """
        raise NotImplementedError

    def read(self, alpha: Tensor, a: Tensor, place: Tensor | None = None) -> Tensor:
        """The context vector z_t = phi({a_i}, {alpha_i}), equation 6: (B, L), (B, L, D) -> (B, D).

        The expectation sum_i alpha_i a_i (equation 13); in rows where a place is drawn, its
        annotation vector (equations 8 and 9).
        """
        z = (alpha.unsqueeze(1) @ a).squeeze(1)
        if place is None:
            return z

        # A gather, not a product with a one-hot s_t: the vector itself, to the bit.
        rows = torch.arange(len(a), device=a.device)
        is_drawn = (place >= 0).unsqueeze(1)  # (B, 1)
        return torch.where(is_drawn, a[rows, place.clamp(min=0)], z)

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """Attend to a (B, L, D) in state h (B, n)."""
        alpha, place = self.weights(a, keys, h, expected)
        z = self.read(alpha, a, place)
        if alpha.dim() == 3:  # a reader is shown one map: the mean of the heads
            alpha = alpha.mean(1)
        return AttentionOutput(z, alpha, place)


class AdditiveEnergy(nn.Module):
    """The attention MLP of the paper: e_ti = v . tanh(W_a a_i + W_h h_{t-1} + b)."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        self.annotation: nn.Module = nn.Linear(annotation_dim, width)
        self.state = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def add_layer(self) -> None:
        """Make the keys tanh(W (W_a a + b) + b'), as the official code does for COCO.

        There it is called n_layers_att = 2 (evaluate_coco.py and capgen.py); the paper has it not.
        """
        width = self.energy.in_features
        self.annotation = nn.Sequential(self.annotation, nn.Linear(width, width), nn.Tanh())

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys W_a a + b (B, L, width) and h (B, n) -> e (B, L)."""
        query = self.state(h).unsqueeze(1)  # (B, 1, width)
        units = keys + query  # (B, L, width)
        # In place: a second tensor of this size would cost memory.
        return self.energy(units.tanh_()).squeeze(2)


class SoftAttention(Attention):
    """Deterministic attention (section 4.2): z_t = sum_i alpha_ti a_i, an expected context."""

    def __init__(self, energy: AdditiveEnergy) -> None:
        super().__init__()
        self.energy = energy

    def keys(self, a: Tensor) -> Tensor:
        """W_a a + b, and what a second layer makes of it: (B, L, D) -> (B, L, width)."""
        return self.energy.annotation(a)

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The softmax of the energies (equations 4 and 5); nothing is drawn."""
        return torch.softmax(self.energy(keys, h), dim=1), None


class HardAttention(SoftAttention):
    """Stochastic attention (section 4.1): s_t ~ Multinoulli(alpha_t); z_t is one annotation vector.

    In training a location is sampled; the loss provides the gradient of the samples
    (`objective.VariationalBound`). Outside training, `look` says how z is formed: "expected" (z =
    sum_i alpha_ti a_i, as in the official code), "probable" (the location with the largest weight)
    or "sample".
    """

    look = "expected"  # a captioner sets its recipe's

    def draw(self, alpha: Tensor) -> Tensor:
        """Sample s_t ~ Multinoulli(alpha_t) as an index: (B, L) -> (B,)."""
        # No gradient goes through a draw.
        return torch.multinomial(alpha.detach(), 1).squeeze(1)

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The softmax of the energies, and the place that is sampled or chosen.

        expected (B,): the rows whose sample is replaced by its expectation (section 4.1, end).
        """
        alpha, _ = super().weights(a, keys, h)
        if not self.training and self.look == "expected":
            return alpha, None

        # Training always samples: the gradient is estimated from samples (equation 11).
        if self.training or self.look == "sample":
            place = self.draw(alpha)
        else:
            place = alpha.argmax(1)
        # These rows train as soft attention does: less variance, and a bias.
        if expected is not None:
            place = place.masked_fill(expected, -1)
        return alpha, place


class NoAttention(Attention):
    """No attention: z_t is the mean annotation vector at every word.

    The baseline for the others.
    """

    def keys(self, a: Tensor) -> Tensor:
        """The mean annotation vector: (B, L, D) -> (B, 1, D)."""
        return a.mean(1, keepdim=True)

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Every location has weight 1 / L."""
        return keys.new_full(a.shape[:2], 1 / a.shape[1]), None

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """The mean annotation vector, which need not be formed anew for each word."""
        alpha, _ = self.weights(a, keys, h)
        return AttentionOutput(keys.squeeze(1), alpha)


# An attention for annotation vectors of D numbers and states of n; width: the hidden units of its
# energies.
Build = Callable[[int, int, int], Attention]


_KINDS: dict[str, Build] = {
    "soft": lambda *sizes: SoftAttention(AdditiveEnergy(*sizes)),
    "hard": lambda *sizes: HardAttention(AdditiveEnergy(*sizes)),
    "none": lambda *sizes: NoAttention(),
}


def register(name: str, build: Build) -> None:
    """Make an attention of your own available as `decoder.attention` of a recipe.

    build: gets D, n and the width (`decoder.attention_hidden`), as the constructor of a class may.
    """
    if name not in recipe.ATTENTIONS:
        recipe.ATTENTIONS.append(name)
    _KINDS[name] = build


def create(
    attention: str, annotation_dim: int, hidden: int, width: int, layers: int = 1
) -> Attention:
    """The attention "soft", "hard", "none" or a registered one, with fresh weights.

    annotation_dim: D. hidden: n. width: the hidden units of its energies. layers: 2 for another
    layer on the keys.

    Raises:
        SatlibError: a second layer for an attention that has not the paper's energies.
    """
    made = _KINDS[attention](annotation_dim, hidden, width)
    if layers == 2:
        if not isinstance(made, SoftAttention):
            raise SatlibError(f'decoder.attention_layers is 2, but "{attention}" has no energies')
        made.energy.add_layer()
    return made


def entropy(alphas: Tensor) -> Tensor:
    """H[s_t] in nats: alphas (..., L) -> (...)."""
    # xlogy is 0 at p = 0, where p log p would be NaN.
    p = precise(alphas)
    return -torch.xlogy(p, p).sum(-1)


def movement(alphas: Tensor) -> Tensor:
    """Total variation between the maps of consecutive words, 0 to 1: (B, C, L) -> (B, C - 1)."""
    return precise(alphas).diff(dim=1).abs().sum(-1) / 2


def precise(values: Tensor) -> Tensor:
    """At least float32: sums and logarithms in bf16 or float16 lose too much precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
