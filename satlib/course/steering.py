"""Attention by hand: weights tempered, moved or made even, in a model that is otherwise as it was trained.

What a map explains is tried here and not looked at: if a word follows where its attention is put, the map is a cause of
the word; if it does not, it is a picture beside it.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from satlib.attention import Look
from satlib.captioner import Captioner
from satlib.decoder import Decoder
from satlib.errors import SatlibError
from satlib.text import UNKNOWN


def tempered(alpha: Tensor, temperature: float) -> Tensor:
    """Equation 5 at a temperature: softmax(e / T), from the weights alone, as alpha^(1/T) over its sum.

    Near 0 all weight is on the largest; far above 1 every place weighs the same; at 1 the weights stay as they are.

    Args:
        alpha: (..., L), each row sums to 1.
        temperature: T.

    Raises:
        SatlibError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise SatlibError(f"the temperature must be above 0, not {temperature}; near 0 all weight is on one place")
    if temperature == 1:
        return alpha
    return torch.softmax(alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log() / temperature, dim=-1)


class Steered(nn.Module):
    """An attention whose weights are tempered, or taken from somebody else, before phi makes z_t of them."""

    def __init__(self, attention: nn.Module, temperature: float = 1.0, given: Tensor | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.temperature = temperature
        self.given = given
        self._word = 0

    def keys(self, a: Tensor) -> Tensor:
        """What the attention inside needs of a (B, L, D); a new image, so the next look is that of the first word."""
        self._word = 0
        return self.attention.keys(a)

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> Look:
        """Look at a (B, L, D) in state h (B, n), then have it otherwise."""
        look = self.attention(a, keys, h, expected)
        alpha = tempered(look.alpha, self.temperature)
        if self.given is not None and self._word < self.given.shape[1]:
            instead = self.given[:, self._word]
            alpha = torch.where(instead.sum(1, keepdim=True) > 0, instead, alpha)
        self._word += 1
        if alpha is look.alpha:
            return look
        return Look(torch.bmm(alpha.unsqueeze(1), a).squeeze(1), alpha)


def steered(decoder: Decoder, temperature: float = 1.0, given: Tensor | None = None) -> Decoder:
    """A decoder of the same weights, shared and not copied, that looks as it is told; the one given stays as it is.

    Args:
        decoder: in evaluation mode.
        temperature: of the softmax over places.
        given: (B, C, L), maps to look with at each word; where a row is all zero, its own.

    Raises:
        SatlibError: the temperature is not above 0.
    """
    twin = copy.copy(decoder)
    twin._modules = {**decoder._modules, "attention": Steered(decoder.attention, temperature, given)}
    tempered(torch.ones(1), temperature)  # a bad temperature is said now
    return twin


@torch.inference_mode()
def look_again(
    captioner: Captioner,
    a: Tensor,
    captions: Sequence[Sequence[str]],
    index: Sequence[int],
    maps: Tensor | None = None,
) -> Tensor:
    """What a captioner would say in the place of one word of each caption if it had looked elsewhere there, and only there.

    The words before it stay, and so does where they looked.

    Args:
        captioner: in evaluation mode.
        a: annotation vectors (B, L, D), one picture for each caption.
        captions: B captions in words.
        index: which word of each.
        maps: (B, L), where to look instead; None for where the captioner looks by itself.

    Returns:
        (B, K): the probability of each word there; none for words that are never said.
    """
    at, rows = torch.tensor(index, device=a.device), torch.arange(len(captions), device=a.device)
    ids = torch.zeros(len(captions), int(at.max()) + 1, dtype=torch.long, device=a.device)
    for row, (words, stop) in enumerate(zip(captions, index, strict=True)):
        ids[row, :stop] = torch.tensor([captioner.vocabulary.words.index(word) for word in words[:stop]])
    given = None
    if maps is not None:
        given = a.new_zeros(*ids.shape, a.shape[1])
        given[rows, at] = maps.to(a)
    logits = steered(captioner.decoder, given=given)(a, ids).logits[rows, at]
    return torch.softmax(logits.index_fill(1, torch.tensor(UNKNOWN, device=a.device), -torch.inf), dim=1)
