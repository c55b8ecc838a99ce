"""A Transformer in place of the LSTM: words attend to the words before, and to the image.

From x_t = sqrt(d) E y_{t-1} + p_t, with y_0 a zero embedding and p_t sinusoids, each layer adds
three parts, where N is a layer norm, and q, k and v are linear maps to d_k = d / heads numbers, of
their own for each part and head:

    x_t <- x_t + W sum_{j<=t} softmax_j(q(N x_t) . k(N x_j) / sqrt(d_k)) v(N x_j)    the words
    x_t <- x_t + W sum_i alpha_ti v(a_i),                                            the places
           alpha_ti = softmax_i(q(N x_t) . k(a_i) / sqrt(d_k))
    x_t <- x_t + W_2 max(0, W_1 N x_t)                                               4 d units

and p(y_t) ~ exp(E N x_t). In Vaswani et al. (2017, arXiv:1706.03762) these are equations 1 and 2
and sections 3.2.2 to 3.5; the norm stands before each part, not after it (Xiong et al., 2020,
arXiv:2002.04745). In Show, Attend and Tell the second part is equations 4, 5 and 13: soft attention
whose energy is a scaled dot product, with `heads` maps in each layer where the LSTM has one.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from satlib.data.text import START
from satlib.model.decoder import Annotations, Decoder, Output, Prediction
from satlib.recipe import DecoderConfig


class Cache(NamedTuple):
    """The keys and values of the t words so far: (B, layers, 2 heads, t, d / heads)."""

    past: Tensor


def split(x: Tensor, heads: int) -> Tensor:
    """A vector's share for each head: (B, T, heads d_k) -> (B, heads, T, d_k)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """The inverse of `split`: (B, heads, T, d_k) -> (B, T, heads d_k)."""
    return x.transpose(1, 2).flatten(2)


def positions(t: int, count: int, like: Tensor) -> Tensor:
    """Sinusoids (section 3.5) of positions t to t + count - 1: (count, d).

    like: (..., d), whose d, type and device they have.
    """
    d = like.shape[-1]
    like_input = {"device": like.device, "dtype": like.dtype}
    at = torch.arange(t, t + count, **like_input)
    # Wave lengths from 2 pi to 10,000 x 2 pi.
    rates = 10_000 ** (-torch.arange(0, d, 2, **like_input) / d)
    angles = at.unsqueeze(1) * rates  # (count, d / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d]


