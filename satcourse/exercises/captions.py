"""What the exercises 7.7 to 7.9 run: a beam that forgets, an n-gram count that is too generous, and METEOR's core."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

NextWords = Callable[[tuple[str, ...]], Mapping[str, float]]
Pairs = Sequence[tuple[int, int]]
Beginning = tuple[tuple[str, ...], float]  # words, and their log-probability
END = "(end)"
ALPHA, BETA, GAMMA = 0.85, 0.2, 0.6  # METEOR 1.5's for English


def best_caption(next_words: NextWords, width: int, longest: int) -> list[str]:
    """Beam search: the most probable caption that ended, or if none did, the most probable beginning."""
    return search(next_words, width, longest)


def search(next_words: NextWords, width: int, longest: int, keep: str = "all", both: bool = False) -> list[str]:
    """The same, or with a mistake: see `beam`; with `both`, beginnings that have not ended may win against captions that have."""
    finished, living = beam(next_words, width, longest, keep)
    words, _ = max(finished + living if both else finished or living, key=lambda each: each[1])
    return [word for word in words if word != END]


def beam(
    next_words: NextWords,
    width: int,
    longest: int,
    keep: str = "all",
    add: Callable[[float, float], float] = lambda total, p: total + math.log(p),
) -> tuple[list[Beginning], list[Beginning]]:
    """The captions that a beam finishes, and the beginnings that are left.

    Of the finished captions it keeps "all", those of the "last" step, those that "ended last", or the "first" that ends, with
    which it stops.
    """
    living: list[Beginning] = [((), 0.0)]
    finished: list[Beginning] = []
    for _ in range(longest):
        grown = [
            ((*words, word), add(total, p)) for words, total in living for word, p in next_words(words).items() if p > 0
        ]
        grown = sorted(grown, key=lambda each: each[1], reverse=True)[:width]
        ended = [each for each in grown if each[0][-1] == END]
        if keep == "all":
            finished += ended
        elif ended or keep == "last":
            finished = ended
        living = [each for each in grown if each[0][-1] != END]
        if not living or (keep == "first" and finished):
            break
    return finished, living


def forgets(next_words: NextWords, width: int, longest: int) -> list[str]:
    """The bug of 7.7: only captions that ended at the last step count."""
    return search(next_words, width, longest, keep="last")


def ngrams(words: Sequence[str], n: int) -> Counter:
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def most(references: Sequence[Sequence[str]], n: int) -> Counter:
    """How often each n-gram occurs in the reference that has it most."""
    counts: Counter = Counter()
    for reference in references:
        counts |= ngrams(reference, n)
    return counts


def hits(caption: Sequence[str], references: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """The n-grams of a caption that a reference has, each as often as in the reference that has it most, and all of them."""
    said = ngrams(caption, n)
    return sum((said & most(references, n)).values()), sum(said.values())


def too_many_hits(caption: Sequence[str], references: Sequence[Sequence[str]], n: int) -> tuple[int, int]:
    """The bug of 7.8: the references' counts are added up."""
    most: Counter = Counter()
    for reference in references:
        most += ngrams(reference, n)
    said = ngrams(caption, n)
    return sum((said & most).values()), sum(said.values())


def meteor_core(pairs: Pairs, said: int, wanted: int) -> float:
    """METEOR from an alignment, every word weighing the same: pairs (i, j), the lengths of caption and reference."""
    return meteor(pairs, said, wanted)


def mean(P: float, R: float) -> float:
    """METEOR's F: a harmonic mean of precision and recall that leans towards recall."""
    return P * R / (ALPHA * P + (1 - ALPHA) * R)


def meteor(
    pairs: Pairs,
    said: int,
    wanted: int,
    breaks: Callable[[int, int], bool] = lambda i, j: (i, j) != (1, 1),
    first: int = 1,
    order: Callable[[Pairs], Pairs] = sorted,
) -> float:
    """The same, or with a mistake: where a chunk `breaks` off (the next pair is i and j further), how many there are at `first`."""
    if not pairs:
        return 0.0
    m, pairs = len(pairs), order(pairs)
    F = mean(m / said, m / wanted)
    chunks = first + sum(breaks(i - k, j - n) for (k, n), (i, j) in pairwise(pairs))
    return F if chunks == 1 and m == said == wanted else F * (1 - GAMMA * (chunks / m) ** BETA)
