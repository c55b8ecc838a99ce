"""Soft attention as an approximation of the marginal likelihood over locations (section 4.2)."""

import torch
from torch import Tensor

from satlib.model.decoder import Annotations, Decoder, State


def every_place(
    decoder: Decoder, annotations: Annotations, state: State, embedded: Tensor
) -> tuple[Tensor, Tensor]:
    """The weights (B, L), and for each place the logits (B, L, K) after a step from `state` with an
    image of that place alone.
    """
    a = annotations.a
    keys = annotations.keys
    B, L, _ = a.shape
    alpha = decoder.attention(a, keys, state.h).alpha  # (B, L)

    # As B L images with a single location each, whose weight is 1: z_t is its annotation vector.
    one_place = a.flatten(0, 1).unsqueeze(1)  # (B L, 1, D)
    its_keys = keys.flatten(0, 1).unsqueeze(1)
    single = Annotations(one_place, its_keys)

    # All places of an image begin with the image's state and word.
    repeated = [part.repeat_interleave(L, 0) for part in state]
    embedded = embedded.repeat_interleave(L, 0)
    step = decoder.step(single, State(*repeated), decoder.gates_word(embedded))
    logits = decoder.logits(embedded, step.state.h, step.z)  # (B L, K)
    return alpha, logits.unflatten(0, (B, L))


def nwgm(alpha: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """The product of softmax(n_i)^alpha_i over the places, divided by its sum Z over the words, and
    ln Z: alpha (B, L), n (B, L, K) -> (B, K) and (B,).
    """
    # By logarithms: as a product, small probabilities would become 0.
    log_product = torch.einsum("bl,blk->bk", alpha, torch.log_softmax(n, 2))
    return torch.softmax(log_product, 1), torch.logsumexp(log_product, 1)
