"""Caption generation: greedy decoding, sampling and beam search over a batch of images (section 4.3).

Every hypothesis ends with the end mark: once a caption has `max_length` words, only the end mark may follow. Its
log-probability is therefore that of a complete sentence. UNKNOWN is never generated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satlib.data.text import END, UNKNOWN
from satlib.errors import SatlibError
from satlib.model.decoder import Annotations
from satlib.model.transformer import AnyDecoder


@dataclass(frozen=True)
class Hypothesis:
    """A generated caption of C - 1 words and the end mark.

    Attributes:
        words: ids without the end mark.
        log_probability: log p(y|a), natural logarithm, summed over the words and the end mark.
        alphas: (C, L), the attention weights of each word and of the end mark.
        betas: (C,), the gate at each word and at the end mark.
    """

    words: list[int]
    log_probability: float
    alphas: Tensor
    betas: Tensor


def _log_probabilities(logits: Tensor, must_end: bool) -> Tensor:
    """Log p(y_t) (B, K) of logits (B, K), -inf for words that must not be generated; the others are not renormalised."""
    log_p = torch.log_softmax(logits, dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    barred = torch.zeros(log_p.shape[1], dtype=torch.bool, device=log_p.device)
    barred[UNKNOWN] = True
    if must_end:
        barred[:] = True
        barred[END] = False
    return log_p.masked_fill(barred, -torch.inf)


class Rollout(NamedTuple):
    """One generated caption for each of B rows; C is the length of the longest.

    words: ids (B, C); after a caption's end, every id is the end mark. log_p: log p(y_t) under the model (B, C), 0 after
    the end. log_policy: the same under the distribution that the word was drawn from, which has the given temperature and
    excludes words that must not be generated. alphas, betas, places: as in `decoder.Output`.
    """

    words: Tensor
    log_p: Tensor
    log_policy: Tensor
    alphas: Tensor
    betas: Tensor
    places: Tensor | None

    @property
    def lengths(self) -> Tensor:
        """The number of words in each caption (B,), including the end mark."""
        return (self.words != END).sum(1) + 1


def rollout(
    decoder: AnyDecoder,
    annotations: Annotations,
    state: Any,
    max_length: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Rollout:
    """Generate one caption for each row by sampling, or greedily at temperature 0, until every caption has ended.

    With gradients enabled, the log-probabilities are differentiable and the sampled words are constants.

    Args:
        decoder: in evaluation mode.
        annotations: the images of B rows.
        state: `decoder.initial_state` of the same rows.
        max_length: the maximum number of words, without the end mark.
        temperature: words are drawn from p(y_t)^(1/temperature); 0 takes the most probable word.
        generator: the random generator for the draws.

    Raises:
        SatlibError: `max_length` is below 1.
    """
    if max_length < 1:
        raise SatlibError(f"the maximum caption length must be at least 1 word, not {max_length}")
    words = torch.full((len(annotations.a),), -1, device=annotations.a.device)
    ended = torch.zeros(len(annotations.a), dtype=torch.bool, device=annotations.a.device)
    history: list[tuple[Tensor, ...]] = []
    places: list[Tensor] = []
    for t in range(max_length + 1):
        logits, state, alpha, beta, place = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)
        if temperature == 0:
            words = log_p.argmax(1)
        else:
            words = torch.multinomial(torch.softmax(log_p.detach() / temperature, 1), 1, generator=generator).squeeze(1)
        log_policy = torch.log_softmax(log_p / (temperature or 1.0), 1)
        of_words = [log.gather(1, words.unsqueeze(1)).squeeze(1) for log in (log_p, log_policy)]
        words = words.masked_fill(ended, END)
        history.append((words, *(log.masked_fill(ended, 0.0) for log in of_words), alpha, beta))
        if place is not None:
            places.append(place)
        ended = ended | (words == END)
        if ended.all():
            break
    words, log_p, log_policy, alphas, betas = (torch.stack(parts, 1) for parts in zip(*history, strict=True))
    return Rollout(words, log_p, log_policy, alphas, betas, torch.stack(places, 1) if places else None)


@torch.inference_mode()
def _one_per_image(
    decoder: AnyDecoder, a: Tensor, max_length: int, temperature: float, generator: torch.Generator | None
) -> list[Hypothesis]:
    captions = rollout(decoder, decoder.project(a), decoder.initial_state(a), max_length, temperature, generator)
    words, alphas, betas = captions.words.cpu(), captions.alphas.cpu(), captions.betas.cpu()
    log_probabilities = captions.log_p.sum(1).tolist()
    return [
        Hypothesis(words[row, : C - 1].tolist(), log_probabilities[row], alphas[row, :C], betas[row, :C])
        for row, C in enumerate(captions.lengths.tolist())
    ]


def greedy(decoder: AnyDecoder, a: Tensor, max_length: int = 30) -> list[Hypothesis]:
    """Take the most probable word at every step: a (B, L, D) -> B hypotheses of at most `max_length` words."""
    return _one_per_image(decoder, a, max_length, temperature=0.0, generator=None)


def sample(
    decoder: AnyDecoder,
    a: Tensor,
    max_length: int = 30,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> list[Hypothesis]:
    """Draw every word from p(y_t)^(1/temperature): a (B, L, D) -> B hypotheses.

    Their log-probability is that of the model itself, at temperature 1.

    Raises:
        SatlibError: the temperature is not above 0, or `max_length` is below 1.
    """
    if not temperature > 0:
        raise SatlibError(f"the temperature must be above 0, not {temperature}; for temperature 0 use greedy decoding")
    return _one_per_image(decoder, a, max_length, temperature, generator)


@dataclass(frozen=True)
class _Ended:
    """A finished hypothesis: its score, and the step and row of the history at which it ended."""

    score: float
    log_probability: float
    t: int
    row: int


class _Finished:
    """The best finished hypotheses of one image, at most `size` of them, best first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.best: list[_Ended] = []
        self.complete = False  # no living hypothesis can enter any more

    def add(self, ended: _Ended) -> None:
        """Insert a hypothesis and drop the worst if there are too many."""
        if not self.complete:
            self.best = sorted([*self.best, ended], key=lambda hypothesis: -hypothesis.score)[: self.size]

    def update(self, reachable: float) -> None:
        """Mark the image as complete if a hypothesis with the score `reachable` could not enter."""
        self.complete = self.complete or (len(self.best) == self.size and self.best[-1].score >= reachable)


