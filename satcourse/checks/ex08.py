"""Exercises of notebook 08: captions from a model, and how captions are judged."""

import itertools
import math
import operator
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satcourse.checks.calls import Failed
from satcourse.checks.compare import kind
from satcourse.checks.task import Answer, distribution, exercise, numbers
from satlib.data import scenes
from satlib.data.text import tokenise
from satlib.evaluation import metrics

Prefix = tuple[str, ...]
NextWords = Callable[[Prefix], Mapping[str, float]]
Beginning = tuple[float, Prefix]  # its log p, and its words
Captions = list[list[str]]
Found = tuple[list[str], float]  # a caption, and its log p
Bounds = tuple[float, float, float]  # a lead, and the ends of its interval
END = "(end)"


def _drawn(seed: int) -> NextWords:
    """A model whose probabilities are drawn, the same each time; captions of at most five words."""

    def next_words(prefix: Prefix) -> Mapping[str, float]:
        # The notebook looks it up in a dict.
        if not isinstance(prefix, tuple):
            raise Failed(f"next_words wants a tuple of words, not {kind(prefix)}")
        if len(prefix) == 5 or END in prefix:
            return {END: 1.0}
        drawn = random.Random(f"{seed} {' '.join(prefix)}")
        # Squared, so that some words are far likelier than others; none is impossible.
        weights = {word: drawn.random() ** 2 + 0.02 for word in ("a", "b", "c", END)}
        total = sum(weights.values())
        return {word: weight / total for word, weight in weights.items()}

    return next_words


def _found(answer: Answer, *inputs: Any) -> Any:
    """The words as a line, of a pair."""
    found = answer(*inputs)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        return found
    words, log_p = found
    if not isinstance(words, list):
        return found
    return {
        "the words": " ".join(map(str, words)),
        "the log-probability": log_p,
    }


def _extended(living: list[Beginning], next_words: NextWords) -> list[Beginning]:
    """Every beginning with every word that may follow it."""
    grown: list[Beginning] = []
    for log_p, words in living:
        for word, p in next_words(words).items():
            grown.append((log_p + math.log(p), (*words, word)))
    return grown


@exercise(
    "8.1",
    "The beam",
    difficulty=3,
    minutes=18,
    equation="Sutskever et al., section 3.2",
)
def beam_search(next_words: NextWords, width: int, longest: int) -> Found:
    """Of all extended beginnings the `width` best are kept, and those that end wait aside: the
    likeliest of them, and its log p.
    """
    living: list[Beginning] = [(0.0, ())]
    finished: list[Beginning] = []
    for _ in range(longest):
        grown = _extended(living, next_words)
        kept = sorted(grown, reverse=True)[:width]
        # What ends takes a place in this step, and none in later ones.
        finished += filter(_ends, kept)
        living = [each for each in kept if not _ends(each)]

    # With too few words no caption ends: none, of probability 0.
    log_p, words = max(finished, default=(-math.inf, ()))
    return list(words), log_p


def _ends(beginning: Beginning) -> bool:
    _, words = beginning
    return words[-1] == END


def _searches() -> list[tuple[NextWords, int, int]]:
    simple = _drawn(1)
    # The seeds were searched for: on each of these models some mistake finds another caption.
    return [
        (simple, 2, 7),
        (simple, 1, 7),
        (simple, 9, 7),
        (_drawn(716), 3, 7),
        (_drawn(22), 4, 7),
        (_drawn(12), 4, 7),
        # Two words are too few: nothing that this beam keeps has ended.
        (_drawn(12), 3, 2),
        (_drawn(131), 2, 3),
        (_drawn(11), 3, 7),
    ]


def _mistaken(
    next_words: NextWords,
    width: int,
    longest: int,
    *,
    keep: str = "",
    enough: float = math.inf,
    order: Callable[[Beginning], Any] | None = None,
) -> Found:
    """`beam_search` that stops at `enough` finished captions, keeps the wrong ones, or answers with
    the first one in another order.

    keep: "narrower", fewer by each that has finished; "last", the finished ones of the last step
    alone; "wider", those that end in addition to `width` others; "each", `width` of each beginning;
    "worst", the unlikeliest; "ended", those that have ended, to be extended; "unfinished", in the end those that have not
    ended, too; "living", these if none has.
    """
    living: list[Beginning] = [(0.0, ())]
    finished: list[Beginning] = []
    for _ in range(longest):
        # Without a living one there is no step, and what finished last stays.
        if not living or len(finished) >= enough:
            break
        best = sorted(_extended(living, next_words), reverse=True)
        if keep == "narrower":
            kept = best[: width - len(finished)]
        elif keep == "wider":
            others = [each for each in best if not _ends(each)]
            kept = [*filter(_ends, best), *others[:width]]
        elif keep == "each":
            kept = []
            for each in living:
                kept += sorted(_extended([each], next_words), reverse=True)[:width]
        elif keep == "worst":
            kept = best[-width:]
        else:
            kept = best[:width]

        if keep == "last":
            finished = []
        finished += filter(_ends, kept)
        living = [each for each in kept if keep == "ended" or not _ends(each)]

    if keep == "unfinished":
        finished += living
    if keep == "living":
        finished = finished or living
    log_p, words = max(finished, key=order, default=(-math.inf, ()))
    return list(words), log_p


