"""Exercises of notebook 01: attention before images."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Task, numbers, sums_to_one
from satlib.data.text import END

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
Said = tuple[list[int], list[Tensor]]
L, D, K = 5, 4, 40


def greedy(step: Callable[..., tuple[Tensor, Tensor, Tensor]], s: Tensor, longest: int) -> Said:
    """The words that a decoder says, the end mark included, and the weights before each of them."""
    return _greedy(step, s, longest)


def _greedy(
    step: Callable[..., tuple[Tensor, Tensor, Tensor]],
    s: Tensor,
    longest: int,
    hears: bool = True,
    moves: bool = True,
    stops: bool = True,
    choose: Callable[[Tensor], Tensor] = torch.argmax,
) -> Said:
    words, weights, y = [], [], None
    while len(words) < longest and not (stops and words[-1:] == [END]):
        logits, new, alpha = step(y, s)
        words.append(int(choose(logits)))
        weights.append(alpha)
        y, s = (words[-1] if hears else None), (new if moves else s)
    return words, weights


def _without_end(step: Callable[..., tuple[Tensor, Tensor, Tensor]], s: Tensor, longest: int) -> Said:
    words, weights = _greedy(step, s, longest)
    kept = [word for word in words if word != END]
    return kept, weights[: len(kept)]


def _greedy_recursive(
    step: Callable[..., tuple[Tensor, Tensor, Tensor]], s: Tensor, longest: int, y: int | None = None
) -> Said:
    if not longest or y == END:
        return [], []
    logits, s, alpha = step(y, s)
    y = max(range(len(logits)), key=logits.tolist().__getitem__)
    words, weights = _greedy_recursive(step, s, longest - 1, y)
    return [y, *words], [alpha, *weights]


def _speakers() -> list[tuple[Callable[..., tuple[Tensor, Tensor, Tensor]], Tensor, int]]:
    """Decoders with random weights: one says the end mark as its fifth word, the other never does and has to be stopped."""

    def speaker(seed: int, last: float) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        E, U, W, a = (numbers(*shape, seed=seed + i) for i, shape in enumerate(((K, D), (D, D), (K, D), (L, D))))

        def step(y: int | None, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            said = s[-1]  # the number of words so far
            new = torch.tanh(U @ s[:D] + (0 if y is None else E[y]))
            logits = W @ new
            logits[END] = 100.0 if said >= last else -100.0
            return logits, torch.cat([new, said[None] + 1]), torch.softmax(a @ s[:D], 0)

        return step

    return [
        (speaker(seed, last), torch.cat([numbers(D, seed=seed + 9), torch.zeros(1)]), longest)
        for seed, last, longest in ((0, 4, 9), (20, 99, 6))
    ]


def attend(y: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """One softmax and one weighted mean: y (n, D), scores (n,) -> z (D,) and the weights (n,)."""
    alpha = torch.softmax(scores, 0)
    return alpha @ y, alpha


def masked_weights(e: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the words alone: e (B, L), mask (B, L), True at words -> (B, L), 0 at padding."""
    return torch.softmax(e.masked_fill(~mask, -torch.inf), 1)


def _after(e: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(e, 1) * mask


def _by_row(e: Tensor, mask: Tensor) -> Tensor:
    rows = torch.zeros_like(e)
    for row, (energies, words) in enumerate(zip(e, mask, strict=True)):
        rows[row, words] = torch.softmax(energies[words], 0)
    return rows


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
        name="greedy",
        title="Word by word",
        difficulty=2,
        minutes=10,
        equation="Bahdanau et al., section 3",
        reference=greedy,
        cases=_speakers,
        mistakes={
            "each step hears that there was no word before: feed it the word that was just said": partial(
                _greedy, hears=False
            ),
            "each step begins with the first state: hand the new state on": partial(_greedy, moves=False),
            "it goes on after the end mark: stop once END has been said": partial(_greedy, stops=False),
            "the end mark is missing at the end: the docstring wants it included": _without_end,
            "it takes the least likely word: argmin in place of argmax": partial(_greedy, choose=torch.argmin),
        },
        says="a decoder that stops by itself after five words, and one that has to be stopped",
        others=(_greedy_recursive, lambda *x: tuple(map(tuple, _greedy(*x)))),
        given=lambda step, s, longest: f"longest = {longest}",
        parts=("the words", "the weights"),
    ),
    Task(
        id="1.2",
        name="attend",
        title="Scores, weights, one mean",
        difficulty=1,
        minutes=4,
        equation="Bahdanau et al., section 3.1",
        reference=attend,
        cases=lambda: [(numbers(L, D), numbers(L, seed=1)), (numbers(2, 3, seed=2), numbers(2, seed=3, scale=4))],
        mistakes={
            "the scores have no part in it: this is the plain mean of the inputs": lambda y, s: (
                y.mean(0),
                torch.full_like(s, 1 / len(s)),
            ),
            "the scores weigh the inputs as they are: a softmax comes first": lambda y, s: (s @ y, s),
            "the weights do not sum to one: exp is there, and the division by the sum is missing": lambda y, s: (
                s.exp() @ y,
                s.exp(),
            ),
            "z and the weights are in the wrong order: give back (z, alpha)": lambda y, s: attend(y, s)[::-1],
            "z is divided by the number of inputs: the weights sum to 1 already": lambda y, s: (
                attend(y, s)[0] / len(s),
                attend(y, s)[1],
            ),
        },
        says="z and the weights of 5 and of 2 inputs",
        others=(
            lambda y, s: (
                sum(w * each for w, each in zip(torch.softmax(s, 0), y, strict=True)),
                torch.softmax(s, 0),
            ),
            lambda y, s: (torch.einsum("l,ld->d", torch.softmax(s.double(), 0), y.double()), s.softmax(0)),
        ),
        parts=("z", "the weights"),
    ),
    Task(
        id="1.3",
        name="masked_weights",
        title="Words that are not there",
        difficulty=2,
        minutes=8,
        equation="notebook 01, masked softmax",
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
        name="alignment",
        kind="bug",
        title="One row late",
        difficulty=2,
        minutes=5,
        equation="Bahdanau et al., section 3.1",
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
)
