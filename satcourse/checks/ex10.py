"""Exercises of notebook 10: attention with heads, light moved in some, a gate, questions and rewards; and the project."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from satcourse.checks import ex02
from satcourse.checks.task import Answer, distribution, exercise, numbers, with_gradients
from satcourse.lessons.vectors import Vectors
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.images import SIZE
from satlib.evaluation.plots import END_LABEL
from satlib.model import installed, transformer
from satlib.model.captioner import Captioner

B, C, L, d, HEADS = 2, 3, 5, 8, 2
SCENES, SEED = 100, 1_000_000  # of the project's check: scenes that no notebook has seen
WORDS_BAR, MAPS_BAR = (
    160,
    0.5,
)  # objects of 200 named right; the share of the words whose map peaks on the object
PASSES = "both bars are passed"


@exercise(
    "10.1", "Where the heads look", difficulty=2, minutes=8, equation="Vaswani et al., section 3.2"
)
def weights(
    q: Tensor,
    k: Tensor,
    heads: int,
    visible: Tensor | None = None,
    *,
    root: Answer = math.sqrt,
    hidden: float = -torch.inf,
    cut: Answer = transformer.split,
) -> Tensor:
    """The softmax of q . k / sqrt(d / heads) over the visible keys; each head has d / heads neighbouring numbers: (B, heads, C, L)."""
    q, k = cut(q, heads), cut(k, heads)
    e = q @ k.mT / root(q.shape[-1])
    return torch.softmax(e if visible is None else e.masked_fill(~visible, hidden), -1)


weights.says = "two heads and four, with and without a mask, large energies; the gradients"
weights.cases = lambda: [
    (numbers(B, C, d), numbers(B, L, d, seed=1), HEADS),
    (numbers(B, 4, d, seed=2, scale=3), numbers(B, 4, d, seed=3, scale=3), 4, visible(0, 4)),
]
weights.observe = with_gradients("q", "k")
weights.mistakes = {
    "the energies are not divided by the square root of d / heads": partial(
        weights, root=lambda n: 1
    ),
    "the energies are divided by d / heads: divide by its square root": partial(
        weights, root=float
    ),
    "divided by the root of d: each head's dot product has only d / heads terms": partial(
        weights, root=lambda n: d**0.5
    ),
    "hidden keys have the energy 0, a weight too: make it minus infinity": partial(
        weights, hidden=0.0
    ),
    "True is visible: hide the others": lambda *x: weights(*x[:3], *(~y for y in x[3:])),
    "cut into heads in the wrong order: first (B, C, heads, d / heads), then exchange C and heads": (
        partial(weights, cut=lambda x, heads: x.reshape(len(x), heads, x.shape[1], -1))
    ),
}


@exercise(
    "10.2", "What the heads read", difficulty=2, minutes=6, equation="Vaswani et al., section 3.2.2"
)
def read(alpha: Tensor, v: Tensor) -> Tensor:
    """Each head reads its own share of the values (B, L, d), d / heads neighbours, and the shares are joined: (B, C, d)."""
    return transformer.joined(alpha @ transformer.split(v, alpha.shape[1]))


read.says = "two heads and three, each with its share; the gradients"
read.cases = lambda: [
    (distribution(B, HEADS, C, L, sharp=2), numbers(B, L, d, seed=1)),
    (distribution(1, 3, 4, 4, seed=2, sharp=2), numbers(1, 4, 6, seed=3)),
]
read.observe = with_gradients("alpha", "v")
read.mistakes = {
    "the maps are averaged: each head reads its own share of v": lambda alpha, v: alpha.mean(1) @ v,
}


@exercise(
    "10.3",
    "Who may look at whom",
    difficulty=1,
    minutes=4,
    equation="Vaswani et al., section 3.2.3",
)
def visible(places: int, words: int) -> Tensor:
    """True where the row may look at the column: places at all places, words at all places and the words up to themselves."""
    mask = torch.ones(places + words, places + words).tril() > 0
    mask[:places, :places] = True
    return mask


visible.says = "words alone, and words after places"
visible.cases = lambda: [(0, 4), (3, 2), (2, 5)]
visible.mistakes = {
    "a place sees only those before it: the whole picture was there first": lambda *n: (
        torch.ones(sum(n), sum(n)).tril() > 0
    ),
    "a word may look at itself": lambda p, w: visible(p, w) & ~torch.diag(torch.arange(p + w) >= p),
    "a word sees those after it: that is the caption which it should predict": (
        lambda p, w: (torch.arange(p + w) >= p).unsqueeze(1) | (torch.arange(p + w) < p)
    ),
}


@exercise("10.4", "Keys and values, kept", difficulty=2, minutes=8, equation="Shazeer, 2019")
def one_more(
    q: Tensor, k: Tensor, v: Tensor, kept: Sequence[Tensor], heads: int
) -> tuple[Tensor, Any]:
    """What the newest word reads of all words up to itself, with `heads` heads; and all their keys and values, (B, t + 1, d)."""
    keys, values = torch.cat([kept[0], k], 1), torch.cat([kept[1], v], 1)
    return read(weights(q, keys, heads), values), (keys, values)


one_more.says = "the first word and the fourth"
one_more.parts = ("what it reads", "what is kept")
one_more.cases = lambda: [
    (*numbers(3, B, 1, d), tuple(numbers(2, B, t, d, seed=1)), heads)
    for t, heads in ((3, HEADS), (0, 4))
]
one_more.mistakes = {
    "the word itself is missing: keep its key and value before it reads": (
        lambda q, k, v, kept, heads: (
            read(weights(q, kept[0], heads), kept[1]),
            one_more(q, k, v, kept, heads)[1],
        )
    ),
}


def _lights(*words: int, seed: int = 0) -> Tensor:
    """Maps (B, C, L) of some words, dark at their first place; zeros of others."""
    light = torch.zeros(B, C, L)
    light[:, list(words), 1:] = distribution(B, len(words), L - 1, seed=seed, sharp=2)
    light[0, words[0]] = 0
    return light


@exercise("10.5", "Move the light in some heads", difficulty=2, minutes=6, equation="notebook 09")
def force(alpha: Tensor, light: Tensor, moved: Tensor) -> Tensor:
    """The maps (B, heads, C, L), in the moved heads replaced by the word's light (B, C, L); where that is all zeros, their own."""
    changed = (light.sum(-1, keepdim=True) > 0).unsqueeze(1) & moved.view(-1, 1, 1)
    return torch.where(changed, light.unsqueeze(1), alpha)