def _per_word(beginning: Beginning) -> float:
    log_p, words = beginning
    return log_p / len(words)


def _without_end(*inputs: Any) -> Found:
    words, log_p = beam_search(*inputs)
    return words[:-1], log_p


beam_search.says = "five widths on four models, and too few words for any caption"
beam_search.cases = _searches
beam_search.observe = _found
beam_search.given = lambda next_words, width, longest: f"a beam of {width}, at most {longest} words"
beam_search.mistakes = {
    "this is greedy decoding: keep the `width` best beginnings, not one": (
        lambda next_words, width, longest: beam_search(next_words, 1, longest)
    ),
    "the beam becomes narrower with each caption that ends": partial(_mistaken, keep="narrower"),
    "captions that ended early are forgotten: they stay in the race": partial(
        _mistaken, keep="last"
    ),
    "a caption that ends takes one of the `width` places, in that step": partial(
        _mistaken, keep="wider"
    ),
    "it stops at the first finished caption: others may become better": partial(
        _mistaken, enough=1
    ),
    "it stops when `width` are finished: a living one may become better": (
        lambda next_words, width, longest: _mistaken(next_words, width, longest, enough=width)
    ),
    "each beginning keeps `width` extended ones: the `width` best of all of them stay": partial(
        _mistaken, keep="each"
    ),
    "what has ended is extended again: it waits aside, and takes no place": partial(
        _mistaken, keep="ended"
    ),
    "the unlikeliest are kept: the `width` best stay": partial(_mistaken, keep="worst"),
    "a word too many: `longest` counts the END, too": (
        lambda next_words, width, longest: beam_search(next_words, width, longest + 1)
    ),
    "an unfinished caption wins: of those that end the likeliest is asked for": partial(
        _mistaken, keep="unfinished"
    ),
    "no caption has ended: the answer is then no words, and minus infinity": partial(
        _mistaken, keep="living"
    ),
    "divided by the number of words: the likeliest has the largest sum": partial(
        _mistaken, order=_per_word
    ),
    "the END is missing: it is the caption's last word": _without_end,
}


@exercise(
    "8.2",
    "The nucleus",
    difficulty=2,
    minutes=8,
    equation="Holtzman et al., section 3.1",
)
def nucleus(p: Tensor, share: float) -> Tensor:
    """p (K,) of the fewest likeliest words that together have at least `share`, divided by their
    sum; 0 elsewhere, in the order of p.
    """
    order = p.argsort(descending=True)
    before = p[order].cumsum(0) - p[order]  # what the likelier words have: (K,)
    # The word that reaches the share is in it, since those before it had less.
    return _renormalised(p, order[before < share])


def _renormalised(p: Tensor, kept: Tensor) -> Tensor:
    """The probabilities of the kept words alone, divided by their sum; 0 elsewhere."""
    result = torch.zeros_like(p)
    result[kept] = p[kept]
    return result / result.sum()


def _distributions() -> list[tuple[Tensor, float]]:
    # Halves and quarters are exact: the likeliest word has exactly the share.
    exact = torch.tensor([0.25, 0.5, 0.25])
    four_words = torch.tensor([0.1, 0.45, 0.25, 0.2])
    return [
        (exact, 0.5),
        # The two likeliest words are needed, and then one.
        (four_words, 0.6),
        (four_words, 0.3),
        (distribution(6, seed=6), 0.5),
        (distribution(12, seed=12), 0.9),
    ]


def _one_word_less(p: Tensor, share: float) -> Tensor:
    order = p.argsort(descending=True)
    up_to = p[order].cumsum(0)
    return _renormalised(p, order[up_to <= share])


def _one_word_more(p: Tensor, share: float) -> Tensor:
    order = p.argsort(descending=True)
    before = p[order].cumsum(0) - p[order]
    return _renormalised(p, order[before <= share])


