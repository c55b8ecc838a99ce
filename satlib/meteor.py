"""METEOR 1.5 (Denkowski and Lavie, 2014) of equal words, in Python: quick enough to reward captions by.

A caption is laid beside a reference, each word beside at most one that is equal. With P and R the shares of the caption and of
the reference that found a partner, function words ("a", "the", "in") counting a third of others,

    METEOR = (1 - gamma (chunks / matches)^beta)  P R / (alpha P + (1 - alpha) R)

so recall weighs more than precision, and words that agree in long runs, few chunks, more than scattered ones. The reference
that agrees most counts. What `satlib evaluate` prints is the whole METEOR, by its authors' program, which lays stems, synonyms and
paraphrases beside each other too; told to do with equal words, that program gives what is computed here.
"""

import functools
import heapq
import itertools
import zipfile
from collections.abc import Collection, Hashable, Sequence

from satlib.metrics import METEOR_JAR

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75  # the program's own values for English
WAYS = 1000  # that `align` keeps open at each word; the program keeps 40

_Pairs = tuple[tuple[int, int], ...]
_Score = tuple[int, int, int]  # matches, -chunks, -distance: the greatest is the best


@functools.cache
def function_words() -> frozenset[str]:
    """The program's own list of English function words, out of the file of it that comes with pycocoevalcap."""
    with zipfile.ZipFile(METEOR_JAR) as jar:
        return frozenset(jar.read("function/english.words").decode("utf-8").split())


def meteor(
    caption: Sequence[Hashable], references: Sequence[Sequence[Hashable]], function: Collection[Hashable]
) -> float:
    """METEOR of a caption, 0 to 1: words, or their ids; those in `function` weigh 1 - delta, others delta."""
    return max(_agreement(caption, reference, function) for reference in references)


def align(caption: Sequence[Hashable], reference: Sequence[Hashable]) -> _Pairs:
    """Which word of the caption is laid beside which of the reference, in order: as many as can be, then in the fewest
    chunks, then as near to each other as can be.

    By dynamic programming over the caption: for every last partner and every set of partners taken, the best so far. Only a
    word that stands several times in both texts makes it branch, so `WAYS` of them are enough for all but texts that stammer.
    """
    partners = [[j for j, other in enumerate(reference) if other == word] for word in caption]
    best: dict[tuple[int | None, int], tuple[_Score, _Pairs]] = {(None, 0): ((0, 0, 0), ())}
    for i, word in enumerate(caption):
        alone = len(partners[i]) == 1 and caption.count(word) == 1  # then to leave it out is never better
        after: dict[tuple[int | None, int], tuple[_Score, _Pairs]] = {}
        for (last, taken), ((matches, chunks, distance), pairs) in best.items():
            ways = [] if alone else [((None, taken), ((matches, chunks, distance), pairs))]
            for j in partners[i]:
                if not taken >> j & 1:
                    broken = last is None or j != last + 1
                    score = matches + 1, chunks - broken, distance - abs(i - j)
                    ways.append(((j, taken | 1 << j), (score, (*pairs, (i, j)))))
            for state, way in ways:
                after[state] = max(after.get(state, way), way)
        best = after if len(after) <= WAYS else dict(heapq.nlargest(WAYS, after.items(), key=lambda item: item[1]))
    return max(best.values())[1]


def _agreement(caption: Sequence[Hashable], reference: Sequence[Hashable], function: Collection[Hashable]) -> float:
    pairs = align(caption, reference)
    if not pairs:
        return 0.0

    def weight(words: Sequence[Hashable]) -> float:
        return sum(1 - DELTA if word in function else DELTA for word in words)

    matched = weight([caption[i] for i, _ in pairs])
    precision, recall = matched / weight(caption), matched / weight(reference)
    chunks = 1 + sum(after != (i + 1, j + 1) for (i, j), after in itertools.pairwise(pairs))
    equal = chunks == 1 and len(pairs) == len(caption) == len(reference)
    penalty = 0.0 if equal else GAMMA * (chunks / len(pairs)) ** BETA
    return (1 - penalty) * precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
