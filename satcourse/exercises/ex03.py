"""Exercises of notebook 03: captions as words, words as numbers, captions in batches."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.exercises.task import Answer, exercise, generator, numbers
from satlib.data.batches import Pair, SameLengthBatches
from satlib.data.text import Vocabulary, tokenise

CAPTIONS = (
    "A dog runs.",
    "A brown dog runs after a ball!",
    "Two dogs, one ball.",
    "The ball is red, red, red",
    "a cat and a dog",
)


@exercise("3.1", "A caption as words", difficulty=2, minutes=8, equation="section 5.1")
def words(caption: str) -> list[str]:
    """satlib's words of a caption."""
    return tokenise(caption)


words.says = "capital letters, accents, digits, punctuation, apostrophes and hyphens inside and outside of words, and an empty caption"
words.cases = lambda: [
    *(("A dog runs.",), ("Two dogs,one BALL!",), ("the dog's t-shirt (red)",), ("2 dogs - one 'big'",)),
    *(("a merry-go-round at a café",), ("",)),
]
words.mistakes = {
    'capital letters are kept: "Dog" and "dog" would be two words': lambda caption: re.findall(r"[\w'-]+", caption),
    'punctuation is kept at the words: "runs." and "runs" would be two words': lambda caption: caption.lower().split(),
    'apostrophes and hyphens end a word: "t-shirt" is one word': lambda caption: re.findall(r"\w+", caption.lower()),
}


def _unsorted(captions: Sequence[str], size: int) -> list[str]:
    counts = Counter(word for caption in captions for word in tokenise(caption))
    return [word for word, _ in counts.most_common(size - 2)]


@exercise("3.2", "The words worth knowing", difficulty=2, minutes=8, equation="section 5.1")
def vocabulary(captions: Sequence[str], size: int) -> list[str]:
    """The words that satlib keeps, in the order of their ids."""
    return Vocabulary.from_captions(captions, size).to_json()


vocabulary.says = "three vocabularies, equally frequent words among them"
vocabulary.cases = lambda: [(list(CAPTIONS), 5), (list(CAPTIONS), 50), (list(CAPTIONS[::-1]), 7)]
vocabulary.mistakes = {
    "of a vocabulary of K, K - 2 words are left: two are special": lambda *x: vocabulary(x[0], x[1] + 2),
    "equally frequent words stand in the order of their captions: sort them": _unsorted,
}


@exercise("3.3", "Words become numbers", difficulty=1, minutes=4, equation="section 3.1")
def encode(caption: list[str], known: list[str]) -> list[int]:
    """satlib's ids of words, with the end mark: 0 the end, 1 unknown, then the known ones."""
    return [*Vocabulary(known).encode(" ".join(caption)), 0]


encode.says = "known and unknown words, words that come twice, an empty caption, and the end mark"
encode.cases = lambda: [
    (["a", "dog", "runs"], ["a", "dog", "ball", "runs"]),
    (["a", "zebra", "runs"], ["dog", "a", "runs"]),
    ([], ["a"]),
    (["a", "dog", "and", "a", "dog"], ["dog", "a"]),
]
encode.mistakes = {
    "the end mark is missing: the model could never learn to stop": lambda *x: encode(*x)[:-1],
    "unknown words are dropped: each becomes a 1": lambda *x: [i for i in encode(*x) if i != 1],
}


def _sorted_cut(lengths: list[int], size: int) -> list[list[int]]:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + size] for start in range(0, len(order), size)]


def _look_at_batches(answer: Answer, lengths: list[int], size: int) -> Any:
    """Any order and any division will do: how often each caption comes, which lengths are together, how many batches there are."""
    batches = answer(lengths, size)
    try:
        seen = Counter(int(i) for batch in batches for i in batch)
        return {
            "how often each caption comes": [seen.pop(i, 0) for i in range(len(lengths))],
            "numbers that no caption has": sorted(seen),
            "batches that hold several lengths": sum(len({lengths[i] for i in batch}) > 1 for batch in batches),
            "batches that are too large": sum(len(batch) > size for batch in batches),
            "how many batches": len(batches),
        }
    except (TypeError, ValueError, IndexError):
        return batches


@exercise("3.4", "Batches of one length", difficulty=2, minutes=8, equation="section 4.3")
def same_length_batches(lengths: list[int], size: int) -> list[list[int]]:
    """satlib's batches: numbers of captions, all those of a batch of one length."""
    pairs = [Pair(str(i), (0,) * length) for i, length in enumerate(lengths)]
    return [[int(image_id) for image_id in batch.image_ids] for batch in SameLengthBatches(pairs, size).epoch(0)]


same_length_batches.says = "every caption once, one length in each batch, no batch too large and none more than needed"
same_length_batches.cases = lambda: [
    ([4, 2, 4, 3, 4, 2, 4, 4], 2),
    ([5, 5, 5], 8),
    ([7, 1, 7, 1, 7, 1, 7], 3),
    ([3], 1),
]
same_length_batches.observe = _look_at_batches
same_length_batches.mistakes = {
    "lengths are mixed in a batch: sorting and cutting does that where a length runs out": _sorted_cut,
}


@exercise("3.5", "A loss that does not count padding", difficulty=2, minutes=4, equation="section 4.3")
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """The mean over true words: losses (B, C), lengths (B,) -> ()."""
    return sum(row[:length].sum() for row, length in zip(losses, lengths.tolist(), strict=True)) / lengths.sum()


word_loss.says = "captions of 5, 4, 3, 2 and 1 words"
word_loss.cases = lambda: [
    (numbers(3, 5).abs(), torch.tensor([5, 2, 1])),
    (numbers(2, 4, seed=1).abs(), torch.tensor([3, 4])),
]
word_loss.mistakes = {
    "padding is counted: words that nobody said have a loss here": lambda losses, lengths: losses.mean(),
    "divided by the number of places: divide by that of words": lambda *x: word_loss(*x) * x[1].sum() / x[0].numel(),
}


def _captions() -> list[tuple[Tensor, Tensor]]:
    cases = []
    for seed, shape in ((0, (3, 5)), (10, (2, 2)), (20, (4, 1))):
        captions = torch.randint(2, 7, shape, generator=generator(seed))
        captions[:, -1] = 0
        cases.append((captions, numbers(7, 4, seed=seed + 1)))
    return cases


@exercise("3.6", "What goes in, what should come out", difficulty=2, minutes=5, equation="section 3.1.2")
def inputs_and_targets(captions: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """What teacher forcing gives in and asks for: ids (B, C), embeddings (K, m) -> (B, C, m) and (B, C)."""
    return functional.pad(E[captions[:, :-1]], (0, 0, 1, 0)), captions


inputs_and_targets.says = "captions of five, two and one id: zeros before the first word, the end mark the last target"
inputs_and_targets.cases = _captions
inputs_and_targets.parts = ("inputs", "targets")
inputs_and_targets.mistakes = {
    "not shifted: each word goes in when it is asked for itself": lambda captions, E: (E[captions], captions),
    "the end mark is no target, and never learned": lambda *x: tuple(each[:, :-1] for each in inputs_and_targets(*x)),
}
