"""Exercises of notebook 07: captions from a model, and how captions are judged."""

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises import captions
from satcourse.exercises.captions import END, NextWords, most, ngrams
from satcourse.exercises.task import Task, between, distribution, explain, sums_to_one
from satcourse.widgets.steering import tempered
from satlib.evaluation import metrics

Prefix = tuple[str, ...]


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


def _search(next_words: NextWords, width: int, longest: int, **mistake: Any) -> tuple[list[str], float]:
    """The best of what `captions.beam` finishes; nothing if it finishes none."""
    finished, _ = captions.beam(next_words, width, longest, **mistake)
    words, total = max(finished, key=lambda each: each[::-1], default=((), -math.inf))
    return list(words), total


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


def clipped_precision(caption: list[str], references: list[list[str]], n: int) -> float:
    """The share of a caption's n-grams that a reference has, each counted no more often than in the reference that has most."""
    ours = ngrams(caption, n)
    if not ours:
        return 0.0
    return (
        sum(min(count, max(ngrams(each, n)[gram] for each in references)) for gram, count in ours.items())
        / ours.total()
    )


def _precision(caption: list[str], references: list[list[str]], n: int, largest: Callable[..., float] = max) -> float:
    ours, theirs = ngrams(caption, n), [ngrams(each, n) for each in references]
    result = 0.0
    for gram, count in ours.items():
        result += min(count, largest([each.get(gram, 0) for each in theirs]))
    return result / max(1, len(caption) - n + 1)


def brevity_penalty(length: int, references: list[int]) -> float:
    """1 if the caption is longer than the closest reference, else exp(1 - r / c); the shorter of two as close."""
    return _brevity(length, _closest(length, references))


def _brevity(length: int, r: float) -> float:
    return 1.0 if length >= r else math.exp(1 - r / length)


def bleu(captions: list[list[str]], references: list[list[list[str]]], N: int) -> float:
    """satlib's corpus BLEU-N without brevity penalty, 0 to 1."""
    image_ids = [str(i) for i in range(len(captions))]
    hypotheses = {image_id: [" ".join(words)] for image_id, words in zip(image_ids, captions, strict=True)}
    human = {
        image_id: [" ".join(words) for words in each] for image_id, each in zip(image_ids, references, strict=True)
    }
    result = metrics.bleu(hypotheses, human)[f"BLEU-{N} (no brevity penalty)"] / 100
    return result if result > 1e-4 else 0.0  # the COCO tools add a little to each number, so that nothing is quite 0


def _parts(captions: list[list[str]], references: list[list[list[str]]], N: int) -> list[tuple[float, int]]:
    """Hits and n-grams of each n."""
    parts = []
    for n in range(1, N + 1):
        totals = [max(0, len(words) - n + 1) for words in captions]
        hits = [
            _precision(words, each, n) * total for words, each, total in zip(captions, references, totals, strict=True)
        ]
        parts.append((sum(hits), sum(totals)))
    return parts


def _bleu(captions: list[list[str]], references: list[list[list[str]]], N: int) -> float:
    return math.prod(hits / max(1, total) for hits, total in _parts(captions, references, N)) ** (1 / N)


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
            "`longest` is not kept: there are more words than that": lambda table, longest: greedy(table, 50),
            "it goes on after the end mark: nothing follows it": lambda table, longest: (
                greedy(table, longest) + [END] * (longest - len(greedy(table, longest)))
            ),
            "only the word before is asked about: ask what follows all the words so far": lambda table, longest: greedy(
                lambda prefix: table(prefix[-1:]), longest
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
                table, width, longest, add=lambda total, p: total + p
            ),
            "only the last word counts: add its logarithm to that of the words before": lambda table, width, longest: (
                _search(table, width, longest, add=lambda total, p: math.log(p))
            ),
            "captions that ended early are forgotten: they stay in the race to the end": lambda table, width, longest: (
                _search(table, width, longest, keep="ended last")
            ),
            "it stops at the first finished caption: a beginning that still lives may become better": lambda *x: (
                _search(*x, keep="first")
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
            "divided by T after the softmax: divide log p by T before it": lambda p, T: p / T,
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
            "each n-gram counts once, however often it is said: count them": lambda caption, references, n: (
                len({gram for gram in ngrams(caption, n) if any(ngrams(each, n)[gram] for each in references)})
                / max(1, len(ngrams(caption, n)))
            ),
            "divided by the number of words: divide by the number of n-grams, n - 1 fewer": lambda caption, references, n: (
                _precision(caption, references, n) * max(1, len(caption) - n + 1) / len(caption)
            ),
        },
        says="single words, pairs and triples, repeated words, a caption without any pair",
        others=(
            _precision,
            lambda caption, references, n: (
                float((ngrams(caption, n) & most(references, n)).total()) / max(1, ngrams(caption, n).total())
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
            "the ratio is upside down: exp(1 - r / c)": lambda c, r: (
                1.0 if c >= _closest(c, r) else math.exp(1 - c / _closest(c, r))
            ),
            "the cases are exchanged: captions that are too short pay, the others do not": lambda c, r: (
                1.0 if c <= _closest(c, r) else math.exp(1 - _closest(c, r) / c)
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
                captions.search, keep="first"
            ),
            "captions that have not ended compete too: they count only if none has ended": partial(
                captions.search, both=True
            ),
            "only captions that ended last may win: keep those of all steps, and take the most probable": partial(
                captions.search, keep="ended last"
            ),
            "the search ends a word too early: it may take `longest` words, the end mark included": (
                lambda next_words, width, longest: captions.best_caption(next_words, width, longest - 1)
            ),
            "the end mark is not a word: leave it out of the caption": lambda *x: [*captions.best_caption(*x), END],
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
            "the reference with the most hits is taken: each n-gram may look for its own": lambda caption, references, n: (
                max(captions.hits(caption, [each], n) for each in references)
            ),
            "nothing counts: an empty Counter & another one is empty": lambda caption, references, n: captions.hits(
                caption, [], n
            ),
            "the two numbers are exchanged": lambda *x: captions.hits(*x)[::-1],
        },
        says="words and pairs of words, with two and three references",
        others=(
            lambda caption, references, n: [
                sum(
                    min(count, max(ngrams(each, n)[gram] for each in references))
                    for gram, count in ngrams(caption, n).items()
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
            "only the caption is looked at: a chunk has to run on in both sentences": partial(
                captions.meteor, breaks=lambda i, j: i != 1
            ),
            "the pairs come in any order: sort them first": partial(captions.meteor, order=list),
            "the breaks are counted: there is one chunk more": partial(captions.meteor, first=0),
            "this is F: the penalty for chunks is missing": lambda pairs, said, wanted: (
                captions.mean(len(pairs) / said, len(pairs) / wanted) if pairs else 0.0
            ),
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