force.says = "some heads and all, some words, and rows of zeros"
force.cases = lambda: [
    (distribution(B, 4, C, L), _lights(1), torch.tensor([True, False, False, True])),
    (distribution(B, 3, C, L, seed=1), _lights(0, 2, seed=2), torch.tensor([True, True, True])),
]
force.mistakes = {
    "a row of zeros means that the maps stay": (
        lambda alpha, light, moved: torch.where(moved.view(-1, 1, 1), light.unsqueeze(1), alpha)
    ),
}


@exercise(
    "10.6",
    "A gate that starts closed",
    difficulty=1,
    minutes=3,
    equation="Alayrac et al., section 2.2",
)
def gated(x: Tensor, found: Tensor, g: Tensor) -> Tensor:
    """All of x (B, C, d), and added to it tanh(g) times what was found."""
    return x + torch.tanh(g) * found


gated.says = "a gate that is shut, open and negative; the gradients"
gated.cases = lambda: [
    (numbers(B, C, d), numbers(B, C, d, seed=1), torch.tensor(g)) for g in (-2.0, 0.8, 0.0)
]
gated.observe = with_gradients("x", "found", "g")
gated.mistakes = {
    "a sigmoid is half open at g = 0: with tanh it is shut": lambda x, found, g: (
        x + torch.sigmoid(g) * found
    ),
    "without the tanh nothing keeps it below 1": lambda x, found, g: x + g * found,
}


def _jury(dark: float, *speakers: tuple[float, list[int]]) -> Callable[[Tensor], float]:
    """What stays: `dark`, and more for each group of like heads of which one sees."""
    return lambda moved: dark + sum(share for share, group in speakers if not moved[group].all())


