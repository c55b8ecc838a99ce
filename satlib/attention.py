"""Where to look: energies, weights and the context vector (section 3.1.2, equations 4 to 6; section 4).

An energy scores every place by the annotation vector there and the decoder's state, e_ti = f_att(a_i, h_{t-1}); a softmax
over the places turns energies into weights alpha_ti; phi turns weights and annotation vectors into the context vector z_t.
What an energy computes from the annotation vectors alone, its `keys`, is computed once per image and not at every word.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from satlib.errors import SatlibError


class AdditiveEnergy(nn.Module):
    """The attention MLP of the paper: e_ti = v . tanh(W_a a_i + W_h h_{t-1} + b)."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        self.annotation = nn.Linear(annotation_dim, width)
        self.state = nn.Linear(hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def keys(self, a: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, width)."""
        return self.annotation(a)

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys (B, L, width), h (B, n) -> e (B, L)."""
        return self.energy(torch.tanh(keys + self.state(h).unsqueeze(1))).squeeze(2)


class ConcatEnergy(nn.Module):
    """e_ti = v . tanh(W [a_i; h_{t-1}]): the additive energy with both matrices in one, and no bias."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        self.joint = nn.Linear(annotation_dim + hidden, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)
        self.annotation_dim = annotation_dim

    def keys(self, a: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, width): W's first D columns are all that meets a."""
        return a @ self.joint.weight[:, : self.annotation_dim].T

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys (B, L, width), h (B, n) -> e (B, L)."""
        query = h @ self.joint.weight[:, self.annotation_dim :].T
        return self.energy(torch.tanh(keys + query.unsqueeze(1))).squeeze(2)


class GeneralEnergy(nn.Module):
    """e_ti = a_i^T W h_{t-1}."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        self.bilinear = nn.Linear(annotation_dim, hidden, bias=False)

    def keys(self, a: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, n)."""
        return self.bilinear(a)

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys (B, L, n), h (B, n) -> e (B, L)."""
        return torch.bmm(keys, h.unsqueeze(2)).squeeze(2)


class DotEnergy(nn.Module):
    """e_ti = a_i^T h_{t-1}, which needs D = n."""

    def __init__(self, annotation_dim: int, hidden: int, width: int) -> None:
        super().__init__()
        if annotation_dim != hidden:
            raise SatlibError(
                f"the energy 'dot' needs a hidden state as wide as an annotation vector: "
                f"set decoder.hidden = {annotation_dim} (it is {hidden}), or choose the energy 'general'"
            )

    def keys(self, a: Tensor) -> Tensor:
        """(B, L, D), untouched."""
        return a

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        """Keys (B, L, D), h (B, D) -> e (B, L)."""
        return torch.bmm(keys, h.unsqueeze(2)).squeeze(2)


ENERGIES: dict[str, type[nn.Module]] = {
    "additive": AdditiveEnergy,
    "concat": ConcatEnergy,
    "general": GeneralEnergy,
    "dot": DotEnergy,
}


class Look(NamedTuple):
    """What one look gives: the context vector z (B, D), before the gate, and the weights alpha (B, L)."""

    z: Tensor
    alpha: Tensor


class SoftAttention(nn.Module):
    """Deterministic attention (section 4.2): z_t = sum_i alpha_ti a_i, the expectation of the context vector."""

    def __init__(self, energy: nn.Module) -> None:
        super().__init__()
        self.energy = energy

    def keys(self, a: Tensor) -> Tensor:
        """What the energy needs of the annotation vectors a (B, L, D), once per image."""
        return self.energy.keys(a)

    def forward(self, a: Tensor, keys: Tensor, h: Tensor) -> Look:
        """Look at a (B, L, D) in state h (B, n)."""
        alpha = torch.softmax(self.energy(keys, h), dim=1)
        return Look(torch.bmm(alpha.unsqueeze(1), a).squeeze(1), alpha)


class NoAttention(nn.Module):
    """The captioner without attention: z_t is the mean annotation vector at every word. The baseline to beat."""

    def keys(self, a: Tensor) -> Tensor:
        """The mean annotation vector (B, 1, D), once per image."""
        return a.mean(1, keepdim=True)

    def forward(self, a: Tensor, keys: Tensor, h: Tensor) -> Look:
        """Look nowhere in particular: every place weighs 1 / L."""
        return Look(keys.squeeze(1), a.new_full(a.shape[:2], 1 / a.shape[1]))


def create(attention: str, energy: str, annotation_dim: int, hidden: int, width: int) -> nn.Module:
    """Make the attention of a decoder.

    Args:
        attention: "soft" or "none".
        energy: "additive" (the paper's), "concat", "general" or "dot"; of no effect without attention.
        annotation_dim: D.
        hidden: n.
        width: units of the attention MLP, for "additive" and "concat".

    Raises:
        SatlibError: an unknown name, or widths that do not fit.
    """
    if attention == "none":
        return NoAttention()
    if attention != "soft":
        raise SatlibError(f"no attention is called {attention!r}; choose among soft, none")
    if energy not in ENERGIES:
        raise SatlibError(f"no energy is called {energy!r}; choose among {', '.join(ENERGIES)}")
    return SoftAttention(ENERGIES[energy](annotation_dim, hidden, width))