def _least_likely(p: Tensor, share: float) -> Tensor:
    order = p.argsort()
    before = p[order].cumsum(0) - p[order]
    return _renormalised(p, order[before < share])


nucleus.says = "five distributions: words that have the share alone, or reach it to the bit"
nucleus.cases = _distributions
nucleus.mistakes = {
    "the word that reaches the share is missing: keep words until they have it": _one_word_less,
    "one word too many: those before it had the share": _one_word_more,
    "each word's p is asked alone: the words together have `share`": (
        lambda p, share: _renormalised(p, p >= 1 - share)
    ),
    "a softmax of probabilities, and a word too many: they are divided by their sum": (
        lambda p, share: p.where(_one_word_more(p, share) > 0, -torch.inf).softmax(0)
    ),
    "a softmax of probabilities: they are divided by their sum": (
        lambda p, share: p.where(nucleus(p, share) > 0, -torch.inf).softmax(0)
    ),
    "each word has a share of the best one's p: all together have `share`": (
        lambda p, share: _renormalised(p, p >= share * p.max())
    ),
    "the likelier words are drawn more often: keep their p, and divide by the sum": (
        lambda p, share: (nucleus(p, share) > 0).to(p) / (nucleus(p, share) > 0).sum()
    ),
    "the words are in another order than in p": (
        lambda p, share: nucleus(p, share).sort(descending=True).values
    ),
    "the least likely words come first: `p.argsort(descending=True)`": _least_likely,
}


def ngrams(words: Sequence[str], n: int) -> Counter:
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _words(*captions: str) -> Captions:
    return [caption.split() for caption in captions]


@exercise(
    "8.3",
    "n-grams, clipped",
    difficulty=2,
    minutes=10,
    equation="Papineni et al., section 2.1",
)
def clipped_precision(caption: list[str], references: Captions, n: int) -> float:
    """The share of a caption's n-grams that are in a reference, each at most as often as in the
    one that has most.
    """
    ours = ngrams(caption, n)
    theirs = [ngrams(words, n) for words in references]
    hits = 0
    for gram, count in ours.items():
        # However often a caption repeats a word, a person wrote it at most so often.
        most = max(counts[gram] for counts in theirs)
        hits += min(count, most)
    return hits / max(1, ours.total())


def _repeated_words() -> list[tuple[list[str], Captions, int]]:
    (caption,) = _words("a dog and a dog and a big big dog")
    # Each has "a" twice: their sum would allow all three of the caption's.
    references = _words("a dog and a big dog", "a big big cat sees a dog")
    return [
        (caption, references, 1),
        # Now the second of them has most.
        (caption, references[::-1], 2),
        (caption, references, 3),
        # One star of three is there.
        (["star"] * 3, _words("a star"), 1),
        # A single word has no pair.
        (["a"], _words("a dog"), 2),
        # The right words, in the wrong order.
        (["dog", "a"], _words("a dog"), 2),
    ]


def _clipped_by_the_sum(caption: list[str], references: Captions, n: int) -> float:
    ours = ngrams(caption, n)
    theirs = Counter()
    for words in references:
        theirs += ngrams(words, n)
    return (ours & theirs).total() / max(1, ours.total())


def _not_clipped(caption: list[str], references: Captions, n: int) -> float:
    ours = ngrams(caption, n)
    theirs = set()
    for words in references:
        theirs.update(ngrams(words, n))
    hits = sum(count for gram, count in ours.items() if gram in theirs)
    return hits / max(1, ours.total())


def _as_sets(caption: list[str], references: Captions, n: int) -> float:
    ours = set(ngrams(caption, n))
    theirs = set().union(*(ngrams(words, n) for words in references))
    return len(ours & theirs) / max(1, len(ours))


def _by_reference(caption: list[str], references: Captions, n: int) -> list[float]:
    return [clipped_precision(caption, [words], n) for words in references]


def _recall_of_ngrams(caption: list[str], references: Captions, n: int) -> float:
    ours = ngrams(caption, n)
    theirs = reduce(operator.or_, [ngrams(words, n) for words in references])
    return (ours & theirs).total() / max(1, theirs.total())


