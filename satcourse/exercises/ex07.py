"""Exercises of notebook 07: captions from a model, and how captions are judged."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises import captions
from satcourse.exercises.kinds import explain
from satcourse.exercises.task import Task, between, distribution, sums_to_one
from satcourse.widgets.steering import tempered
from satlib.evaluation import metrics

Prefix = tuple[str, ...]
NextWords = Callable[[Prefix], Mapping[str, float]]
END = "(end)"


def _table(rows: Mapping[str, Mapping[str, float]]) -> NextWords:
    """A model as a table: what may follow the words so far, joined by blanks; where it says nothing, the end."""
    table = {tuple(words.split()): following for words, following in rows.items()}
    return lambda prefix: dict(table.get(prefix, {END: 1.0}))


# Greedy takes "a" and ends with .18; the best caption begins with "the", and at width 2 the beam finds it.
STORY = _table(
    {
        "": {"a": 0.6, "the": 0.4},
        "a": {"dog": 0.4, "cat": 0.35, "bird": 0.25},
        "the": {"dog": 0.9, "cat": 0.1},
        "a dog": {"runs": 0.5, "sits": 0.3, END: 0.2},
        "a cat": {END: 0.6, "sits": 0.4},
        "the dog": {"runs": 0.85, END: 0.15},
    }
)
# `story` of the exercise's notebook.
STORY_OF_THE_NOTEBOOK = _table(
    {
        "": {"a": 0.6, "the": 0.4},
        "a": {"dog": 0.4, "cat": 0.35, "bird": 0.25},
        "the": {"dog": 0.9, "cat": 0.1},
        "the dog": {"runs": 0.85, END: 0.15},
    }
)
# A caption that ends early is better than all that go on: it must stay in the race.
SHORT = _table(
    {
        "": {"no": 0.45, "yes": 0.55},
        "yes": {END: 0.52, "sir": 0.48},
        "no": {"sir": 0.6, END: 0.4},
        "yes sir": {"sir": 0.45, END: 0.55},
    }
)
DEEP = _table(
    {
        "": {"y": 0.3, "x": 0.5, "z": 0.2},
        "x": {"x": 0.34, "y": 0.335, "z": 0.325},
        "y": {"x": 0.1, "y": 0.9},
        "z": {"z": 1.0},
        "y y": {"z": 0.8, END: 0.2},
        "z z": {"z": 0.95, END: 0.05},
        "x x": {"x": 0.55, END: 0.45},
    }
)

# The best caption begins with a word that seldom begins one.
RARE = _table(
    {
        "": {"a": 0.51, "an": 0.41, "no": 0.08},
        "a": dict.fromkeys("bcdefghi", 0.125),
        "an": dict.fromkeys("bcdefghi", 0.125),
    }
)


def _drawn(seed: int) -> NextWords:
    """A model whose probabilities are drawn, the same each time; captions of at most five words."""

    def next_words(prefix: Prefix) -> Mapping[str, float]:
        if len(prefix) == 5 or END in prefix:
            return {END: 1.0}
        drawn = random.Random(f"{seed} {' '.join(prefix)}")
        weights = {word: drawn.random() ** 2 + 0.02 for word in ("a", "b", "c", END)}
        return {word: weight / sum(weights.values()) for word, weight in weights.items()}

    return next_words


def greedy(next_words: NextWords, longest: int) -> list[str]:
    """The likeliest word each time, the end mark included; at most `longest` words before it is cut off."""
    words: list[str] = []
    while len(words) < longest and END not in words:
        following = next_words(tuple(words))
        words.append(max(following, key=following.__getitem__))
    return words


def beam_search(next_words: NextWords, width: int, longest: int) -> tuple[list[str], float]:
    """The best finished caption that a beam finds, and its log-probability."""
    return _search(next_words, width, longest)


def _search(
    next_words: NextWords,
    width: int,
    longest: int,
    add: Callable[[float, float], float] = lambda total, p: total + math.log(p),
) -> tuple[list[str], float]:
    living: list[tuple[float, Prefix]] = [(0.0, ())]
    ended: list[tuple[float, Prefix]] = []
    for _ in range(longest):
        grown = [
            (add(total, p), (*words, word)) for total, words in living for word, p in next_words(words).items() if p > 0
        ]
        grown.sort(key=lambda each: -each[0])
        kept = grown[:width]
        ended += [each for each in kept if each[1][-1] == END]
        living = [each for each in kept if each[1][-1] != END]
        if not living:
            break
    if not ended:
        return [], -math.inf
    best = max(ended)
    return list(best[1]), best[0]


def _all_at_once(next_words: NextWords, width: int, longest: int) -> tuple[list[str], float]:
    """The same with a table of finished captions kept among the living ones and never grown."""
    beams: list[tuple[float, Prefix]] = [(0.0, ())]
    done: dict[Prefix, float] = {}
    for _ in range(longest):
        options = {}
        for total, words in beams:
            for word, p in next_words(words).items():
                options[(*words, word)] = total + math.log(p)
        best = sorted(options, key=options.__getitem__, reverse=True)[:width]
        done |= {words: options[words] for words in best if words[-1] == END}
        beams = [(options[words], words) for words in best if words[-1] != END]
    return (list(max(done, key=done.__getitem__)), max(done.values())) if done else ([], -math.inf)


def at_temperature(p: Tensor, T: float) -> Tensor:
    """satlib's tempering of a distribution."""
    return tempered(p, T)


