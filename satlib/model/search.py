"""Caption generation: sampling and beam search over a batch of images (section 4.3).

Every hypothesis ends with the end mark: once a caption has `max_length` words, only the end mark may follow. Its
log-probability is therefore that of a complete sentence. UNKNOWN is never generated.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satlib.data.text import END, UNKNOWN, Vocabulary, is_character
from satlib.model.attention import precise
from satlib.model.decoder import Annotations, select
from satlib.model.transformer import AnyDecoder

# English function words, and "side by side".
REPEATABLE = (
    "a an the and is are be in on of at to by from with for over near "
    "he she it they his her its their who that one two some other side"
)


def content_words(vocabulary: Vocabulary) -> Tensor:
    """The words that `decoding.no_repeat` allows once: (K,) bool. Languages other than English have none."""
    free = (
        {vocabulary.words[END], *REPEATABLE.split()} if "the" in vocabulary else {*vocabulary.words}
    )
    return torch.tensor([not (word in free or is_character(word)) for word in vocabulary.words])


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
        log_p, log_policy = (
            logs.gather(1, words.unsqueeze(1)).squeeze(1) for logs in (log_p, log_policy)
        )
        words = words.masked_fill(ended, END)
        history.append(
            (words, log_p.masked_fill(ended, 0.0), log_policy.masked_fill(ended, 0.0), alpha, beta)
        )
        if place is not None:
            places.append(place)
        ended = ended | (words == END)
        if ended.all():
            break
    words, log_p, log_policy, alphas, betas = (
        torch.stack(steps, 1) for steps in zip(*history, strict=True)
    )
    return Rollout(
        words, log_p, log_policy, alphas, betas, torch.stack(places, 1) if places else None
    )


class _Ended(NamedTuple):
    """A finished hypothesis: its score, log p(y|a), its words, and its row of the search at each word and at the end mark."""

    score: float
    log_probability: float
    words: list[int]
    rows: list[int]


@torch.inference_mode()
def beam_search(
    decoder: AnyDecoder,
    a: Tensor,
    beam: int = 3,
    max_length: int = 30,
    length_normalisation: float = 0.0,
    once: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The best finished hypotheses of each image that a beam finds, at most `beam` of them, best first; a beam of 1 is greedy.

    Living hypotheses, `beam` for each image, are ranked by log p(y|a); finished ones by log p(y|a) / C^length_normalisation.
    once: the words (K,) that no hypothesis has twice (`content_words`).
    """
    B = len(a)
    rows = torch.arange(B, device=a.device).repeat_interleave(
        beam
    )  # each image has `beam` rows, side by side
    first_rows = (torch.arange(B, device=a.device) * beam).unsqueeze(1)
    annotations = select(decoder.project(a), rows)
    state = select(decoder.initial_state(a), rows)
    words = torch.full((B * beam,), -1, device=a.device)
    said = path = words.new_empty(
        B * beam, 0
    )  # the words so far of each hypothesis, and its rows before (B beam, t)
    # At first all hypotheses of an image are the same one: only one of them may be continued.
    totals = torch.full((B, beam), -torch.inf, device=a.device)
    totals[:, 0] = 0.0
    finished: list[list[_Ended]] = [[] for _ in range(B)]
    searching = set(range(B))
    history: list[tuple[Tensor, ...]] = []
    for t in range(max_length + 1):
        logits, state, alpha, beta, _ = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)
        if once is not None:
            log_p = log_p.masked_fill(
                torch.zeros_like(log_p).bool().scatter(1, said, once[said]), -torch.inf
            )
        K = log_p.shape[1]

        # The 2 beam best continuations of each image (B, 2 beam): at most `beam` of them end, so that `beam` can go on.
        continued = (totals.view(-1, 1) + log_p).view(B, beam * K)
        candidates, index = continued.topk(min(2 * beam, beam * K), dim=1)
        parents, words = first_rows + index // K, index % K
        is_end = words == END

        # Those that end among the `beam` best are finished.
        for image, rank in (is_end & candidates.isfinite())[:, :beam].nonzero().tolist():
            if image in searching:
                total, row = candidates[image, rank].item(), int(parents[image, rank])
                score = total / (t + 1) ** length_normalisation
                ended = _Ended(score, total, said[row].tolist(), [*path[row].tolist(), row])
                finished[image] = sorted(
                    [*finished[image], ended], key=lambda hypothesis: -hypothesis.score
                )[:beam]

        # The `beam` best that do not end go on.
        totals, ranks = candidates.masked_fill(is_end, -torch.inf).topk(beam, dim=1)
        parents, words = parents.gather(1, ranks).flatten(), words.gather(1, ranks).flatten()
        history.append((alpha, beta))
        state = select(state, parents)
        said, path = (
            torch.cat([of[parents], new.unsqueeze(1)], 1)
            for of, new in ((said, words), (path, parents))
        )

        # An image is done when its best living hypothesis cannot enter any more. The best score that it can still reach is
        # its total now, over the maximum length.
        reachable = (totals[:, 0] / float((max_length + 1) ** length_normalisation)).tolist()
        for image in list(searching):
            if len(finished[image]) == beam and finished[image][-1].score >= reachable[image]:
                searching.remove(image)
        if not searching:
            break
    alphas, betas = (
        torch.stack(steps).cpu() for steps in zip(*history, strict=True)
    )  # (steps, B beam, ...)
    return [[_hypothesis(ended, alphas, betas) for ended in image] for image in finished]


def _hypothesis(ended: _Ended, alphas: Tensor, betas: Tensor) -> Hypothesis:
    at = torch.arange(len(ended.rows)), torch.tensor(ended.rows)
    return Hypothesis(ended.words, ended.log_probability, alphas[at], betas[at])


def _log_probabilities(logits: Tensor, must_end: bool) -> Tensor:
    """Log p(y_t) (B, K) of logits (B, K), -inf for words that must not be generated; the others are not renormalised."""
    log_p = torch.log_softmax(precise(logits), dim=1)
    words = torch.arange(log_p.shape[1], device=log_p.device)
    return log_p.masked_fill(words != END if must_end else words == UNKNOWN, -torch.inf)