clipped_precision.says = (
    "words to triples, repeated and spread over references, turned round; no pair at all"
)
clipped_precision.cases = _repeated_words
clipped_precision.given = lambda caption, references, n: (
    f"{' '.join(caption)!r}, n = {n}, and as references {[*map(' '.join, references)]}"
)
clipped_precision.mistakes = {
    "clipped by the sum over the references: take the one that has most": _clipped_by_the_sum,
    "not clipped: an n-gram counts at most as often as a reference has it": _not_clipped,
    "each n-gram counts once: it counts as often as a reference has it": _as_sets,
    "a caption shorter than n has no n-gram: it gets 0, not 0 / 0": (
        lambda caption, references, n: 1 / ngrams(caption, n).total()
    ),
    "one reference for all n-grams: each may take the reference that has it most often": (
        lambda *inputs: max(_by_reference(*inputs))
    ),
    "the mean over the references: each n-gram takes the one that has it most often": (
        lambda *inputs: fmean(_by_reference(*inputs))
    ),
    "one reference alone is looked at: there are several": (
        lambda *inputs: _by_reference(*inputs)[0]
    ),
    "this is recall: divide by the caption's own n-grams": _recall_of_ngrams,
}


@exercise(
    "8.4",
    "BLEU of a corpus",
    difficulty=3,
    minutes=12,
    equation="Papineni et al., section 2.3",
)
def bleu(captions: Captions, references: list[Captions], N: int) -> float:
    """The geometric mean over n = 1 to N of: hits of all captions, each by its own references,
    divided by n-grams of all captions.
    """
    precisions = _precisions(captions, references, N)
    return math.prod(precisions) ** (1 / N)


def _precisions(
    captions: Captions, references: list[Captions], N: int, least: int = 0
) -> list[float]:
    """The precision of a corpus for n = 1 to N."""
    precisions = []
    for n in range(1, N + 1):
        hits = 0.0
        total = 0
        for words, theirs in zip(captions, references, strict=True):
            # A caption shorter than n has no n-gram.
            count = max(least, len(words) - n + 1)
            hits += clipped_precision(words, theirs, n) * count
            total += count
        precisions.append(hits / total)
    return precisions


def _corpora() -> list[tuple[Captions, list[Captions], int]]:
    captions = _words(
        "a dog runs on",
        "two cats sit on a red red sofa",
        "a man on a bike rides",
        "dog",
    )
    references = [
        _words("a dog runs over the grass", "the brown dog runs on grass"),
        _words("two cats on a red sofa", "cats sit on a big red sofa"),
        _words("a man rides a bike down there", "a man on a bike rides down the road"),
        _words("a dog", "the dog on a red red sofa"),
    ]
    return [
        (captions, references, 1),
        (captions, references, 2),
        (captions, references, 3),
        # The only caption of which a run of four is in a reference.
        (captions[2:3], references[2:3], 4),
        # No pair is.
        ([["dog", "a"]], [_words("a dog")], 2),
    ]


def _mean_of_bleus(captions: Captions, references: list[Captions], N: int) -> float:
    scores = []
    for words, theirs in zip(captions, references, strict=True):
        # Its own BLEU would be 0 divided by 0.
        too_short = len(words) < N
        scores.append(0.0 if too_short else bleu([words], [theirs], N))
    return fmean(scores)


def _with_brevity_penalty(captions: Captions, references: list[Captions], N: int) -> float:
    ours = sum(map(len, captions))
    theirs = 0
    for words, each in zip(captions, references, strict=True):
        # Of two lengths that are equally near, the smaller one.
        theirs += min(sorted(map(len, each)), key=lambda length: abs(length - len(words)))
    return bleu(captions, references, N) * min(1.0, math.exp(1 - theirs / ours))


bleu.says = "BLEU-1 to BLEU-4 of small corpora, without brevity penalty"
bleu.cases = _corpora
bleu.given = lambda captions, references, N: f"{[*map(' '.join, captions)]}, N = {N}"
bleu.mistakes = {
    "the mean of the captions' own BLEU: n-grams are counted over the corpus first": _mean_of_bleus,
    "the mean is geometric: the N-th root of the product": (
        lambda captions, references, N: fmean(_precisions(captions, references, N))
    ),
    "the mean of the captions' precisions: hits and n-grams are added up over the corpus first": (
        lambda captions, references, N: (
            math.prod(
                fmean(map(clipped_precision, captions, references, [n] * len(captions)))
                for n in range(1, N + 1)
            )
            ** (1 / N)
        )
    ),
    "runs of N words alone: multiply the precisions of 1 to N": (
        lambda captions, references, N: _precisions(captions, references, N)[-1]
    ),
    "the fourth root for every N: BLEU-N takes the N-th": (
        lambda captions, references, N: math.prod(_precisions(captions, references, N)) ** (1 / 4)
    ),
    "the root is missing: the N-th root of the product": (
        lambda captions, references, N: math.prod(_precisions(captions, references, N))
    ),
    "leave the brevity penalty out: section 5.1 does, too": _with_brevity_penalty,
    "a caption shorter than n has 0 n-grams, not fewer than 0": (
        lambda *inputs: math.prod(_precisions(*inputs, least=-9)) ** (1 / inputs[-1])
    ),
    "the logarithm of 0: with one precision of 0, BLEU is 0": (
        lambda *inputs: math.exp(fmean(map(math.log, _precisions(*inputs))))
    ),
}


