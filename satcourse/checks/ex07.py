"""Exercises of notebook 07: captions from a model, and how captions are judged."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, geometric_mean
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
Captions = list[list[str]]
END = "(end)"


def _drawn(seed: int) -> NextWords:
    """A model whose probabilities are drawn, the same each time; captions of at most five words."""

    def next_words(prefix: Prefix) -> Mapping[str, float]:
        if len(prefix) == 5 or END in prefix:
            return {END: 1.0}
        drawn = random.Random(f"{seed} {' '.join(prefix)}")
        weights = {word: drawn.random() ** 2 + 0.02 for word in ("a", "b", "c", END)}
        return {word: weight / sum(weights.values()) for word, weight in weights.items()}

    return next_words


def _found(answer: Answer, *inputs: Any) -> Any:
    """The words as a line, of a pair."""
    found = answer(*inputs)
    pair = isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[0], list)
    return (
        {"the words": " ".join(map(str, found[0])), "the log-probability": found[1]}
        if pair
        else found
    )


@exercise("7.1", "The beam", difficulty=3, minutes=18, equation="Sutskever et al., section 3.2")
def beam_search(
    next_words: NextWords, width: int, longest: int, *, keep: str = "", enough: float = math.inf
) -> tuple[list[str], float]:
    """Of all extended beginnings the `width` best are kept, and those that end wait aside: the likeliest of them, and its log p.

    By mistake it keeps the finished ones of the "last" step alone, is "narrower" by each, or "wider" by those of a step, or stops at `enough`.
    """
    living: list[tuple[float, Prefix]] = [(0.0, ())]
    finished: list[tuple[float, Prefix]] = []
    while living and longest and len(finished) < enough:
        longest -= 1
        grown = [
            (log_p + math.log(p), (*words, w))
            for log_p, words in living
            for w, p in next_words(words).items()
        ]
        free = [each for each in grown if each[1][-1] == END] if keep == "wider" else []
        kept = sorted({*grown} - {*free}, reverse=True)
        kept = free + kept[: width - len(finished) * (keep == "narrower")]
        finished = finished * (keep != "last") + [each for each in kept if each[1][-1] == END]
        living = [each for each in kept if each[1][-1] != END]
    log_p, words = max(finished, default=(-math.inf, ()))
    return list(words), log_p


beam_search.says = "five widths on four models, and too few words for any caption"
beam_search.cases = lambda: [
    *((_drawn(1), width, 7) for width in (2, 1, 9)),
    *(
        (_drawn(716), 3, 7),
        (_drawn(22), 4, 7),
        (_drawn(12), 4, 7),
        (_drawn(12), 3, 2),
        (_drawn(131), 2, 3),
        (_drawn(11), 3, 7),
    ),  # 2 are too few
]
beam_search.observe = _found
beam_search.given = lambda next_words, width, longest: f"a beam of {width}, at most {longest} words"
beam_search.mistakes = {
    "this is greedy decoding: keep the `width` best beginnings, not one": lambda *x: beam_search(
        x[0], 1, x[2]
    ),
    "the beam becomes narrower with each caption that ends": partial(beam_search, keep="narrower"),
    "captions that ended early are forgotten: they stay in the race": partial(
        beam_search, keep="last"
    ),
    "a caption that ends takes one of the `width` places, in that step": partial(
        beam_search, keep="wider"
    ),
    "it stops at the first finished caption: others may become better": partial(
        beam_search, enough=1
    ),
    "it stops when `width` are finished: a living one may become better": lambda *x: beam_search(
        *x, enough=x[1]
    ),
}


@exercise("7.2", "The nucleus", difficulty=2, minutes=8, equation="Holtzman et al., section 3.1")
def nucleus(p: Tensor, share: float, *, wrong: str = "") -> Tensor:
    """p (K,) of the fewest likeliest words that together have at least `share`, divided by their sum; 0 elsewhere, in the order of p."""
    order = p.argsort(descending=True)
    sums = p[order].cumsum(0)
    kept = sums - p[order] < share  # what the likelier words have
    if wrong:
        kept = sums - p[order] <= share if wrong == "more" else sums <= share
    result = torch.zeros_like(p).index_copy(0, order[kept], p[order[kept]])
    return result / result.sum()


nucleus.says = "five distributions: words that have the share alone, or reach it to the bit"
nucleus.cases = lambda: [
    (torch.tensor([0.25, 0.5, 0.25]), 0.5),
    *((torch.tensor([0.1, 0.45, 0.25, 0.2]), share) for share in (0.6, 0.3)),
    *((distribution(K, seed=K), share) for K, share in ((6, 0.5), (12, 0.9))),
]
nucleus.mistakes = {
    "the word that reaches the share is missing: keep words until they have it": partial(
        nucleus, wrong="none"
    ),
    "one word too many: those before it had the share": partial(nucleus, wrong="more"),
    "the words are in another order than in p": lambda p, share: (
        nucleus(p, share).sort(descending=True).values
    ),
}


def ngrams(words: Sequence[str], n: int) -> Counter:
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _words(*captions: str) -> Captions:
    return [caption.split() for caption in captions]


def _precisions() -> list[tuple[Any, ...]]:
    (caption,) = _words("a dog and a dog and a big big dog")
    references = _words("a dog and a big dog", "a big big cat sees a dog")
    few = (
        (["star"] * 3, _words("a star"), 1),
        (["a"], _words("a dog"), 2),
        (["dog", "a"], _words("a dog"), 2),
    )
    return [*((caption, references, n) for n in (1, 2, 3)), *few]


@exercise(
    "7.3", "n-grams, clipped", difficulty=2, minutes=10, equation="Papineni et al., section 2.1"
)
def clipped_precision(
    caption: list[str], references: Captions, n: int, *, largest: Answer = max
) -> float:
    """The share of a caption's n-grams that are in a reference, each at most as often as in the one that has most."""
    ours, theirs = ngrams(caption, n), [ngrams(each, n) for each in references]
    hits = sum(min(count, largest([each[gram] for each in theirs])) for gram, count in ours.items())
    return hits / max(1, ours.total())


