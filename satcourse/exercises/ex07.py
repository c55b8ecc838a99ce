"""Exercises of notebook 07: captions from a model, and how captions are judged."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Answer, distribution, exercise, sums_to_one
from satlib.data import scenes
from satlib.data.text import tokenise
from satlib.evaluation import metrics

Prefix = tuple[str, ...]
NextWords = Callable[[Prefix], Mapping[str, float]]
Beginning = tuple[Prefix, float]  # words, and their log-probability
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


def _beam(next_words: NextWords, width: int, longest: int, keep: str = "all") -> list[Beginning]:
    """The captions that a beam finishes.

    It keeps "all" finished ones; or, by mistake, those of the "last" step, or the "first", with which it stops; or it is "narrower"
    by each that has ended.
    """
    living: list[Beginning] = [((), 0.0)]
    finished: list[Beginning] = []
    for _ in range(longest):
        grown: list[Beginning] = [
            ((*words, word), total + math.log(p)) for words, total in living for word, p in next_words(words).items()
        ]
        room = width - len(finished) if keep == "narrower" else width
        grown = sorted(grown, key=lambda each: each[1], reverse=True)[:room]
        ended = [each for each in grown if each[0][-1] == END]
        finished = ended if keep == "last" else finished + ended
        living = [each for each in grown if each[0][-1] != END]
        if not living or (keep == "first" and finished):
            break
    return finished


@exercise("7.1", "The beam", difficulty=3, minutes=20, equation="Sutskever et al., section 3.2")
def beam_search(
    next_words: NextWords, width: int, longest: int, *, per_word: bool = False, keep: str = "all"
) -> tuple[list[str], float]:
    """The best finished caption that a beam finds, and its log-probability; nothing if it finishes none."""
    finished = _beam(next_words, width, longest, keep)
    order = lambda each: (each[1] / len(each[0]) if per_word else each[1], each[0])  # noqa: E731
    words, total = max(finished, key=order, default=((), -math.inf))
    return list(words), total


beam_search.says = "five widths on four models, words and log-probability, and too few words for any caption"
beam_search.cases = lambda: [
    *((_drawn(1), width, 7) for width in (2, 1, 9)),
    *((_drawn(2), 3, 7), (_drawn(22), 4, 7), (_drawn(12), 4, 7), (_drawn(12), 3, 2)),  # the last with too few words
]
beam_search.parts = ("the words", "the log-probability")
beam_search.given = lambda next_words, width, longest: f"a beam of {width}, at most {longest} words"
beam_search.mistakes = {
    "this is greedy decoding: keep the `width` best beginnings, not one": lambda *x: beam_search(x[0], 1, x[2]),
    "the best is chosen by log p per word: the sum decides here": partial(beam_search, per_word=True),
    "the beam becomes narrower with each caption that ends": partial(beam_search, keep="narrower"),
    "captions that ended early are forgotten: they stay in the race": partial(beam_search, keep="last"),
    "it stops at the first finished caption: others may become better": partial(beam_search, keep="first"),
}


def _only(p: Tensor, words: Tensor) -> Tensor:
    """The distribution p (K,) of some words alone."""
    result = torch.zeros_like(p)
    result[words] = p[words]
    return result / result.sum()


@exercise("7.2", "The nucleus", difficulty=2, minutes=8, equation="Holtzman et al., section 3.1")
def nucleus(p: Tensor, share: float, *, wrong: str = "") -> Tensor:
    """The distribution p (K,) of its likeliest words alone: the fewest that have at least `share` of it together."""
    order = p.argsort(descending=True)
    sums = p[order].cumsum(0)
    kept = sums - p[order] < share  # what the likelier words have
    if wrong:
        kept = sums - p[order] <= share if wrong == "more" else sums <= share
        kept[0] |= wrong == "fewer"
    return _only(p, order[kept])


nucleus.says = "five distributions: a word that has the share alone, and one that reaches it to the bit"
nucleus.cases = lambda: [
    (torch.tensor([0.25, 0.5, 0.25]), 0.5),
    *((torch.tensor([0.1, 0.45, 0.25, 0.2]), share) for share in (0.6, 0.3)),
    *((distribution(K, seed=K), share) for K, share in ((6, 0.5), (12, 0.9))),
]
nucleus.advise = sums_to_one(0, "the probabilities", "the words")
nucleus.mistakes = {
    "the word that reaches the share is missing: keep words until they have it": partial(nucleus, wrong="none"),
    "the word that reaches the share is left out, unless it is the first": partial(nucleus, wrong="fewer"),
    "one word too many: those before it had the share": partial(nucleus, wrong="more"),
    "the words are in another order than in p": lambda p, share: nucleus(p, share).sort(descending=True).values,
}


def ngrams(words: Sequence[str], n: int) -> Counter:
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _words(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def _precisions() -> list[tuple[Any, ...]]:
    (caption,) = _words("a dog and a dog and a big big dog")
    references = _words("a dog and a big dog", "a big big cat sees a dog")
    few = (["star"] * 3, _words("a star"), 1), (["a"], _words("a dog"), 2)
    return [*((caption, references, n) for n in (1, 2, 3)), *few]


@exercise("7.3", "n-grams, clipped", difficulty=2, minutes=15, equation="Papineni et al., section 2.1")
def clipped_precision(
    caption: list[str], references: list[list[str]], n: int, *, largest: Callable[..., float] = max
) -> float:
    """The share of a caption's n-grams that a reference has, each counted no more often than in the reference that has most."""
    ours, theirs = ngrams(caption, n), [ngrams(each, n) for each in references]
    hits = sum(min(count, largest([each[gram] for each in theirs])) for gram, count in ours.items())
    return hits / max(1, ours.total())


