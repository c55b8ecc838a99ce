"""Soft attention as an approximation of the marginal likelihood over locations (section 4.2).

The exact p(y_t) = sum_i alpha_ti p(y_t | z_t = a_i) needs a pass of the decoder for each location; soft attention takes one, with
z_t = sum_i alpha_ti a_i. Between them is the normalised weighted geometric mean (NWGM), the softmax of the expected pre-activation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from satlib.model.decoder import Annotations, Decoder, State


class EveryPlace(NamedTuple):
    """The next word's distribution for every location i, given that z_t = beta_t a_i.

    alpha: the weights (B, L). n: pre-activations n_ti, the logits (B, L, K). h: h_t (B, L, n).
    """

    alpha: Tensor
    n: Tensor
    h: Tensor

    @property
    def log_p(self) -> Tensor:
        """Log p(y_t | z_t = beta_t a_i): (B, L, K)."""
        return torch.log_softmax(self.n, 2)

    @property
    def marginal(self) -> Tensor:
        """p(y_t) = sum_i alpha_ti p(y_t | z_t = beta_t a_i): (B, K)."""
        return torch.einsum("bl,blk->bk", self.alpha, self.log_p.exp())


def every_place(decoder: Decoder, annotations: Annotations, state: State, embedded: Tensor) -> EveryPlace:
    """Compute the decoder's next step L times, each time with one location's annotation vector as the context.

    annotations: of B images. state: h_{t-1}, c_{t-1}. embedded: E y_{t-1} (B, m).
    """
    a, keys = annotations.a, annotations.keys
    B, L, _ = a.shape
    alpha = decoder.attention(a, keys, state.h).alpha
    # As B L images with a single location each, whose weight is 1: z_t is its annotation vector.
    single = Annotations(a.flatten(0, 1).unsqueeze(1), keys.flatten(0, 1).unsqueeze(1))
    state = State(*(part.repeat_interleave(L, 0) for part in state))
    embedded = embedded.repeat_interleave(L, 0)
    step = decoder.step(single, state, decoder.gates_word(embedded))
    n = decoder.logits(embedded, step.state.h, step.z)
    return EveryPlace(alpha, n.unflatten(0, (B, L)), step.state.h.unflatten(0, (B, L)))


def nwgm(log_p: Tensor, weights: Tensor) -> Tensor:
    """The normalised prod_i p_i^w_i: log p (B, L, K), weights (B, L) that sum to 1 -> probabilities (B, K)."""
    return torch.softmax(torch.einsum("bl,blk->bk", weights, log_p), 1)
