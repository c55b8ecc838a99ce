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
    next_words: NextWords,
    width: int,
    longest: int,
    keep: str = "all",
    takes: Callable[[int, int], int] = lambda width, finished: width,
    rank: Callable[[tuple[str, ...], float], float] = lambda words, score: score,
    log: Callable[[float], float] = math.log,
    rare: float = 0.0,
    stop: float = math.inf,
    worst: bool = False,
    winners: str = "finished or living",
) -> list[str]:
    """A beam search with a mistake.

    `keep`: "all" finished captions, those of the "last" step, the "last that ended" or the "first" one that did, or those of
    all "grown", before the cut; `takes`: how many are kept of the grown, the `worst` or the best; `rank`: by what the winner is
    chosen; `log`: what is added for a word; `rare`: words as improbable as that are left out; `stop`: the search ends when so
    many are finished; `winners`: who may win.
    """
    living: list[tuple[tuple[str, ...], float]] = [((), 0.0)]
    finished: list[tuple[tuple[str, ...], float]] = []
    for _ in range(longest):
        grown = [
            ((*words, word), score + log(p))
            for words, score in living
            for word, p in next_words(words).items()
            if p > rare
        ]
        if keep == "grown":
            finished += [each for each in grown if each[0][-1] == END]
        grown = sorted(grown, key=lambda each: each[1], reverse=not worst)[: max(0, takes(width, len(finished)))]
        ended = [each for each in grown if each[0][-1] == END]
        if keep == "all" or (keep == "first" and not finished):
            finished += ended
        elif keep == "last" or (keep == "last that ended" and ended):
            finished = ended
        living = [each for each in grown if each[0][-1] != END]
        if not living or (keep == "first" and finished) or len(finished) >= stop:
            break
    of = {"finished or living": finished or living, "finished": finished, "both": finished + living}[winners]
    words, _ = max(of, key=lambda each: rank(*each), default=((), 0.0))
    return [word for word in words if word != END]


def forgets(next_words: NextWords, width: int, longest: int) -> list[str]:
    """The bug of 7.7: only captions that ended at the last step count."""
    return _best_caption(next_words, width, longest, keep="last")


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


def hits_with(
    allowed: Callable[[list[int]], float], caption: Sequence[str], references: Sequence[Sequence[str]], n: int
) -> tuple[int, int]:
    """As `hits`, an n-gram counting as often as `allowed` says of its counts in the references."""
    said, counts = ngrams(caption, n), [ngrams(each, n) for each in references]
    found = sum(min(count, int(allowed([each[gram] for each in counts]))) for gram, count in said.items())
    return found, sum(said.values())


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


def _mean(P: float, R: float, alpha: float = ALPHA) -> float:
    return P * R / (alpha * P + (1 - alpha) * R)


def _penalised(F: float, chunks: int, m: int, beta: float = BETA, gamma: float = GAMMA) -> float:
    return F * (1 - gamma * (chunks / m) ** beta)


def _meteor(
    pairs: Pairs,
    said: int,
    wanted: int,
    mean: Callable[[float, float], float] = _mean,
    breaks: Callable[[int, int], bool] = lambda i, j: (i, j) != (1, 1),
    first: int = 1,
    equal: Callable[[int, int, int, int], bool] = lambda chunks, m, said, wanted: chunks == 1 and m == said == wanted,
    penalised: Callable[[float, int, int], float] = _penalised,
    order: Callable[[Pairs], Pairs] = sorted,
    none: float = 0.0,
) -> float:
    """METEOR with a mistake. `breaks`: whether a chunk ends where the next pair is (i, j) further; `equal`: no penalty there."""
    if not pairs:
        return none
    m, pairs = len(pairs), order(pairs)
    F = mean(m / said, m / wanted)
    chunks = first + sum(breaks(i - k, j - n) for (k, n), (i, j) in pairwise(pairs))
    return F if equal(chunks, m, said, wanted) else penalised(F, chunks, m)
