"""The bench's baseline: a decoder as it is commonly written, with the mathematics and the weights of `satlib.model.decoder`.

A batch has captions of any length, padded and sorted by length; the loop runs to the longest, and the batch shrinks as captions
end. The projection of the annotation vectors and the vocabulary layer are inside the loop.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from satlib.errors import SatlibError
from satlib.model.attention import AdditiveEnergy, SoftAttention
from satlib.model.decoder import Decoder


class Baseline(nn.Module):
    """Soft attention by the additive energy, and an LSTM cell on [E y; z]."""

    def __init__(self, decoder: Decoder) -> None:
        """Copy the weights of a decoder.

        Raises:
            SatlibError: it has another attention.
        """
        super().__init__()
        if not isinstance(decoder.attention, SoftAttention) or not isinstance(decoder.attention.energy, AdditiveEnergy):
            raise SatlibError("the baseline decoder has soft attention only with the additive energy")
        m, n, D = decoder.config.embedding, decoder.config.hidden, decoder.gates_context.in_features
        made = copy.deepcopy(decoder)
        self.embedding, self.gate = made.embedding, made.gate
        self.annotation, self.state, self.energy = made.attention.energy.children()
        self.initial_h, self.initial_c = made.initial_h, made.initial_c
        self.output_state, self.output_context, self.output = made.output_state, made.output_context, made.output
        self.dropout = made.dropout
        self.cell = nn.LSTMCell(m + D, n).to(made.output.weight)
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.cat([made.gates_word.weight, made.gates_context.weight], 1))
            self.cell.weight_hh.copy_(made.gates_state.weight)
            self.cell.bias_ih.copy_(made.gates_word.bias)
            self.cell.bias_hh.zero_()

    def forward(self, a: Tensor, captions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, C, K) and alphas (B, C, L), zero after a caption's end.

        Args:
            a: annotation vectors (B, L, D), by length of the caption, longest first.
            captions: ids (B, C), the end mark last, anything after it.
            lengths: (B,), the end marks included, not growing.
        """
        B, C, longest = len(a), captions.shape[1], lengths.tolist()
        mean = a.mean(1)
        h, c = self.initial_h(mean), self.initial_c(mean)
        embedded = self.embedding(captions)
        embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, :-1]], 1)
        logits = a.new_zeros(B, C, self.output.out_features)
        alphas = a.new_zeros(B, C, a.shape[1])
        for t in range(C):
            going = sum(length > t for length in longest)
            seen, h, c, word = a[:going], h[:going], c[:going], embedded[:going, t]
            energies = self.energy(torch.tanh(self.annotation(seen) + self.state(h).unsqueeze(1))).squeeze(2)
            alpha = torch.softmax(energies, dim=1)
            z = (seen * alpha.unsqueeze(2)).sum(1)
            if self.gate is not None:
                z = torch.sigmoid(self.gate(h)) * z
            h, c = self.cell(torch.cat([word, z], 1), (h, c))
            deep = word + self.output_state(self.dropout(h)) + self.output_context(z)
            logits[:going, t] = self.output(self.dropout(deep)).to(logits.dtype)
            alphas[:going, t] = alpha.to(alphas.dtype)
        return logits, alphas

    def loss(self, a: Tensor, captions: Tensor, lengths: Tensor, penalty: float = 1.0) -> Tensor:
        """-log p(y|a) of a word, and the doubly stochastic penalty of a caption, each a mean."""
        logits, alphas = self(a, captions, lengths)
        kept = lengths.cpu()
        scores, targets = (pack_padded_sequence(each, kept, batch_first=True).data for each in (logits, captions))
        return nn.functional.cross_entropy(scores, targets) + penalty * (1 - alphas.sum(1)).square().sum(1).mean()
