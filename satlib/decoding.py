"""From a decoder to captions: greedy, sampling and beam search, over many images at once (section 4.3).

Every hypothesis ends with the end mark: at the longest length only the end may follow, so no caption is cut off without
its probability being that of a whole sentence. UNKNOWN is never generated.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from satlib.decoder import Decoder, State, View
from satlib.errors import SatlibError
from satlib.text import END, UNKNOWN


@dataclass(frozen=True)
class Hypothesis:
    """A generated caption of C - 1 words and the end mark.

    Attributes:
        words: ids without the end mark.
        log_probability: log p(y|a), natural logarithm, summed over the words and the end mark.
        alphas: (C, L), the map of every word and of the end mark.
        betas: (C,), the gates.
    """

    words: list[int]
    log_probability: float
    alphas: Tensor
    betas: Tensor


def _log_probabilities(decoder: Decoder, embedded: Tensor, h: Tensor, z: Tensor, must_end: bool) -> Tensor:
    """Log p(y_t) (B, K) with what may not be generated at -inf; the rest keeps its probability under the model."""
    logits = decoder.logits(embedded, h, z)
    log_p = torch.log_softmax(logits, dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    barred = torch.zeros(log_p.shape[1], dtype=torch.bool, device=log_p.device)
    barred[UNKNOWN] = True
    if must_end:
        barred[:] = True
        barred[END] = False
    return log_p.masked_fill(barred, -torch.inf)


class Rollout(NamedTuple):
    """One caption for each of B rows, every word chosen given those before it. C is the longest one's length.

    words: ids (B, C), the end mark from a caption's end on. log_p: log p(y_t) under the model (B, C), 0 after the end.
    log_policy: the same under what the word was drawn from: at its temperature, and without words that may not follow.
    alphas, betas, places: as in `decoder.Output`.
    """

    words: Tensor
    log_p: Tensor
    log_policy: Tensor
    alphas: Tensor
    betas: Tensor
    places: Tensor | None

    @property
    def lengths(self) -> Tensor:
        """Words of each caption (B,), its end mark included."""
        return (self.words != END).sum(1) + 1


def rollout(
    decoder: Decoder,
    view: View,
    state: State,
    max_length: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Rollout:
    """Generate with sampled words, or the most probable ones (temperature 0), until every caption has ended.

    Differentiable where gradients are on: what was drawn is a constant, its log-probability is not.

    Args:
        decoder: in evaluation mode.
        view: of the images of B rows.
        state: `decoder.initial_state` of the same rows.
        max_length: words at most.
        temperature: words are drawn from p(y_t)^(1/temperature).
        generator: of the draws.

    Raises:
        SatlibError: a length below 1.
    """
    if max_length < 1:
        raise SatlibError(f"the longest caption must have at least 1 word, not {max_length}")
    words = torch.full((len(view.a),), -1, device=view.a.device)
    ended = torch.zeros(len(view.a), dtype=torch.bool, device=view.a.device)
    history: list[tuple[Tensor | None, ...]] = []
    for t in range(max_length + 1):
        embedded = decoder.embed(words)
        state, z, alpha, beta, place = decoder.step(view, state, decoder.gates_word(embedded))
        log_p = _log_probabilities(decoder, embedded, state.h, z, must_end=t == max_length)
        if temperature == 0:
            words = log_p.argmax(1)
        else:
            words = torch.multinomial(torch.softmax(log_p.detach() / temperature, 1), 1, generator=generator).squeeze(1)
        log_policy = torch.log_softmax(log_p / (temperature or 1.0), 1)
        chosen = [each.gather(1, words.unsqueeze(1)).squeeze(1) for each in (log_p, log_policy)]
        words = words.masked_fill(ended, END)
        history.append((words, *(each.masked_fill(ended, 0.0) for each in chosen), alpha, beta, place))
        ended = ended | (words == END)
        if ended.all():
            break
    return Rollout(*(None if parts[0] is None else torch.stack(parts, 1) for parts in zip(*history, strict=True)))


@torch.inference_mode()
def _one_at_a_time(
    decoder: Decoder, a: Tensor, max_length: int, temperature: float, generator: torch.Generator | None
) -> list[Hypothesis]:
    made = rollout(decoder, decoder.view(a), decoder.initial_state(a), max_length, temperature, generator)
    words, alphas, betas = made.words.cpu(), made.alphas.cpu(), made.betas.cpu()
    log_probabilities = made.log_p.sum(1).tolist()
    return [
        Hypothesis(words[row, : C - 1].tolist(), log_probabilities[row], alphas[row, :C], betas[row, :C])
        for row, C in enumerate(made.lengths.tolist())
    ]


def greedy(decoder: Decoder, a: Tensor, max_length: int = 30) -> list[Hypothesis]:
    """The most probable word at every step: a (B, L, D) -> B hypotheses of at most `max_length` words."""
    return _one_at_a_time(decoder, a, max_length, temperature=0.0, generator=None)


def sample(
    decoder: Decoder,
    a: Tensor,
    max_length: int = 30,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[Hypothesis]:
    """Every word drawn from p(y_t)^(1/temperature): a (B, L, D) -> B hypotheses. Their log-probability is at temperature 1.

    Raises:
        SatlibError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise SatlibError(f"the temperature must be above 0, not {temperature}; greedy decoding is its limit at 0")
    return _one_at_a_time(decoder, a, max_length, temperature, generator)


