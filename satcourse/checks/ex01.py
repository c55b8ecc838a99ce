"""Exercises of notebook 01: attention before images."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from satcourse.checks.task import exercise, generator, numbers, with_gradients
from satlib.data.text import END

Speaker = Callable[[int | None, Tensor], tuple[Tensor, Tensor, Tensor]]
Said = tuple[list[int], list[Tensor]]
L, D, K = 5, 4, 40


def _speakers() -> list[tuple[Speaker, Tensor, int]]:
    """Decoders with random weights: they say the end mark as their fifth word, never, and at once."""

    def speaker(seed: int, last: float) -> Speaker:
        E, U, W, a = (
            numbers(*shape, seed=seed + i)
            for i, shape in enumerate(((K, D), (D, D), (K, D), (L, D)))
        )

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
        for seed, last, longest in ((0, 4, 9), (20, 99, 6), (40, 0, 5))
    ]


@exercise("1.1", "Teacher forcing", difficulty=2, minutes=7)
def taught(
    step: Speaker,
    s: Tensor,
    y: Sequence[int],
    *,
    moves: bool = True,
    late: int = 0,
    own: bool = False,
) -> list[Tensor]:
    """The logits for each true word: step is given None first, then the true word before, and each time the state that it last returned."""
    found: list[Tensor] = []
    for before in [None, *y, END][late:][: len(y)]:
        logits, new, _ = step(int(found[-1].argmax()) if own and found else before, s)
        found.append(logits)
        s = new if moves else s
    return found


taught.says = "logits of captions of six words and of one, and their gradient at the first state"
taught.cases = lambda: [
    (step, s, y)
    for (step, s, _), y in zip(_speakers(), ([3, 7, 2, 9, 1, END], [5, 5, END], [END]), strict=True)
]
taught.observe = lambda answer, step, s, y: with_gradients(
    "s", parts=[f"word {i + 1}" for i in range(len(y))]
)(lambda s: answer(step, s, y), s)
taught.mistakes = {
    "it is fed what it says itself: the teacher tells it the true word": partial(taught, own=True),
    "each word is told before it is asked for: before the first there is None": partial(
        taught, late=1
    ),
    "each step begins with the first state: hand the new state on": partial(taught, moves=False),
}


@exercise("1.2", "Greedy decoding", difficulty=2, minutes=10)
def greedy(
    step: Speaker, s: Tensor, longest: int, *, moves: bool = True, y: int | None = None
) -> Said:
    """The words that a decoder says, `longest` at most and END included, and the weights before each of them."""
    words, weights = [], []
    while len(words) < longest and words[-1:] != [END]:
        logits, new, alpha = step(y, s)
        words.append(int(logits.argmax()))
        weights.append(alpha)
        y, s = words[-1], (new if moves else s)
    return words, weights


greedy.says = "a decoder that stops by itself after five words, one that stops at once, and one that has to be stopped"
greedy.cases = _speakers
greedy.given = lambda step, s, longest: f"longest = {longest}"
greedy.parts = ("the words", "the weights")
greedy.mistakes = {
    "each step begins with the first state: hand the new state on": partial(greedy, moves=False),
    "0 is fed first, and 0 is the end mark: before the first word there is None": partial(
        greedy, y=END
    ),
    "the word just said is not fed back": lambda step, *rest: greedy(
        lambda y, s: step(None, s), *rest
    ),
}


@exercise(
    "1.3",
    "Scores, weights, one mean",
    difficulty=1,
    minutes=4,
    equation="Bahdanau et al., section 3.1",
)
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """The softmax of the scores, and the sum of weight times input: scores e (n,), inputs a (n, D) -> z (D,) and the weights (n,)."""
    alpha = torch.softmax(e, 0)
    return alpha @ a, alpha


attend.says = "z, the weights and their gradients, for scores below 1, of 100 and of -200"
attend.cases = lambda: [
    (numbers(L, seed=1), numbers(L, D)),
    (torch.tensor([100.0, 101, -200]), numbers(3, 3, seed=2)),
]
attend.parts = ("z", "the weights")
attend.observe = with_gradients("e", "a", parts=attend.parts)
attend.mistakes = {
    "the scores weigh the inputs as they are: a softmax comes first": lambda e, a: (e @ a, e),
    "an argmax has no gradient: a softmax lets the others share": lambda e, a: (
        a[e.argmax()],
        1.0 * (e == e.max()),
    ),
    "a sigmoid asks each input alone: a softmax makes them share": lambda e, a: (
        e.sigmoid() @ a,
        e.sigmoid(),
    ),
}


@exercise(
    "1.4",
    "A softmax with a mask",
    difficulty=2,
    minutes=8,
    equation="Vaswani et al., section 3.2.3",
)
def masked_weights(e: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the words alone: e (B, L), mask (B, L), True at words -> (B, L), 0 at padding."""
    return torch.softmax(e.masked_fill(~mask, -torch.inf), 1)


masked_weights.says = "sentences of 5, 3, 2 and 1 words, some scores 200 below their padding's"
masked_weights.cases = lambda: [
    (numbers(3, L), torch.arange(L) < torch.tensor([[5], [3], [1]])),
    (
        torch.tensor([[-201.0, 0, -200], [3, -198, -200]]),
        torch.tensor([[True, False, True], [False, True, True]]),
    ),
]
masked_weights.observe = with_gradients("e")
masked_weights.mistakes = {
    "the mask is the wrong way round: only padding has weight": lambda e, mask: masked_weights(
        e, ~mask
    ),
    "a score of 0 still has a weight: exp(0) = 1": lambda e, mask: torch.softmax(e * mask, 1),
    "padding of -100 beats a score of -200: only -inf is below all": lambda e, mask: torch.softmax(
        e.masked_fill(~mask, -100), 1
    ),
}