def _ngrams(words: Sequence[str], n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def clipped_precision(caption: list[str], references: list[list[str]], n: int) -> float:
    """The share of a caption's n-grams that a reference has, each counted no more often than in the reference that has most."""
    ours = _ngrams(caption, n)
    if not ours:
        return 0.0
    return (
        sum(min(count, max(_ngrams(each, n)[gram] for each in references)) for gram, count in ours.items())
        / ours.total()
    )


def _precision(caption: list[str], references: list[list[str]], n: int, most: Callable[..., float] = max) -> float:
    ours, theirs = _ngrams(caption, n), [_ngrams(each, n) for each in references]
    found = 0.0
    for gram, count in ours.items():
        found += min(count, most([each.get(gram, 0) for each in theirs]))
    return found / max(1, len(caption) - n + 1)


def brevity_penalty(length: int, references: list[int]) -> float:
    """1 if the caption is longer than the closest reference, else exp(1 - r / c); the shorter of two as close."""
    r = min(references, key=lambda each: (abs(each - length), each))
    return 1.0 if length >= r else math.exp(1 - r / length)


def _brevity(length: int, r: float) -> float:
    return 1.0 if length >= r else math.exp(1 - r / length)


def bleu(captions: list[list[str]], references: list[list[list[str]]], N: int) -> float:
    """satlib's corpus BLEU-N without brevity penalty, 0 to 1."""
    image_ids = [str(i) for i in range(len(captions))]
    hypotheses = {image_id: [" ".join(words)] for image_id, words in zip(image_ids, captions, strict=True)}
    human = {
        image_id: [" ".join(words) for words in each] for image_id, each in zip(image_ids, references, strict=True)
    }
    found = metrics.bleu(hypotheses, human)[f"BLEU-{N} (no brevity penalty)"] / 100
    return found if found > 1e-4 else 0.0  # the COCO tools add a little to each number, so that nothing is quite 0


def _parts(
    captions: list[list[str]],
    references: list[list[list[str]]],
    N: int,
    count: Callable[[int, int], int] = lambda length, n: max(0, length - n + 1),
) -> list[tuple[float, int]]:
    """Hits and n-grams of each n; `count`: how many n-grams a caption of a length is said to have."""
    found = []
    for n in range(1, N + 1):
        totals = [count(len(words), n) for words in captions]
        hits = [
            _precision(words, each, n) * total for words, each, total in zip(captions, references, totals, strict=True)
        ]
        found.append((sum(hits), sum(totals)))
    return found


def _bleu(captions: list[list[str]], references: list[list[list[str]]], N: int, **how: Any) -> float:
    return math.prod(hits / max(1, total) for hits, total in _parts(captions, references, N, **how)) ** (1 / N)


def _exp_mean_log(captions: list[list[str]], references: list[list[list[str]]], N: int) -> float:
    parts = _parts(captions, references, N)
    if any(hits == 0 for hits, _ in parts):
        return 0.0
    return math.exp(sum(math.log(hits) - math.log(total) for hits, total in parts) / N)


def _recursive(table: NextWords, longest: int, prefix: Prefix) -> list[str]:
    if longest == 0 or END in prefix:
        return list(prefix)
    following = table(prefix)
    return _recursive(table, longest - 1, (*prefix, sorted(following, key=lambda word: -following[word])[0]))


def _forgetful(table: NextWords, width: int, longest: int) -> tuple[list[str], float]:
    """Only captions that end at the last step count."""
    living: list[tuple[float, Prefix]] = [(0.0, ())]
    last: list[tuple[float, Prefix]] = []
    for _ in range(longest):
        grown = sorted(
            ((total + math.log(p), (*words, word)) for total, words in living for word, p in table(words).items()),
            reverse=True,
        )[:width]
        living = [each for each in grown if each[1][-1] != END]
        last = [each for each in grown if each[1][-1] == END] or last
    return (list(max(last)[1]), max(last)[0]) if last else ([], -math.inf)


def _otherwise(table: NextWords, width: int, longest: int, how: str) -> tuple[list[str], float]:
    """A beam search that does one thing otherwise."""
    living: list[tuple[float, Prefix]] = [(0.0, ())]
    ended: list[tuple[float, Prefix]] = []
    for _ in range(longest):
        grown = [[(total + math.log(p), (*words, word)) for word, p in table(words).items()] for total, words in living]
        if how == "each grows by itself":
            grown = [sorted(each, reverse=True)[:width] for each in grown]
        kept = sorted(
            sum(grown, ended if how == "finished ones compete" else []), reverse=how != "the worst beginnings"
        )
        if how == "the beam gets narrower":
            kept = kept[: width - len(ended)]
        elif how not in ("each grows by itself", "all that end are finished"):
            kept = kept[:width]
        if how == "finished ones compete":
            ended = []
        ended += [each for each in kept if each[1][-1] == END]
        living = [each for each in kept if each[1][-1] != END]
        if how == "all that end are finished":
            living = living[:width]
        if len(ended) >= {"stops early": width, "stops at the first": 1}.get(how, math.inf):
            break
    if how == "living ones too" and not ended:
        ended = living
    by_word = {"for each word": lambda each: each[0] / len(each[1]), "the last": ended.index}
    best = max(ended, key=by_word.get(how), default=(-math.inf, ()))
    return list(best[1]), best[0]


def _union(counters: list[Counter]) -> Counter:
    found: Counter = Counter()
    for each in counters:
        found |= each
    return found


def _closest(c: int, references: list[int]) -> int:
    return sorted(references, key=lambda x: (abs(x - c), x))[0]


def _words(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def _corpora() -> list[tuple[Any, ...]]:
    captions = _words("a dog runs on", "two cats sit on a red red sofa", "a man on a bike rides")
    references = [
        _words("a dog runs over the grass", "the brown dog runs on grass"),
        _words("two cats on a red sofa", "cats sit on a big red sofa"),
        _words("a man rides a bike down there", "a man on a bike rides down the road"),
    ]
    short = captions[2:] + _words("bike"), [*references[2:], _words("a bike")]  # one caption without any pair
    # The references of one caption have words of the other; no triple is found.
    crossed = (
        _words("a dog sits", "two cats run on"),
        [_words("two dogs sit", "the dog sits"), _words("a dog", "cats run")],
    )
    return (
        [(captions, references, N) for N in (1, 2, 3)]
        + [(captions[2:], references[2:], 4), (*short, 3)]
        + [(*crossed, N) for N in (2, 3)]
        + [(_words("a dog runs", "bike"), [_words("a dog runs"), _words("a car")], 2)]  # more pairs are hit than words
    )


def _precisions() -> list[tuple[Any, ...]]:
    star = ["star", "star", "star"]
    caption = ["a", "dog", "and", "a", "dog", "and", "a", "big", "big", "dog"]
    references = _words("a dog and a big dog", "a big dog sees a dog and a cat")
    apart = ["a", "dog", "and", "a", "cat"], _words("one dog", "the cat and you")
    seldom = ["a", "dog"], _words("a dog and a cat", "one dog and one cat")  # a reference says "a" more often
    return [
        (star, _words("a star"), 1),
        (caption, references, 1),
        (caption, references, 2),
        (caption, references, 3),
        (*apart, 1),
        (*seldom, 1),
        (["a"], _words("a dog"), 2),
    ]


def _meteor_by_runs(pairs: captions.Pairs, said: int, wanted: int) -> float:
    """METEOR from an alignment, its chunks found as runs of equal differences."""
    if not pairs:
        return 0.0
    partner = dict(pairs)
    chunks = sum(partner.get(i - 1) != j - 1 for i, j in pairs)
    P, R = len(pairs) / said, len(pairs) / wanted
    equal = chunks == 1 and len(pairs) == said == wanted
    return P * R / (0.85 * P + 0.15 * R) * (1.0 if equal else 1 - 0.6 * (chunks / len(pairs)) ** 0.2)


TASKS = (
    Task(
        id="7.1",
        name="greedy",
        title="The likeliest word, each time",
        difficulty=1,
        minutes=4,
        equation="notebook 07, greedy decoding",
        after="Greedy decoding",
        reference=greedy,
        cases=lambda: [(STORY, 6), (SHORT, 6), (DEEP, 6), (DEEP, 2), (_drawn(1), 6)],
        mistakes={
            "the end mark is missing: it is a word like the others, and the last one": lambda table, longest: [
                word for word in greedy(table, longest) if word != END
            ],
            "every word was chosen as if it were the first: ask what follows the words so far": lambda table, longest: (
                [max(table(()), key=table(()).__getitem__)] * longest
            ),
            "the least likely word was taken": lambda table, longest: greedy(
                lambda prefix: {word: -p for word, p in table(prefix).items()}, longest
            ),
            "`longest` is not kept: there are more words than that": lambda table, longest: greedy(table, 50),
            "one word too few: there may be `longest` words": lambda table, longest: greedy(table, longest - 1),
            "one word too many: there may be `longest` words": lambda table, longest: greedy(table, longest + 1),
            "it goes on after the end mark: nothing follows it": lambda table, longest: (
                greedy(table, longest) + [END] * (longest - len(greedy(table, longest)))
            ),
            "only the word before is asked about: ask what follows all the words so far": lambda table, longest: greedy(
                lambda prefix: table(prefix[-1:]), longest
            ),
            "these are the probabilities: give the words": lambda table, longest: [
                max(table(tuple(greedy(table, longest)[:i])).values()) for i in range(len(greedy(table, longest)))
            ],
            "the words are joined: give them as a list": lambda table, longest: " ".join(greedy(table, longest)),
            "the first word of the table was taken: take the one with the largest probability": lambda table, longest: (
                greedy(lambda prefix: {next(iter(table(prefix))): 1.0}, longest)
            ),
            "the last word of the alphabet was taken: take the one with the largest probability": lambda table, longest: (
                greedy(lambda prefix: {max(table(prefix)): 1.0}, longest)
            ),
            "the first word of the alphabet was taken: take the one with the largest probability": lambda table, longest: (
                greedy(lambda prefix: {min(table(prefix)): 1.0}, longest)
            ),
            "it returns after the first word: return after the loop": lambda table, longest: greedy(table, 1),
            "a word is drawn: take the most probable one": lambda table, longest: greedy(
                lambda prefix: dict.fromkeys(random.choices(*zip(*table(prefix).items(), strict=True)), 1.0), longest
            ),
            "`story` is asked: ask the model that is given, `next_words`": lambda table, longest: greedy(
                STORY_OF_THE_NOTEBOOK, longest
            ),
            "an end mark is added where `longest` cuts the caption off: there it has none": lambda table, longest: (
                words + [END] * (END not in words) if (words := greedy(table, longest)) else words
            ),
            "nothing is returned where `longest` cuts the caption off: return the words there too": lambda table, longest: (
                words if END in (words := greedy(table, longest)) else None
            ),
        },
        says="four models, one of them cut off",
        others=(
            lambda table, longest: _recursive(table, longest, ()),
            lambda table, longest: tuple(greedy(table, longest)),
        ),
    ),
    Task(
        id="7.2",
        name="beam_search",
        title="The beam",
        difficulty=3,
        minutes=20,
        equation="notebook 07, the beam",
        after="Beam search",
        reference=beam_search,
        cases=lambda: (
            [(STORY, 2, 6), (STORY, 1, 6), (SHORT, 2, 6), (DEEP, 2, 6), (DEEP, 3, 6), (STORY, 9, 6)]
            + [(STORY, 2, longest) for longest in (4, 3, 2)]  # just enough words for the best caption, too few for any
            + [
                (_drawn(seed), width, 7) for seed, width in ((1, 2), (256, 3), (1888, 2))
            ]  # all ways to go wrong part here
        ),
        mistakes={
            "this is greedy decoding: keep the `width` best beginnings at each step, not one": lambda table, width, longest: (
                beam_search(table, 1, longest)
            ),
            "probabilities are added: multiply them, or add their logarithms": lambda table, width, longest: _search(
                table, width, longest, lambda total, p: total + p
            ),
            "only the last word counts: add its logarithm to that of the words before": lambda table, width, longest: (
                _search(table, width, longest, lambda total, p: math.log(p))
            ),
            "captions that ended early are forgotten: they stay in the race to the end": lambda table, width, longest: (
                _forgetful(table, width, longest)
            ),
            "it stops too early: a beginning that still lives may become the best": lambda *x: _otherwise(
                *x, "stops early"
            ),
            "it stops at the first finished caption: a beginning that still lives may become better": lambda *x: (
                _otherwise(*x, "stops at the first")
            ),
            "the worst beginnings are kept: sort so that the best come first": lambda *x: _otherwise(
                *x, "the worst beginnings"
            ),
            "a caption that is not finished is given: without a finished one, an empty list and minus infinity": lambda *x: (
                _otherwise(*x, "living ones too")
            ),
            "nothing is returned where no caption is finished: an empty list and minus infinity are wanted": lambda *x: (
                beam_search(*x) if beam_search(*x)[0] else None
            ),
            "the two are exchanged: first the words, then their log-probability": lambda *x: beam_search(*x)[::-1],
            "the sign is turned round: a log-probability is below 0": lambda *x: (
                beam_search(*x)[0],
                -beam_search(*x)[1],
            ),
            "without a finished caption the log-probability is minus infinity, not 0": lambda *x: (
                beam_search(*x) if beam_search(*x)[0] else ([], 0.0)
            ),
            "the logarithm has base 2: take the natural one": lambda *x: (
                beam_search(*x)[0],
                beam_search(*x)[1] / math.log(2),
            ),
            "the logarithm has base 10: take the natural one": lambda *x: (
                beam_search(*x)[0],
                beam_search(*x)[1] / math.log(10),
            ),
            "finished captions take up places of the beam: of all that has grown in a step, the `width` best are kept": (
                lambda *x: _otherwise(*x, "the beam gets narrower")
            ),
            "finished captions compete with the living: of all that has grown in a step, the `width` best are kept": (
                lambda *x: _otherwise(*x, "finished ones compete")
            ),
            "a caption is finished though it was not kept: first the `width` best, then those of them that end": (
                lambda *x: _otherwise(*x, "all that end are finished")
            ),
            "each beginning keeps `width` of its own: keep the `width` best of all": lambda *x: _otherwise(
                *x, "each grows by itself"
            ),
            "ranked by the log-probability of a word: here the sum decides": lambda *x: _otherwise(*x, "for each word"),
            "this is the caption that was finished last: take the best of the finished": lambda *x: _otherwise(
                *x, "the last"
            ),
            "this is the probability: give its logarithm": lambda table, width, longest: (
                beam_search(table, width, longest)[0],
                math.exp(beam_search(table, width, longest)[1]),
            ),
            "one word too few: the end mark is one of the `longest` words": lambda table, width, longest: beam_search(
                table, width, longest - 1
            ),
            "one word too many: a caption has `longest` words at most, the end mark among them": lambda *x: beam_search(
                x[0], x[1], x[2] + 1
            ),
            "`longest` is not kept: a caption has that many words at most": lambda table, width, longest: beam_search(
                table, width, 50
            ),
            "nothing is dropped: this looks at every caption, however narrow the beam": lambda table, width, longest: (
                beam_search(table, 10_000, longest)
            ),
            "the end mark is missing from the words": lambda table, width, longest: (
                beam_search(table, width, longest)[0][:-1],
                beam_search(table, width, longest)[1],
            ),
        },
        says="widths 1, 2, 3 and 9 on six models, the words and their log-probability, and too few words for any caption",
        others=(_all_at_once, lambda table, width, longest: tuple(_all_at_once(table, width, longest))),
    ),
    Task(
        id="7.3",
        name="at_temperature",
        title="Hotter, colder",
        difficulty=1,
        minutes=4,
        equation="notebook 07, sampling",
        after="Sampling",
        reference=at_temperature,
        cases=lambda: [
            (distribution(5), 0.5),
            (distribution(4, seed=1), 3.0),
            (distribution(6, seed=2, sharp=3.0), 0.1),
            (torch.tensor([0.5, 0.3, 0.2, 1e-9]), 3.0),
        ],
        mistakes={
            "it is not normalised: after the power the sum is no longer 1": lambda p, T: p ** (1 / T),
            "the power is 1/T: a low temperature sharpens": lambda p, T: p**T / (p**T).sum(),
            "the softmax is of log p / T, not of p / T": lambda p, T: torch.softmax(p / T, 0),
            "dividing probabilities by T and normalising changes nothing: divide their logarithms": lambda p, T: (
                (p / T) / (p / T).sum()
            ),
            "all weight is on the likeliest word: that is the limit at 0": lambda p, T: (p == p.max()).float(),
            "divided by T after the softmax: divide log p by T before it": lambda p, T: p / T,
            "divided by the largest of the powers: divide by their sum": lambda p, T: p ** (1 / T) / p.max() ** (1 / T),
            "this is a softmax of the powers: divide them by their sum": lambda p, T: torch.softmax(p ** (1 / T), 0),
            "these are logarithms: give the probabilities": lambda p, T: torch.log_softmax(p.log() / T, 0),
            "the logarithm has base 2: the softmax undoes only the natural one": lambda p, T: torch.softmax(
                p.log2() / T, 0
            ),
            "the logarithm has base 10: the softmax undoes only the natural one": lambda p, T: torch.softmax(
                p.log10() / T, 0
            ),
            "1 // T is a whole number: divide with /": lambda p, T: p ** (1 // T) / (p ** (1 // T)).sum(),
            "a word is drawn: give the probabilities themselves": lambda p, T: torch.multinomial(
                p ** (1 / T) / (p ** (1 / T)).sum(), 1
            ),
            "1e-6 is added to p: at a high temperature that lifts the words that are hardly possible": lambda p, T: (
                at_temperature((p + 1e-6) / (p + 1e-6).sum(), T)
            ),
            "1e-8 is added to p: at a high temperature that lifts the words that are hardly possible": lambda p, T: (
                at_temperature((p + 1e-8) / (p + 1e-8).sum(), T)
            ),
        },
        says="three temperatures, below and above 1, and a word that is hardly possible",
        others=(
            lambda p, T: p.double() ** (1 / T) / (p.double() ** (1 / T)).sum(),
            lambda p, T: torch.softmax(p.log() / T, 0),
        ),
        invariants=(sums_to_one(0, "the probabilities", "the words"),),
    ),
    Task(
        id="7.4",
        name="clipped_precision",
        title="n-grams, clipped",
        difficulty=2,
        minutes=15,
        equation="Papineni et al., section 2.1",
        after="BLEU, by hand",
        reference=clipped_precision,
        cases=_precisions,
        mistakes={
            "it is not clipped: a word counts no more often than the reference that says it most often": (
                lambda caption, references, n: _precision(caption, references, n, lambda counts: 99 * any(counts))
            ),
            "clipped by the sum over the references: take the one that has most": lambda caption, references, n: (
                _precision(caption, references, n, sum)
            ),
            "only the reference that fits best is counted: each n-gram may be found in another one": (
                lambda caption, references, n: max(_precision(caption, [each], n) for each in references)
            ),
            "clipped by the reference that has fewest: take the one that has most": lambda caption, references, n: (
                _precision(caption, references, n, min)
            ),
            "each n-gram counts once, however often it is said: count them": lambda caption, references, n: (
                len({gram for gram in _ngrams(caption, n) if any(_ngrams(each, n)[gram] for each in references)})
                / max(1, len(_ngrams(caption, n)))
            ),
            "only the first reference is looked at: an n-gram may be in any of them": lambda caption, references, n: (
                _precision(caption, references[:1], n)
            ),
            "n is not used: these are single words": lambda caption, references, n: _precision(caption, references, 1),
            "divided by the number of words: divide by the number of n-grams, n - 1 fewer": lambda caption, references, n: (
                _precision(caption, references, n) * max(1, len(caption) - n + 1) / len(caption)
            ),
            "divided by the number of different n-grams: divide by how many there are": lambda caption, references, n: (
                _precision(caption, references, n) * max(1, len(caption) - n + 1) / max(1, len(_ngrams(caption, n)))
            ),
            "the mean over the references: each n-gram may be found in any of them": lambda caption, references, n: (
                sum(_precision(caption, [each], n) for each in references) / len(references)
            ),
            "a hit counts once, however often it is said: it counts up to the clip": lambda caption, references, n: (
                sum(any(_ngrams(each, n)[gram] for each in references) for gram in _ngrams(caption, n))
                / max(1, len(caption) - n + 1)
            ),
            "the reference's count is taken even where it is the larger: a hit is what both have": lambda caption, references, n: (
                sum(max(_ngrams(each, n)[gram] for each in references) for gram in _ngrams(caption, n))
                / max(1, len(caption) - n + 1)
            ),
            "this is the number of hits: divide by the number of n-grams": lambda caption, references, n: (
                _precision(caption, references, n) * max(1, len(caption) - n + 1)
            ),
            "an n-gram need not be in all references: one of them is enough": lambda caption, references, n: (
                sum(
                    count
                    for gram, count in _ngrams(caption, n).items()
                    if all(_ngrams(each, n)[gram] for each in references)
                )
                / max(1, len(caption) - n + 1)
            ),
            "these are n-grams of n + 1 words": lambda caption, references, n: _precision(caption, references, n + 1),
            "a caption too short scores 1: without an n-gram it scores 0": lambda caption, references, n: (
                _precision(caption, references, n) if len(caption) >= n else 1.0
            ),
            "this is recall: divide by the caption's n-grams, not by the references'": lambda caption, references, n: (
                _precision(caption, references, n)
                * max(1, len(caption) - n + 1)
                / max(1, max(len(each) for each in references) - n + 1)
            ),
        },
        says="single words, pairs and triples, repeated words, a caption without any pair",
        others=(
            _precision,
            lambda caption, references, n: (
                float((_ngrams(caption, n) & _union([_ngrams(each, n) for each in references])).total())
                / max(1, _ngrams(caption, n).total())
            ),
        ),
        invariants=(between(0, 1, "a precision"),),
    ),
    Task(
        id="7.5",
        name="brevity_penalty",
        title="What short captions pay",
        difficulty=1,
        minutes=4,
        equation="Papineni et al., section 2.2",
        after="BLEU, by hand",
        reference=brevity_penalty,
        cases=lambda: [
            (6, [9, 12, 20]),
            (10, [9, 14]),
            (10, [11, 30]),
            (10, [3, 12]),
            (7, [8, 6]),
            (8, [9, 12]),
            (5, [5]),
        ],
        mistakes={
            "long captions are rewarded: the penalty is never above 1": lambda c, r: math.exp(1 - _closest(c, r) / c),
            "the shortest reference was taken: take the one whose length is closest": lambda c, r: _brevity(c, min(r)),
            "the mean of the references' lengths was taken: take the closest one": lambda c, r: _brevity(
                c, sum(r) / len(r)
            ),
            "the longest reference was taken: take the one whose length is closest": lambda c, r: _brevity(c, max(r)),
            "the ratio is upside down: exp(1 - r / c)": lambda c, r: (
                1.0 if c >= _closest(c, r) else math.exp(1 - c / _closest(c, r))
            ),
            "this is the ratio c / r: there is an exp": lambda c, r: min(1.0, c / _closest(c, r)),
            "the cases are exchanged: captions that are too short pay, the others do not": lambda c, r: (
                1.0 if c <= _closest(c, r) else math.exp(1 - _closest(c, r) / c)
            ),
            "the first reference was taken: take the one whose length is closest": lambda c, r: _brevity(c, r[0]),
            "the exp is missing: exp(1 - r / c)": lambda c, r: (
                min(1.0, 1 - _closest(c, r) / c) if c < _closest(c, r) else 1.0
            ),
            "the sign is turned round: exp(1 - r / c) is below 1": lambda c, r: math.exp(
                max(0, _closest(c, r) / c - 1)
            ),
            "the base is 10: exp is a power of e": lambda c, r: 10 ** min(0.0, 1 - _closest(c, r) / c),
            "the farthest reference was taken: take the closest": lambda c, r: _brevity(
                c, max(r, key=lambda x: abs(x - c))
            ),
            "the distance was taken for r: r is the length of the closest reference": lambda c, r: _brevity(
                c, min(abs(x - c) for x in r)
            ),
            "of two references as close, the shorter one counts": lambda c, r: _brevity(
                c, min(r, key=lambda x: (abs(x - c), -x))
            ),
        },
        says="shorter and longer captions, ties among them",
        others=(
            lambda c, r: min(1.0, math.exp(1 - sorted(r, key=lambda x: (abs(x - c), x))[0] / c)),
            lambda c, r: torch.tensor(_brevity(c, _closest(c, r))),
        ),
        invariants=(between(0, 1, "the penalty"),),
    ),
    Task(
        id="7.6",
        name="bleu",
        title="BLEU of a corpus",
        difficulty=3,
        minutes=15,
        equation="Papineni et al., section 2.3",
        after="BLEU without brevity penalty",
        reference=bleu,
        cases=_corpora,
        mistakes={
            "the mean of the captions' own BLEU: n-grams are counted over the corpus first": lambda captions, references, N: (
                sum(_bleu([c], [r], N) for c, r in zip(captions, references, strict=True)) / len(captions)
            ),
            "the arithmetic mean of the precisions: BLEU has the geometric one": lambda captions, references, N: (
                sum(hits / total for hits, total in _parts(captions, references, N)) / N
            ),
            "the root is missing: this is the product of the precisions": lambda captions, references, N: (
                _bleu(captions, references, N) ** N
            ),
            "only n-grams of the length N: all lengths from 1 to N count": lambda captions, references, N: (
                lambda part: part[0] / part[1]
            )(_parts(captions, references, N)[-1]),
            "the longest n-grams are missing: n goes from 1 to N, N too": lambda captions, references, N: (
                math.prod(hits / total for hits, total in _parts(captions, references, N - 1)) ** (1 / N)
            ),
            "it returns after n = 1: return after the loop": lambda captions, references, N: (
                _bleu(captions, references, 1) ** (1 / N)
            ),
            "hits and n-grams are summed over n too: begin anew with each n": lambda captions, references, N: (
                lambda parts: (
                    math.prod(
                        sum(hits for hits, _ in parts[:n]) / sum(total for _, total in parts[:n])
                        for n in range(1, N + 1)
                    )
                    ** (1 / N)
                )
            )(_parts(captions, references, N)),
            "a caption's hits are its precision times its number of n-grams": lambda captions, references, N: (
                math.prod(
                    sum(_precision(words, each, n) for words, each in zip(captions, references, strict=True)) / total
                    for n, (_, total) in enumerate(_parts(captions, references, N), 1)
                )
                ** (1 / N)
            ),
            "the smallest of the precisions: BLEU has their geometric mean": lambda captions, references, N: min(
                hits / total for hits, total in _parts(captions, references, N)
            ),
            "the harmonic mean of the precisions: BLEU has the geometric one": lambda captions, references, N: (
                N / sum(total / max(hits, 1e-12) for hits, total in _parts(captions, references, N))
            ),
            "the root is the fourth, whatever N is: take the N-th": lambda captions, references, N: (
                _bleu(captions, references, N) ** (N / 4)
            ),
            "one n-gram too few in each caption: c words have c - n + 1": lambda captions, references, N: _bleu(
                captions, references, N, count=lambda length, n: max(0, length - n)
            ),
            "captions shorter than n take something off: they have no n-gram, not fewer than none": lambda *x: _bleu(
                *x, count=lambda length, n: length - n + 1
            ),
            "weighed by the captions' numbers of words: weigh by their numbers of n-grams": lambda *x: _bleu(
                *x, count=lambda length, n: length
            ),
            "only the first reference of each caption is looked at: all of them count": lambda captions, references, N: (
                _bleu(captions, [each[:1] for each in references], N)
            ),
            "each caption is held against the references of all captions: take its own": lambda captions, references, N: (
                _bleu(captions, [[words for each in references for words in each]] * len(captions), N)
            ),
            "1 is added to hits and to n-grams: these precisions are not smoothed": lambda captions, references, N: (
                math.prod((hits + 1) / (total + 1) for hits, total in _parts(captions, references, N)) ** (1 / N)
            ),
            "a precision of 0 is left out: it makes BLEU 0": lambda captions, references, N: (
                math.prod(hits / total for hits, total in _parts(captions, references, N) if hits) ** (1 / N)
            ),
            "in percent: give a number from 0 to 1": lambda captions, references, N: (
                100 * _bleu(captions, references, N)
            ),
            "there is a brevity penalty: the paper's figures have none": lambda captions, references, N: (
                _bleu(captions, references, N)
                * _brevity(
                    sum(map(len, captions)),
                    sum(_closest(len(c), [len(x) for x in r]) for c, r in zip(captions, references, strict=True)),
                )
            ),
        },
        says="BLEU-1 to BLEU-4 of small corpora against satlib's, without brevity penalty",
        others=(
            _bleu,
            _exp_mean_log,
        ),
        tolerance=1e-3,
    ),
    Task(
        id="7.7",
        name="best_caption",
        kind="bug",
        title="A beam that forgets",
        difficulty=2,
        minutes=5,
        equation="section 5.2",
        after="Why a wider beam need not give a better caption",
        reference=captions.best_caption,
        start=captions.forgets,
        cases=lambda: [
            (SHORT, 2, 4),
            (STORY, 3, 5),
            (DEEP, 4, 3),
            *((_drawn(seed), width, 6) for seed in (1, 2, 3) for width in (2, 4)),
            (STORY, 2, 1),
            (RARE, 3, 4),
            *((_drawn(seed), 2, 6) for seed in (65, 128, 412, 927)),
            *((_drawn(seed), 2, longest) for seed, longest in ((30, 3), (32, 3), (62, 4), (108, 4))),
        ],
        given=lambda next_words, width, longest: f"a beam of {width}, at most {longest} words",
        mistakes={
            "the first caption that ends is taken: a better one may still be on its way": partial(
                captions._best_caption, keep="first"
            ),
            "the beam is not cut off after `width`: that was not the bug": partial(
                captions._best_caption, takes=lambda width, finished: 10**6
            ),
            "twice the beam is kept at each step": partial(
                captions._best_caption, takes=lambda width, finished: 2 * width
            ),
            "only one beginning is kept at each step: that is greedy": partial(
                captions._best_caption, takes=lambda width, finished: 1
            ),
            "captions that end count before the beam is cut: only those among the `width` best of a step are found": partial(
                captions._best_caption, keep="grown"
            ),
            "each finished caption makes the beam narrower: that was not the bug": partial(
                captions._best_caption, takes=lambda width, finished: width - finished
            ),
            "finished captions keep their places in the beam: lay them aside, and let the others go on": (
                captions.in_their_places
            ),
            "the search ends when `width` captions are finished: a better one may still be on its way": (
                lambda next_words, width, longest: captions._best_caption(next_words, width, longest, stop=width)
            ),
            "captions that have not ended compete too: they count only if none has ended": partial(
                captions._best_caption, winners="both"
            ),
            "captions that have not ended compete too, and the finished ones are still forgotten": partial(
                captions._best_caption, winners="both", keep="last"
            ),
            "if none has ended, the most probable beginning is the result: that was not the bug": partial(
                captions._best_caption, winners="finished"
            ),
            "the mean log-probability of a word is compared: that is another rule, and was not the bug": partial(
                captions._best_caption, rank=lambda words, score: score / len(words)
            ),
            "only captions that ended last may win: keep those of all steps, and take the most probable": partial(
                captions._best_caption, keep="last that ended"
            ),
            "the caption that ended last wins: the most probable one should": partial(
                captions._best_caption, rank=lambda words, score: len(words) - score / 1e3
            ),
            "the least probable of the finished captions is taken": partial(
                captions._best_caption, rank=lambda words, score: -score
            ),
            "the probabilities are added: add their logarithms": partial(captions._best_caption, log=float),
            "words that are improbable are left out: only those that cannot come may be": partial(
                captions._best_caption, rare=0.1
            ),
            "there is a word too many: the end mark is one of the `longest`": lambda next_words, width, longest: (
                captions.best_caption(next_words, width, longest + 1)
            ),
            "the search ends a word too early: it may take `longest` words, the end mark included": (
                lambda next_words, width, longest: captions.best_caption(next_words, width, longest - 1)
            ),
            "the end mark is not a word: leave it out of the caption": lambda *x: [*captions.best_caption(*x), END],
            "the least probable beginnings are kept: sort the most probable to the front": partial(
                captions._best_caption, worst=True
            ),
        },
        says="captions that end early and late, beams of two to four",
        others=(lambda *x: tuple(captions.best_caption(*x)),),
    ),
    Task(
        id="7.8",
        name="hits",
        kind="bug",
        title="A BLEU that is too high",
        difficulty=2,
        minutes=5,
        equation="Papineni et al., section 2.1",
        after="BLEU, by hand",
        reference=captions.hits,
        start=captions.too_many_hits,
        cases=lambda: [
            (["dog"] * 5, [["a", "dog"], ["the", "dog"]], 1),
            (["the", "the", "the", "the"], [s.split() for s in ("the dog in the grass", "the dog", "the grass")], 1),
            (["a", "dog", "a", "dog"], [s.split() for s in ("a dog runs", "here is a dog")], 2),
            (
                ["a", "man", "and", "a", "dog", "and", "a", "bike"],
                [s.split() for s in ("a man and a bike", "a dog and a man")],
                1,
            ),
            (["two"], [s.split() for s in ("two dogs", "two cats")], 2),
            (
                ["a", "dog", "a", "cat", "the"],
                [s.split() for s in ("a dog a", "cat a dog", "a a cat a the dog", "bird")],
                2,
            ),
            (["a", "a", "a", "b", "b", "c"], [s.split() for s in ("a b", "a a d e f", "b b c", "d d d c c a b")], 1),
            (["a", "a", "a", "b"], [s.split() for s in ("a a a", "b", "c")], 1),
            (["dog", "runs", "a", "dog"], [s.split() for s in ("a dog", "runs", "a cat")], 2),
            (["a", "a", "a", "b", "b", "c"], [s.split() for s in ("b b c", "d a a", "a", "a d a a d c c b")], 1),
        ],
        mistakes={
            "only the first reference counts now": lambda caption, references, n: captions.hits(
                caption, references[:1], n
            ),
            "only the last reference counts now: `most` has to keep what the others have": lambda caption, references, n: (
                captions.hits(caption, references[-1:], n)
            ),
            "only the longest reference counts now": lambda caption, references, n: captions.hits(
                caption, [max(references, key=len)], n
            ),
            "only the shortest reference counts now": lambda caption, references, n: captions.hits(
                caption, [min(references, key=len)], n
            ),
            "only the reference of the closest length counts now": lambda caption, references, n: captions.hits(
                caption, [min(references, key=lambda each: abs(len(each) - len(caption)))], n
            ),
            "the reference with the most hits is taken: each n-gram may look for its own": lambda caption, references, n: (
                max(captions.hits(caption, [each], n) for each in references)
            ),
            "the hits of the references are added: a word of the caption counts once, not once for each reference": (
                lambda caption, references, n: (
                    sum(captions.hits(caption, [each], n)[0] for each in references),
                    captions.hits(caption, references, n)[1],
                )
            ),
            "nothing is clipped now: each n-gram that occurs in a reference counts every time": partial(
                captions.hits_with, lambda counts: 10**6 * sum(counts)
            ),
            "an n-gram counts once at most now: it may as often as in one reference": partial(
                captions.hits_with, lambda counts: min(1, sum(counts))
            ),
            "the smallest count of the references is taken: the largest is allowed": partial(captions.hits_with, min),
            "the mean of the references' counts is taken: the largest is allowed": partial(
                captions.hits_with, lambda counts: sum(counts) // len(counts)
            ),
            "the mean of the references' counts, rounded up, is taken: the largest is allowed": partial(
                captions.hits_with, lambda counts: math.ceil(sum(counts) / len(counts))
            ),
            "this counts the references that have the n-gram: count how often one of them has it": partial(
                captions.hits_with, lambda counts: sum(map(bool, counts))
            ),
            "an n-gram may count as often as there are references: how often does one of them have it?": partial(
                captions.hits_with, lambda counts: min(sum(counts), len(counts))
            ),
            "the references are joined: count in each of them apart": lambda caption, references, n: captions.hits(
                caption, [[word for each in references for word in each]], n
            ),
            "nothing counts: an empty Counter & another one is empty": partial(captions.hits_with, lambda counts: 0),
            "this counts what no reference has: the hits are the others": lambda caption, references, n: (
                captions.hits(caption, references, n)[1] - captions.hits(caption, references, n)[0],
                captions.hits(caption, references, n)[1],
            ),
            "said and most are united: the hits are what both have, said & most": lambda caption, references, n: (
                (captions.ngrams(caption, n) | captions.most(references, n)).total(),
                captions.hits(caption, references, n)[1],
            ),
            "all n-grams of the caption count in the second number, each as often as it is said": (
                lambda caption, references, n: (
                    captions.hits(caption, references, n)[0],
                    len(captions.ngrams(caption, n)),
                )
            ),
            "both numbers count each n-gram once: they are counted as often as they are said": lambda caption, references, n: (
                captions.hits_with(lambda counts: min(1, sum(counts)), caption, references, n)[0],
                len(captions.ngrams(caption, n)),
            ),
            "the second number is of the references: it should be the number of the caption's n-grams": (
                lambda caption, references, n: (
                    captions.hits(caption, references, n)[0],
                    captions.most(references, n).total(),
                )
            ),
            "the two numbers are exchanged": lambda *x: captions.hits(*x)[::-1],
            "a quotient: give the two numbers, for BLEU adds them up before it divides": lambda *x: (
                captions.hits(*x)[0] / max(1, captions.hits(*x)[1])
            ),
        },
        says="words and pairs of words, with two and three references",
        others=(
            lambda caption, references, n: [
                sum(
                    min(count, max(captions.ngrams(each, n)[gram] for each in references))
                    for gram, count in captions.ngrams(caption, n).items()
                ),
                max(0, len(caption) - n + 1),
            ],
        ),
        parts=("the hits", "the n-grams"),
    ),
    Task(
        id="7.9",
        name="meteor_core",
        title="METEOR, from an alignment",
        difficulty=2,
        minutes=8,
        equation="Denkowski and Lavie, section 2",
        after="METEOR, by hand",
        reference=captions.meteor_core,
        cases=lambda: [
            ([(0, 0), (1, 4), (2, 2), (3, 3), (4, 1)], 5, 5),
            ([(0, 0), (1, 1)], 2, 6),
            ([(0, 0), (1, 1)], 6, 2),
            ([(0, 0), (1, 1), (2, 2)], 3, 3),
            ([(4, 2), (1, 0), (0, 5), (2, 1)], 6, 7),
            ([(0, 1), (1, 0)], 2, 2),
            ([(1, 1), (2, 2)], 4, 4),
            ([(0, 0), (2, 2), (3, 3)], 5, 6),
            ([], 4, 5),
        ],
        mistakes={
            "precision and recall are exchanged: the mean leans towards recall": lambda pairs, said, wanted: (
                captions.meteor_core(pairs, wanted, said)
            ),
            "this is the harmonic mean with equal weights: alpha is 0.85": partial(
                captions._meteor, mean=partial(captions._mean, alpha=0.5)
            ),
            "the weights of P and R are 0.85 and 0.15": partial(
                captions._meteor, mean=partial(captions._mean, alpha=0.9)
            ),
            "F has P R above the line": partial(captions._meteor, mean=lambda P, R: 0.85 * P + 0.15 * R),
            "only the caption is looked at: a chunk has to run on in both sentences": partial(
                captions._meteor, breaks=lambda i, j: i != 1
            ),
            "only the reference is looked at: a chunk has to run on in both sentences": partial(
                captions._meteor, breaks=lambda i, j: j != 1
            ),
            "a chunk has to run on in both sentences: it ends where either breaks off, not only where both do": partial(
                captions._meteor, breaks=lambda i, j: i != 1 and j != 1
            ),
            "a run goes forwards: words in reverse order are chunks of their own": partial(
                captions._meteor, breaks=lambda i, j: i != 1 or abs(j) != 1
            ),
            "that the reference's words come in order is not enough: a chunk has no gaps": partial(
                captions._meteor, breaks=lambda i, j: j < 0
            ),
            "a chunk has no gaps in the reference either: the partner has to be the very next word": partial(
                captions._meteor, breaks=lambda i, j: i != 1 or j < 1
            ),
            "a pair that skips as many words in both sentences begins a new chunk: a chunk has no gaps": partial(
                captions._meteor, breaks=lambda i, j: i != j
            ),
            "everything is one chunk: count where a pair does not follow the one before": partial(
                captions._meteor, breaks=lambda i, j: False
            ),
            "each pair is a chunk of its own: in the order of the caption, those that follow one another are one": partial(
                captions._meteor, breaks=lambda i, j: True
            ),
            "the pairs come in any order: sort them first": partial(captions._meteor, order=list),
            "the breaks are counted: there is one chunk more": partial(captions._meteor, first=0),
            "the breaks are counted, and at least 1: there is always one chunk more than breaks": partial(
                captions._meteor, first=0, penalised=lambda F, chunks, m: captions._penalised(F, max(1, chunks), m)
            ),
            "two equal sentences have no penalty": partial(captions._meteor, equal=lambda *_: False),
            "one chunk is not enough to go without a penalty: it has to cover both sentences": partial(
                captions._meteor, equal=lambda chunks, m, said, wanted: chunks == 1
            ),
            "to go without a penalty the chunk has to cover the reference too": partial(
                captions._meteor, equal=lambda chunks, m, said, wanted: chunks == 1 and m == said
            ),
            "to go without a penalty the chunk has to cover the caption too": partial(
                captions._meteor, equal=lambda chunks, m, said, wanted: chunks == 1 and m == wanted
            ),
            "to go without a penalty equal lengths are not enough: all words have to be matched": partial(
                captions._meteor, equal=lambda chunks, m, said, wanted: chunks == 1 and said == wanted
            ),
            "to go without a penalty the words have to be in the same order too: one chunk": partial(
                captions._meteor, equal=lambda chunks, m, said, wanted: m == said == wanted
            ),
            "the power of c/m is 0.2": partial(captions._meteor, penalised=partial(captions._penalised, beta=1.0)),
            "the power of c/m is 0.2, not 3": partial(
                captions._meteor, penalised=partial(captions._penalised, beta=3.0)
            ),
            "that is the penalty of METEOR's first version, 0.5 (c/m)^3": partial(
                captions._meteor, penalised=partial(captions._penalised, beta=3.0, gamma=0.5)
            ),
            "0.6 and 0.2 are exchanged: 0.6 is the factor, 0.2 the power": partial(
                captions._meteor, penalised=partial(captions._penalised, beta=0.6, gamma=0.2)
            ),
            "0.2 is a power of c/m, not a factor": partial(
                captions._meteor, penalised=partial(captions._penalised, beta=1.0, gamma=0.12)
            ),
            "the power is of c/m alone: 0.6 stands before it": partial(
                captions._meteor, penalised=lambda F, chunks, m: F * (1 - (0.6 * chunks / m) ** 0.2)
            ),
            "c/m is upside down: many chunks cost more": partial(
                captions._meteor, penalised=lambda F, chunks, m: F * (1 - 0.6 * (m / chunks) ** 0.2)
            ),
            "c is not divided by m": partial(
                captions._meteor, penalised=lambda F, chunks, m: F * (1 - 0.6 * chunks**0.2)
            ),
            "c is divided by m, the number of pairs, not by the number of words said": lambda pairs, said, wanted: (
                captions._meteor(
                    pairs, said, wanted, penalised=lambda F, chunks, m: captions._penalised(F, chunks, said)
                )
            ),
            "this is F: the penalty for chunks is missing": partial(captions._meteor, penalised=lambda F, *_: F),
            "this is the penalty's factor alone: F is missing": partial(
                captions._meteor, penalised=lambda F, chunks, m: captions._penalised(1.0, chunks, m)
            ),
            "this is what the penalty takes away: subtract it from 1": partial(
                captions._meteor, penalised=lambda F, chunks, m: F - captions._penalised(F, chunks, m)
            ),
            "the penalty is subtracted from F: it is subtracted from 1, and F multiplied by that": partial(
                captions._meteor, penalised=lambda F, chunks, m: F - 1 + captions._penalised(1.0, chunks, m)
            ),
            "without a pair METEOR is 0": partial(captions._meteor, none=1.0),
            "this is in percent: METEOR is from 0 to 1": lambda *x: 100 * captions.meteor_core(*x),
        },
        says="alignments in order and out of order, short captions, long ones and equal ones",
        others=(_meteor_by_runs,),
        tolerance=1e-6,
    ),
    explain(
        "7.10",
        "why_too_high",
        right="a",
        wrong={
            "b": "both are scored with the same references and the same rule: that is not the difference",
            "c": "the beam would make generated captions better, not the others",
            "d": "nothing was learnt from the test photographs: it is the test's own words that are given away",
        },
        title="BLEU under teacher forcing",
        difficulty=1,
        minutes=3,
        equation="section 5.2",
        after="Teacher forcing gives a false BLEU",
        says="a model that is told the reference's last word at every step repeats its phrases, and cannot go astray",
    ),
)
