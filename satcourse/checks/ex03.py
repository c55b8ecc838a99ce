"""Exercises of notebook 03: captions as words, words as numbers, captions in batches."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.checks.calls import Failed
from satcourse.checks.task import Answer, exercise, generator, gradients, numbers, with_gradients
from satlib.data.batches import Pair, SameLengthBatches
from satlib.data.text import Vocabulary, tokenise

CAPTIONS = (
    "A dog runs.",
    "A brown dog runs after a ball!",
    "Two dogs, one ball.",
    "The ball is red, red, red",
    "a cat and a dog's t-shirt",
)


@exercise("3.1", "A caption as words", difficulty=2, minutes=8, equation="section 5.1")
def words(caption: str) -> list[str]:
    """The words of a caption in lower case: letters and digits, with the apostrophes and hyphens inside them."""
    return tokenise(caption)


words.says = (
    "capital letters, accents, digits, punctuation, apostrophes, hyphens, and an empty caption"
)
words.cases = lambda: [
    *(
        ("A dog runs.",),
        ("Two dogs,one BALL!",),
        ("the dog's t-shirt (red)",),
        ("2 dogs - one 'big'",),
    ),
    *(("a naïve merry-go-round",), ('one_two; "three": four?',), ("",)),
]
words.mistakes = {
    'apostrophes and hyphens end a word: "t-shirt" is one word': lambda caption: re.findall(
        r"\w+", caption.lower()
    ),
}


def _unsorted(captions: Sequence[str], size: int) -> list[str]:
    counts = Counter(word for caption in captions for word in tokenise(caption))
    return [word for word, _ in counts.most_common(size - 2)]


@exercise("3.2", "The words worth knowing", difficulty=2, minutes=8, equation="section 5.1")
def vocabulary(captions: Sequence[str], size: int) -> list[str]:
    """The most frequent words of a vocabulary of `size`, two of which are special; equal ones by the alphabet."""
    return Vocabulary.from_captions(captions, size).to_json()


vocabulary.says = "three vocabularies, equally frequent words among them"
vocabulary.cases = lambda: [
    (list(CAPTIONS), 5),
    (list(CAPTIONS), 50),
    (["Zebras, cats!", "two zebras; two cats"], 4),
]
vocabulary.mistakes = {
    "chance cuts between equally frequent words: sort, then cut": lambda x, size: [
        word for word in vocabulary(x, 99) if word in _unsorted(x, size)
    ],
    "equally frequent words stand in the order of their captions: sort them": _unsorted,
}


@exercise("3.3", "Pieces of words", difficulty=3, minutes=25, equation="Sennrich et al., 2016")
def byte_pairs(
    counts: dict[str, int],
    number: int,
    *,
    said: bool = True,
    again: bool = True,
    last: bool = False,
    all: Any = list,
) -> list[tuple[str, str]]:
    """The pairs that are joined, in order: words and how often each is said -> the most frequent neighbours, by the alphabet."""
    words = {" ".join(word): times if said else 1 for word, times in counts.items()}
    merges: list[tuple[str, str]] = []
    for _ in range(number):
        pairs: Counter[tuple[str, str]] = Counter()
        for text, times in words.items():
            pieces = text.split()
            for pair in all(pairwise(pieces)):
                pairs[pair] += times * (again or pair not in merges)
        most = max(pairs.values())
        one, two = sorted(pair for pair in pairs if pairs[pair] == most)[-last]
        merges.append((one, two))
        if again:
            at = re.compile(rf"(?<!\S){re.escape(one)} {re.escape(two)}(?!\S)")
            words = {at.sub(one + two, text): times for text, times in words.items()}
    return merges


byte_pairs.says = "the pairs of four texts, in order, ties among them"
byte_pairs.cases = lambda: [
    ({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 6),
    ({"banana": 1, "bandana": 1, "ban": 4}, 4),
    ({"aaaa": 1, "aab": 3, "cod": 5}, 4),
    ({"aaab": 2}, 3),
]
byte_pairs.mistakes = {
    "each word counts once: a pair counts as often as its word is said": partial(
        byte_pairs, said=False
    ),
    "a pair counts as often as it is in a word": partial(byte_pairs, all=set),
    "of equally frequent pairs the first in the alphabet is joined": partial(byte_pairs, last=True),
    "only letters are joined: count again after each pair is joined": partial(
        byte_pairs, again=False
    ),
}


def _look_at_batches(answer: Answer, lengths: list[int], size: int) -> Any:
    """Any order and any division will do: how often each caption comes, which lengths are together, how many batches there are."""
    batches = answer(lengths, size)
    try:
        seen = Counter(int(i) for batch in batches for i in batch)
        return {
            "numbers that no caption has (the first is 0)": sorted(
                {*seen} - {*range(len(lengths))}
            ),
            "how often each caption comes": [seen[i] for i in range(len(lengths))],
            "batches that hold several lengths": sum(
                len({*map(dict(enumerate(lengths)).get, b)}) > 1 for b in batches
            ),
            "batches that are too large": sum(len(batch) > size for batch in batches),
            "how many batches": len(batches),
        }
    except (TypeError, ValueError, IndexError):
        return batches


@exercise("3.4", "Batches of one length", difficulty=2, minutes=8, equation="section 4.3")
def same_length_batches(lengths: list[int], size: int) -> list[list[int]]:
    """Batches of at most `size` captions' numbers, those of a batch of one length, each caption once, in few batches."""
    pairs = [Pair(str(i), (0,) * length) for i, length in enumerate(lengths)]
    return [
        [int(image_id) for image_id in batch.image_ids]
        for batch in SameLengthBatches(pairs, size).epoch(0)
    ]


