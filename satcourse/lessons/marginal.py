"""Soft attention as an approximation of the marginal likelihood over locations (section 4.2)."""

import torch
from torch import Tensor

from satlib.model.decoder import Annotations, Decoder, State


def every_place(
    decoder: Decoder, annotations: Annotations, state: State, embedded: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (B, L), and for each place the logits (B, L, K) after a step from `state` with an image of that place alone."""
    a, keys = annotations.a, annotations.keys
    B, L, _ = a.shape
    alpha = decoder.attention(a, keys, state.h).alpha
    # As B L images with a single location each, whose weight is 1: z_t is its annotation vector.
    single = Annotations(a.flatten(0, 1).unsqueeze(1), keys.flatten(0, 1).unsqueeze(1))
    state = State(*(part.repeat_interleave(L, 0) for part in state))
    embedded = embedded.repeat_interleave(L, 0)
    step = decoder.step(single, state, decoder.gates_word(embedded))
    return alpha, decoder.logits(embedded, step.state.h, step.z).unflatten(0, (B, L))


def nwgm(alpha: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """The product of softmax(n_i)^alpha_i over the places, divided by its sum Z over the words, and ln Z; by logarithms, without a floor."""
    log_product = torch.einsum("bl,blk->bk", alpha, torch.log_softmax(n, 2))
    return torch.softmax(log_product, 1), torch.logsumexp(log_product, 1)
