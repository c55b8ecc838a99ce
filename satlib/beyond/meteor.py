"""METEOR 1.5 (Denkowski and Lavie, 2014) with exact matches only, in Python: fast enough to be a reward.

A caption is aligned with a reference: each word with at most one equal word. Let P and R be the shares of the caption's and
of the reference's words that are aligned, where function words ("a", "the", "in") have a third of the weight of others. Then

    METEOR = (1 - gamma (chunks / matches)^beta)  P R / (alpha P + (1 - alpha) R)

Recall therefore has more weight than precision, and matches in a few long runs ("chunks") score higher than scattered ones.
The score is that of the best reference. `satlib evaluate` reports the full METEOR, computed by its authors' program, which also
matches stems, synonyms and paraphrases; restricted to exact matches, that program computes what this module does.
"""

import functools
import heapq
import itertools
import zipfile
from collections.abc import Collection, Hashable, Sequence

from satlib.evaluation.metrics import METEOR_JAR
from satlib.evaluation.statistics import ALPHA, BETA, DELTA, GAMMA

WAYS = 1000  # partial alignments that `align` keeps after each word; the program keeps 40

_Pairs = tuple[tuple[int, int], ...]
_Score = tuple[int, int, int]  # matches, -chunks, -distance: the greatest is the best


@functools.cache
def function_words() -> frozenset[str]:
    """The program's own list of English function words, read from its jar, which comes with pycocoevalcap."""
    with zipfile.ZipFile(METEOR_JAR) as jar:
        return frozenset(jar.read("function/english.words").decode("utf-8").split())


def meteor(
    caption: Sequence[Hashable], references: Sequence[Sequence[Hashable]], function: Collection[Hashable]
) -> float:
    """METEOR of a caption against its best reference, 0 to 1.

    Args:
        caption: words, or their ids.
        references: at least one.
        function: the function words, which have weight 1 - delta; other words have weight delta.
    """
    return max(_agreement(caption, reference, function) for reference in references)


def align(caption: Sequence[Hashable], reference: Sequence[Hashable]) -> _Pairs:
    """Align a caption with a reference: most matches first, then fewest chunks, then smallest distances; pairs (i, j) in order.

    Dynamic programming over the caption keeps the best alignment for every last partner and every set of partners taken. Only
    words that occur several times in both texts branch. Beyond `WAYS` partial alignments the worst are dropped, so for texts
    that repeat words very often the result may not be the best alignment.
    """
    partners = [[j for j, other in enumerate(reference) if other == word] for word in caption]
    best: dict[tuple[int | None, int], tuple[_Score, _Pairs]] = {(None, 0): ((0, 0, 0), ())}
    for i, word in enumerate(caption):
        alone = len(partners[i]) == 1 and caption.count(word) == 1  # then leaving it out is never better
        after: dict[tuple[int | None, int], tuple[_Score, _Pairs]] = {}
        for (last, taken), ((matches, chunks, distance), pairs) in best.items():
            ways: list[tuple[tuple[int | None, int], tuple[_Score, _Pairs]]] = []
            if not alone:
                ways.append(((None, taken), ((matches, chunks, distance), pairs)))
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
    """METEOR against one reference."""
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
