"""The bound on a case small enough to sum over every path (section 4.1), and a Gumbel-softmax, which no recipe trains with.

A tiny decoder is run along all L^C paths s, which gives log p(y|a), the bound L_s and its gradient exactly.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from satlib.model.attention import AdditiveEnergy, AttentionOutput, HardAttention
from satlib.model.decoder import Decoder, Output
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


def run_every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Output:
    """Run the decoder along each of the P = L^C paths: a (1, L, D), caption (1, C) -> its output for P rows."""
    paths = torch.tensor(list(itertools.product(range(a.shape[1]), repeat=caption.shape[1])))  # (P, C)
    attention = decoder.attention
    assert isinstance(attention, HardAttention)
    columns = iter(paths.T)
    attention.draw = lambda alpha: next(columns)  # type: ignore[method-assign]
    try:
        return decoder(a.expand(len(paths), -1, -1), caption.expand(len(paths), -1))
    finally:
        del attention.draw


def every_path(decoder: Decoder, a: Tensor, caption: Tensor) -> Paths:
    """The paths of a caption with their log-probabilities: a (1, L, D), caption (1, C)."""
    return paths_of(run_every_path(decoder, a, caption), caption)


def paths_of(output: Output, caption: Tensor) -> Paths:
    """The log-probabilities of what `run_every_path` gave for a caption (1, C)."""
    assert output.places is not None  # every path is sampled
    log_p_word = -word_losses(output.logits, caption.expand(len(output.logits), -1))
    return Paths(output.places, log_probability(output.alphas, output.places), log_p_word)


def path_gradients(paths: Paths, weights: Sequence[Tensor]) -> PathGradients:
    """The gradients that equation 11 weighs by p(s|a) and adds up, of every path on its own."""
    likelihood, score = jacobian(paths.log_p_caption, weights), jacobian(paths.log_p_place.flatten(), weights)
    return PathGradients(likelihood, score.unflatten(0, paths.places.shape))


def jacobian(values: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The gradient of each value over `weights`, flat and in their order, 0 for a weight without a part: (R,) -> (R, W)."""
    R, one_hot = len(values), torch.eye(len(values), dtype=values.dtype)
    gradients = torch.autograd.grad(
        values, weights, one_hot, retain_graph=True, allow_unused=True, is_grads_batched=True
    )
    pairs = zip(gradients, weights, strict=True)
    return torch.cat([values.new_zeros(R, w.numel()) if g is None else g.flatten(1) for g, w in pairs], 1)


Weigh = Callable[[Tensor, Tensor, float], Tensor]


def gumbel_softmax(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """One place forward, a softmax of some temperature backward (Jang et al., 2017): energies, Gumbel noise (B, L) -> (B, L)."""
    noisy = energies + noise  # whose argmax is a sample of Multinoulli(alpha)
    relaxed = torch.softmax(noisy / temperature, dim=1)
    one_hot = nn.functional.one_hot(noisy.argmax(1), relaxed.shape[1]).to(relaxed.dtype)
    return one_hot + relaxed - relaxed.detach()


class GumbelAttention(HardAttention):
    """Hard attention with a gradient through the draw, by `gumbel_softmax` or a learner's function."""

    def __init__(self, energy: AdditiveEnergy, weigh: Weigh = gumbel_softmax) -> None:
        super().__init__(energy)
        self.weigh = weigh

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> AttentionOutput:
        """As `HardAttention.forward` in training mode; `expected` has no effect."""
        energies = self.energy(keys, h)
        weights = self.weigh(energies, -torch.empty_like(energies).exponential_().log(), 1.0)
        z = torch.bmm(weights.unsqueeze(1), a).squeeze(1)
        return AttentionOutput(z, torch.softmax(energies, dim=1), weights.argmax(1))
