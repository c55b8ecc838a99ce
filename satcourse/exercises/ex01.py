"""Exercises of notebook 01: attention before images."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from satcourse.exercises.task import exercise, numbers, sums_to_one
from satlib.data.text import END

Step = Callable[[Tensor, Tensor, Tensor], Tensor]
Speaker = Callable[[int | None, Tensor], tuple[Tensor, Tensor, Tensor]]
Said = tuple[list[int], list[Tensor]]
L, D, K = 5, 4, 40


def _speakers() -> list[tuple[Speaker, Tensor, int]]:
    """Decoders with random weights: one says the end mark as its fifth word, the other never does and has to be stopped."""

    def speaker(seed: int, last: float) -> Speaker:
        E, U, W, a = (numbers(*shape, seed=seed + i) for i, shape in enumerate(((K, D), (D, D), (K, D), (L, D))))

        def step(y: int | None, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            if isinstance(y, Tensor):  # later cells look up its embedding
                raise TypeError("step takes the word before as an int, not a tensor: use int(...)")
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


@exercise("1.1", "Greedy decoding", difficulty=2, minutes=10, equation="Bahdanau et al., section 3")
def greedy(step: Speaker, s: Tensor, longest: int, *, moves: bool = True) -> Said:
    """The words that a decoder says, the end mark included, and the weights before each of them."""
    words, weights, y = [], [], None
    while len(words) < longest and words[-1:] != [END]:
        logits, new, alpha = step(y, s)
        words.append(int(logits.argmax()))
        weights.append(alpha)
        y, s = words[-1], (new if moves else s)
    return words, weights


greedy.says = "a decoder that stops by itself after five words, and one that has to be stopped"
greedy.cases = _speakers
greedy.given = lambda step, s, longest: f"longest = {longest}"
greedy.parts = ("the words", "the weights")
greedy.mistakes = {
    "each step begins with the first state: hand the new state on": partial(greedy, moves=False),
}


@exercise("1.2", "Scores, weights, one mean", difficulty=1, minutes=4, equation="Bahdanau et al., section 3.1")
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """One softmax and one weighted mean: scores e (n,), inputs a (n, D) -> z (D,) and the weights (n,)."""
    alpha = torch.softmax(e, 0)
    return alpha @ a, alpha


attend.says = "z and the weights of 5 and of 2 inputs"
attend.cases = lambda: [(numbers(L, seed=1), numbers(L, D)), (numbers(2, seed=3, scale=4), numbers(2, 3, seed=2))]
attend.parts = ("z", "the weights")
attend.mistakes = {
    "the scores weigh the inputs as they are: a softmax comes first": lambda e, a: (e @ a, e),
}


def _masks() -> list[tuple[Tensor, Tensor]]:
    return [
        (numbers(3, L), torch.arange(L) < torch.tensor([[5], [3], [1]])),
        (numbers(2, 3, seed=1, scale=3), torch.tensor([[True, False, True], [False, True, True]])),
    ]


@exercise("1.3", "A softmax with a mask", difficulty=2, minutes=8, equation="Vaswani et al., section 3.2.3")
def masked_weights(e: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the words alone: e (B, L), mask (B, L), True at words -> (B, L), 0 at padding."""
    return torch.softmax(e.masked_fill(~mask, -torch.inf), 1)


masked_weights.says = "sentences of 5, 3, 2 and 1 words, weights that sum to 1 over words alone"
masked_weights.cases = _masks
masked_weights.advise = sums_to_one(1, over="the words")
masked_weights.mistakes = {
    "masked after the softmax: mask the scores before it": lambda e, mask: torch.softmax(e, 1) * mask,
    "the mask is the wrong way round: only padding has weight": lambda e, mask: masked_weights(e, ~mask),
}


def _after_the_step(a: Tensor, s: Tensor, E: Tensor, step: Step) -> Tensor:
    rows = []
    for Ey in E:
        s = step(Ey, torch.softmax(a @ s, 0) @ a, s)
        rows.append(torch.softmax(a @ s, 0))
    return torch.stack(rows)


def _sentences() -> list[tuple[Tensor, Tensor, Tensor, Step]]:
    def step_of(seed: int) -> Step:
        W, Z, U = (numbers(D, D, seed=seed + i) for i in range(3))
        return lambda Ey, z, s: torch.tanh(W @ Ey + Z @ z + U @ s)

    return [
        (numbers(L, D, seed=seed), numbers(D, seed=seed + 1), numbers(words, D, seed=seed + 2), step_of(seed + 3))
        for seed, words in ((0, 4), (10, 3))
    ]


@exercise("1.4", "One row late", difficulty=2, minutes=5, equation="Bahdanau et al., section 3.1", kind="bug")
def alignment(a: Tensor, s: Tensor, E: Tensor, step: Step, *, late: bool = False) -> Tensor:
    """The weights (C, L) before each word: places a (L, D), first state s (D,), the words before E (C, m).

    The bug: if it is `late`, a word asks with the state of the word before.
    """
    rows, query = [], s
    for Ey in E:
        alpha = torch.softmax(a @ query, 0)
        before, s = s, step(Ey, alpha @ a, s)
        query = before if late else s
        rows.append(alpha)
    return torch.stack(rows)


alignment.start = partial(alignment, late=True)
alignment.says = "every row from the state just before its word, in two sentences"
alignment.cases = _sentences
alignment.mistakes = {
    "now the matrix is a row early: the weights before a word come from the state before that word": _after_the_step,
}
