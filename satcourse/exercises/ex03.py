"""Exercises of notebook 03: captions as words, words as numbers, captions in batches."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Answer, exercise, gradients, numbers
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
    *(("a merry-go-round at a café",), ("",), ('a red; a "blue": x_y?',)),
]
words.mistakes = {
    'capital letters are kept: "Dog" and "dog" would be two words': lambda caption: re.findall(r"[\w'-]+", caption),
    'punctuation is kept at the words: "runs." and "runs" would be two words': lambda caption: caption.lower().split(),
    'an underscore is no letter: "x_y" gives two words': lambda caption: re.findall(
        r"\w+(?:[-']\w+)*", caption.lower()
    ),
    'apostrophes and hyphens end a word: "t-shirt" is one word': lambda caption: re.findall(r"\w+", caption.lower()),
}


def _unsorted(captions: Sequence[str], size: int) -> list[str]:
    counts = Counter(word for caption in captions for word in tokenise(caption))
    return [word for word, _ in counts.most_common(size - 2)]


@exercise("3.2", "The words worth knowing", difficulty=2, minutes=8, equation="section 5.1")
def vocabulary(captions: Sequence[str], size: int) -> list[str]:
    """The words that satlib keeps, in the order of their ids."""
    return Vocabulary.from_captions(captions, size).to_json()


vocabulary.says = "four vocabularies, equally frequent words at the cut among them"
vocabulary.cases = lambda: [
    *((list(CAPTIONS), 5), (list(CAPTIONS), 50), (list(CAPTIONS[::-1]), 7)),
    (["A zebra's t-shirt", "a cat; a cat's T-shirt", "a zebra", "an ant"], 7),
]
vocabulary.mistakes = {
    "of a vocabulary of K, K - 2 words are left: two are special": lambda *x: vocabulary(x[0], x[1] + 2),
    "equally frequent words stand in the order of their captions: sort them": _unsorted,
    "cut first and sorted then: at the cut, chance decides who stays": lambda captions, size: sorted(
        _unsorted(captions, size), key=lambda word: (-sum(tokenise(each).count(word) for each in captions), word)
    ),
    'captions are split by words() of 3.1, to which "t-shirt" is one word': lambda captions, size: vocabulary(
        [re.sub(r"\W", " ", caption) for caption in captions], size
    ),
}


def _joined(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    i = next((i for i, both in enumerate(pairwise(pieces)) if both == pair), None)
    return pieces if i is None else [*pieces[:i], "".join(pair), *_joined(pieces[i + 2 :], pair)]


@exercise("3.3", "Byte pairs", difficulty=3, minutes=15, equation="Sennrich et al., section 3.2")
def byte_pairs(counted: dict[str, int], n: int, *, once: bool = False, ties: bool = True) -> list[tuple[str, str]]:
    """The n commonest pairs of pieces, each made one piece before the next is looked for."""
    spelled, pairs = {word: [*word] for word in counted}, []
    for _ in range(n):
        times = Counter()
        for word, pieces in spelled.items():
            times.update(dict.fromkeys(pairwise(pieces), 0))
            for pair in pairwise(pieces):
                times[pair] += 1 if once else counted[word]
        if times:
            pairs.append(min(times, key=lambda pair: (-times[pair], pair if ties else 0)))
            spelled = {word: _joined(pieces, pairs[-1]) for word, pieces in spelled.items()}
    return pairs


byte_pairs.says = "pairs of words that are said often and seldom, ties by the alphabet, and words that run out of pairs"
byte_pairs.cases = lambda: [
    ({"lower": 2, "newest": 6, "widest": 3, "low": 5}, 6),
    ({"zaz": 1, "banana": 2}, 3),
    ({"aaaa": 2, "a": 9}, 7),
]
byte_pairs.mistakes = {
    "each word counts once: a pair counts as often as its word is said": partial(byte_pairs, once=True),
    "equally frequent pairs stand in the order of the words: the first by the alphabet is meant": partial(
        byte_pairs, ties=False
    ),
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


def _trained(answer: Answer, losses: Tensor, lengths: Tensor) -> Any:
    loss = answer(losses.requires_grad_(), lengths)
    found = gradients(loss, {"the losses": losses})
    return found if found is loss else {"": loss.detach(), **found}


@exercise("3.5", "A loss that does not count padding", difficulty=2, minutes=4, equation="section 4.3")
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """The mean over true words: losses (B, C), lengths (B,) -> ()."""
    return sum(row[:length].sum() for row, length in zip(losses, lengths.tolist(), strict=True)) / lengths.sum()


word_loss.says = "captions of 5, 4, 3, 2 and 1 words"
word_loss.cases = lambda: [
    (numbers(3, 5).abs(), torch.tensor([5, 2, 1])),
    (numbers(2, 4, seed=1).relu(), torch.tensor([3, 2])),  # a loss of 0 is one
]
word_loss.observe = _trained
word_loss.mistakes = {
    "padding is counted: words that nobody said have a loss here": lambda losses, lengths: losses.mean(),
    "divided by the number of places: divide by that of words": lambda *x: word_loss(*x) * x[1].sum() / x[0].numel(),
    "one place too many: the places of n words are 0 to n - 1": lambda losses, n: word_loss(
        losses, (n + 1).clamp(max=losses.shape[1])
    ),
    "the last word, the end mark, is missing": lambda losses, n: word_loss(losses, n - 1),
}


RIVALS = {  # what a tokenizer does wrong -> one that does it
    "keeps punctuation at the words": lambda caption: caption.lower().split(),
    "knows only the comma and the full stop": lambda caption: re.sub("[.,]", " ", caption.lower()).split(),
    "removes punctuation and puts no space there": lambda caption: tokenise(re.sub(r"[^\w\s'-]", "", caption)),
    "keeps capital letters": lambda caption: re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", caption),
    "drops digits and accents": lambda caption: re.findall("[a-z]+(?:[-'][a-z]+)*", caption.lower()),
    "ends a word at an apostrophe": lambda caption: re.findall(r"[^\W_]+(?:-[^\W_]+)*", caption.lower()),
    "ends a word at a hyphen": lambda caption: re.findall(r"[^\W_]+(?:'[^\W_]+)*", caption.lower()),
    "leaves quotation marks at words": lambda caption: re.findall(r"[\w'-]+", caption.lower()),
}


def _living(captions: Any) -> Any:
    """The first wrong tokenizer that no caption tells from satlib's; "dies" if there is none."""
    if not isinstance(captions, (list, tuple)):
        return captions
    alive = (wrong for wrong, split in RIVALS.items() if all(split(each) == tokenise(each) for each in captions))
    return [next(alive, "dies")]


@exercise("3.6", "Find out a tokenizer", difficulty=2, minutes=8)
def probes() -> list[str]:
    """Captions on which each wrong tokenizer differs from satlib's."""
    return ["A dog's T-shirt (red)!", "the 'big' one-eyed café no. 3,he says"]


probes.says = "eight wrong tokenizers gave themselves away"
probes.cases = lambda: [()]
probes.observe = lambda answer: _living(answer())
probes.advise = lambda expected, got: (
    f"the artefact lives: a tokenizer that {got[0]} splits your captions as satlib's does"
    if isinstance(got, list)
    else None
)
probes.mistakes = {
    "no punctuation, no evidence: on bare words every tokenizer is right": list,
}