@exercise(
    "8.5",
    "The paired bootstrap",
    difficulty=2,
    minutes=7,
    equation="Koehn (2004)",
)
def bootstrap(one: Answer, other: Answer, picks: np.ndarray) -> Bounds:
    """one(rows) - other(rows): on all rows, and the percentiles 2.5 and 97.5 over the resamples,
    both models on the same rows.
    """
    everything = np.arange(picks.shape[1])
    lead = one(everything) - other(everything)

    # On the same photographs, so that what is hard for both cancels.
    leads = [one(rows) - other(rows) for rows in picks]
    low, high = np.percentile(leads, (2.5, 97.5))
    return lead, low, high


def _scored(seed: int) -> Answer:
    """A model's score on some of 7 photographs."""
    scores = numbers(7, seed=seed)
    return lambda rows: scores[torch.as_tensor(rows)].square().mean().item()


def _resampled(seed: int, resamples: int) -> tuple[Answer, Answer, list[list[int]]]:
    """Two models, and the photographs of each resample."""
    picks = np.random.default_rng(seed).integers(7, size=(resamples, 7))
    # As lists: the comparison of inputs before and after a call knows no arrays.
    return _scored(seed), _scored(seed + 1), picks.tolist()


def _not_paired(one: Answer, other: Answer, picks: np.ndarray) -> Bounds:
    # The other model is scored on all photographs each time.
    unpaired = other(np.arange(picks.shape[1]))
    return bootstrap(one, lambda rows: unpaired, picks)


def _otherwise(
    one: Answer,
    other: Answer,
    picks: np.ndarray,
    *,
    ends: tuple[float, float] = (2.5, 97.5),
    shift: int = 0,
) -> Bounds:
    """`bootstrap` with other percentiles, or with the other model on a later resample."""
    lead, _, _ = bootstrap(one, other, picks)
    others = np.roll(picks, shift, axis=0)
    leads = [one(rows) - other(theirs) for rows, theirs in zip(picks, others, strict=True)]
    low, high = np.percentile(leads, ends)
    return lead, low, high


def _normal_interval(one: Answer, other: Answer, picks: np.ndarray) -> Bounds:
    lead, _, _ = bootstrap(one, other, picks)
    half = 1.96 * np.std([one(rows) - other(rows) for rows in picks])
    return lead, lead - half, lead + half


bootstrap.says = "two pairs of models, on 200 and on 40 resamples"
bootstrap.cases = lambda: [
    _resampled(seed=0, resamples=200),
    _resampled(seed=2, resamples=40),
]
bootstrap.observe = lambda answer, one, other, picks: answer(one, other, np.array(picks))
bootstrap.parts = ("the lead", "the lower bound", "the upper bound")
bootstrap.given = lambda one, other, picks: f"{len(picks)} resamples of {len(picks[0])} photographs"
bootstrap.mistakes = {
    "not paired: both models are scored on the same resamples": _not_paired,
    "each model has resamples of its own: score both on the same rows": partial(
        _otherwise, shift=1
    ),
    "the middle 95 %: leave out 2.5 % on either side": partial(_otherwise, ends=(5, 95)),
    "np.percentile takes percent: 2.5, not 0.025": partial(_otherwise, ends=(0.025, 0.975)),
    "all rows are N, as many as a resample has; R is how many resamples there are": (
        lambda one, other, picks: (one(np.arange(len(picks))), 0.0, 0.0)
    ),
    "1.96 deviations to either side: the percentiles of the resamples' leads are asked": (
        _normal_interval
    ),
    "least and most of the leads: leave out 2.5 % on either side": partial(
        _otherwise, ends=(0, 100)
    ),
    "the lead is the mean of the resamples': take the one on all rows": (
        lambda one, other, picks: (
            fmean(one(rows) - other(rows) for rows in picks),
            *bootstrap(one, other, picks)[1:],
        )
    ),
}


