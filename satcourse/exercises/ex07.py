"""Exercises of notebook 07: captions from a model, and how captions are judged."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises import captions
from satcourse.exercises.captions import END, NextWords, most, ngrams
from satcourse.exercises.task import Task, between, chosen_class_seed, distribution, sums_to_one
from satlib.data import scenes
from satlib.data.text import tokenise
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


def nucleus(p: Tensor, share: float) -> Tensor:
    """The distribution p (K,) of its likeliest words alone: the fewest that have at least `share` of it together."""
    order = p.argsort(descending=True)
    before = p[order].cumsum(0) - p[order]  # what the likelier words have
    return _only(p, order[before < share])


def _only(p: Tensor, words: Tensor) -> Tensor:
    """The distribution p (K,) of some words alone."""
    result = torch.zeros_like(p)
    result[words] = p[words]
    return result / result.sum()


def _one_by_one(p: Tensor, share: float) -> Tensor:
    left, kept = p.tolist(), []
    while sum(p[i].item() for i in kept) < share:
        kept.append(max(range(len(left)), key=left.__getitem__))
        left[kept[-1]] = -1.0
    return _only(p, torch.tensor(kept))


def _nuclei() -> list[tuple[Any, ...]]:
    return [
        (torch.tensor([0.1, 0.45, 0.25, 0.2]), 0.6),
        (torch.tensor([0.1, 0.45, 0.25, 0.2]), 0.3),  # one word has more than that
        *((distribution(K, seed=seed), share) for K, seed, share in ((6, 0, 0.5), (8, 1, 0.8), (12, 2, 0.9))),
    ]


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


def chair(said: Sequence[set], there: Sequence[set]) -> tuple[float, float]:
    """CHAIR_i and CHAIR_s in percent: of the objects that captions name, those that are not there, and of the captions, those with one."""
    invented = [len(ours - theirs) for ours, theirs in zip(said, there, strict=True)]
    return 100 * sum(invented) / sum(map(len, said)), 100 * sum(map(bool, invented)) / len(said)


def _one_set_at_a_time(said: Sequence[set], there: Sequence[set]) -> tuple[float, float]:
    named, invented, captions = 0, 0, 0
    for ours, theirs in zip(said, there, strict=True):
        wrong = [thing for thing in ours if thing not in theirs]
        named, invented, captions = named + len(ours), invented + len(wrong), captions + (wrong != [])
    return 100 * invented / named, 100 * captions / len(said)


def _mean_of_shares(said: Sequence[set], there: Sequence[set]) -> tuple[float, float]:
    shares = [len(ours - theirs) / max(1, len(ours)) for ours, theirs in zip(said, there, strict=True)]
    return 100 * sum(shares) / len(shares), chair(said, there)[1]


def _sets() -> list[tuple[Any, ...]]:
    dog, man, ball, car, tree = "dog", "man", "ball", "car", "tree"
    return [
        ([{dog, man}, {ball}, {car, tree, man}], [{dog, ball, tree}, {ball, man}, {tree}]),
        ([{dog}, {dog, man, ball, tree}, {car, ball}, set()], [{man}, {dog, man, ball, tree}, {car, ball}, {dog}]),
        (
            [{("red", "star"), ("blue", "circle")}, {("red", "star")}],
            [{("red", "star"), ("blue", "square")}, {("red", "star")}],
        ),
    ]


OPPOSITES = {"above": "below", "over": "under", "left": "right", "big": "small", "large": "little", "huge": "tiny"}
OPPOSITES |= {"beneath": "over", "underneath": "over", "star": "circle", "disc": "square", "triangle": "star"}
OPPOSITES |= {other: word for word, other in [*OPPOSITES.items()] if other not in OPPOSITES}
ENOUGH = 70


def lie(references: list[str]) -> str:
    """A false sentence with a high BLEU-4 against five true ones: only the last word that has an opposite is changed."""
    words = references[0].split()
    last = max(place for place, word in enumerate(words) if word in OPPOSITES)
    return " ".join([*words[:last], OPPOSITES[words[last]], *words[last + 1 :]])


def _best_lie(references: list[str]) -> str:
    """The same by trying every single change of every reference."""
    tried = []
    for words in map(str.split, references):
        for place, word in enumerate(words):
            changed = " ".join([*words[:place], OPPOSITES.get(word, word), *words[place + 1 :]])
            if _false(changed, references):
                tried.append(changed)
    return max(tried, key=lambda caption: _bleu_4(caption, references))


def _false(caption: str, references: list[str]) -> bool:
    return scenes.grammar.parse(caption) != scenes.grammar.parse(references[0])


def _bleu_4(caption: str, references: list[str]) -> float:
    return metrics.bleu({"": [caption]}, {"": references})["BLEU-4 (no brevity penalty)"]


def _of_the_lie(answer: Callable[..., Any], references: list[str]) -> Any:
    """What 7.8 asks of a caption; of what is no caption, that itself."""
    caption = answer(references)
    if not isinstance(caption, str):
        return caption
    return {
        "a sentence of the scenes": scenes.grammar.parse(caption) is not None,
        "false": _false(caption, references),
        f"a BLEU-4 of {ENOUGH} or more": _bleu_4(caption, references) >= ENOUGH,
    }


def _references() -> list[tuple[Any, ...]]:
    """The references of four scenes of the class seed, each as words in small letters."""
    test = scenes.load(train=0, dev=0, test=4, seed=chosen_class_seed()).split("test")
    return [([" ".join(tokenise(line)) for line in each.references],) for each in test]


TASKS = (
    Task(
        id="7.1",
        name="greedy",
        title="The likeliest word, each time",
        difficulty=1,
        minutes=4,
        equation="equation 7",
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
        equation="Sutskever et al., section 3.2",
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
        name="nucleus",
        title="The nucleus",
        difficulty=2,
        minutes=8,
        equation="Holtzman et al., section 3.1",
        after="Sampling",
        reference=nucleus,
        cases=_nuclei,
        mistakes={
            "it is not normalised: what is left has to sum to 1 again": lambda p, share: (
                nucleus(p, share) * p[nucleus(p, share) > 0].sum()
            ),
            "the word that reaches the share is missing: keep words until they have it together": lambda p, share: (
                _only(p, p.argsort(descending=True)[p.sort(descending=True).values.cumsum(0) <= share])
            ),
            "a threshold for each word alone: what counts is what the words have together": lambda p, share: _only(
                p, torch.nonzero(p >= 1 - share)[:, 0]
            ),
            "the words are in another order than in p: put each probability back in its place": lambda p, share: (
                nucleus(p, share).sort(descending=True).values
            ),
            "the least likely words are kept: start with the likeliest": lambda p, share: _only(
                p, p.argsort()[p.sort().values.cumsum(0) - p.sort().values < share]
            ),
        },
        says="five distributions, one with a word that has the share alone",
        others=(_one_by_one,),
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
        name="bleu",
        title="BLEU of a corpus",
        difficulty=3,
        minutes=15,
        equation="Papineni et al., section 2.3",
        after="BLEU, by hand",
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
        id="7.6",
        name="chair",
        title="What captions invent",
        difficulty=1,
        minutes=6,
        equation="Rohrbach et al., section 3.1",
        after="What is true: CHAIR",
        reference=chair,
        cases=_sets,
        mistakes={
            "the mean of the captions' own shares: count over all captions before you divide": _mean_of_shares,
            "what is not mentioned is counted: an invention is said and not there": lambda said, there: chair(
                there, said
            ),
            "these are the objects that are there: count those that are not": lambda said, there: tuple(
                100 - share for share in chair(said, there)
            ),
            "the two numbers are exchanged: first the share of the objects": lambda said, there: chair(said, there)[
                ::-1
            ],
            "shares, not percent: multiply by 100": lambda said, there: tuple(x / 100 for x in chair(said, there)),
        },
        says="nine captions, one that names nothing among them",
        others=(_one_set_at_a_time, lambda said, there: list(chair(said, there))),
        invariants=(between(0, 100, "a percentage"),),
        parts=("the share of the objects", "the share of the captions"),
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
        name="lie",
        title="A lie that scores",
        difficulty=2,
        minutes=12,
        equation="Papineni et al., section 2.3",
        after="What they miss: captions made wrong on purpose",
        reference=lie,
        observe=_of_the_lie,
        cases=_references,
        given=lambda references: f"the references {references}",
        mistakes={
            "it is true: a program reads the same meaning in it as in the references": lambda references: references[0],
            f"BLEU-4 is below {ENOUGH}: where in a sentence does a changed word cost the fewest 4-grams?": lambda references: (
                "a tiny red star over a huge blue disc"
                if _false("a tiny red star over a huge blue disc", references)
                else "a tiny green star over a huge blue disc"
            ),
            "the scenes' grammar has no such sentence: keep it a sentence": lambda references: references[0] + " it",
        },
        says="four scenes: a sentence, false, and with a BLEU-4 that most true captions would envy",
        others=(_best_lie,),
    ),
)