@exercise("10.7", "The head without a vote", difficulty=2, minutes=8, equation="notebook 10")
def heard(stay: Callable[[Tensor], float], heads: int) -> list[float]:
    """What stays if only this head keeps its map, minus what stays if none does, for each head."""
    dark = stay(torch.ones(heads) > 0)
    return [stay(torch.arange(heads) != head) - dark for head in range(heads)]


heard.says = "heads that say the same are heard, a mute one is not, and one disturbs"
heard.cases = lambda: [
    (_jury(10, (30, [0]), (50, [1, 2, 4])), 5),
    (_jury(20, (60, [0, 1]), (-5, [2])), 3),
]
heard.observe = lambda answer, *inputs: (
    got.tolist() if isinstance(got := answer(*inputs), Tensor) else got
)
heard.mistakes = {
    "the artefact lives: heads that say the same look mute while the others speak; blind all but one": (
        lambda stay, heads: [
            stay(torch.zeros(heads) > 0) - stay(torch.arange(heads) == h) for h in range(heads)
        ]
    ),
    "`moved` are those that lose their maps": (
        lambda stay, heads: [
            stay(torch.arange(heads) == h) - stay(torch.ones(heads) > 0) for h in range(heads)
        ]
    ),
    "a mute head scores: take away what stays with all heads blind": (
        lambda stay, heads: [stay(torch.arange(heads) != h) for h in range(heads)]
    ),
}


@exercise("10.8", "Whose merit it is", difficulty=2, minutes=8, equation="Shapley, 1953")
def shapley(kept: Sequence[float], heads: int) -> list[float]:
    """What each head adds when it is seated, the mean over all orders: head 0 is the last bit of n in kept[n]."""
    orders, values = [*permutations(range(heads))], [0.0] * heads
    for order in orders:
        seated = 0
        for head in order:
            values[head] += (kept[seated | 1 << head] - kept[seated]) / len(orders)
            seated |= 1 << head
    return values


shapley.says = (
    "four games of two to four heads: twins, a pair that works only together, one that disturbs"
)
shapley.cases = lambda: [
    ([0, 1, 2, 5], 2),
    ([3, 9, 9, 9, 4, 12, 12, 12], 3),
    (numbers(8).tolist(), 3),
    (numbers(16, seed=1).tolist(), 4),
]
shapley.observe = heard.observe
shapley.mistakes = {
    "this is what is lost without each head": lambda kept, heads: [
        kept[-1] - kept[~(1 << h)] for h in range(heads)
    ],
}


@exercise("10.9", "Better than its group", difficulty=1, minutes=5, equation="Liu et al., 2025")
def group_loss(log_p: Tensor, rewards: Tensor) -> Tensor:
    """The mean over all answers, (N, G), of -log p times (reward - its group's mean), divided by no deviation."""
    return -((rewards - rewards.mean(1, keepdim=True)) * log_p).mean()


group_loss.says = "groups that agree teach nothing; the gradient at log p"
group_loss.cases = lambda: [
    (numbers(4, 4) - 4, torch.tensor([[0.0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]])),
    (numbers(2, 2, seed=1) - 4, torch.eye(2)),
]
group_loss.observe = with_gradients("log_p")
group_loss.mistakes = {
    "there is no baseline: take off the group's mean": lambda log_p, rewards: (
        -(rewards * log_p).mean()
    ),
    "one mean for all groups: every answer to an easy question would look good": lambda log_p, rewards: (
        -((rewards - rewards.mean()) * log_p).mean()
    ),
    "this is GRPO: do not divide by the standard deviation": lambda log_p, rewards: group_loss(
        log_p, rewards / rewards.std(1, keepdim=True).clamp(min=1e-6)
    ),
}


@cache
def _project() -> tuple[Captioner, list[scenes.Scene], Tensor]:
    """A trained model, scenes that no notebook has seen, and their annotation vectors (SCENES, L, D)."""
    captioner, data = (
        Captioner.load(installed.model("scenes-soft")),
        scenes.load(0, 0, SCENES, SEED),
    )
    ids = [example.image_id for example in data.examples]
    return (
        captioner,
        [scenes.scene(id, SEED) for id in ids],
        Vectors(captioner, Pixels(data), ids).a,
    )


