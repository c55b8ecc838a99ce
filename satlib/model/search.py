"""Caption generation: greedy decoding, sampling and beam search over a batch of images (section 4.3).

Every hypothesis ends with the end mark: once a caption has `max_length` words, only the end mark may follow. Its
log-probability is therefore that of a complete sentence. UNKNOWN is never generated.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satlib.data.text import END, UNKNOWN
from satlib.model.attention import precise
from satlib.model.decoder import Annotations, select
from satlib.model.transformer import AnyDecoder


@dataclass(frozen=True)
class Hypothesis:
    """A generated caption of C - 1 words and the end mark.

    words: ids without the end mark. log_probability: log p(y|a), natural logarithm, summed over the words and the end mark.
    alphas (C, L) and betas (C,): the attention weights and the gate at each word and at the end mark.
    """

    words: list[int]
    log_probability: float
    alphas: Tensor
    betas: Tensor


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
) -> Rollout:
    """Generate one caption for each of B rows by sampling, until every caption has ended; differentiable, but for the draws.

    annotations, state: of the rows' images, from the decoder's `project` and `initial_state`. temperature: words are drawn from
    p(y_t)^(1/temperature); 0 takes the most probable word.
    """
    words = torch.full((len(annotations.a),), -1, device=annotations.a.device)
    ended = torch.zeros_like(words, dtype=torch.bool)
    history: list[tuple[Tensor, ...]] = []
    places: list[Tensor] = []
    for t in range(max_length + 1):
        logits, state, alpha, beta, place = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)  # (B, K)
        if temperature == 0:
            words = log_p.argmax(1)
        else:
            words = torch.multinomial(torch.softmax(log_p.detach() / temperature, 1), 1).squeeze(1)
        log_policy = torch.log_softmax(log_p / (temperature or 1.0), 1)
        # (B, K) -> (B,): of the chosen word.
        log_p, log_policy = (logs.gather(1, words.unsqueeze(1)).squeeze(1) for logs in (log_p, log_policy))
        words = words.masked_fill(ended, END)
        history.append((words, log_p.masked_fill(ended, 0.0), log_policy.masked_fill(ended, 0.0), alpha, beta))
        if place is not None:
            places.append(place)
        ended = ended | (words == END)
        if ended.all():
            break
    words, log_p, log_policy, alphas, betas = (torch.stack(steps, 1) for steps in zip(*history, strict=True))
    return Rollout(words, log_p, log_policy, alphas, betas, torch.stack(places, 1) if places else None)


@torch.inference_mode()
def greedy(decoder: AnyDecoder, a: Tensor, max_length: int = 30) -> list[Hypothesis]:
    """Take the most probable word at every step: a (B, L, D) -> B hypotheses of at most `max_length` words."""
    captions = rollout(decoder, decoder.project(a), decoder.initial_state(a), max_length, temperature=0.0)
    words, alphas, betas = captions.words.tolist(), captions.alphas.cpu(), captions.betas.cpu()
    log_p = captions.log_p.sum(1).tolist()
    return [
        Hypothesis(words[row][: C - 1], log_p[row], alphas[row, :C], betas[row, :C])
        for row, C in enumerate(captions.lengths.tolist())
    ]


class _Ended(NamedTuple):
    """A finished hypothesis: its score, log p(y|a), and the step and row of the search at which it ended."""

    score: float
    log_probability: float
    t: int
    row: int


@torch.inference_mode()
def beam_search(
    decoder: AnyDecoder, a: Tensor, beam: int = 3, max_length: int = 30, length_normalisation: float = 0.0
) -> list[list[Hypothesis]]:
    """The best finished hypotheses of each image that a beam finds, at most `beam` of them, best first.

    Living hypotheses, `beam` for each image, are ranked by log p(y|a); finished ones by log p(y|a) / C^length_normalisation.
    """
    B = len(a)
    rows = torch.arange(B, device=a.device).repeat_interleave(beam)  # each image has `beam` rows, side by side
    first_rows = (torch.arange(B, device=a.device) * beam).unsqueeze(1)
    annotations = select(decoder.project(a), rows)
    state = select(decoder.initial_state(a), rows)
    words = torch.full((B * beam,), -1, device=a.device)
    # At first all hypotheses of an image are the same one: only one of them may be continued.
    totals = torch.full((B, beam), -torch.inf, device=a.device)
    totals[:, 0] = 0.0
    finished: list[list[_Ended]] = [[] for _ in range(B)]
    searching = set(range(B))
    history: list[tuple[Tensor, ...]] = []
    for t in range(max_length + 1):
        logits, state, alpha, beta, _ = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)
        K = log_p.shape[1]

        # The 2 beam best continuations of each image (B, 2 beam): at most `beam` of them end, so that `beam` can go on.
        continued = (totals.view(-1, 1) + log_p).view(B, beam * K)
        candidates, index = continued.topk(min(2 * beam, beam * K), dim=1)
        parents, words = first_rows + index // K, index % K
        is_end = words == END

        # Those that end among the `beam` best are finished.
        for image, rank in (is_end & candidates.isfinite())[:, :beam].nonzero().tolist():
            if image in searching:
                total = candidates[image, rank].item()
                ended = _Ended(total / (t + 1) ** length_normalisation, total, t, int(parents[image, rank]))
                finished[image] = sorted([*finished[image], ended], key=lambda hypothesis: -hypothesis.score)[:beam]

        # The `beam` best that do not end go on.
        totals, ranks = candidates.masked_fill(is_end, -torch.inf).topk(beam, dim=1)
        parents, words = parents.gather(1, ranks).flatten(), words.gather(1, ranks).flatten()
        history.append((parents, words, alpha, beta))
        state = select(state, parents)

        # An image is done when its best living hypothesis cannot enter any more. The best score that it can still reach is
        # its total now, over the maximum length.
        reachable = (totals[:, 0] / float((max_length + 1) ** length_normalisation)).tolist()
        for image in list(searching):
            if len(finished[image]) == beam and finished[image][-1].score >= reachable[image]:
                searching.remove(image)
        if not searching:
            break
    parents, words, alphas, betas = (torch.stack(steps).cpu() for steps in zip(*history, strict=True))
    return [[_hypothesis(ended, parents, words, alphas, betas) for ended in image] for image in finished]


def _hypothesis(ended: _Ended, parents: Tensor, words: Tensor, alphas: Tensor, betas: Tensor) -> Hypothesis:
    """Follow a finished hypothesis back to its first word, through the search's history (steps, B beam, ...)."""
    rows = [ended.row]
    for t in range(ended.t - 1, -1, -1):
        rows.insert(0, int(parents[t, rows[0]]))
    steps = torch.arange(ended.t + 1)
    # The word that is chosen at step t stands in the row that continues it at step t + 1.
    chosen = words[steps[:-1], rows[1:]].tolist()
    return Hypothesis(chosen, ended.log_probability, alphas[steps, rows], betas[steps, rows])


def _log_probabilities(logits: Tensor, must_end: bool) -> Tensor:
    """Log p(y_t) (B, K) of logits (B, K), -inf for words that must not be generated; the others are not renormalised."""
    log_p = torch.log_softmax(precise(logits), dim=1)
    barred = torch.zeros(log_p.shape[1], dtype=torch.bool, device=log_p.device)
    barred[UNKNOWN] = True
    if must_end:
        barred[:] = True
        barred[END] = False
    return log_p.masked_fill(barred, -torch.inf)