@exercise(
    "8.6",
    "CIDEr by hand",
    difficulty=3,
    minutes=14,
    equation="Vedantam et al., section 4",
)
def plain_cider(caption: list[str], references: Captions, pictures: Counter, total: float) -> float:
    """Ten times the mean, over n = 1 to 4 and all references, of the cosine of vectors: count *
    log(total / max(1, pictures)).
    """

    # A caption too short for n-grams has the zero vector, and a cosine of 0.
    return 10 * fmean(_cosines(caption, references, pictures, total))


def _cosines(
    caption: list[str],
    references: Captions,
    pictures: Mapping[Any, int],
    total: float,
    *,
    sizes: Sequence[Sequence[int]] = ((1,), (2,), (3,), (4,)),
    as_cider_d: bool = False,
) -> list[float]:
    """The cosine for each reference and each group of sizes n, whose n-grams make one vector; 0 of
    a zero vector. CIDEr-D's are clipped, and the less the more the lengths differ.
    """

    def vector(words: list[str], group: Sequence[int]) -> dict[Any, float]:
        counts = sum((ngrams(words, n) for n in group), Counter())
        return {
            gram: count * math.log(total / max(1, pictures[gram])) for gram, count in counts.items()
        }

    cosines = []
    for group, reference in itertools.product(sizes, references):
        ours = vector(caption, group)
        theirs = vector(reference, group)
        lengths = math.hypot(*ours.values()) * math.hypot(*theirs.values())
        factor = 1.0
        if as_cider_d:
            ours = {gram: min(weight, theirs.get(gram, 0.0)) for gram, weight in ours.items()}
            factor = math.exp(-((len(caption) - len(reference)) ** 2) / 72)
        dot = sum(weight * theirs.get(gram, 0.0) for gram, weight in ours.items())
        cosines.append(factor * dot / lengths if lengths else 0.0)
    return cosines


# In how many of 9 pictures each n-gram is; those that are not listed are in none.
_PICTURES = Counter(
    {
        ("a",): 9,
        ("dog",): 3,
        ("red",): 1,
        ("a", "dog"): 2,
        ("sofa",): 2,
    }
)


def _captions_of_nine_pictures() -> list[tuple[list[str], Captions, Counter, int]]:
    references = _words("a dog on a red sofa", "one dog on a dog")
    captions = _words(
        "a dog on a dog",
        "a red dog",
        # In each of the 9 pictures: a weight of 0.
        "a",
        "a red sofa on the red sofa",
    )
    return [(words, references, _PICTURES, 9) for words in captions]


def _counts_alone(caption: list[str], references: Captions, *rest: Any) -> float:
    # Of e pictures an n-gram without any has the weight ln(e / 1) = 1.
    return plain_cider(caption, references, Counter(), math.e)


def _dot_products(
    caption: list[str], references: Captions, pictures: Counter, total: float
) -> float:
    dots = []
    for n, reference in itertools.product(range(1, 5), references):
        ours = ngrams(caption, n)
        theirs = ngrams(reference, n)
        dot = 0.0
        for gram in ours:
            idf = math.log(total / max(1, pictures[gram]))
            dot += ours[gram] * idf * theirs[gram] * idf
        dots.append(dot)
    return 10 * fmean(dots)


plain_cider.says = "captions with repeated, rare, unknown and no n-grams"
plain_cider.cases = _captions_of_nine_pictures
plain_cider.mistakes = {
    "n-grams count alike: their counts times log(total / pictures)": _counts_alone,
    "a cosine: divide by the lengths of both vectors": _dot_products,
    "all n in one vector: each n has vectors of its own": (
        lambda *inputs: 10 * fmean(_cosines(*inputs, sizes=[(1, 2, 3, 4)]))
    ),
    "n stops at 3: it goes to 4": (
        lambda *inputs: 10 * fmean(_cosines(*inputs, sizes=[(1,), (2,), (3,)]))
    ),
    "this is CIDEr-D: here nothing is clipped, and no length asked for": (
        lambda *inputs: 10 * fmean(_cosines(*inputs, as_cider_d=True))
    ),
    "each n-gram has a picture too many: only 0 pictures become 1": (
        lambda caption, references, pictures, total: plain_cider(
            caption,
            references,
            defaultdict(lambda: 1, {gram: count + 1 for gram, count in pictures.items()}),
            total,
        )
    ),
    "this is the best over the references: their mean is asked for": (
        lambda caption, references, *rest: max(
            plain_cider(caption, [words], *rest) for words in references
        )
    ),
    "an n-gram without a picture: divide by 1, not by 0": lambda *inputs: 1 / Counter()["nowhere"],
    "the zero vector has the length 0: its cosine is 0, not 0 / 0": lambda *inputs: (
        0.0 / math.hypot()
    ),
}