@exercise("10.10", "Your captioner", difficulty=3, minutes=30, equation="equations 4 to 6")
def describe(a: Tensor) -> tuple[list[list[str]], Tensor]:
    """Greedy captions by `scenes-soft`, and their maps: a (B, L, D) -> B lists of words, (B, C, L)."""
    captioner, *_ = _project()
    output = [best for (best,) in captioner.hypotheses(a, beam=1)]
    captions = [captioner.vocabulary.decode(each.words) for each in output]
    maps = [each.alphas.view(len(each.alphas), -1) for each in output]
    return captions, torch.nn.utils.rnn.pad_sequence(
        maps, batch_first=True, padding_value=1 / a.shape[1]
    )


def named_right(words: Sequence[str], scene: scenes.Scene) -> int:
    """How many of the two objects of a scene a caption names with the right colour and shape."""
    phrases = [dict(phrase.attributes.values()) for phrase in scenes.grammar.phrases(words)]
    named = [(phrase.get("colour"), phrase.get("shape")) for phrase in phrases]
    return sum((thing.colour, thing.shape) in named for thing in scene.objects)


def share_on_objects(
    captions: Sequence[Sequence[str]], maps: Tensor, drawn: Sequence[scenes.Scene]
) -> float:
    """Of the words that describe an object rightly, the share whose map, of (B, C, L), peaks in the object's box."""
    hits, side = [], math.isqrt(maps.shape[2])
    for words, alphas, scene in zip(captions, maps, drawn, strict=True):
        for t, number in enumerate(scenes.mentions(words, scene)):
            if number is not None:
                y, x = ex02.centre(int(alphas[t].argmax()), (side, side), SIZE)
                thing = scene.objects[number]
                (middle_x, middle_y), half = thing.centre, thing.diameter / 2
                across = middle_x - half <= x <= middle_x + half
                hits.append(across and middle_y - half <= y <= middle_y + half)
    return sum(hits) / max(1, len(hits))


def judge(answer: Answer, a: Tensor) -> list[str]:
    """[PASSES], or what is missing in a sentence, followed by the captions."""
    result, (_, drawn, _) = answer(a), _project()
    form = [
        "expected B captions of words, decoded and without the end mark, and maps (B, C, L) that all sum to 1"
    ]
    try:
        captions = [
            (each if isinstance(each, str) else " ".join(each)).split() for each in result[0]
        ]
        fits = (
            all({END_LABEL, "<end>"}.isdisjoint(each) for each in captions)
            and result[1].shape[::2] == a.shape[:2]
        )
        fits &= max(map(len, captions)) <= result[1].shape[1] and bool(
            ((result[1].sum(2) - 1).abs() < 1e-3).all()
        )
    except Exception:  # of whatever form the result is
        return form
    if not fits or len(captions) != len(a):
        return form
    right = sum(map(named_right, captions, drawn))
    own, late, early = (share_on_objects(captions, result[1].roll(n, 1), drawn) for n in (0, 1, -1))
    if right >= WORDS_BAR and own >= MAPS_BAR and own > max(late, early):
        return [PASSES]
    named = (
        f"{right} of {2 * SCENES} objects have the right colour and shape (the bar is {WORDS_BAR})"
    )
    peaks = f"{own:.0%} of the words for an object have the peak of their map on it (the bar is {MAPS_BAR:.0%})"
    moved = f"by the maps of the words before them {late:.0%}, after them {early:.0%}: their own must be the best"
    return [f"{named}; {peaks}; {moved}", *map(" ".join, captions)]


describe.says = f"at least {WORDS_BAR} of {2 * SCENES} objects of new scenes named right; each word's own map beats its neighbours'"
describe.cases = lambda: [(_project()[2],)]
describe.observe = judge
describe.advise = lambda expected, got: got[0]
describe.seconds = 120.0