@dataclass(frozen=True)
class _Ended:
    """A finished hypothesis: its score and where its last word stands in the history."""

    score: float
    log_probability: float
    t: int
    row: int


@torch.inference_mode()
def beam_search(
    decoder: Decoder, a: Tensor, beam: int = 3, max_length: int = 30, length_normalisation: float = 0.0
) -> list[list[Hypothesis]]:
    """The `beam` best hypotheses that a beam of that width finds for each image, best first.

    At every step the 2 `beam` best continuations of an image are looked at (so that `beam` of them can go on although others
    end). An image is done once no living hypothesis can overtake its `beam` best finished ones.

    Args:
        decoder: in evaluation mode.
        a: annotation vectors (B, L, D).
        beam: living hypotheses per image.
        max_length: words at most.
        length_normalisation: hypotheses are ranked by log p(y|a) / C^length_normalisation; 0 is the log-probability itself.

    Raises:
        SatlibError: a beam or a length below 1.
    """
    if beam < 1 or max_length < 1:
        raise SatlibError(f"the beam ({beam}) and the longest caption ({max_length}) must be at least 1")
    B, K = len(a), decoder.output.out_features
    one = decoder.view(a)
    first = decoder.initial_state(a)
    rows = torch.arange(B, device=a.device).repeat_interleave(beam)
    view, state = one.select(rows), State(first.h[rows], first.c[rows])
    words = torch.full((B * beam,), -1, device=a.device)
    # All hypotheses of an image are the same one at first: only one of them may be continued.
    totals = torch.full((B, beam), -torch.inf, device=a.device)
    totals[:, 0] = 0.0
    offsets = (torch.arange(B, device=a.device) * beam).unsqueeze(1)
    history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    ended: list[list[_Ended]] = [[] for _ in range(B)]
    done = [False] * B
    for t in range(max_length + 1):
        embedded = decoder.embed(words)
        step = decoder.step(view, state, decoder.gates_word(embedded))
        log_p = _log_probabilities(decoder, embedded, step.state.h, step.z, must_end=t == max_length)
        continued = (totals.view(-1, 1) + log_p).view(B, beam * K)
        best, index = continued.topk(min(2 * beam, beam * K), dim=1)
        parent, word = index // K, index % K
        # The candidates that end leave the beam; the `beam` best others go on.
        is_end = word == END
        penalty = float((t + 1) ** length_normalisation)
        for b, place in (is_end[:, :beam] & best[:, :beam].isfinite()).nonzero().tolist():
            if not done[b]:
                log_probability = best[b, place].item()
                ended[b].append(
                    _Ended(log_probability / penalty, log_probability, t, int(offsets[b]) + int(parent[b, place]))
                )
        totals, kept = best.masked_fill(is_end, -torch.inf).topk(beam, dim=1)
        parent, word = parent.gather(1, kept), word.gather(1, kept)
        parents = (offsets + parent).flatten()
        history.append((parents, word.flatten(), step.alpha, step.beta))
        # What a living hypothesis can still reach: its total now, over the longest length it may get.
        reachable = (totals[:, 0] / float((max_length + 1) ** length_normalisation)).tolist()
        for b in range(B):
            ended[b] = sorted(ended[b], key=lambda e: -e.score)[:beam]
            done[b] = (
                done[b]
                or (len(ended[b]) == beam and ended[b][-1].score >= reachable[b])
                or totals[b, 0].item() == -torch.inf
            )
        if all(done):
            break
        words = word.flatten()
        state = State(step.state.h[parents], step.state.c[parents])
    parents, ids = (torch.stack(parts).cpu() for parts in list(zip(*history, strict=True))[:2])
    alphas, betas = (torch.stack(parts) for parts in list(zip(*history, strict=True))[2:])
    return [[_trace(e, parents, ids, alphas, betas) for e in image] for image in ended]


def _trace(e: _Ended, parents: Tensor, ids: Tensor, alphas: Tensor, betas: Tensor) -> Hypothesis:
    """Follow a finished hypothesis back to its first word."""
    words, rows, row = [], [e.row], e.row
    for t in range(e.t - 1, -1, -1):
        words.append(int(ids[t, row]))
        row = int(parents[t, row])
        rows.append(row)
    words.reverse()
    rows.reverse()
    times = torch.arange(e.t + 1)
    return Hypothesis(words, e.log_probability, alphas[times, rows].cpu(), betas[times, rows].cpu())