same_length_batches.says = (
    "every caption once, one length in each batch, no batch too large and none more than needed"
)
same_length_batches.cases = lambda: [
    ([4, 2, 4, 3, 4, 2, 4, 4], 2),
    ([5, 5, 5], 8),
    ([7, 1, 7, 1, 7, 1, 7], 3),
    ([3], 1),
]
same_length_batches.observe = _look_at_batches
same_length_batches.mistakes = {
    "a batch holds the captions' numbers, not their lengths": lambda lengths, size: [
        [lengths[i] for i in batch] for batch in same_length_batches(lengths, size)
    ],
}


@exercise(
    "3.5", "A loss that does not count padding", difficulty=2, minutes=4, equation="section 4.3"
)
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """The mean over all true words, the first n of a caption of n: losses (B, C), lengths (B,) -> ()."""
    return (
        sum(row[:length].sum() for row, length in zip(losses, lengths.tolist(), strict=True))
        / lengths.sum()
    )


def _look_at_loss(answer: Answer, losses: Tensor, lengths: Tensor) -> Any:
    """The mean and its gradient: without one nothing could be trained."""
    leaf = losses.clone().requires_grad_()
    loss = answer(leaf, lengths)
    found = gradients(loss, {"losses": leaf})
    return {"the mean": loss, **found} if isinstance(found, dict) else loss


word_loss.says = "captions of 5, 4, 3, 2 and 1 words, with words whose loss is 0, and the gradient"
word_loss.cases = lambda: [
    (numbers(3, 5).abs(), torch.tensor([5, 2, 1])),
    (numbers(2, 4, seed=1).clamp(min=0), torch.tensor([3, 4])),
]
word_loss.observe = _look_at_loss
word_loss.mistakes = {
    "padding is counted": lambda losses, lengths: losses.mean(),
    "a mean of means: every word counts the same": lambda x, n: (
        sum(map(word_loss, x[:, None], n[:, None])) / len(x)
    ),
    "one word too many: n words have places 0 to n - 1": lambda x, n: word_loss(
        x, (n + 1).clamp(max=len(x[0]))
    ),
    "a word whose loss is 0 is a word, too": lambda losses, n: (
        (kept := losses * (torch.arange(losses.shape[1]) < n[:, None])).sum() / (kept > 0).sum()
    ),
}


def _captions() -> list[tuple[Tensor, Tensor]]:
    cases = []
    for seed, shape in ((0, (3, 5)), (10, (2, 2)), (20, (4, 1))):
        captions = torch.randint(2, 7, shape, generator=generator(seed))
        captions[:, -1] = 0
        cases.append((captions, numbers(7, 4, seed=seed + 1)))
    return cases


@exercise(
    "3.6", "What goes in, what should come out", difficulty=2, minutes=5, equation="section 3.1.2"
)
def inputs_and_targets(captions: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs (B, C, m), zeros and then the rows in E (K, m) of all words but the last; targets (B, C), the words' ids."""
    return functional.pad(E[captions[:, :-1]], (0, 0, 1, 0)), captions


inputs_and_targets.says = (
    "captions of five, two and one id: zeros before the first word, the end mark the last target"
)
inputs_and_targets.cases = _captions
inputs_and_targets.parts = ("inputs", "targets")
inputs_and_targets.observe = lambda answer, captions, E: (
    with_gradients("E", parts=inputs_and_targets.parts)(lambda E: answer(captions, E), E)
    if captions.shape[1] > 1  # else there are but zeros
    else answer(captions, E)
)
inputs_and_targets.mistakes = {
    "not shifted: each word goes in when it is asked for itself": lambda captions, E: (
        E[captions],
        captions,
    ),
    "before the first word there are zeros, not the end mark's row": lambda x, E: (
        E[x.roll(1, 1)],
        x,
    ),
    "the end mark is no target, and never learned": lambda *x: tuple(
        each[:, :-1] for each in inputs_and_targets(*x)
    ),
}


# Tokenisers that are wrong in one way each: "one that ..."
IMPOSTORS: dict[str, Callable[[str], list[str]]] = {
    "takes off full stops and commas alone": lambda text: (
        text.lower().replace(".", "").replace(",", "").split()
    ),
    "ends a word at hyphens and apostrophes": lambda text: re.findall(r"[^\W_]+", text.lower()),
    "keeps hyphens and apostrophes at the ends, too": lambda text: re.findall(
        r"[\w'-]+", text.lower()
    ),
    "knows 26 letters": lambda text: re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*", text.lower()),
    "keeps capital letters": lambda text: re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", text),
}


def _look_at_probes(answer: Answer) -> Any:
    """Who would pass on these captions."""
    texts = answer()
    if texts is ...:
        return texts
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise Failed("expected a list of captions, each a string")
    if len(texts) > 3:
        raise Failed(f"these are {len(texts)} captions: three are enough")
    living = [
        fault
        for fault, tokens in IMPOSTORS.items()
        if all(tokens(text) == tokenise(text) for text in texts)
    ]
    return {"the tokeniser that would pass is one that": living[0] if living else "(nobody)"}


@exercise("3.7", "On trial: 0 of 9,000", difficulty=1, minutes=6)
def probes() -> list[str]:
    """Captions that tell satlib's tokeniser from each impostor."""
    return ["A T-shirt; a dog's ball!", "one café -- and a 'bar'"]


probes.says = "each of the five gives itself away"
probes.cases = lambda: [()]
probes.observe = _look_at_probes
probes.advise = lambda expected, got: (
    f"the tokeniser that {next(iter(got.values()))} would have passed with these captions"
)
