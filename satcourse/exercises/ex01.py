"""Exercises of notebook 01: attention before images."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Task, explain, numbers, predict, sums_to_one
from satcourse.lessons.translation import masked_softmax
from satlib.model.attention import DotEnergy, SoftAttention

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
B, L, D = 2, 5, 4


def attend(y: Tensor, scores: Tensor) -> Tensor:
    """One softmax and one weighted mean: y (L, D), scores (L,) -> (D,)."""
    return masked_softmax(scores[None], torch.ones(1, len(scores), dtype=torch.bool))[0] @ y


def dot_energies(a: Tensor, s: Tensor) -> Tensor:
    """The energy 'dot' of satlib."""
    energy = DotEnergy(a.shape[2], s.shape[1], 0)
    return energy(energy.keys(a), s)


def masked_weights(e: Tensor, mask: Tensor) -> Tensor:
    """Weights over words alone, as satlib's translator has them."""
    return masked_softmax(e, mask)


def _after(e: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(e, 1) * mask


def _by_row(e: Tensor, mask: Tensor) -> Tensor:
    rows = torch.zeros_like(e)
    for row, (energies, words) in enumerate(zip(e, mask, strict=True)):
        rows[row, words] = torch.softmax(energies[words], 0)
    return rows


def hop(m: Tensor, c: Tensor, u: Tensor) -> Tensor:
    """One look of a memory network: satlib's soft attention, its keys from elsewhere; and the question is added."""
    return SoftAttention(DotEnergy(m.shape[2], m.shape[2], 0))(c, m, u).z + u


def _hop(m: Tensor, c: Tensor, u: Tensor, dim: int = 1) -> Tensor:
    return torch.einsum("bl,bld->bd", torch.softmax(torch.einsum("bld,bd->bl", m, u), dim), c) + u


def alignment(a: Tensor, s: Tensor, E: Tensor, step: Step) -> Tensor:
    """The weights (C, L) before each word: places a (L, D), first state s (D,), the words before E (C, m)."""
    return _alignment(a, s, E, step)


def _alignment(a: Tensor, s: Tensor, E: Tensor, step: Step, asks: str = "new") -> Tensor:
    """As `alignment`, or each word asks with the "old" state of the word before, always the "first" one, or the "context"."""
    rows, query = [], s
    for Ey in E:
        alpha = torch.softmax(a @ query, 0)
        z, before = alpha @ a, s
        s = step(Ey, z, s)
        query = {"new": s, "old": before, "first": query, "context": z}[asks]
        rows.append(alpha)
    return torch.stack(rows)


def _after_the_step(a: Tensor, s: Tensor, E: Tensor, step: Step) -> Tensor:
    rows = []
    for Ey in E:
        s = step(Ey, torch.softmax(a @ s, 0) @ a, s)
        rows.append(torch.softmax(a @ s, 0))
    return torch.stack(rows)


def _recursive(a: Tensor, s: Tensor, E: Tensor, step: Step) -> Tensor:
    alpha = torch.softmax((a * s).sum(1), 0)
    rest = [_recursive(a, step(E[0], (alpha.unsqueeze(1) * a).sum(0), s), E[1:], step)] if len(E) > 1 else []
    return torch.cat([alpha.unsqueeze(0), *rest])


def _sentences() -> list[tuple[Tensor, Tensor, Tensor, Step]]:
    def step_of(seed: int) -> Step:
        W, Z, U = (numbers(D, D, seed=seed + i) for i in range(3))
        return lambda Ey, z, s: torch.tanh(W @ Ey + Z @ z + U @ s)

    return [
        (numbers(L, D, seed=seed), numbers(D, seed=seed + 1), numbers(words, D, seed=seed + 2), step_of(seed + 3))
        for seed, words in ((0, 4), (10, 3))
    ]


def sharper_weight() -> float:
    """The first word's weight after 5 is added to the scores 2, 0, 0, 0 and the sums are doubled."""
    return torch.softmax(2 * (torch.tensor([2.0, 0.0, 0.0, 0.0]) + 5), 0)[0].item()


def _masks() -> list[tuple[Tensor, Tensor]]:
    return [
        (numbers(3, L), torch.arange(L) < torch.tensor([[5], [3], [1]])),
        (numbers(2, 3, seed=1, scale=3), torch.tensor([[True, False, True], [False, True, True]])),
    ]


def _padding_is_left_out(inputs: Sequence[Any], result: Any) -> str | None:
    """Padding has a weight of exactly 0."""
    weight = result[~inputs[1]].max().item()
    if 0 < weight < 1:
        return f"padding has a weight of {weight:.2g}: it must be 0, for which its energy is minus infinity"
    return None


TASKS = (
    Task(
        id="1.1",
        name="attend",
        title="Scores, weights, one mean",
        difficulty=1,
        minutes=4,
        equation="Bahdanau et al., section 3.1",
        after="What attention computes",
        reference=attend,
        cases=lambda: [(numbers(L, D), numbers(L, seed=1)), (numbers(2, 3, seed=2), numbers(2, seed=3, scale=4))],
        mistakes={
            "the scores have no part in it: this is the plain mean of the inputs": lambda y, s: y.mean(0),
            "the scores weigh the inputs as they are: a softmax comes first": lambda y, s: s @ y,
            "the weights do not sum to one: exp is there, and the division by the sum is missing": lambda y, s: (
                s.exp() @ y
            ),
            "the weighted inputs are there, and their sum is missing": lambda y, s: torch.softmax(s, 0)[:, None] * y,
            "summed over the dimensions of each input: sum over the inputs, so that one vector is left": lambda y, s: (
                torch.softmax(s, 0)[:, None] * y
            ).sum(1),
        },
        says="values for 5 and for 2 inputs",
        others=(
            lambda y, s: sum(w * each for w, each in zip(torch.softmax(s, 0), y, strict=True)),
            lambda y, s: torch.einsum("l,ld->d", torch.softmax(s.double(), 0), y.double()),
        ),
    ),
    Task(
        id="1.2",
        name="dot_energies",
        title="A question to each word",
        difficulty=1,
        minutes=4,
        equation="Luong et al., section 3.1",
        after="Two ways to score",
        reference=dot_energies,
        cases=lambda: [(numbers(B, L, D), numbers(B, D, seed=1)), (numbers(4, 4, 4, seed=2), numbers(4, 4, seed=3))],
        mistakes={
            "the products are there, and their sum over the dimensions is missing": lambda a, s: a * s[:, None],
            "summed over the words: sum over the dimensions, so that each word has one energy": lambda a, s: (
                a * s[:, None]
            ).sum(1),
            "these are weights already: energies come before the softmax": lambda a, s: torch.softmax(
                dot_energies(a, s), 1
            ),
            "divided by the root of D: that is scaled dot-product attention; Luong's dot is not scaled": lambda a, s: (
                dot_energies(a, s) / a.shape[2] ** 0.5
            ),
            "every state asks every sentence, and the result has an axis too many: state b asks sentence b alone": lambda a, s: (
                a @ s.T
            ),
        },
        says="values against satlib's energy 'dot', for two sizes",
        others=(
            lambda a, s: torch.einsum("bld,bd->bl", a, s),
            lambda a, s: torch.stack(
                [torch.stack([word.dot(state) for word in sentence]) for sentence, state in zip(a, s, strict=True)]
            ),
            lambda a, s: (a.double() * s.double()[:, None]).sum(2),
        ),
    ),
    Task(
        id="1.3",
        name="masked_weights",
        title="Words that are not there",
        difficulty=2,
        minutes=8,
        equation="notebook 01, masked softmax",
        after="Words that are not there",
        reference=masked_weights,
        cases=_masks,
        mistakes={
            "padding not masked: words that are not there get weight": lambda e, mask: torch.softmax(e, 1),
            "masked after the softmax: what is left does not sum to one; mask the energies before": _after,
            "the mask is the wrong way round: only padding has weight, and a sentence without padding gets NaN": (
                lambda e, mask: torch.softmax(e.masked_fill(mask, -torch.inf), 1)
            ),
            "padding got an energy of 0, which is a weight like any other: exp(0) = 1; it needs minus infinity": lambda e, mask: (
                torch.softmax(e * mask, 1)
            ),
            "softmax over the batch axis: each sentence's weights sum to 1 over its words": lambda e, mask: (
                torch.softmax(e.masked_fill(~mask, -torch.inf), 0).nan_to_num()
            ),
        },
        says="sentences of 5, 3, 2 and 1 words, weights that sum to 1 over words alone",
        others=(
            _by_row,
            lambda e, mask: _after(e, mask) / _after(e, mask).sum(1, keepdim=True),
            lambda e, mask: torch.softmax(torch.where(mask, e.double(), torch.tensor(-1e9).double()), -1),
        ),
        invariants=(_padding_is_left_out, sums_to_one(1, over="the words")),
    ),
    Task(
        id="1.4",
        name="hop",
        title="One look into a memory",
        difficulty=2,
        minutes=8,
        equation="Sukhbaatar et al., section 2.1",
        after="A memory network",
        reference=hop,
        cases=lambda: [
            (numbers(B, L, D), numbers(B, L, D, seed=1), numbers(B, D, seed=2)),
            (numbers(3, 3, 3, seed=3), numbers(3, 3, 3, seed=4), numbers(3, 3, seed=5)),
        ],
        mistakes={
            "the question u is not added to what was read": lambda m, c, u: _hop(m, c, u) - u,
            "what is read are the addresses m: read the contents c": lambda m, c, u: _hop(m, m, u),
            "softmax over the batch axis: each story has weights of its own": lambda m, c, u: _hop(m, c, u, 0),
            "the softmax is missing: scores are not weights": lambda m, c, u: (
                torch.einsum("bl,bld->bd", torch.einsum("bld,bd->bl", m, u), c) + u
            ),
            "m and c have changed places: the question is compared with the addresses m, and the contents c are read": lambda m, c, u: (
                _hop(c, m, u)
            ),
        },
        says="values against satlib's soft attention with keys of their own",
        others=(
            _hop,
            lambda m, c, u: torch.stack([torch.softmax(M @ q, 0) @ C + q for M, C, q in zip(m, c, u, strict=True)]),
        ),
    ),
    Task(
        id="1.5",
        name="alignment",
        kind="bug",
        title="One row late",
        difficulty=2,
        minutes=5,
        equation="Bahdanau et al., section 3.1",
        after="The alignment matrix",
        reference=alignment,
        start=partial(_alignment, asks="old"),
        cases=_sentences,
        mistakes={
            "every word asks with the first state: the rows are all alike": partial(_alignment, asks="first"),
            "now the matrix is a row early: the weights before a word come from the state before that word": (
                _after_the_step
            ),
            "the first row is cut off, and the others are late as before: mend with which state a word asks": (
                lambda *x: _alignment(*x, "old")[1:]
            ),
            "the rows are rolled, and the first is the last now: mend with which state a word asks": (
                lambda *x: _alignment(*x, "old").roll(-1, 0)
            ),
            "the context asks for the next word: the new state should": partial(_alignment, asks="context"),
        },
        says="every row from the state just before its word, in two sentences",
        others=(_recursive, lambda *x: alignment(*x).double()),
        given=lambda a, s, E, step: f"a sentence of {len(a)} words, a translation of {len(E)}",
    ),
    predict(
        "1.6",
        "new_weight",
        truth=sharper_weight,
        wrong={
            "that is the weight after the 5 alone, which changes nothing; doubling changes the differences": math.exp(2)
            / (math.exp(2) + 3),
            "the ratio of two weights is exp of a difference of scores: doubling the scores squares it, it does not double it": (
                2 * math.exp(2) / (2 * math.exp(2) + 3)
            ),
            "that is what halving does: larger differences make the weights sharper, not flatter": math.exp(1)
            / (math.exp(1) + 3),
            "weights are no shares of the scores: a softmax takes exp of them first": 7 / 22,
            "a weight is a number between 0 and 1, no percentage": (2.0, 100.0),
        },
        tolerance=0.02,
        title="Shift and stretch",
        difficulty=1,
        minutes=3,
        equation="notebook 01, the temperature",
        after="Move the temperature",
        says="a constant cancels in the softmax; a factor of 2 squares the ratio of any two weights",
    ),
    explain(
        "1.7",
        "why_it_fails",
        right="d",
        wrong={
            "a": "it was trained on sentences of 3 to 20 words, the same as the one with attention",
            "b": "the one with attention is scored by the same BLEU on the same sentences, and hardly falls",
            "c": "the encoder reads in both directions: one of its last states has just read the beginning",
        },
        title="What gets lost in long sentences",
        difficulty=1,
        minutes=3,
        equation="Bahdanau et al., section 1",
        after="The translator with attention",
        says="128 numbers for 6 words or for 20; attention has 128 for each word",
    ),
)