@exercise("1.5", "The score", difficulty=2, minutes=7, equation="Bahdanau et al., section 3.1")
def score(
    a: Tensor, s: Tensor, W_a: Tensor, W_s: Tensor, b: Tensor, v: Tensor, *, of: int = 1
) -> Tensor:
    """v times the tanh of W_a a + W_s s + b, s of the same sentence: a (B, L, D), s (B, D), W_a and W_s (m, D), b and v (m,) -> e (B, L)."""
    return torch.tanh(a @ W_a.T + (s @ W_s.T).unsqueeze(of) + b) @ v


score.says = "scores and gradients of three sentences of three words, and of one sentence of five"
score.cases = lambda: [
    tuple(
        numbers(*shape, seed=i)
        for i, shape in enumerate(((B, n, D), (B, D), (6, D), (6, D), (6,), (6,)))
    )
    for B, n in ((3, 3), (1, L))
]
score.observe = with_gradients("a", "s", "W_a", "W_s", "b", "v")
score.mistakes = {
    "a state meets the words of its own sentence: give it an axis for them": partial(score, of=0),
    "W_a is for a, W_s for s": lambda a, s, W_a, W_s, b, v: score(a, s, W_s, W_a, b, v),
    "the tanh is missing": lambda a, s, W_a, W_s, b, v: (
        (a @ W_a.T + (s @ W_s.T).unsqueeze(1) + b) @ v
    ),
}


@exercise("1.6", "A look, and the diagonal", difficulty=2, minutes=7)
def looks(alpha: Tensor, own: Tensor, *, straight: bool = False) -> tuple[Tensor, Tensor]:
    """Whether the peak of each row, and the diagonal's place (t + 0.5) / C * L, rounded down, are on the word translated: alpha (C, L), own (C,) -> (C,) and (C,), bool."""
    C, n = alpha.shape
    diagonal = torch.arange(C) if straight else ((torch.arange(C) + 0.5) * n / C).long()
    return alpha.argmax(1) == own, diagonal == own


looks.says = "shorter, longer and equal sentences"
looks.cases = lambda: [
    (numbers(C, n, seed=C).softmax(1), torch.arange(C) * n // C + torch.arange(C) % 2)
    for C, n in ((5, 9), (9, 6), (4, 4))
]
looks.parts = ("the peak on its word", "the diagonal on its word")
looks.mistakes = {
    "of C rows and L columns, row t does not cross the diagonal in column t": partial(
        looks, straight=True
    ),
}


def _glances(seed: int, on: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """A model's peaks, for 60 determiners whose noun is one to three words on: 3 in 4 where `on` says, the others on the determiner."""
    draw = generator(seed)
    own = torch.randint(0, 12, (60,), generator=draw)
    noun = own + torch.tensor([1, 1, 1, 2, 2, 3])[torch.randint(0, 6, (60,), generator=draw)]
    return torch.where(torch.rand(60, generator=draw) < 0.75, on(own, noun), own), own, noun


@exercise("1.7", "The noun, or merely the next word?", difficulty=2, minutes=7)
def noun_or_next(
    peak: Tensor, own: Tensor, noun: Tensor, *, least: int = 2
) -> tuple[Tensor, Tensor]:
    """Of the determiners whose noun is not the next word: how many percent of the peaks are on the noun, and how many on the next word."""
    apart = noun - own >= least
    on_noun, on_next = (100 * (peak == place)[apart].float().mean() for place in (noun, own + 1))
    return on_noun, on_next


noun_or_next.says = "a model that looks at nouns lives; two that look one word on and two do not"
noun_or_next.cases = lambda: [
    _glances(0, lambda own, noun: noun),
    _glances(1, lambda own, noun: own + 1),
    _glances(2, lambda own, noun: own + 2),
]
noun_or_next.parts = ("percent on the noun", "percent on the next word")
noun_or_next.mistakes = {
    "the artefact lives: a model that always looks one word on scores wherever the noun is the next word": partial(
        noun_or_next, least=1
    ),
}


@exercise("1.8", "Force the light", difficulty=2, minutes=10)
def lit(
    encode: Callable[..., Tensor],
    write: Callable[..., Tensor],
    x: Tensor,
    s: Tensor,
    *,
    still: bool = False,
) -> tuple[list[int], list[int]]:
    """The word with the largest logit in write(z, s), for each state z in encode(x), and for each word's state when only that word is encoded."""
    states = encode(x)
    alone = [states[i] if still else encode(x[i : i + 1])[0] for i in range(len(x))]
    inside, apart = ([int(write(z, s).argmax()) for z in each] for each in (states, alone))
    return inside, apart


def _reader(x: Tensor) -> Tensor:
    """States that have heard their neighbours."""
    return numbers(K, D)[x] + numbers(K, D, seed=3)[x].sum(0) / 3


lit.says = "the words for each of 9 and of 6 places, read in their sentence and alone"
lit.cases = lambda: [
    (
        _reader,
        lambda z, s: torch.nn.functional.normalize(numbers(K, D)) @ (z - s),
        torch.randperm(K, generator=generator(n))[:n],
        numbers(D, seed=1),
    )
    for n in (9, 6)
]
lit.parts = ("in the sentence", "alone")
lit.mistakes = {
    "the artefact lives: a state of the whole sentence has heard the other words; encode each word again, alone": partial(
        lit, still=True
    ),
}
