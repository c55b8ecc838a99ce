"""Exercises of notebook 01: attention before images."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.checks.task import Answer, exercise, generator, numbers, with_gradients
from satlib.data.text import END

# The word before, or None, and the state -> logits (K,), the new state, and weights (L,).
Step = tuple[Tensor, Tensor, Tensor]
Speaker = Callable[[int | None, Tensor], Step]
Caption = Sequence[int]
Said = tuple[list[int], list[Tensor]]
Words = tuple[list[int], list[int]]
Both = tuple[Tensor, Tensor]
L, D, K = 5, 4, 40


def _speaker(seed: int, last: float) -> Speaker:
    """A decoder with random weights, which says the end mark once it has said `last` words."""
    E = numbers(K, D, seed=seed)
    U = numbers(D, D, seed=seed + 1)
    W = numbers(K, D, seed=seed + 2)
    a = numbers(L, D, seed=seed + 3)

    def step(y: int | None, s: Tensor) -> Step:
        # A tensor would do here, but not in later cells, which look up its embedding.
        if isinstance(y, Tensor):
            raise TypeError("step takes the word before as an int, not a tensor: use int(...)")
        state, said = s[:D], s[-1]  # the last element is the number of words so far
        embedded = 0 if y is None else E[y]
        new = torch.tanh(U @ state + embedded)
        logits = W @ new
        # Far above or below all others, so that no seed ends a caption too early.
        logits[END] = 100.0 if said >= last else -100.0
        alpha = torch.softmax(a @ state, 0)
        return logits, torch.cat([new, said[None] + 1]), alpha

    return step


def _speakers() -> list[tuple[Speaker, Tensor, int]]:
    """Decoders, their first states, and how many words they may say."""
    speakers = []
    # They say the end mark as their fifth word, never, and at once.
    for seed, last, longest in ((0, 4, 9), (20, 99, 6), (40, 0, 5)):
        # No word is said so far.
        s = torch.cat([numbers(D, seed=seed + 9), torch.zeros(1)])
        speakers.append((_speaker(seed, last), s, longest))
    return speakers


@exercise("1.1", "Teacher forcing", difficulty=2, minutes=7)
def taught(step: Speaker, s: Tensor, y: Caption) -> list[Tensor]:
    """The logits for each true word: step is given None first, then the true word before,
    and each time the state that it last returned.
    """
    found: list[Tensor] = []
    before = None
    for true_word in y:
        logits, s, _ = step(before, s)
        found.append(logits)
        before = true_word
    return found


def _taught_cases() -> list[tuple[Speaker, Tensor, list[int]]]:
    # The last one ends at once: what is read before its only word is None.
    captions = ([3, 7, 2, 9, 1, END], [5, 5, END], [END])
    cases = []
    for (step, s, _), y in zip(_speakers(), captions, strict=True):
        cases.append((step, s, y))
    return cases


def _logits_and_gradient(answer: Answer, step: Speaker, s: Tensor, y: Caption) -> object:
    # A part for each word, so that a message names the first that is wrong.
    parts = [f"word {i + 1}" for i in range(len(y))]
    observe = with_gradients("s", parts=parts)

    def logits(s: Tensor) -> object:
        # As ints, since a learner's own words, fed back, may be tensors.
        found = answer(lambda y, s: step(y if y is None else int(y), s), s, y)
        # Stacked logits are as good as a list of them.
        return [*found] if getattr(found, "ndim", 0) == 2 else found

    return observe(logits, s)


def _fed_its_own_words(step: Speaker, s: Tensor, y: Caption) -> list[Tensor]:
    found: list[Tensor] = []
    before = None
    for _ in y:
        logits, s, _ = step(before, s)
        found.append(logits)
        before = int(logits.argmax())
    return found


def _told_too_early(step: Speaker, s: Tensor, y: Caption) -> list[Tensor]:
    words = iter(y)
    return taught(lambda _, s: step(next(words), s), s, y)


taught.says = "logits of captions of six words and of one, and their gradient at the first state"
taught.cases = _taught_cases
taught.observe = _logits_and_gradient
taught.mistakes = {
    "it is fed what it says itself: the teacher tells it the true word": _fed_its_own_words,
    "each word is told before it is asked for: before the first there is None": _told_too_early,
    "each step begins with the first state: hand the new state on": (
        lambda step, s, y: taught(lambda before, _: step(before, s), s, y)
    ),
    "step takes the word before, and then the state": (
        lambda step, s, y: taught(lambda before, s: step(s, before), s, y)
    ),
    "the first word is never asked for: before it step is given None": (
        lambda step, s, y: _told_too_early(step, s, y[:-1])
    ),
}


@exercise("1.2", "Greedy decoding", difficulty=2, minutes=10)
def greedy(step: Speaker, s: Tensor, longest: int) -> Said:
    """The words that a decoder says, `longest` at most and END included,
    and the weights before each of them.
    """
    words: list[int] = []
    weights: list[Tensor] = []
    y = None
    while len(words) < longest and y != END:
        logits, s, alpha = step(y, s)
        y = int(logits.argmax())
        words.append(y)
        weights.append(alpha)
    return words, weights


def _by_chance(step: Speaker, s: Tensor, longest: int) -> Said:
    def drawn(y: int | None, s: Tensor) -> Step:
        logits, s, alpha = step(y, s)
        word = torch.multinomial(logits.softmax(0), 1)
        return functional.one_hot(word, K)[0], s, alpha

    return greedy(drawn, s, longest)


greedy.says = (
    "a decoder that stops by itself after five words, one that stops at once, "
    "and one that has to be stopped"
)
greedy.cases = _speakers
greedy.given = lambda step, s, longest: f"longest = {longest}"
greedy.parts = ("the words", "the weights")
greedy.mistakes = {
    "words are drawn by chance: the likeliest one is said": _by_chance,
    "each step begins with the first state: hand the new state on": (
        lambda step, s, longest: greedy(lambda y, _: step(y, s), s, longest)
    ),
    "0 is fed first, and 0 is the end mark: before the first word there is None": (
        lambda step, s, longest: greedy(lambda y, s: step(END if y is None else y, s), s, longest)
    ),
    "the word just said is not fed back": (
        lambda step, s, longest: greedy(lambda y, s: step(None, s), s, longest)
    ),
}


@exercise(
    "1.3",
    "Scores, weights, one mean",
    difficulty=1,
    minutes=4,
    equation="Bahdanau et al., section 3.1",
)
def attend(e: Tensor, a: Tensor) -> Both:
    """The softmax of the scores, and the sum of weight times input:
    scores e (n,), inputs a (n, D) -> z (D,) and the weights (n,).
    """
    alpha = torch.softmax(e, 0)
    return alpha @ a, alpha


attend.says = "z and the weights, for scores below 1, of 100 and of -200"
attend.cases = lambda: [
    (numbers(L, seed=1), numbers(L, D)),
    # An exp of 100 overflows in float32, and one of -200 is 0.
    (torch.tensor([100.0, 101, -200]), numbers(3, 3, seed=2)),
]
attend.parts = ("z", "the weights")
attend.mistakes = {
    "the scores weigh the inputs as they are: a softmax comes first": lambda e, a: (e @ a, e),
    "an argmax has no gradient: a softmax lets the others share": (
        lambda e, a: (a[e.argmax()], 1.0 * (e == e.max()))
    ),
    "the scores are divided by their sum: a softmax takes their exp first": (
        lambda e, a: (e / e.sum() @ a, e / e.sum())
    ),
    "the largest is subtracted, but where is the exp? it comes before the sum": (
        lambda e, a: ((e - e.max()) / (e - e.max()).sum() @ a, (e - e.max()) / (e - e.max()).sum())
    ),
    "the largest score is subtracted before the exp, not after": (
        lambda e, a: (
            (e.exp() - e.max()) / (e.exp() - e.max()).sum() @ a,
            (e.exp() - e.max()) / (e.exp() - e.max()).sum(),
        )
    ),
    "z is the best input alone: the others have a share, too": (
        lambda e, a: (a[e.argmax()], e.softmax(0))
    ),
    "summed over each input's numbers: the sum is over the inputs": (
        lambda e, a: (e.softmax(0) * a.sum(1), e.softmax(0))
    ),
    "a sigmoid asks each input alone: a softmax makes them share": (
        lambda e, a: (e.sigmoid() @ a, e.sigmoid())
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
    """Softmax over the words alone:
    e (B, L), mask (B, L), True at words -> (B, L), 0 at padding.
    """
    return torch.softmax(e.masked_fill(~mask, -torch.inf), 1)


masked_weights.says = "sentences of 5, 3, 2 and 1 words, some scores 200 below their padding's"
masked_weights.cases = lambda: [
    (
        numbers(3, L),
        torch.arange(L) < torch.tensor([[5], [3], [1]]),
    ),
    # Words whose scores are below any number that one might give to padding.
    (
        torch.tensor([[-201.0, 0, -200], [3, -198, -200]]),
        torch.tensor([[True, False, True], [False, True, True]]),
    ),
]
masked_weights.observe = with_gradients("e")
masked_weights.mistakes = {
    "the mask is the wrong way round: only padding has weight": (
        lambda e, mask: masked_weights(e, ~mask)
    ),
    "a score of 0 still has a weight: exp(0) = 1": lambda e, mask: torch.softmax(e * mask, 1),
    "padding of -100 beats a score of -200: only -inf is below all": (
        lambda e, mask: torch.softmax(e.masked_fill(~mask, -100), 1)
    ),
}


@exercise("1.5", "The score", difficulty=2, minutes=7, equation="Bahdanau et al., section 3.1")
def score(a: Tensor, s: Tensor, W_a: Tensor, W_s: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """v times the tanh of W_a a + W_s s + b, s of the same sentence:
    a (B, L, D), s (B, D), W_a and W_s (m, D), b and v (m,) -> e (B, L).
    """
    from_words = a @ W_a.T  # (B, L, m)
    from_state = (s @ W_s.T).unsqueeze(1)  # (B, 1, m)
    return torch.tanh(from_words + from_state + b) @ v


def _score_case(B: int, n: int) -> tuple[Tensor, ...]:
    """B sentences of n words."""
    a = numbers(B, n, D)
    s = numbers(B, D, seed=1)
    W_a = numbers(6, D, seed=2)
    W_s = numbers(6, D, seed=3)
    b = numbers(6, seed=4)
    v = numbers(6, seed=5)
    return a, s, W_a, W_s, b, v


score.says = "scores and gradients of three sentences of three words, and of one sentence of five"
# As many sentences as words, or one: an axis in the wrong place raises no error.
score.cases = lambda: [_score_case(3, 3), _score_case(1, L)]
score.observe = with_gradients("a", "s", "W_a", "W_s", "b", "v")
score.mistakes = {
    "a state meets the words of its own sentence: give it an axis for them": (
        lambda a, s, W_a, W_s, b, v: torch.tanh(a @ W_a.T + s @ W_s.T + b) @ v
    ),
    "W_a is for a, W_s for s": lambda a, s, W_a, W_s, b, v: score(a, s, W_s, W_a, b, v),
    "the matrices are (m, D): what has D numbers meets their transpose": (
        lambda a, s, W_a, W_s, b, v: score(a, s, W_a.T, W_s.T, b, v)
    ),
    "the tanh of the score: v comes after the tanh": (
        lambda a, s, W_a, W_s, b, v: torch.tanh((a @ W_a.T + (s @ W_s.T)[:, None] + b) @ v)
    ),
    "the tanh is missing": (
        lambda a, s, W_a, W_s, b, v: (a @ W_a.T + (s @ W_s.T)[:, None] + b) @ v
    ),
    "b is added outside the tanh": (
        lambda a, s, W_a, W_s, b, v: score(a, s, W_a, W_s, 0 * b, v) + b @ v
    ),
}


@exercise("1.6", "A look, and the diagonal", difficulty=2, minutes=7)
def looks(alpha: Tensor, own: Tensor) -> Both:
    """Whether the peak of each row, and the diagonal's place (t + 0.5) / C * L, rounded down,
    are on the word translated: alpha (C, L), own (C,) -> (C,) and (C,), bool.
    """
    C, n = alpha.shape
    peak = alpha.argmax(1)
    diagonal = ((torch.arange(C) + 0.5) * n / C).long()
    return peak == own, diagonal == own


def _looks_case(C: int, n: int) -> Both:
    """Maps of C words over n places; the words translated are near the diagonal."""
    t = torch.arange(C)
    alpha = numbers(C, n, seed=C).softmax(1)
    # One place off at every other word, so that the diagonal is right and wrong.
    own = t * n // C + t % 2
    return alpha, own


def _diagonal(place: Answer) -> Answer:
    """`looks` with another place(t, C, L) of the diagonal."""
    return lambda alpha, own: (
        alpha.argmax(1) == own,
        place(torch.arange(len(alpha)), *alpha.shape) == own,
    )


looks.says = "shorter, longer and equal sentences"
looks.cases = lambda: [
    _looks_case(5, 9),
    _looks_case(9, 6),
    _looks_case(4, 4),
]
looks.parts = ("the peak on its word", "the diagonal on its word")
looks.mistakes = {
    "of C rows and L columns, row t does not cross the diagonal in column t": _diagonal(
        lambda t, C, n: t
    ),
    "C and L are exchanged: C counts the rows, the words said, and L the columns": _diagonal(
        lambda t, C, n: ((t + 0.5) / n * C).long()
    ),
    "the place is rounded to the nearest: round it down": _diagonal(
        lambda t, C, n: ((t + 0.5) / C * n).round()
    ),
    "from the first place to the last, rounded down: the diagonal's place "
    "is that of the middle of row t": _diagonal(lambda t, C, n: t * (n - 1) // (C - 1)),
    "from the first place to the last, rounded: the diagonal's place "
    "is that of the middle of row t": _diagonal(lambda t, C, n: (t * (n - 1) / (C - 1)).round()),
    "one answer for each row: here is one for each column": (
        lambda alpha, own: (alpha.argmax(0) == own, own)
    ),
}


@exercise("1.7", "The noun, or merely the next word?", difficulty=2, minutes=7)
def noun_or_next(peak: Tensor, own: Tensor, noun: Tensor) -> Both:
    """Of the determiners whose noun is not the next word:
    how many percent of the peaks are on the noun, and how many on the next word.
    """
    apart = noun > own + 1
    on_noun = 100 * (peak == noun)[apart].float().mean()
    on_next = 100 * (peak == own + 1)[apart].float().mean()
    return on_noun, on_next


def _glances(seed: int, on: Answer) -> tuple[Tensor, Tensor, Tensor]:
    """A model's peaks, for 60 determiners whose noun is one to three words on.

    Three peaks in four are where `on` says, the others on the determiner.
    """
    draw = generator(seed)
    own = torch.randint(0, 12, (60,), generator=draw)
    # Half the nouns are the next word, a third the word after it.
    distances = torch.tensor([1, 1, 1, 2, 2, 3])
    noun = own + distances[torch.randint(0, 6, (60,), generator=draw)]
    drawn_to = torch.rand(60, generator=draw) < 0.75
    return torch.where(drawn_to, on(own, noun), own), own, noun


def _of_distances(kept: Callable[[Tensor], Tensor]) -> Answer:
    """`noun_or_next` of the determiners with kept(how many words on the noun is)."""

    def answer(peak: Tensor, own: Tensor, noun: Tensor) -> Tensor:
        those = kept(noun - own)
        hits = torch.stack([peak == noun, peak == own + 1])[:, those]
        return 100 * hits.float().mean(1)

    return answer


noun_or_next.says = "a model that looks at nouns lives; two that look one word on and two do not"
noun_or_next.cases = lambda: [
    _glances(0, lambda own, noun: noun),
    # Two that know nothing of nouns, and yet are often on one.
    _glances(1, lambda own, noun: own + 1),
    _glances(2, lambda own, noun: own + 2),
]
noun_or_next.parts = ("percent on the noun", "percent on the next word")
noun_or_next.mistakes = {
    "this lets an artefact pass: a model that always looks one word on "
    "scores wherever the noun is the next word": _of_distances(lambda distance: distance > 0),
    "only peaks on one of the two count: all determiners do whose noun is not next": (
        lambda peak, own, noun: [
            100 * (peak == place)[(peak == noun) ^ (peak == own + 1)].float().mean()
            for place in (noun, own + 1)
        ]
    ),
    "those whose noun is the next word are kept, and they cannot tell": _of_distances(
        lambda distance: distance == 1
    ),
    "a noun two words on is left out, and it can tell": _of_distances(
        lambda distance: distance > 2
    ),
    "these are counts: a percentage is 100 times their share": (
        lambda peak, own, noun: [(peak == place)[noun > own + 1].sum() for place in (noun, own + 1)]
    ),
    "divided by all determiners: divide by those whose noun is not next": (
        lambda peak, own, noun: [
            part * (noun > own + 1).float().mean() for part in noun_or_next(peak, own, noun)
        ]
    ),
}


@exercise("1.8", "Force the light", difficulty=2, minutes=10)
def lit(encode: Answer, write: Answer, x: Tensor, s: Tensor) -> Words:
    """The word with the largest logit in write(z, s), for each state z in encode(x),
    and for each word's state when only that word is encoded.
    """
    inside = [int(write(z, s).argmax()) for z in encode(x)]
    alone = []
    for i in range(len(x)):
        # A slice: a sentence of one word is still a sentence.
        z = encode(x[i : i + 1])[0]
        alone.append(int(write(z, s).argmax()))
    return inside, alone


def _read(x: Tensor) -> Tensor:
    """States that have heard their neighbours."""
    own = numbers(K, D)[x]
    heard = numbers(K, D, seed=3)[x].sum(0)
    return own + heard / 3


def _write(z: Tensor, s: Tensor) -> Tensor:
    """Logits: the words whose vectors point the same way."""
    return functional.normalize(numbers(K, D)) @ (z - s)


def _lit_case(n: int) -> tuple[Answer, Answer, Tensor, Tensor]:
    """A sentence of n different words."""
    x = torch.randperm(K, generator=generator(n))[:n]
    return _read, _write, x, numbers(D, seed=1)


def _alone(state: Answer) -> Answer:
    """`lit` with another state(encode, x, i) of word i alone."""

    def answer(encode: Answer, write: Answer, x: Tensor, s: Tensor) -> Words:
        inside, _ = lit(encode, write, x, s)
        states = [state(encode, x, i) for i in range(len(x))]
        return inside, [int(write(z, s).argmax()) for z in states]

    return answer


lit.says = "the words for each of 9 and of 6 places, read in their sentence and alone"
lit.cases = lambda: [_lit_case(9), _lit_case(6)]
lit.parts = ("in the sentence", "alone")
lit.mistakes = {
    "this lets an artefact pass: a state of the whole sentence has heard the other words; "
    "encode each word again, alone": _alone(lambda encode, x, i: encode(x)[i]),
    "the words before are encoded, too: each word alone": _alone(
        lambda encode, x, i: encode(x[: i + 1])[-1]
    ),
    "the words after are encoded, too: each word alone": _alone(
        lambda encode, x, i: encode(x[i:])[0]
    ),
    "0 is a word, too: leave the others out, and encode a sentence of one": _alone(
        lambda encode, x, i: encode(torch.where(torch.arange(len(x)) == i, x, 0))[i]
    ),
    "encode takes a sentence: a word taken out of x is only a number": _alone(
        lambda encode, x, i: encode(x[i])
    ),
    "encode takes a sentence, if only of one word: [0] of a lone word's state is a number": _alone(
        lambda encode, x, i: encode(x[i])[0]
    ),
    "write takes the word's state, and then s": (
        lambda encode, write, x, s: lit(encode, lambda z, s: write(s, z), x, s)
    ),
    "write takes one state: a sentence of one word has one, in a row": _alone(
        lambda encode, x, i: encode(x[i : i + 1])
    ),
}