class _Candidates(NamedTuple):
    """The best continuations of each image's hypotheses, best first: (B, 2 beam) each.

    totals: log-probabilities. parents: the rows of the hypotheses that are continued. words: ids.
    """

    totals: Tensor
    parents: Tensor
    words: Tensor


def beam_search(
    decoder: AnyDecoder, a: Tensor, beam: int = 3, max_length: int = 30, length_normalisation: float = 0.0
) -> list[list[Hypothesis]]:
    """Search with a beam: the best finished hypotheses of each image, at most `beam` of them, best first.

    Each step considers the 2 `beam` best continuations of an image, so that `beam` hypotheses remain even if others end. The
    search of an image stops when no living hypothesis can overtake its `beam` best finished ones.

    Args:
        decoder: in evaluation mode.
        a: annotation vectors (B, L, D).
        beam: the number of living hypotheses per image.
        max_length: the maximum number of words, without the end mark.
        length_normalisation: the score is log p(y|a) / C^length_normalisation; at 0 it is the log-probability.

    Raises:
        SatlibError: `beam` or `max_length` is below 1.
    """
    return beam_searches(decoder, a, beam, max_length, (length_normalisation,))[0]


@torch.inference_mode()
def beam_searches(
    decoder: AnyDecoder, a: Tensor, beam: int, max_length: int, length_normalisations: Sequence[float]
) -> list[list[list[Hypothesis]]]:
    """The results of `beam_search` for several length normalisations, from a single pass.

    Living hypotheses are ranked by log p: the normalisation only decides which finished ones are kept, and when the search may stop.
    """
    if beam < 1 or max_length < 1:
        raise SatlibError(f"the beam width ({beam}) and the maximum caption length ({max_length}) must be at least 1")
    B = len(a)
    rows = torch.arange(B, device=a.device).repeat_interleave(beam)
    annotations = decoder.project(a).select(rows)
    state: Any = decoder.initial_state(a).select(rows)
    words = torch.full((B * beam,), -1, device=a.device)
    # At first all hypotheses of an image are the same one: only one of them may be continued.
    totals = torch.full((B, beam), -torch.inf, device=a.device)
    totals[:, 0] = 0.0
    searches = [(x, [_Finished(beam) for _ in range(B)]) for x in length_normalisations]
    history: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for t in range(max_length + 1):
        logits, state, alpha, beta, _ = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)
        candidates = _continue(totals, log_p)
        totals, parents, words = _keep_living(candidates, beam)
        history.append((parents, words, alpha, beta))
        for x, finished in searches:
            _collect_ended(candidates, finished, t, (t + 1) ** x)
            # The best score that a living hypothesis can still reach: its total now, over the maximum length.
            reachable = (totals[:, 0] / float((max_length + 1) ** x)).tolist()
            for image, score in zip(finished, reachable, strict=True):
                image.update(score)
        if all(image.complete for _, finished in searches for image in finished):
            break
        state = state.select(parents)
    parents, words, alphas, betas = (torch.stack(steps) for steps in zip(*history, strict=True))
    parents, words = parents.cpu(), words.cpu()

    @cache  # different normalisations keep mostly the same hypotheses
    def hypothesis(t: int, row: int, log_probability: float) -> Hypothesis:
        return _trace(t, row, log_probability, parents, words, alphas, betas)

    return [
        [[hypothesis(ended.t, ended.row, ended.log_probability) for ended in image.best] for image in finished]
        for _, finished in searches
    ]