clipped_precision.says = (
    "words to triples, repeated and spread over references, turned round; no pair at all"
)
clipped_precision.cases = _precisions
clipped_precision.mistakes = {
    "clipped by the sum over the references: take the one that has most": partial(
        clipped_precision, largest=sum
    ),
    "not clipped: an n-gram counts at most as often as a reference has it": partial(
        clipped_precision, largest=lambda counts: 99 * max(counts)
    ),
}


def _corpora() -> list[tuple[Any, ...]]:
    captions = _words(
        "a dog runs on", "two cats sit on a red red sofa", "a man on a bike rides", "dog"
    )
    references = [
        _words("a dog runs over the grass", "the brown dog runs on grass"),
        _words("two cats on a red sofa", "cats sit on a big red sofa"),
        _words("a man rides a bike down there", "a man on a bike rides down the road"),
        _words("a dog", "the dog on a red red sofa"),
    ]
    return [*((captions, references, N) for N in (1, 2, 3)), (captions[2:3], references[2:3], 4)]


@exercise(
    "7.4", "BLEU of a corpus", difficulty=3, minutes=12, equation="Papineni et al., section 2.3"
)
def bleu(
    captions: Captions, references: list[Captions], N: int, *, mean: Answer = geometric_mean
) -> float:
    """The geometric mean over n = 1 to N of: hits of all captions, each by its own references, divided by n-grams of all captions."""
    precisions = []
    for n in range(1, N + 1):
        counts = [max(0, len(words) - n + 1) for words in captions]
        rows = zip(captions, references, counts, strict=True)
        precisions.append(
            sum(clipped_precision(words, each, n) * number for words, each, number in rows)
            / sum(counts)
        )
    return mean(precisions)


bleu.says = "BLEU-1 to BLEU-4 of small corpora, without brevity penalty"
bleu.cases = _corpora
bleu.mistakes = {
    "the mean of the captions' own BLEU: n-grams are counted over the corpus first": lambda *x: (
        fmean(
            bleu([words], [each], x[2]) if len(words) >= x[2] else 0
            for words, each in zip(*x[:2], strict=True)
        )
    ),
    "the mean is geometric: the N-th root of the product": partial(bleu, mean=fmean),
    "runs of N words alone: multiply the precisions of 1 to N": partial(bleu, mean=lambda p: p[-1]),
}


