"""Attention before images: machine translation with and without attention (Bahdanau et al., 2015).

The letters are those of the captioner, so the two can be compared: a_1..a_L are the annotation vectors, here one for each word
of the source sentence instead of one for each location of an image; s is the decoder's state, z the context vector.

    a            = bidirectional GRU over the source words       their section 3.2
    e_ti         = f(a_i, s_{t-1}),  alpha_t = softmax(e_t)      their section 3.1; padding has weight 0
    z_t          = sum_i alpha_ti a_i                            attention; or
    z_t          = [last state forward; last state backward]     no attention: one vector for all t (Cho et al., 2014)
    s_t          = GRU([E y_{t-1}; z_t], s_{t-1})
    p(y_t)       ~ exp(W [E y_{t-1}; s_t; z_t])

The sentences come from a small artificial world (`satcourse.lessons.translation_world`) or, with `read_pairs`, from a file.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from satlib.data.text import END, Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.reading import read_lines
from satlib.model.attention import ENERGIES

NO_WORD = -1  # padding of targets; as y_0, the zero embedding before the first word


class SentencePair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_pairs(path: Path, longest: int = 25) -> list[SentencePair]:
    """Read pairs from a UTF-8 file with a sentence, a tab and its translation on each line; further columns are ignored.

    Args:
        path: the file. The sentence pairs published from Tatoeba have this format.
        longest: pairs with more words than this on either side are left out.

    Raises:
        SatlibError: the file cannot be read, a line has no tab, a side has no word, or no pair is short enough.
    """
    pairs = []
    for number, line in read_lines(path):
        columns = line.split("\t")
        if len(columns) < 2:
            raise SatlibError(f"{path}, line {number}: no tab; write a sentence, a tab and its translation")
        source, target = (" ".join(column.split()) for column in columns[:2])
        for side, text in (("sentence", source), ("translation", target)):
            if not tokenise(text):
                raise SatlibError(f"{path}, line {number}: the {side} has no word in it; write one or delete the line")
        if max(len(tokenise(source)), len(tokenise(target))) <= longest:
            pairs.append(SentencePair(source, target))
    if not pairs:
        raise SatlibError(
            f"{path} has no pair of at most {longest} words per side; add shorter ones or raise `longest`"
        )
    return pairs


class Memory(NamedTuple):
    """A batch of encoded source sentences.

    a: annotation vectors (B, L, D). mask: (B, L), True at words. keys: the energy's keys for a, None without attention.
    fixed: the sentence as one vector (B, D).
    """

    a: Tensor
    mask: Tensor
    keys: Tensor | None
    fixed: Tensor


def masked_softmax(energies: Tensor, mask: Tensor) -> Tensor:
    """Softmax over words without padding: (B, L), (B, L) bool -> (B, L), 0 where the mask is False.

    Each row of the mask needs at least one True.
    """
    return torch.softmax(energies.masked_fill(~mask, -math.inf), dim=1)


class Translator(nn.Module):
    """An encoder-decoder; with attention="none" the whole source sentence is encoded in one vector."""

    def __init__(
        self,
        sources: Vocabulary,
        targets: Vocabulary,
        attention: str = "additive",
        embedding: int = 48,
        hidden: int = 64,
    ) -> None:
        """Create a translator with random weights.

        Args:
            sources: the vocabulary of the source language.
            targets: the vocabulary of the target language.
            attention: "none", or the name of an energy in `satlib.model.attention`: "additive", "dot", ...
            embedding: m, for both languages.
            hidden: units of the encoder's GRU in each direction, and of the additive energy; D = n = twice this number.

        Raises:
            SatlibError: there is no attention of that name.
        """
        super().__init__()
        if attention != "none" and attention not in ENERGIES:
            raise SatlibError(f"unknown attention {attention!r}; choose one of none, {', '.join(ENERGIES)}")
        D = n = 2 * hidden
        self.sources, self.targets = sources, targets
        self.source_embedding = nn.Embedding(len(sources), embedding)
        self.encoder = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.energy = None if attention == "none" else ENERGIES[attention](D, n, hidden)
        self.target_embedding = nn.Embedding(len(targets), embedding)
        self.initial = nn.Linear(D, n)
        self.cell = nn.GRUCell(embedding + D, n)
        self.output = nn.Linear(embedding + n + D, len(targets))
        for name, weight in self.named_parameters():
            if "weight_hh" in name:  # three recurrent gates, each orthogonal as in their appendix
                for gate in weight.data.chunk(3):
                    nn.init.orthogonal_(gate)
            elif weight.dim() == 2 and "embedding" not in name:
                nn.init.xavier_uniform_(weight)

    def read(self, sources: Sequence[Tensor]) -> Memory:
        """Encode sentences, each a tensor of ids that ends with the end mark."""
        device = self.output.weight.device
        lengths = torch.tensor([len(ids) for ids in sources])
        embedded = self.source_embedding(pad_sequence(sources, batch_first=True, padding_value=END).to(device))
        # Packed, so that the backward direction starts at each sentence's last word and not at padding.
        packed, last = self.encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
        a, _ = pad_packed_sequence(packed, batch_first=True)
        mask = torch.arange(a.shape[1]) < lengths.unsqueeze(1)
        keys = None if self.energy is None else self.energy.keys(a)
        return Memory(a, mask.to(device), keys, torch.cat([last[0], last[1]], dim=1))

    def embed(self, words: Tensor) -> Tensor:
        """Ids (...) -> E y (..., m); a negative id gives zeros."""
        return self.target_embedding(words.clamp(min=0)) * (words >= 0).unsqueeze(-1)

    def look(self, memory: Memory, s: Tensor) -> tuple[Tensor, Tensor | None]:
        """The context vector z_t (B, D) and weights alpha_t (B, L), None without attention, from the state s_{t-1} (B, n)."""
        if self.energy is None:
            return memory.fixed, None
        alpha = masked_softmax(self.energy(memory.keys, s), memory.mask)
        return torch.bmm(alpha.unsqueeze(1), memory.a).squeeze(1), alpha

    def forward(self, sources: Sequence[Tensor], targets: Tensor) -> Tensor:
        """Teacher forcing: logits (B, C, K) for targets (B, C), each given the true words before it."""
        memory = self.read(sources)
        s = torch.tanh(self.initial(memory.fixed))
        embedded = self.embed(nn.functional.pad(targets[:, :-1], (1, 0), value=NO_WORD))
        states, contexts = [], []
        for Ey in embedded.unbind(1):  # E y_{t-1}: (B, m)
            z, _ = self.look(memory, s)
            s = self.cell(torch.cat([Ey, z], dim=1), s)
            states.append(s)
            contexts.append(z)
        return self.output(torch.cat([embedded, torch.stack(states, 1), torch.stack(contexts, 1)], dim=2))


@dataclass(frozen=True)
class Translation:
    """A generated sentence and its attention weights.

    alphas: (C, L) over the source words and their end mark; C includes the end mark if it was generated. None without
    attention.
    """

    words: list[str]
    alphas: Tensor | None


def ids(vocabulary: Vocabulary, sentence: str) -> Tensor:
    """A sentence as ids (C,) that end with the end mark."""
    return torch.tensor([*vocabulary.encode(sentence), END])


@torch.no_grad()
def translate(model: Translator, sentences: Sequence[str], longest: int = 60) -> list[Translation]:
    """Translate greedily: at each step the most probable word, until the end mark.

    A sentence without an end mark after `longest` words is cut off there.
    """
    memory = model.read([ids(model.sources, sentence) for sentence in sentences])
    s, y = torch.tanh(model.initial(memory.fixed)), memory.mask.new_full((len(sentences),), NO_WORD, dtype=torch.long)
    words, alphas, going = [], [], torch.ones_like(y, dtype=torch.bool)
    while len(words) < longest and going.any():
        z, alpha = model.look(memory, s)
        embedded = model.embed(y)
        s = model.cell(torch.cat([embedded, z], dim=1), s)
        y = model.output(torch.cat([embedded, s, z], dim=1)).argmax(1)
        words.append(y)
        alphas.append(alpha)
        going &= y != END
    translations = []
    for row, sentence in enumerate(torch.stack(words, 1).tolist()):
        decoded = model.targets.decode(sentence)
        steps, length = alphas[: len(decoded) + 1], int(memory.mask[row].sum())
        maps = None if steps[0] is None else torch.stack([alpha[row, :length] for alpha in steps]).cpu()
        translations.append(Translation(decoded, maps))
    return translations


def train(
    model: Translator,
    pairs: Sequence[SentencePair],
    steps: int,
    batch_size: int = 64,
    learning_rate: float = 4e-3,
    seed: int = 0,
    report: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train with Adam on the mean NLL of target words, in batches of sentences of similar length.

    The first epoch goes from short sentences to long ones, because attention is learned faster from short ones; later epochs
    shuffle the batches.

    Args:
        model: trained in place.
        pairs: the training sentences.
        steps: the number of batches; the last epoch may be incomplete.
        batch_size: the number of pairs in a batch.
        learning_rate: the peak; warmed up over a tenth of the steps, then decayed to 0 by a half cosine.
        seed: of the order of the batches.
        report: called after each step with the step's number, from 1, and its loss in nats per word.
    """
    data = [(ids(model.sources, pair.source), ids(model.targets, pair.target)) for pair in pairs]
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda done: min(10 * (done + 1) / steps, 0.5 + 0.5 * math.cos(math.pi * done / steps))
    )
    generator, order = torch.Generator().manual_seed(seed), []
    model.train()
    for step in range(1, steps + 1):
        if not order:
            shuffled = sorted(torch.randperm(len(data), generator=generator).tolist(), key=lambda i: len(data[i][0]))
            batches = [shuffled[start : start + batch_size] for start in range(0, len(data), batch_size)]
            if step == 1:
                order = batches[::-1]  # taken from its end
            else:
                order = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
        batch = [data[i] for i in order.pop()]
        targets = pad_sequence([target for _, target in batch], batch_first=True, padding_value=NO_WORD)
        targets = targets.to(model.output.weight.device)
        logits = model([source for source, _ in batch], targets)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_WORD)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        report(step, float(loss.detach()))
    model.eval()
