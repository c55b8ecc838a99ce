"""Caption generation: sampling and beam search over a batch of images (section 4.3).

Every hypothesis ends with the end mark: once a caption has `max_length` words, only the end mark
may follow. Its log-probability is therefore that of a complete sentence. UNKNOWN is never
generated. The official code's beam loses a place with each hypothesis that ends, and returns
unfinished ones, too: some of its captions are less probable than ours (docs/design.md).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satlib.data.text import END, START, UNKNOWN, Vocabulary, is_character
from satlib.model.attention import precise
from satlib.model.decoder import Annotations, select, stacked
from satlib.model.transformer import AnyDecoder

# English function words, and "side by side".
REPEATABLE = (
    "a an the and is are be in on of at to by from with for over near "
    "he she it they his her its their who that one two some other side"
)


def content_words(vocabulary: Vocabulary) -> Tensor:
    """The words that `decoding.no_repeat` allows once: (K,) bool.

    Languages other than English have none.
    """
    # The list above is English: in another language every word may come twice.
    if "the" in vocabulary:
        free = {vocabulary.words[END], *REPEATABLE.split()}
    else:
        free = {*vocabulary.words}
    return torch.tensor([not (word in free or is_character(word)) for word in vocabulary.words])


@dataclass(frozen=True)
class Hypothesis:
    """A generated caption of C - 1 words and the end mark.

    words: ids without the end mark. log_probability: log p(y|a), natural logarithm, summed over the
    words and the end mark. alphas (C, L) and betas (C,): the attention weights and the gate at each
    word and at the end mark.
    """

    words: list[int]
    log_probability: float
    alphas: Tensor
    betas: Tensor


class Rollout(NamedTuple):
    """One generated caption for each of B rows; C is the length of the longest.

    words: ids (B, C); after a caption's end, every id is the end mark. log_p: log p(y_t) under the
    model (B, C), 0 after the end. log_policy: the same under the distribution that the word was
    drawn from, which has the given temperature and excludes words that must not be generated.
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
        """The number of words in each caption (B,), including the end mark."""
        return (self.words != END).sum(1) + 1

    def hypotheses(self) -> list[Hypothesis]:
        """The captions one by one, each without what follows its end."""
        found = []
        for row, length in enumerate(self.lengths.tolist()):
            words = self.words[row, : length - 1].tolist()
            log_probability = self.log_p[row].sum().item()
            maps = self.alphas[row, :length].cpu()
            found.append(Hypothesis(words, log_probability, maps, self.betas[row, :length].cpu()))
        return found


def rollout(
    decoder: AnyDecoder,
    annotations: Annotations,
    state: Any,
    max_length: int,
    temperature: float = 1.0,
) -> Rollout:
    """Generate one caption for each of B rows by sampling, until every caption has ended.

    Differentiable, but for the draws.

    annotations, state: of the rows' images, from the decoder's `project` and `initial_state`.
    temperature: words are drawn from p(y_t)^(1/temperature); 0 takes the most probable word.
    """
    words = torch.full((len(annotations.a),), START, device=annotations.a.device)
    ended = torch.zeros_like(words, dtype=torch.bool)
    steps = []  # the fields of a rollout, without C
    for t in range(max_length + 1):
        logits, state, alpha, beta, place = decoder.predict(annotations, state, words)
        log_p = _log_probabilities(logits, must_end=t == max_length)  # (B, K)

        # The draw itself has no gradient; the log-probability of what was drawn has one.
        if temperature == 0:
            words = log_p.argmax(1)
        else:
            policy = torch.softmax(log_p.detach() / temperature, 1)
            words = torch.multinomial(policy, 1).squeeze(1)
        log_policy = torch.log_softmax(log_p / (temperature or 1.0), 1)  # (B, K)

        # A caption that has ended goes on saying the end mark, at no cost.
        log_p = _of_word(log_p, words).masked_fill(ended, 0.0)
        log_policy = _of_word(log_policy, words).masked_fill(ended, 0.0)
        words = words.masked_fill(ended, END)
        steps.append((words, log_p, log_policy, alpha, beta, place))

        ended = ended | (words == END)
        if ended.all():
            break

    return Rollout(*stacked(steps))


def _of_word(values: Tensor, words: Tensor) -> Tensor:
    """The value of one word in each row: (B, K), (B,) -> (B,)."""
    return values.gather(1, words.unsqueeze(1)).squeeze(1)