def _continue(totals: Tensor, log_p: Tensor) -> _Candidates:
    """The 2 beam best continuations of hypotheses with totals (B, beam) by words with log p (B beam, K)."""
    (B, beam), K = totals.shape, log_p.shape[1]
    continued = (totals.view(-1, 1) + log_p).view(B, beam * K)
    best, index = continued.topk(min(2 * beam, beam * K), dim=1)
    first_rows = (torch.arange(B, device=totals.device) * beam).unsqueeze(1)
    return _Candidates(best, first_rows + index // K, index % K)


def _collect_ended(candidates: _Candidates, finished: list[_Finished], t: int, penalty: float) -> None:
    """Hand over the candidates that end among the `beam` best of each image."""
    beam = finished[0].size
    is_end = (candidates.words == END) & candidates.totals.isfinite()
    for image, rank in is_end[:, :beam].nonzero().tolist():
        total, row = candidates.totals[image, rank].item(), int(candidates.parents[image, rank])
        finished[image].add(_Ended(total / penalty, total, t, row))


def _keep_living(candidates: _Candidates, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `beam` best candidates of each image that do not end: totals (B, beam), parents and words (B beam,)."""
    totals, ranks = candidates.totals.masked_fill(candidates.words == END, -torch.inf).topk(beam, dim=1)
    return totals, candidates.parents.gather(1, ranks).flatten(), candidates.words.gather(1, ranks).flatten()


def _trace(
    t: int, row: int, log_probability: float, parents: Tensor, ids: Tensor, alphas: Tensor, betas: Tensor
) -> Hypothesis:
    """Follow a hypothesis that ended at a step and row back to its first word."""
    words, rows = [], [row]
    for before in range(t - 1, -1, -1):
        words.append(int(ids[before, row]))
        row = int(parents[before, row])
        rows.append(row)
    words.reverse()
    rows.reverse()
    steps = torch.arange(t + 1)
    return Hypothesis(words, log_probability, alphas[steps, rows].cpu(), betas[steps, rows].cpu())