clipped_precision.says = "words, pairs and triples, repeated and spread over references, a caption without any pair"
clipped_precision.cases = _precisions
clipped_precision.mistakes = {
    "it is not clipped by the references": partial(clipped_precision, largest=lambda counts: 99 * any(counts)),
    "clipped by the sum over the references: take the one that has most": partial(clipped_precision, largest=sum),
}


def _corpora() -> list[tuple[Any, ...]]:
    captions = _words("a dog runs on", "two cats sit on a red red sofa", "a man on a bike rides")
    references = [
        _words("a dog runs over the grass", "the brown dog runs on grass"),
        _words("two cats on a red sofa", "cats sit on a big red sofa"),
        _words("a man rides a bike down there", "a man on a bike rides down the road"),
    ]
    return [*((captions, references, N) for N in (1, 2, 3)), (captions[2:], references[2:], 4)]


@exercise("7.4", "BLEU of a corpus", difficulty=3, minutes=15, equation="Papineni et al., section 2.3")
def bleu(captions: list[list[str]], references: list[list[list[str]]], N: int, *, penalty: bool = False) -> float:
    """satlib's corpus BLEU-N, 0 to 1; without the brevity penalty, as in the paper."""
    hypotheses = {str(i): " ".join(words) for i, words in enumerate(captions)}
    human = {str(i): [" ".join(words) for words in each] for i, each in enumerate(references)}
    result = metrics.bleu(hypotheses, human)[f"BLEU-{N}" + ("" if penalty else " (no brevity penalty)")] / 100
    return result if result > 1e-4 else 0.0  # the COCO tools add a little to each number, so that nothing is quite 0


bleu.says = "BLEU-1 to BLEU-4 of small corpora against satlib's, without brevity penalty"
bleu.cases = _corpora
bleu.tolerance = 1e-3
bleu.mistakes = {
    "the mean of the captions' own BLEU: n-grams are counted over the corpus first": lambda captions, references, N: (
        sum(bleu([words], [each], N) for words, each in zip(captions, references, strict=True)) / len(captions)
    ),
    "there is a brevity penalty: the paper's figures have none": partial(bleu, penalty=True),
}


