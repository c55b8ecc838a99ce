"""Soft attention as an approximation of the marginal likelihood over places (section 4.2).

Were the place s_t drawn, a word's probability would be a mean over places, p(y_t) = sum_i alpha_ti p(y_t | z_t = a_i): a pass of
the decoder for each of them. Soft attention makes one pass, with z_t = sum_i alpha_ti a_i. Between the two stands the normalised
weighted geometric mean (NWGM) of the places' distributions. It is the softmax of the expected pre-activation n_t, exactly,
because n_t = L_o(E y_{t-1} + L_h h_t + L_z z_t) is linear; soft attention differs from it by h_t(E[z_t]) in place of E[h_t] alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from satlib.decoder import Decoder, State, View


class EveryPlace(NamedTuple):
    """A word as it would be after a look at one place, for every place: i is the place in z_t = beta_t a_i.

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


def every_place(decoder: Decoder, view: View, state: State, embedded: Tensor) -> EveryPlace:
    """Take the decoder's next step L times, each with one place's vector for a context.

    Args:
        decoder: with soft or hard attention, in evaluation mode.
        view: of B images.
        state: h_{t-1}, c_{t-1}.
        embedded: E y_{t-1} (B, m).
    """
    B, L, _ = view.a.shape
    alpha = decoder.attention(view.a, view.keys, state.h).alpha
    # An image of one place: its only weight is 1, so that z_t is its vector.
    alone = View(view.a.flatten(0, 1).unsqueeze(1), view.keys.flatten(0, 1).unsqueeze(1))  # (B L, 1, D)
    state = State(*(each.repeat_interleave(L, 0) for each in state))
    embedded = embedded.repeat_interleave(L, 0)
    step = decoder.step(alone, state, decoder.gates_word(embedded))
    n = decoder.logits(embedded, step.state.h, step.z)
    return EveryPlace(alpha, n.unflatten(0, (B, L)), step.state.h.unflatten(0, (B, L)))


def nwgm(log_p: Tensor, weights: Tensor) -> Tensor:
    """prod_i p_i^w_i, normalised: log p (B, L, K), weights (B, L) that sum to 1 -> probabilities (B, K)."""
    return torch.softmax(torch.einsum("bl,blk->bk", weights, log_p), 1)
