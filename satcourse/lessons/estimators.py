"""The bound on a case small enough to sum over every path (section 4.1).

A tiny decoder is run along all L^C paths s, which gives log p(y|a), the bound L_s and its gradient
exactly.
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
    """Every path of a caption, P = L^C of them, in the order of `itertools.product`."""

    places: Tensor  # s_1..s_C: (P, C)
    log_p_place: Tensor  # log p(s_t|s_<t,a): (P, C)
    log_p_word: Tensor  # log p(y_t|s_1..s_t,a): (P, C)

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
    """What equation 11 is made of, path by path, over W weights."""

    likelihood: Tensor  # d log p(y|s,a) / dW: (P, W)
    score: Tensor  # d log p(s_t|s_<t,a) / dW: (P, C, W)


def tiny(seed: int = 0) -> tuple[Decoder, Tensor, Tensor]:
    """A decoder of some 300 weights, annotation vectors (1, L, D) and a caption (1, C), all in
    double precision.
    """
    # Its own generator: the numbers of other cells stay as they are.
    generator = torch.Generator().manual_seed(seed)
    config = DecoderConfig(embedding=3, hidden=4, attention="hard", attention_hidden=4, dropout=0.0)
    decoder = Decoder(config, DIM, VOCABULARY).double()
    with torch.no_grad():
        for weight in decoder.parameters():
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.double)
            # Large enough for looks to matter.
            weight.copy_(1.5 * drawn)

    a = torch.randn(1, PLACES, DIM, generator=generator, dtype=torch.double)
    caption = torch.randint(0, VOCABULARY, (1, WORDS), generator=generator)
    return decoder.train(), a, caption


def every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Paths:
    """Run the decoder along each of the P = L^C paths: a (1, L, D), caption (1, C)."""
    L = a.shape[1]
    C = caption.shape[1]
    places = torch.tensor(list(itertools.product(range(L), repeat=C)))  # (P, C)
    captions = caption.expand(len(places), -1)  # (P, C)

    # All paths are one batch, in which each "draws" its own places.
    attention = decoder.attention
    assert isinstance(attention, HardAttention)
    columns = iter(places.T)
    attention.draw = lambda alpha: next(columns)  # type: ignore[method-assign]
    try:
        output = decoder(a.expand(len(places), -1, -1), captions)
    finally:
        # The method of the class is found again.
        del attention.draw

    log_p_place = log_probability(output.alphas, places)
    return Paths(places, log_p_place, -word_losses(output.logits, captions))


def path_gradients(paths: Paths, weights: Sequence[Tensor]) -> PathGradients:
    """The gradients that equation 11 weighs by p(s|a) and adds up, of every path on its own."""
    likelihood = jacobian(paths.log_p_caption, weights)
    score = jacobian(paths.log_p_place.flatten(), weights)
    return PathGradients(likelihood, score.unflatten(0, paths.places.shape))


def jacobian(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The gradient of each value over `weights`, flat and in their order, 0 for a weight without a
    part: (R,) -> (R, W).
    """
    R = len(values)
    one_hot = torch.eye(R, dtype=values.dtype)
    # One pass for all values: row r of the batch is the gradient of value r.
    gradients = torch.autograd.grad(
        values, weights, one_hot, retain_graph=True, allow_unused=True, is_grads_batched=True
    )

    columns = []
    for gradient, weight in zip(gradients, weights, strict=True):
        if gradient is None:
            columns.append(values.new_zeros(R, weight.numel()))
        else:
            columns.append(gradient.flatten(1))
    return torch.cat(columns, 1)