@exercise("7.5", "The paired bootstrap", difficulty=2, minutes=7, equation="Koehn (2004)")
def bootstrap(
    one: Answer, other: Answer, picks: np.ndarray, *, ends: Any = (2.5, 97.5)
) -> tuple[float, float, float]:
    """one(rows) - other(rows): on all rows, and the percentiles 2.5 and 97.5 over the resamples, both models on the same rows."""
    lead, *leads = (one(rows) - other(rows) for rows in (np.arange(picks.shape[1]), *picks))
    return lead, *np.percentile(leads, ends)


def _scored(seed: int) -> Answer:
    return lambda rows: numbers(7, seed=seed)[torch.as_tensor(rows)].square().mean().item()


bootstrap.says = "two pairs of models, on 200 and on 40 resamples"
bootstrap.cases = lambda: [
    (_scored(k), _scored(k + 1), np.random.default_rng(k).integers(7, size=(R, 7)).tolist())
    for k, R in ((0, 200), (2, 40))
]
bootstrap.observe = lambda answer, one, other, picks: answer(one, other, np.array(picks))
bootstrap.parts = ("the lead", "the lower bound", "the upper bound")
bootstrap.given = lambda one, other, picks: f"{len(picks)} resamples of {len(picks[0])} photographs"
bootstrap.mistakes = {
    "not paired: both models are scored on the same resamples": lambda one, other, picks: bootstrap(
        one, lambda rows: other(np.arange(len(rows))), picks
    ),
    "the middle 95 %: leave out 2.5 % on either side": partial(bootstrap, ends=(5, 95)),
    "np.percentile takes percent: 2.5, not 0.025": partial(bootstrap, ends=(0.025, 0.975)),
}


@exercise("7.6", "CIDEr by hand", difficulty=3, minutes=14, equation="Vedantam et al., section 4")
def plain_cider(
    caption: list[str], references: Captions, pictures: Counter, total: int, *, slip: str = ""
) -> float:
    """Ten times the mean, over n = 1 to 4 and all references, of the cosine of vectors: count * log(total / max(1, pictures))."""

    def vector(words: list[str], n: int) -> dict[Any, float]:
        found = ngrams(words, n).items()
        return {
            gram: count * (slip == "idf" or math.log(total / max(1, pictures[gram])))
            for gram, count in found
        }

    cosines = []
    for n, reference in itertools.product(range(1, 5), references):
        ours, theirs = vector(caption, n), vector(reference, n)
        lengths = 1 if slip == "dot" else math.hypot(*ours.values()) * math.hypot(*theirs.values())
        cosines.append(sum(ours[gram] * theirs.get(gram, 0.0) for gram in ours) / (lengths or 1))
    return 10 * fmean(cosines)


plain_cider.says = "captions with repeated, rare, unknown and no n-grams"
_PICTURES = Counter({("a",): 9, ("dog",): 3, ("red",): 1, ("a", "dog"): 2, ("sofa",): 2})
plain_cider.cases = lambda: [
    (words, _words("a dog on a red sofa", "one dog on a dog"), _PICTURES, 9)
    for words in _words("a dog on a dog", "a red dog", "a", "a red sofa on the red sofa")
]
plain_cider.mistakes = {
    "n-grams count alike: their counts times log(total / pictures)": partial(
        plain_cider, slip="idf"
    ),
    "a cosine: divide by the lengths of both vectors": partial(plain_cider, slip="dot"),
    "the mean over the references, not the best": lambda c, r, *x: max(
        plain_cider(c, [each], *x) for each in r
    ),
}


@exercise(
    "7.7", "What captions invent", difficulty=1, minutes=5, equation="Rohrbach et al., section 2.1"
)
def chair(said: list[set], there: list[set], *, each: bool = False) -> tuple[float, float]:
    """Percentages: of all things said (a caption's own) those not in its picture, and of captions those that say such a thing."""
    pairs = [(len(ours - theirs), len(ours)) for ours, theirs in zip(said, there, strict=True)]
    whole = sum(n for n, _ in pairs) / sum(map(len, said))
    share = fmean(n / of for n, of in pairs) if each else whole
    return 100 * share, 100 * fmean(n > 0 for n, _ in pairs)