OPPOSITES = {"above": "below", "over": "under", "left": "right", "big": "small", "large": "little", "huge": "tiny"}
OPPOSITES |= {"beneath": "over", "underneath": "over", "star": "circle", "disc": "square", "triangle": "star"}
OPPOSITES |= {other: word for word, other in [*OPPOSITES.items()] if other not in OPPOSITES}
ENOUGH = 70


def _of_the_lie(answer: Answer, references: list[str]) -> Any:
    """What 7.5 asks of a caption; of what is no caption, that itself."""
    caption = answer(references)
    if not isinstance(caption, str):
        return caption
    bleu_4 = metrics.bleu({"": caption}, {"": references})["BLEU-4 (no brevity penalty)"]
    return {
        "a sentence of the scenes": scenes.grammar.parse(caption) is not None,
        "false": scenes.grammar.parse(caption) != scenes.grammar.parse(references[0]),
        f"worth a BLEU-4 of {ENOUGH} or more": bleu_4 >= ENOUGH,
    }


def _references() -> list[tuple[Any, ...]]:
    """The references of four scenes, each as words in small letters."""
    test = scenes.load(train=0, dev=0, test=4).split("test")
    return [([" ".join(tokenise(line)) for line in each.references],) for each in test]


@exercise("7.5", "A lie that scores", difficulty=2, minutes=12, equation="Papineni et al., section 2.3")
def lie(references: list[str]) -> str:
    """A false sentence with a high BLEU-4 against five true ones: only the last word that has an opposite is changed."""
    words = references[0].split()
    last = max(place for place, word in enumerate(words) if word in OPPOSITES)
    return " ".join([*words[:last], OPPOSITES[words[last]], *words[last + 1 :]])


lie.says = "four scenes: a sentence, false, and with a BLEU-4 that most true captions would envy"
lie.cases = _references
lie.observe = _of_the_lie
lie.advise = lambda _, got: next(f"the lie for one of the scenes is not {it}" for it, holds in got.items() if not holds)
lie.mistakes = {"it is true: a program reads the same meaning in it as in a reference": lambda lines: lines[0]}


@exercise("7.6", "The lie convicted", difficulty=1, minutes=6, equation="Anderson et al., section 3.2")
def agreement(said: set, there: set) -> float:
    """F of two sets of facts: the harmonic mean of the share of `said` that is true and the share of `there` that is said."""
    return 2 * len(said & there) / (len(said) + len(there))


_FACTS = {("star",), ("star", "big"), ("circle",), ("circle", "red"), ("star", "above", "circle")}
_LIE = _FACTS - {("star", "above", "circle")} | {("circle", "above", "star")}
agreement.says = "the truth, a lie, a caption that says little, one that says everything, and one without a fact"
agreement.cases = lambda: [
    *((said, _FACTS) for said in (set(_FACTS), _LIE, {("star",)}, _FACTS | _LIE | {("square",), ("triangle",)}, set())),
    ({("square",)}, _FACTS),
]
agreement.given = lambda said, there: (
    f"{len(said)} facts said, {len(said & there)} of them true, of {len(there)} that are there"
)
agreement.mistakes = {
    "precision alone: 'a star' gets all the points; what is left out must cost": lambda said, there: (
        len(said & there) / max(1, len(said))
    ),
    "recall alone: who says everything gets all the points; what is false must cost": lambda said, there: (
        len(said & there) / len(there)
    ),
    "the plain mean: who says everything gets half; the harmonic mean asks for both": lambda said, there: (
        (len(said & there) / max(1, len(said)) + len(said & there) / len(there)) / 2
    ),
    "this is the intersection over the union; F counts what is common twice": lambda said, there: (
        len(said & there) / len(said | there)
    ),
}