class Layer(nn.Module):
    """One layer: d numbers for each word in, d out."""

    def __init__(self, d: int, heads: int, annotation_dim: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.words = nn.Linear(d, 3 * d)  # queries, keys and values of the words
        self.words_out = nn.Linear(d, d)
        self.query = nn.Linear(d, d)
        self.places = nn.Linear(annotation_dim, 2 * d)  # keys and values of the places
        self.places_out = nn.Linear(d, d)
        self.feed_forward = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        past: Tensor,
        seen: Tensor,
        visible: Tensor,
        steer: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read C words x (B, C, d) after t words: -> x, the longer past, maps (B, heads, C, L).

        past (B, 2 heads, t, d / heads), seen (B, 2 heads, L, d / heads): keys and values of the
        words before and of the places.
        visible: (C, t + C) bool, the words that each word may see. steer: changes the maps before
        they are used.
        """
        heads = self.heads

        # The words so far. Keys and values are kept: a later word reads them again.
        projected = split(self.words(self.norms[0](x)), 3 * heads)
        q, new = projected.split([heads, 2 * heads], 1)
        past = torch.cat([past, new], 2)  # (B, 2 heads, t + C, d_k)
        k, v = past.chunk(2, 1)
        read = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.dropout(self.words_out(joined(read)))

        # The places. Written out, because every caller wants the maps: losses, the log, and whoever
        # looks at them.
        q = split(self.query(self.norms[1](x)), heads)  # (B, heads, C, d_k)
        k, v = seen.chunk(2, 1)  # (B, heads, L, d_k) each
        energies = q @ k.mT / math.sqrt(q.shape[-1])  # (B, heads, C, L)
        alpha = steer(torch.softmax(energies, -1))
        x = x + self.dropout(self.places_out(joined(alpha @ v)))

        x = x + self.dropout(self.feed_forward(self.norms[2](x)))
        return x, past, alpha


class TransformerDecoder(nn.Module):
    """Annotation vectors and words so far to the next word's distribution, as `decoder.Decoder`.

    Where one map for a word is asked for, it is the mean over layers and heads; `read` gives all.
    There is no gate: beta is 1.
    """

    attention = None  # the LSTM's, which can be exchanged

    def __init__(self, config: DecoderConfig, annotation_dim: int, vocabulary_size: int) -> None:
        """Fresh weights; `hidden` of the config is d, a multiple of `heads`."""
        super().__init__()
        d = config.hidden
        K = vocabulary_size
        self.config = config
        self.embedding = nn.Embedding(K, d)
        self.layers = nn.ModuleList(
            Layer(d, config.heads, annotation_dim, config.dropout) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(d)
        self.dropout = nn.Dropout(config.dropout)
        # sqrt(d) E then has numbers of about 1, as the positions have.
        nn.init.normal_(self.embedding.weight, std=d**-0.5)

    def project(self, a: Tensor, expected: Tensor | None = None) -> Annotations:
        """Annotation vectors a (B, L, D) with the keys and values of the places.

        These are (B, layers, 2 heads, L, d / heads).
        """
        count = 2 * self.config.heads  # keys and values
        places = [split(layer.places(a), count) for layer in self.layers]  # type: ignore
        return Annotations(a, torch.stack(places, 1))

    def initial_state(self, a: Tensor) -> Cache:
        """Of annotation vectors a (B, L, D): no words yet."""
        config = self.config
        d_k = config.hidden // config.heads
        return Cache(a.new_zeros(len(a), config.layers, 2 * config.heads, 0, d_k))

    def steer(self, layer: int, t: int, alpha: Tensor) -> Tensor:
        """The maps (B, heads, C, L) of a layer as they are used; an experiment may change them.

        They are those of words t to t + C - 1.
        """
        return alpha

    def read(
        self, annotations: Annotations, state: Cache, words: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """Read on: ids (B, C), -1 for y_0 -> vectors (B, C, d), all maps, and the longer cache.

        The maps are (B, C, layers, heads, L).
        """
        t = state.past.shape[3]
        C = words.shape[1]

        is_word = (words >= 0).unsqueeze(-1)  # y_0 is a zero embedding
        x = math.sqrt(self.config.hidden) * self.embedding(words.clamp(min=0)) * is_word
        x = self.dropout(x + positions(t, C, x))  # (B, C, d)

        # A word sees itself and the words before it.
        visible = torch.ones(C, t + C, dtype=torch.bool, device=words.device).tril(t)
        pasts = []
        maps = []
        for i, layer in enumerate(self.layers):
            past = state.past[:, i]
            places = annotations.keys[:, i]
            x, past, alpha = layer(x, past, places, visible, partial(self.steer, i, t))
            pasts.append(past)
            maps.append(alpha.transpose(1, 2))  # (B, C, heads, L)
        return self.norm(x), torch.stack(maps, 2), Cache(torch.stack(pasts, 1))

    def logits(self, h: Tensor) -> Tensor:
        """E N x_t: (..., d) -> (..., K); the word embedding is the output matrix, too."""
        return functional.linear(h, self.embedding.weight)

    def predict(self, annotations: Annotations, state: Cache, words: Tensor) -> Prediction:
        """The next word's logits, after one more word for each row (`decoder.Decoder.predict`)."""
        h, maps, state = self.read(annotations, state, words.unsqueeze(1))
        alpha = maps.squeeze(1).mean((1, 2))  # (B, L)
        no_gate = alpha.new_ones(len(alpha))
        return Prediction(self.logits(h.squeeze(1)), state, alpha, no_gate, None)

    def forward(self, a: Tensor, captions: Tensor, expected: Tensor | None = None) -> Output:
        """Teacher forcing, all words at once; see `decoder.Decoder.forward`."""
        before = functional.pad(captions[:, :-1], (1, 0), value=START)  # (B, C), y_0 first
        h, maps, _ = self.read(self.project(a), self.initial_state(a), before)
        # One map a word, as the LSTM has: the losses and the pictures are the same for both.
        alphas = maps.mean((2, 3))  # (B, C, L)
        no_gates = alphas.new_ones(captions.shape)
        no_states = h.new_empty(*captions.shape, 0)
        return Output(self.logits(h), alphas, no_gates, None, no_states)


AnyDecoder = Decoder | TransformerDecoder