@exercise(
    "8.7",
    "What captions invent",
    difficulty=1,
    minutes=5,
    equation="Rohrbach et al., section 2.1",
)
def chair(said: list[set], there: list[set]) -> tuple[float, float]:
    """Percentages: of all things said (a caption's own) those not in its picture, and of captions
    those that say such a thing.
    """
    invented = [len(ours - theirs) for ours, theirs in zip(said, there, strict=True)]
    of_things = sum(invented) / sum(map(len, said))
    of_captions = fmean(count > 0 for count in invented)
    return 100 * of_things, 100 * of_captions


def _things() -> list[tuple[list[set], list[set]]]:
    # Each letter is a thing: the captions invent nothing, all, one of four, and four of five.
    said = [set("ab"), set("c"), set("abcx"), set("awxyz")]
    there = [set("abcd"), set("ab"), set("abc"), set("a")]
    return [
        (said, there),
        # Who says nothing invents nothing. What is true has another share than what is not.
        ([set("abx"), set()], [set("ab"), set("c")]),
    ]


def _mean_over_captions(said: list[set], there: list[set]) -> tuple[float, float]:
    shares = [
        len(ours - theirs) / max(1, len(ours)) for ours, theirs in zip(said, there, strict=True)
    ]
    _, of_captions = chair(said, there)
    return 100 * fmean(shares), of_captions


chair.says = "captions that invent nothing, something and everything"
chair.cases = _things
chair.parts = ("CHAIR_i", "CHAIR_s")
chair.mistakes = {
    "CHAIR_i counts over all captions before it divides": _mean_over_captions,
    "a mean over the captions that say something: CHAIR_i divides one sum by another": (
        lambda said, there: _mean_over_captions(
            [ours for ours in said if ours],
            [theirs for ours, theirs in zip(said, there, strict=True) if ours],
        )
    ),
    "every invented thing counts: CHAIR_s counts captions, each once": (
        lambda said, there: (
            chair(said, there)[0],
            100 * fmean(len(ours - theirs) for ours, theirs in zip(said, there, strict=True)),
        )
    ),
    "what is missed counts as well: only what is said and not there is invented": (
        lambda said, there: (
            100 * sum(map(len, map(operator.xor, said, there))) / sum(map(len, said)),
            100 * fmean(map(operator.ne, said, there)),
        )
    ),
    "what is missed is not invented: said - there": (lambda said, there: chair(there, said)),
    "CHAIR_i divides by the number of objects said, not of captions": (
        lambda said, there: (
            100 * fmean(len(ours - theirs) for ours, theirs in zip(said, there, strict=True)),
            chair(said, there)[1],
        )
    ),
    "captions that say nothing are left out: they count among the captions": (
        lambda said, there: (
            chair(said, there)[0],
            chair(said, there)[1] * len(said) / sum(map(bool, said)),
        )
    ),
    "a caption may say nothing: divide the sums over all captions, not each caption's": (
        lambda said, there: [1 / len(ours) for ours in said]
    ),
}


OPPOSITES = {
    "above": "below",
    "over": "under",
    "beneath": "over",
    "underneath": "over",
    "left": "right",
    "big": "small",
    "large": "little",
    "huge": "tiny",
    "star": "circle",
    "disc": "square",
    "triangle": "star",
}
# And back, for the words that have none yet.
OPPOSITES |= {other: word for word, other in OPPOSITES.items() if other not in OPPOSITES}
ENOUGH = 70  # BLEU-4, in percent, of a lie that scores


@exercise(
    "8.8",
    "A lie that scores",
    difficulty=2,
    minutes=11,
    equation="Papineni et al., section 2.3",
)
def lie(references: list[str]) -> str:
    """A false sentence with a high BLEU-4 against five true ones: only the last word that has an
    opposite is changed.
    """
    words = references[0].split()
    # The nearer to the end a word is, the fewer runs of four it breaks.
    last = max(place for place, word in enumerate(words) if word in OPPOSITES)
    words[last] = OPPOSITES[words[last]]
    return " ".join(words)


def _truths(line: str, caption: str) -> list[Any]:
    """The meanings of a true line and, as a caption may leave patterns out, of the same without."""
    meaning: Any = scenes.grammar.parse(line)
    firsts = [meaning.first]
    seconds = [meaning.second]
    # A caption that says "plain" does not leave the pattern out.
    if "plain" not in caption:
        firsts.append(replace(meaning.first, texture="plain"))
        seconds.append(replace(meaning.second, texture="plain"))
    return [
        scenes.grammar.Meaning(first, meaning.relation, second)
        for first, second in itertools.product(firsts, seconds)
    ]


