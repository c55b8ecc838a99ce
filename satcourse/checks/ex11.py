"""Exercises of notebook 11: attention with heads, light moved in some, and what a head is worth."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor

from satcourse.checks.task import Answer, Case, distribution, exercise, numbers, with_gradients
from satlib.model import transformer

B, C, L, d, HEADS = 2, 3, 5, 8, 2


@exercise(
    "11.1",
    "Where the heads look",
    difficulty=2,
    minutes=8,
    equation="Vaswani et al., section 3.2",
)
def weights(q: Tensor, k: Tensor, heads: int, visible: Tensor | None = None) -> Tensor:
    """The softmax of q . k / sqrt(d / heads) over the visible keys; each head has d / heads
    neighbouring numbers: (B, heads, C, L).
    """
    e = _energies(q, k, heads)
    if visible is not None:
        # Before the softmax, so that the visible keys alone share the weight.
        e = e.masked_fill(~visible, -torch.inf)
    return torch.softmax(e, -1)


def _energies(q: Tensor, k: Tensor, heads: int) -> Tensor:
    q = transformer.split(q, heads)  # (B, heads, C, d / heads)
    k = transformer.split(k, heads)  # (B, heads, L, d / heads)
    # A dot product of n terms of variance 1 has the variance n.
    return q @ k.mT / math.sqrt(q.shape[-1])


def _queries_and_keys() -> list[Case]:
    q = numbers(B, C, d)
    k = numbers(B, L, d, seed=1)

    # Words that look at words: as many queries as keys, and a mask.
    large_q = numbers(B, 4, d, seed=2, scale=3)
    large_k = numbers(B, 4, d, seed=3, scale=3)
    return [
        (q, k, HEADS),
        (large_q, large_k, 4, visible(0, 4)),
    ]


# Each of the next three multiplies q by what undoes, repeats or changes the division.
def _not_divided(q: Tensor, k: Tensor, heads: int, *mask: Tensor) -> Tensor:
    root = math.sqrt(d / heads)
    return weights(q * root, k, heads, *mask)


def _divided_twice(q: Tensor, k: Tensor, heads: int, *mask: Tensor) -> Tensor:
    root = math.sqrt(d / heads)
    return weights(q / root, k, heads, *mask)


def _hidden_at_0(q: Tensor, k: Tensor, heads: int, *mask: Tensor) -> Tensor:
    e = _energies(q, k, heads)
    if mask:
        e = e.masked_fill(~mask[0], 0.0)
    return torch.softmax(e, -1)


def _cut_without_transposing(q: Tensor, k: Tensor, heads: int, *mask: Tensor) -> Tensor:
    def cut(x: Tensor) -> Tensor:
        parts = x.reshape(len(x), heads, x.shape[1], -1)
        # Joined as they should have been cut: `weights` cuts them into the same parts.
        return transformer.joined(parts)

    return weights(cut(q), cut(k), heads, *mask)


weights.says = "two heads and four, with and without a mask, large energies; the gradients"
weights.cases = _queries_and_keys
weights.observe = with_gradients("q", "k")
weights.mistakes = {
    "the energies are not divided by the square root of d / heads": _not_divided,
    "the energies are divided by d / heads: divide by its square root": _divided_twice,
    "divided by the root of d: each head's dot product has only d / heads terms": (
        lambda q, k, heads, *mask: weights(q / math.sqrt(heads), k, heads, *mask)
    ),
    "hidden keys have the energy 0, a weight too: make it minus infinity": _hidden_at_0,
    "True is visible: hide the others": (
        lambda q, k, heads, *mask: weights(q, k, heads, *(~seen for seen in mask))
    ),
    "a head's numbers are neighbours: "
    "cut q and k into (heads, d / heads), not (d / heads, heads)": (
        lambda q, k, heads, *mask: weights(
            *(x.unflatten(2, (-1, heads)).mT.flatten(2) for x in (q, k)), heads, *mask
        )
    ),
    "cut into heads in the wrong order: "
    "first (B, C, heads, d / heads), then exchange C and heads": _cut_without_transposing,
}


@exercise(
    "11.2",
    "What the heads read",
    difficulty=2,
    minutes=6,
    equation="Vaswani et al., section 3.2.2",
)
def read(alpha: Tensor, v: Tensor) -> Tensor:
    """Each head reads its own share of the values (B, L, d), d / heads neighbours, and the shares
    are joined: (B, C, d).
    """
    heads = alpha.shape[1]
    shares = transformer.split(v, heads)  # (B, heads, L, d / heads)
    return transformer.joined(alpha @ shares)


read.says = "two heads and three, each with its share; the gradients"
read.cases = lambda: [
    (distribution(B, HEADS, C, L, sharp=2), numbers(B, L, d, seed=1)),
    (distribution(1, 3, 4, 4, seed=2, sharp=2), numbers(1, 4, 6, seed=3)),
]
read.observe = with_gradients("alpha", "v")
read.mistakes = {
    "the maps are averaged: each head reads its own share of v": (
        lambda alpha, v: alpha.mean(1) @ v
    ),
    "the shares are averaged: they are joined, side by side": (
        lambda alpha, v: (alpha @ transformer.split(v, alpha.shape[1])).mean(1)
    ),
    "each head reads all of v, and all are added: it reads d / heads neighbours of v": (
        lambda alpha, v: alpha.sum(1) @ v
    ),
    "each head reads all of v, and all are joined: it reads d / heads neighbours of v": (
        lambda alpha, v: transformer.joined(alpha @ v[:, None])
    ),
    "a head's numbers are neighbours: cut v into (heads, d / heads), not (d / heads, heads)": (
        lambda alpha, v: read(alpha, v.unflatten(2, (-1, alpha.shape[1])).mT.flatten(2))
    ),
    "v is cut in the wrong order: "
    "first (B, L, heads, d / heads), then exchange L and heads": lambda alpha, v: read(
        alpha, transformer.joined(v.reshape(len(v), alpha.shape[1], v.shape[1], -1))
    ),
}


@exercise(
    "11.3",
    "Who may look at whom",
    difficulty=1,
    minutes=4,
    equation="Vaswani et al., section 3.2.3",
)
def visible(places: int, words: int) -> Tensor:
    """True where the row may look at the column: places at all places, words at all places and the
    words up to themselves.
    """
    mask = torch.ones(places + words, places + words).tril() > 0
    # Places have no order: all of them are there from the start.
    mask[:places, :places] = True
    return mask


def _not_at_itself(places: int, words: int) -> Tensor:
    is_word = torch.arange(places + words) >= places
    return visible(places, words) & ~torch.diag(is_word)


def _words_to_come(places: int, words: int) -> Tensor:
    is_word = torch.arange(places + words) >= places
    # Words look at everything, and everything looks at places.
    return is_word.unsqueeze(1) | ~is_word


visible.says = "words alone, and words after places"
visible.cases = lambda: [
    (0, 4),
    (3, 2),
    (2, 5),
]
visible.mistakes = {
    "a place sees only those before it: the whole picture was there first": (
        lambda places, words: torch.ones(places + words, places + words).tril() > 0
    ),
    "a word may look at itself": _not_at_itself,
    "a word sees those after it: that is the caption which it should predict": _words_to_come,
    "words see no places: each looks at all of them": (
        lambda places, words: torch.block_diag(visible(places, 0), visible(0, words)) == 1
    ),
    "places look at words: they look at places alone": (
        lambda places, words: (
            visible(places, words) | (torch.arange(places + words) < places).unsqueeze(1)
        )
    ),
}


@exercise(
    "11.4",
    "Keys and values, kept",
    difficulty=2,
    minutes=8,
    equation="Shazeer, 2019",
)
def one_more(
    q: Tensor, k: Tensor, v: Tensor, kept: Sequence[Tensor], heads: int
) -> tuple[Tensor, Any]:
    """What the newest word reads of all words up to itself, with `heads` heads; and all their keys
    and values, (B, t + 1, d).
    """
    kept_keys, kept_values = kept
    keys = torch.cat([kept_keys, k], 1)
    values = torch.cat([kept_values, v], 1)
    # Without a mask: none of the words that are kept comes later.
    return read(weights(q, keys, heads), values), (keys, values)


def _newest_word(t: int, heads: int) -> Case:
    """A word after t others."""
    q, k, v = numbers(3, B, 1, d)
    kept = tuple(numbers(2, B, t, d, seed=1))
    return q, k, v, kept, heads


def _itself_missing(
    q: Tensor, k: Tensor, v: Tensor, kept: Sequence[Tensor], heads: int
) -> tuple[Tensor, Any]:
    keys, values = kept
    _, kept_now = one_more(q, k, v, kept, heads)
    return read(weights(q, keys, heads), values), kept_now


one_more.says = "the first word and the fourth"
one_more.parts = ("what it reads", "what is kept")
one_more.cases = lambda: [
    _newest_word(t=3, heads=HEADS),
    _newest_word(t=0, heads=4),
]
one_more.mistakes = {
    "the word itself is missing: keep its key and value before it reads": _itself_missing,
    "it reads the newest word alone: join its key and value to those that are kept, and read all": (
        lambda q, k, v, kept, heads: (read(weights(q, k, heads), v), kept)
    ),
    "only the newest word is kept: keep the others, too": (
        lambda q, k, v, *rest: (one_more(q, k, v, *rest)[0], (k, v))
    ),
    "the newest word is not kept: return the longer keys and values": (
        lambda q, k, v, kept, heads: (one_more(q, k, v, kept, heads)[0], kept)
    ),
    "the new value is joined to the keys: values to the values that are kept": (
        lambda q, k, v, kept, heads: one_more(q, k, v, (kept[0], kept[0]), heads)
    ),
    "join along the axis of the words, 1: axis 0 is the batch": (
        lambda q, k, v, kept, heads: torch.cat([kept[0], k])
    ),
}


@exercise(
    "11.5",
    "Move the light in some heads",
    difficulty=2,
    minutes=6,
    equation="notebook 10",
)
def force(alpha: Tensor, light: Tensor, moved: Tensor) -> Tensor:
    """The maps (B, heads, C, L), in the moved heads replaced by the word's light (B, C, L); where
    that is all zeros, their own.
    """
    # A map sums to 1; zeros ask for the model's own.
    has_light = light.sum(-1, keepdim=True) > 0  # (B, C, 1)
    changed = has_light.unsqueeze(1) & moved.view(-1, 1, 1)  # (B, heads, C, 1)
    return torch.where(changed, light.unsqueeze(1), alpha)


def _lights(*words: int, seed: int = 0) -> Tensor:
    """Maps (B, C, L) of some words, dark at their first place; zeros of others."""
    light = torch.zeros(B, C, L)
    light[:, list(words), 1:] = distribution(B, len(words), L - 1, seed=seed, sharp=2)
    # The same word of another caption keeps its light.
    light[0, words[0]] = 0
    return light


def _lit_captions() -> list[tuple[Tensor, Tensor, Tensor]]:
    two_of_four = torch.tensor([True, False, False, True])
    all_three = torch.tensor([True, True, True])
    return [
        (distribution(B, 4, C, L), _lights(1), two_of_four),
        (distribution(B, 3, C, L, seed=1), _lights(0, 2, seed=2), all_three),
    ]


force.says = "some heads and all, some words, and rows of zeros"
force.cases = _lit_captions
force.mistakes = {
    "a row of zeros means that the maps stay": (
        lambda alpha, light, moved: torch.where(moved.view(-1, 1, 1), light.unsqueeze(1), alpha)
    ),
    "zeros in a map are light, too: ask whether the word's whole row is zero, by its sum": (
        lambda alpha, light, moved: force(alpha, light, moved).where(light.unsqueeze(1) > 0, alpha)
    ),
    "`moved` has a place for each head: its axis is the one after the batch's": (
        lambda alpha, light, moved: alpha * moved.view(-1, 1)
    ),
    "the other heads are moved: True in `moved` is a head that gets the light": (
        lambda alpha, light, moved: force(alpha, light, ~moved)
    ),
}


@exercise(
    "11.6",
    "The head without a vote",
    difficulty=2,
    minutes=8,
    equation="notebook 11",
)
def heard(stay: Callable[[Tensor], float], heads: int) -> list[float]:
    """What stays if only this head keeps its map, minus what stays if none does, for each head."""
    # What stays in the dark is no head's merit: the words before give it away.
    dark = stay(_all(heads))
    return [stay(~_only(head, heads)) - dark for head in range(heads)]


def _all(heads: int) -> Tensor:
    return torch.ones(heads) > 0


def _only(head: int, heads: int) -> Tensor:
    """True for this head alone: (heads,)."""
    return torch.arange(heads) == head


def _jury(dark: float, *speakers: tuple[float, list[int]]) -> Callable[[Tensor], float]:
    """What stays: `dark`, and more for each group of like heads of which one sees."""

    def stay(moved: Tensor) -> float:
        result = dark
        for share, group in speakers:
            if not moved[group].all():
                result += share
        return result

    return stay


def _juries() -> list[tuple[Callable[[Tensor], float], int]]:
    # Head 3 is mute.
    of_five = _jury(10, (30, [0]), (50, [1, 2, 4]))
    # Head 2 disturbs.
    of_three = _jury(20, (60, [0, 1]), (-5, [2]))
    return [
        (of_five, 5),
        (of_three, 3),
    ]


def _as_a_list(answer: Answer, *inputs: Any) -> Any:
    # A tensor of the right numbers is as good as a list of them.
    result = answer(*inputs)
    return result.tolist() if isinstance(result, Tensor) else result


def _lost_without_it(stay: Callable[[Tensor], float], heads: int) -> list[float]:
    everything = stay(~_all(heads))
    return [everything - stay(_only(head, heads)) for head in range(heads)]


def _blind_alone(stay: Callable[[Tensor], float], heads: int) -> list[float]:
    dark = stay(_all(heads))
    return [stay(_only(head, heads)) - dark for head in range(heads)]


heard.says = "heads that say the same are heard, a mute one is not, and one disturbs"
heard.cases = _juries
heard.observe = _as_a_list
heard.mistakes = {
    "this lets an artefact pass: heads that say the same look mute while the others speak; "
    "blind all but one": _lost_without_it,
    "`moved` are those that lose their maps": _blind_alone,
    "a mute head scores: take away what stays with all heads blind": (
        lambda stay, heads: [stay(~_only(head, heads)) for head in range(heads)]
    ),
    "heads are counted from 0, not from 1": (
        lambda stay, heads: [
            stay(~_only(head + 1, heads)) - stay(_all(heads)) for head in range(heads)
        ]
    ),
    "percent of what stays in the dark: the difference itself is asked": (
        lambda stay, heads: [100 * more / stay(_all(heads)) for more in heard(stay, heads)]
    ),
    "what stays with all maps is taken away: take away what stays with none": (
        lambda stay, heads: [
            stay(~_only(head, heads)) - stay(~_all(heads)) for head in range(heads)
        ]
    ),
    "True in `moved` loses its map: here it means that it keeps it": (
        lambda *inputs: [-lost for lost in _lost_without_it(*inputs)]
    ),
}


@exercise(
    "11.7",
    "Whose merit it is",
    difficulty=2,
    minutes=8,
    equation="Shapley, 1953",
)
def shapley(kept: Sequence[float], heads: int) -> list[float]:
    """What each head adds when it is seated, the mean over all orders: head 0 is the last bit of n
    in kept[n].
    """
    orders = [*permutations(range(heads))]
    values = [0.0] * heads
    for order in orders:
        seated = 0  # a bit for each head
        for head in order:
            # What a head adds depends on who was seated before it.
            with_it = seated | 1 << head
            values[head] += (kept[with_it] - kept[seated]) / len(orders)
            seated = with_it
    return values


def _games() -> list[tuple[Sequence[float], int]]:
    # Together the two get 2 more than the sum of what each gets alone.
    pair = [0, 1, 2, 5]
    # Of heads 0 and 1 either will do; head 2 adds 1 alone, and 3 to one of them.
    twins = [3, 9, 9, 9, 4, 12, 12, 12]
    return [
        (pair, 2),
        (twins, 3),
        (numbers(8).tolist(), 3),
        (numbers(16, seed=1).tolist(), 4),
    ]


def _lost_if_it_leaves(kept: Sequence[float], heads: int) -> list[float]:
    # ~(1 << head) counts from the end: all bits but this one.
    return [kept[-1] - kept[~(1 << head)] for head in range(heads)]


def _of_coalitions(
    weight: Callable[[int, int], float], kept: Sequence[float], heads: int
) -> list[float]:
    """What each head adds to all that may be seated before it, by a weight of their number."""
    values = [0.0] * heads
    for head, seated in product(range(heads), range(2**heads)):
        with_it = seated | 1 << head
        if with_it != seated:
            share = weight(heads, seated.bit_count())
            values[head] += share * (kept[with_it] - kept[seated])
    return values


shapley.says = (
    "four games of two to four heads: twins, a pair that works only together, one that disturbs"
)
shapley.cases = _games
shapley.observe = _as_a_list
shapley.mistakes = {
    "this is what is lost without each head": _lost_if_it_leaves,
    "this is what each head adds alone: "
    "take the mean over all orders, in which others are seated before it": (
        lambda kept, heads: [kept[1 << head] - kept[0] for head in range(heads)]
    ),
    "all groups count alike (Banzhaf): those of middle size come up in fewer orders": partial(
        _of_coalitions, lambda heads, before: 2.0 ** (1 - heads)
    ),
    "the m before it are drawn from the others: comb(heads - 1, m), not comb(heads, m)": partial(
        _of_coalitions, lambda heads, before: 1 / heads / math.comb(heads, before)
    ),
    "the mean over the sizes is missing: divide by `heads`, too": partial(
        _of_coalitions, lambda heads, before: 1 / math.comb(heads - 1, before)
    ),
    "a group before a head cannot have all heads: head 0 is bit 1, head 1 bit 2, head 2 bit 4": (
        lambda kept, heads: 1 / math.comb(heads - 1, heads)
    ),
    "one order alone: the mean over all orders is asked for": lambda kept, heads: [
        kept[2 ** (head + 1) - 1] - kept[2**head - 1] for head in range(heads)
    ],
}
