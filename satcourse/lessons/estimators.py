"""The bound on a case small enough to sum over every path (section 4.1).

A tiny decoder is run along all L^C paths s, which gives log p(y|a), the bound L_s and its gradient exactly.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from satlib.model.attention import HardAttention
from satlib.model.decoder import Decoder
from satlib.model.objective import log_probability, word_losses
from satlib.recipe import DecoderConfig

PLACES, WORDS, VOCABULARY, DIM = 4, 3, 5, 3


@dataclass(frozen=True)
class Paths:
    """Every path of a caption, P = L^C of them, in the order of `itertools.product`.

    places: s_1..s_C, (P, C). log_p_place: log p(s_t|s_<t,a), (P, C). log_p_word: log p(y_t|s_1..s_t,a), (P, C).
    """

    places: Tensor
    log_p_place: Tensor
    log_p_word: Tensor

    @property
    def log_p_path(self) -> Tensor:
        """Log p(s|a), (P,)."""
        return self.log_p_place.sum(1)

    @property
    def log_p_caption(self) -> Tensor:
        """Log p(y|s,a), (P,)."""
        return self.log_p_word.sum(1)

    @property
    def log_likelihood(self) -> Tensor:
        """Log p(y|a) = log sum_s p(s|a) p(y|s,a)."""
        return torch.logsumexp(self.log_p_path + self.log_p_caption, 0)

    @property
    def bound(self) -> Tensor:
        """L_s = sum_s p(s|a) log p(y|s,a), equation 10."""
        return (self.log_p_path.exp() * self.log_p_caption).sum()


class PathGradients(NamedTuple):
    """What equation 11 is made of, path by path, over W weights: d log p(y|s,a) / dW (P, W), d log p(s_t|s_<t,a) / dW (P, C, W)."""

    likelihood: Tensor
    score: Tensor


def tiny(seed: int = 0) -> tuple[Decoder, Tensor, Tensor]:
    """A decoder of some 300 weights, annotation vectors (1, L, D) and a caption (1, C), all in double precision."""
    generator = torch.Generator().manual_seed(seed)
    config = DecoderConfig(embedding=3, hidden=4, attention="hard", attention_hidden=4, dropout=0.0)
    decoder = Decoder(config, DIM, VOCABULARY).double()
    with torch.no_grad():
        for weight in decoder.parameters():  # large enough for looks to matter
            weight.copy_(1.5 * torch.randn(weight.shape, generator=generator, dtype=torch.double))
    a = torch.randn(1, PLACES, DIM, generator=generator, dtype=torch.double)
    return decoder.train(), a, torch.randint(0, VOCABULARY, (1, WORDS), generator=generator)


def every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Paths:
    """Run the decoder along each of the P = L^C paths: a (1, L, D), caption (1, C)."""
    places = torch.tensor(
        list(itertools.product(range(a.shape[1]), repeat=caption.shape[1]))
    )  # (P, C)
    attention, columns, captions = (
        decoder.attention,
        iter(places.T),
        caption.expand(len(places), -1),
    )
    assert isinstance(attention, HardAttention)
    attention.draw = lambda alpha: next(columns)  # type: ignore[method-assign]
    try:
        output = decoder(a.expand(len(places), -1, -1), captions)
    finally:
        del attention.draw
    return Paths(
        places, log_probability(output.alphas, places), -word_losses(output.logits, captions)
    )


def path_gradients(paths: Paths, weights: Sequence[Tensor]) -> PathGradients:
    """The gradients that equation 11 weighs by p(s|a) and adds up, of every path on its own."""
    likelihood, score = (
        jacobian(paths.log_p_caption, weights),
        jacobian(paths.log_p_place.flatten(), weights),
    )
    return PathGradients(likelihood, score.unflatten(0, paths.places.shape))


def jacobian(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The gradient of each value over `weights`, flat and in their order, 0 for a weight without a part: (R,) -> (R, W)."""
    R, one_hot = len(values), torch.eye(len(values), dtype=values.dtype)
    gradients = torch.autograd.grad(
        values, weights, one_hot, retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    pairs = zip(gradients, weights, strict=True)
    return torch.cat(
        [values.new_zeros(R, w.numel()) if g is None else g.flatten(1) for g, w in pairs], 1
    )