chair.says = "captions that invent nothing, something and everything"
chair.cases = lambda: [
    ([*map(set, ("ab", "c", "abcx", "awxyz"))], [*map(set, ("abcd", "ab", "abc", "a"))])
]
chair.parts = ("CHAIR_i", "CHAIR_s")
chair.mistakes = {
    "CHAIR_i counts over all captions before it divides": partial(chair, each=True),
    "what is missed is not invented: said - there": lambda said, there: chair(there, said),
}


OPPOSITES = {
    "above": "below",
    "over": "under",
    "left": "right",
    "big": "small",
    "large": "little",
    "huge": "tiny",
}
OPPOSITES |= {
    "beneath": "over",
    "underneath": "over",
    "star": "circle",
    "disc": "square",
    "triangle": "star",
}
OPPOSITES |= {other: word for word, other in [*OPPOSITES.items()] if other not in OPPOSITES}
ENOUGH = 70


def _truths(line: str, caption: str) -> list[Any]:
    """The meanings of a true line and, as a caption may leave patterns out, of the same without them."""
    meaning: Any = scenes.grammar.parse(line)
    one, other = (
        {x, x if "plain" in caption else replace(x, texture="plain")}
        for x in (meaning.first, meaning.second)
    )
    return [scenes.grammar.Meaning(x, meaning.relation, y) for x in one for y in other]


def _of_the_lie(answer: Answer, references: list[str]) -> Any:
    """What 7.8 asks of a caption."""
    caption = answer(references)
    if not isinstance(caption, str):
        raise Failed(f"expected one string, as the references are, got {kind(caption)}")
    bleu_4 = metrics.bleu({"": caption}, {"": references})["BLEU-4 (no brevity penalty)"]
    return {
        "a sentence of the scenes": scenes.grammar.parse(caption) is not None,
        "false: all that it says is there": scenes.grammar.parse(caption)
        not in _truths(references[0], caption),
        f"worth a BLEU-4 of {ENOUGH} or more": bleu_4 >= ENOUGH,
    }


def _references() -> list[tuple[Any, ...]]:
    test = scenes.load(train=0, dev=0, test=4).split("test")
    return [([" ".join(tokenise(line)) for line in each.references],) for each in test]


@exercise(
    "7.8", "A lie that scores", difficulty=2, minutes=11, equation="Papineni et al., section 2.3"
)
def lie(references: list[str]) -> str:
    """A false sentence with a high BLEU-4 against five true ones: only the last word that has an opposite is changed."""
    words = references[0].split()
    last = max(place for place, word in enumerate(words) if word in OPPOSITES)
    return " ".join([*words[:last], OPPOSITES[words[last]], *words[last + 1 :]])


lie.says = "four scenes: sentences, false, of a BLEU-4 of 70 or more"
lie.cases = _references
lie.observe = _of_the_lie
lie.advise = lambda _, got: next(
    f"the lie for one of the scenes is not {it}" for it, holds in got.items() if not holds
)


@exercise(
    "7.9", "The lie convicted", difficulty=1, minutes=5, equation="Anderson et al., section 3.2"
)
def agreement(said: set, there: set) -> float:
    """Twice the facts in both, divided by those in `said` (which may be none) plus those in `there`."""
    return 2 * len(said & there) / (len(said) + len(there))


_FACTS = {("star",), ("star", "big"), ("circle",), ("circle", "red"), ("star", "above", "circle")}
_LIE = _FACTS - {("star", "above", "circle")} | {("circle", "above", "star")}
agreement.says = "the truth, a lie, captions that say little, everything, or no fact"
agreement.cases = lambda: [
    *(
        (said, _FACTS)
        for said in (
            set(_FACTS),
            _LIE,
            {("star",)},
            _FACTS | _LIE | {("square",), ("triangle",)},
            set(),
        )
    ),
    ({("square",)}, _FACTS),
]
agreement.given = lambda said, there: (
    f"{len(said)} facts said, {len(said & there)} of them true, of {len(there)} that are there"
)
_P = lambda said, there: len(said & there) / max(1, len(said))  # noqa: E731
_R = lambda said, there: len(said & there) / len(there)  # noqa: E731
agreement.mistakes = {
    "precision alone: 'a star' gets all the points; what is left out must cost": _P,
    "recall alone: who says everything gets all the points; what is false must cost": _R,
}
