"""What the exercises of notebook 07 run: a beam, also one that forgets, and n-grams."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

NextWords = Callable[[tuple[str, ...]], Mapping[str, float]]
Beginning = tuple[tuple[str, ...], float]  # words, and their log-probability
END = "(end)"


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