@torch.inference_mode()
def beam_search(
    decoder: AnyDecoder,
    a: Tensor,
    beam: int = 3,
    max_length: int = 30,
    length_normalisation: float = 0.0,
    once: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The best finished hypotheses of each image, at most `beam` of them, best first.

    A beam of 1 is greedy.

    Living hypotheses, `beam` for each image, are ranked by log p(y|a); finished ones by log p(y|a)
    / C^length_normalisation.
    once: the words (K,) that no hypothesis has twice (`content_words`).
    """
    B = len(a)
    images = torch.arange(B, device=a.device)
    rows = images.repeat_interleave(beam)  # each image has `beam` rows, side by side
    first_rows = (images * beam).unsqueeze(1)
    annotations = select(decoder.project(a), rows)
    state = select(decoder.initial_state(a), rows)
    words = torch.full((B * beam,), START, device=a.device)
    # So far, of each hypothesis: its words (B beam, t), its maps (B beam, t, L) and gates.
    said = words.new_empty(B * beam, 0)
    alphas = a.new_empty(B * beam, 0, a.shape[1])
    betas = a.new_empty(B * beam, 0)

    # At first all hypotheses of an image are the same one: only one of them may be continued.
    totals = torch.full((B, beam), -torch.inf, device=a.device)  # log p of the words so far
    totals[:, 0] = 0.0
    finished: list[list[tuple[float, Hypothesis]]] = [[] for _ in range(B)]  # with their scores
    searching = set(range(B))
    for t in range(max_length + 1):
        logits, state, alpha, beta, _ = decoder.predict(annotations, state, words)
        alphas = torch.cat([alphas, alpha.unsqueeze(1)], 1)
        betas = torch.cat([betas, beta.unsqueeze(1)], 1)
        log_p = _log_probabilities(logits, must_end=t == max_length)  # (B beam, K)
        if once is not None:  # a content word that was said is out
            is_used = torch.zeros_like(log_p).bool().scatter(1, said, once[said])
            log_p = log_p.masked_fill(is_used, -torch.inf)
        K = log_p.shape[1]

        # The 2 beam best continuations of each image: at most `beam` of them end, so that `beam` can
        # go on. Their totals, the rows that they continue and their words, (B, 2 beam) each.
        continued = (totals.view(-1, 1) + log_p).view(B, beam * K)
        best_totals, index = continued.topk(min(2 * beam, beam * K), dim=1)
        best_rows = first_rows + index // K
        best_words = index % K
        is_end = best_words == END

        # Those that end among the `beam` best are finished.
        can_finish = (is_end & best_totals.isfinite())[:, :beam]
        for image, rank in can_finish.nonzero().tolist():
            if image in searching:
                total = best_totals[image, rank].item()
                row = int(best_rows[image, rank])
                score = total / (t + 1) ** length_normalisation
                maps = alphas[row].clone().cpu()  # a view would keep those of all rows
                gates = betas[row].clone().cpu()
                ended = Hypothesis(said[row].tolist(), total, maps, gates)

                found = finished[image]
                found.append((score, ended))
                found.sort(key=lambda pair: -pair[0])
                del found[beam:]

        # The `beam` best that do not end go on, each from its row: (B beam,).
        totals, chosen = best_totals.masked_fill(is_end, -torch.inf).topk(beam, dim=1)
        rows = best_rows.gather(1, chosen).flatten()
        words = best_words.gather(1, chosen).flatten()
        state = select(state, rows)
        said = torch.cat([said[rows], words.unsqueeze(1)], 1)
        alphas = alphas[rows]
        betas = betas[rows]

        # An image is done when its best living hypothesis cannot enter any more. More words only
        # lower a total, and no length divides it by more than the longest: that is the best score
        # that it can still reach.
        reachable = (totals[:, 0] / float((max_length + 1) ** length_normalisation)).tolist()
        for image in list(searching):
            found = finished[image]
            if len(found) == beam and found[-1][0] >= reachable[image]:
                searching.remove(image)
        if not searching:
            break

    return [[hypothesis for _, hypothesis in found] for found in finished]


def _log_probabilities(logits: Tensor, must_end: bool) -> Tensor:
    """Log p(y_t) (B, K) of logits (B, K), -inf for words that must not be generated.

    The others are not renormalised.
    """
    log_p = torch.log_softmax(precise(logits), dim=1)
    words = torch.arange(log_p.shape[1], device=log_p.device)
    forbidden = words != END if must_end else words == UNKNOWN
    return log_p.masked_fill(forbidden, -torch.inf)