def _judged(answer: Answer, references: list[str]) -> Any:
    """What 8.8 asks of a caption."""
    caption = answer(references)
    if not isinstance(caption, str):
        raise Failed(f"expected one string, as the references are, got {kind(caption)}")

    meaning = scenes.grammar.parse(caption)
    scores = metrics.bleu({"": caption}, {"": references})
    bleu_4 = scores["BLEU-4 (no brevity penalty)"]
    return {
        "a sentence of the scenes": meaning is not None,
        "false: all that it says is there": meaning not in _truths(references[0], caption),
        "in small letters, without a full stop": caption == " ".join(tokenise(caption)),
        "worth a BLEU-4 of": round(min(ENOUGH, bleu_4), 1),
    }


def _references() -> list[tuple[list[str]]]:
    cases = []
    # The last words of 5 and 15 have no opposites; in 9 and 15 the word to change is there twice.
    drawn = scenes.load(train=0, dev=0, test=16).split("test")
    for example in (*drawn[:4], drawn[5], drawn[9], drawn[15]):
        # As a metric sees them: small letters, no punctuation.
        references = [" ".join(tokenise(line)) for line in example.references]
        cases.append((references,))
    return cases


def _what_is_missing(expected: Any, got: Any) -> str | None:
    for what, value in got.items():
        if value is False:
            return f"the lie is not {what}"
        if value != expected[what]:
            return f"the lie is {what} {value}, not {expected[what]} or more"
    return None


lie.says = "seven scenes: sentences, false, of a BLEU-4 of 70 or more"
lie.cases = _references
lie.observe = _judged
lie.advise = _what_is_missing
lie.mistakes = {
    "the last word may have no opposite: change the last of those that have one": (
        lambda references: OPPOSITES[references[0].split()[-1]]
    ),
}
lie.given = "the scene {0[0]!r}".format


@exercise(
    "8.9",
    "The lie convicted",
    difficulty=1,
    minutes=5,
    equation="Anderson et al., section 3.2",
)
def agreement(said: set, there: set) -> float:
    """Twice the facts in both, divided by those in `said` (which may be none) plus those in
    `there`.
    """
    return 2 * len(said & there) / (len(said) + len(there))


_FACTS = {
    ("star",),
    ("star", "big"),
    ("circle",),
    ("circle", "red"),
    ("star", "above", "circle"),
}


def _facts_said() -> list[tuple[set, set]]:
    truth = set(_FACTS)
    # One fact of five turned round.
    lie = _FACTS - {("star", "above", "circle")} | {("circle", "above", "star")}
    little = {("star",)}
    # All facts, true and false: perfect recall.
    everything = truth | lie | {("square",), ("triangle",)}
    wrong = {("square",)}
    return [
        (truth, _FACTS),
        (lie, _FACTS),
        (little, _FACTS),
        (everything, _FACTS),
        (set(), _FACTS),
        (wrong, _FACTS),
    ]


def _precision(said: set, there: set) -> float:
    # A caption may state no fact.
    return len(said & there) / max(1, len(said))


def _recall(said: set, there: set) -> float:
    return len(said & there) / len(there)


agreement.says = "the truth, a lie, captions that say little, everything, or no fact"
agreement.cases = _facts_said
agreement.given = lambda said, there: (
    f"{len(said)} facts said, {len(said & there)} of them true, of {len(there)} that are there"
)
agreement.mistakes = {
    "precision alone: 'a star' gets all the points; what is left out must cost": _precision,
    "recall alone: who says everything gets all the points; what is false must cost": _recall,
    "facts in both, divided by facts in either: "
    "twice those in both, divided by the sum of the two numbers": lambda said, there: (
        len(said & there) / len(said | there)
    ),
    "the mean of precision and recall is harmonic: 2PR / (P + R)": (
        lambda *facts: (_precision(*facts) + _recall(*facts)) / 2
    ),
    "the smaller of precision and recall: both count, 2PR / (P + R)": (
        lambda *facts: min(_precision(*facts), _recall(*facts))
    ),
    "a caption may say no fact: there is no precision then, and F is 0": (
        lambda said, there: 1 / len(said)
    ),
    "no fact may be in both: P + R is 0 then, and F is 0": (
        lambda *facts: 1.0 / (_precision(*facts) + _recall(*facts))
    ),
}
