"""What the exercises 7.7 to 7.9 run: a beam that forgets, an n-gram count that is too generous, and METEOR's core."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

NextWords = Callable[[tuple[str, ...]], Mapping[str, float]]
Pairs = Sequence[tuple[int, int]]
END = "(end)"
ALPHA, BETA, GAMMA = 0.85, 0.2, 0.6  # METEOR 1.5's for English


def best_caption(next_words: NextWords, width: int, longest: int) -> list[str]:
    """Beam search: the most probable caption that ended, or if none did, the most probable beginning."""
    return _best_caption(next_words, width, longest)


def _best_caption(
    next_words: NextWords, width: int, longest: int, keep: str = "all", takes: int | None = None, best: str = "sum"
) -> list[str]:
    """`keep`: "all" finished captions, those of the "last" step or the "first" one; `takes`: how many are kept of the grown."""
    living: list[tuple[tuple[str, ...], float]] = [((), 0.0)]
    finished: list[tuple[tuple[str, ...], float]] = []
    for _ in range(longest):
        grown = [
            ((*words, word), score + math.log(p))
            for words, score in living
            for word, p in next_words(words).items()
            if p > 0
        ]
        grown = sorted(grown, key=lambda each: each[1], reverse=True)[: takes or width]
        ended = [each for each in grown if each[0][-1] == END]
        if keep != "first" or not finished:
            finished = ended if keep == "last" else finished + ended
        living = [each for each in grown if each[0][-1] != END]
        if not living or (keep == "first" and finished):
            break
    length = {"sum": lambda words: 1, "mean": len}[best]
    words, _ = max(finished or living, key=lambda each: each[1] / length(each[0]))
    return [word for word in words if word != END]


def forgets(next_words: NextWords, width: int, longest: int) -> list[str]:
    """The bug of 7.7: only captions that ended at the last step count."""
    return _best_caption(next_words, width, longest, keep="last")


def ngrams(words: Sequence[str], n: int) -> Counter:
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def hits(caption: Sequence[str], references: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """The n-grams of a caption that a reference has, each as often as in the reference that has it most, and all of them."""
    most: Counter = Counter()
    for reference in references:
        most |= ngrams(reference, n)
    said = ngrams(caption, n)
    return sum((said & most).values()), sum(said.values())


def too_many_hits(caption: Sequence[str], references: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """The bug of 7.8: the references' counts are added up."""
    most: Counter = Counter()
    for reference in references:
        most += ngrams(reference, n)
    said = ngrams(caption, n)
    return sum((said & most).values()), sum(said.values())


def meteor_core(pairs: Pairs, said: int, wanted: int) -> float:
    """METEOR from an alignment, every word weighing the same: pairs (i, j), the lengths of caption and reference."""
    return _meteor(pairs, said, wanted)


def _meteor(
    pairs: Pairs,
    said: int,
    wanted: int,
    alpha: float = ALPHA,
    breaks: Callable[[tuple[int, int], tuple[int, int]], bool] = lambda before, pair: (
        before != (pair[0] - 1, pair[1] - 1)
    ),
    first: int = 1,
    whole: bool = True,
    power: float = BETA,
) -> float:
    if not pairs:
        return 0.0
    pairs = sorted(pairs)
    P, R = len(pairs) / said, len(pairs) / wanted
    F = P * R / (alpha * P + (1 - alpha) * R)
    chunks = first + sum(breaks(before, pair) for before, pair in pairwise(pairs))
    if whole and chunks == 1 and len(pairs) == said == wanted:
        return F
    return F * (1 - GAMMA * (chunks / len(pairs)) ** power)
