"""Interventions on attention: weights tempered, moved or made uniform in an otherwise unchanged
model.

If a word changes with the location that attention is moved to, its map is a cause of the word; if
not, it only accompanies it.
"""

import copy
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from satlib.data.text import UNKNOWN
from satlib.model.attention import Attention
from satlib.model.captioner import Captioner
from satlib.model.transformer import AnyDecoder, TransformerDecoder


def tempered(alpha: Tensor, temperature: float) -> Tensor:
    """Equation 5 at a temperature T > 0: softmax(e / T), computed from the weights (..., L) as
    alpha^(1/T), normalised.

    Near 0 the largest weight becomes 1; far above 1 the weights become uniform; at 1 they do not
    change.
    """
    # Unchanged to the bit, so that `Steered` can see that it is.
    if temperature == 1:
        return alpha
    # log alpha is the energy but for a constant, which the softmax ignores.
    energies = alpha.clamp(min=torch.finfo(alpha.dtype).tiny).log()
    return torch.softmax(energies / temperature, dim=-1)


class Steered(Attention):
    """An attention whose weights are tempered or replaced before they form the context vector z_t.

    Wherever the weights change, z_t is their expectation, with hard attention too.
    """

    def __init__(
        self, attention: Attention, temperature: float = 1.0, given: Tensor | None = None
    ) -> None:
        super().__init__()
        self.attention = attention
        self.temperature = temperature
        self.given = given
        self._word = 0

    def keys(self, a: Tensor) -> Tensor:
        """The keys of the attention inside for a (B, L, D); the next look is that of the first word."""
        self._word = 0
        return self.attention.keys(a)

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The weights of the attention inside, changed; its place only where they are not."""
        own, place = self.attention.weights(a, keys, h, expected)
        alpha = tempered(own, self.temperature)
        if self.given is not None and self._word < self.given.shape[1]:
            given = self.given[:, self._word]  # (B, L)
            if alpha.dim() == 3:  # all heads look there
                given = given.unsqueeze(1)
            alpha = torch.where(given.sum(-1, keepdim=True) > 0, given, alpha)
        self._word += 1
        return alpha, place if alpha is own else None

    def read(self, alpha: Tensor, a: Tensor, place: Tensor | None = None) -> Tensor:
        """The context vector, as the attention inside forms it."""
        return self.attention.read(alpha, a, place)


def steered(
    decoder: AnyDecoder, temperature: float = 1.0, given: Tensor | None = None
) -> AnyDecoder:
    """A decoder with steered attention that shares its weights with the given decoder, which stays
    unchanged.

    given: (B, C, L), the attention weights for each word; a row of zeros, and every word after C,
    uses the model's own. A Transformer uses them in all heads; (B, C, layers, heads, L) gives each
    head its own.
    """
    twin = copy.copy(decoder)
    if isinstance(decoder, TransformerDecoder):
        if given is not None and given.dim() == 3:
            config = decoder.config
            given = given[:, :, None, None].expand(-1, -1, config.layers, config.heads, -1)
        twin.steer = partial(_steered_heads, temperature, given)  # type: ignore[bad-argument-type]
    else:
        twin._modules = {
            **decoder._modules,
            "attention": Steered(decoder.attention, temperature, given),
        }
    return twin


def _steered_heads(
    temperature: float, given: Tensor | None, layer: int, t: int, alpha: Tensor
) -> Tensor:
    """`TransformerDecoder.steer`: the maps (B, heads, C, L) of a layer at words t to t + C - 1,
    tempered or replaced.
    """
    alpha = tempered(alpha, temperature)
    if given is None:
        return alpha

    C = alpha.shape[2]
    light = given[:, t : t + C, layer].transpose(1, 2)  # (B, heads, at most C, L)
    # Words after the last given one have zeros, and so their own maps.
    light = functional.pad(light, (0, 0, 0, C - light.shape[2]))
    return torch.where(light.sum(3, keepdim=True) > 0, light, alpha)


@torch.inference_mode()
def look_again(
    captioner: Captioner,
    a: Tensor,
    captions: Sequence[Sequence[str]],
    index: Sequence[int],
    maps: Tensor | None = None,
) -> Tensor:
    """The distribution over one word of each caption (B, K), if the attention at that word, and
    only there, were another.

    a: annotation vectors (B, L, D), one image for each of B captions in words. index: of the word
    in each caption. maps: (B, L), the weights to use at that word, None for the model's own; of a
    Transformer, also (B, layers, heads, L).
    """
    at = torch.tensor(index, device=a.device)  # (B,)
    rows = torch.arange(len(captions), device=a.device)
    # Only the words before it matter: what follows is padding, whatever its id.
    ids = torch.zeros(len(captions), int(at.max()) + 1, dtype=torch.long, device=a.device)
    for row, (words, stop) in enumerate(zip(captions, index, strict=True)):
        before = [captioner.vocabulary.words.index(word) for word in words[:stop]]
        ids[row, :stop] = torch.tensor(before)

    given = None
    if maps is not None:
        given = a.new_zeros(*ids.shape, *maps.shape[1:])
        given[rows, at] = maps.to(a)
    logits = steered(captioner.decoder, given=given)(a, ids).logits[rows, at]  # (B, K)

    # As in every caption, UNKNOWN is never said.
    unknown = torch.tensor(UNKNOWN, device=a.device)
    return torch.softmax(logits.index_fill(1, unknown, -torch.inf), dim=1)


def everywhere(captioner: Captioner, a: Tensor, words: Sequence[str], index: int) -> Tensor:
    """The distribution over word `index` of a caption if all attention is on one place, for each
    place of a (L, D): (L, K).
    """
    L = len(a)
    # One batch: row i looks at place i alone.
    return look_again(captioner, a.expand(L, -1, -1), [words] * L, [index] * L, torch.eye(L))
