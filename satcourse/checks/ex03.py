"""Exercises of notebook 03: captions as words, words as numbers, captions in batches."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.checks.calls import Failed
from satcourse.checks.task import Answer, exercise, generator, gradients, numbers, with_gradients
from satlib.data.batches import Pair, SameLengthBatches
from satlib.data.text import Vocabulary, tokenise

Counts = Mapping[str, int]  # how often each word is said
Pieces = tuple[str, str]
Merges = list[Pieces]
Tokeniser = Callable[[str], list[str]]

CAPTIONS = (
    "A dog runs.",
    "A brown dog runs after a ball!",
    "Two dogs, one ball.",
    "The ball is red, red, red",
    "a cat and a dog's t-shirt",
)


@exercise("3.1", "A caption as words", difficulty=2, minutes=8, equation="section 5.1")
def words(caption: str) -> list[str]:
    """The words of a caption in lower case: letters and digits,
    with the apostrophes and hyphens inside them.
    """
    return tokenise(caption)


words.says = (
    "capital letters, accents, digits, punctuation, apostrophes, hyphens, and an empty caption"
)
words.cases = lambda: [
    ("A dog runs.",),
    # Punctuation without a space after it, and at both ends of words.
    ("Two dogs,one BALL!",),
    ("the dog's t-shirt (red)",),
    ("2 dogs - one 'big'",),
    # Letters beyond the alphabet, and an underscore, which \w takes for a letter.
    ("a naïve merry-go-round",),
    ('one_two; "three": four?',),
    ("",),
]


def _first_odd_word(expected: list[str], got: list[str]) -> str | None:
    """What is wrong with the first word that is not the one asked for."""
    if [word.lower() for word in got] == expected:
        return "capital letters are left: the words are in lower case"

    pairs = zip_longest(got, expected, fillvalue="")
    odd, asked = next(pair for pair in pairs if pair[0] != pair[1])
    if re.search(r"^[\W_]|[\W_]$", odd):
        return f"{odd!r} is no word: one begins and ends with a letter or digit"
    if re.search(r"[^\w'-]|_", odd):
        return f"{odd!r} is not one word: only hyphens and apostrophes hold a word together"
    if asked and odd.startswith(asked):
        return f"{odd!r} is not one word: punctuation ends one, with or without a space"
    if odd and asked.startswith(odd):
        return f"{asked!r} is one word: {asked[len(odd)]!r} belongs to it"
    if asked and asked not in got:
        return f"{asked!r} is a word, too, and missing"
    return None


words.advise = _first_odd_word


@exercise("3.2", "The words worth knowing", difficulty=2, minutes=8, equation="section 5.1")
def vocabulary(captions: Sequence[str], size: int) -> list[str]:
    """The most frequent words of a vocabulary of `size`, two of which are special;
    equal ones by the alphabet.
    """
    return Vocabulary.from_captions(captions, size).to_json()


def _ranked(key: Callable[[int, str], Any], tokens: Tokeniser = tokenise) -> Answer:
    """`vocabulary` in the order of key(how often, word), of other words."""

    def answer(captions: Sequence[str], size: int) -> list[str]:
        counts = Counter(word for caption in captions for word in tokens(caption))
        return sorted(counts, key=lambda word: key(counts[word], word))[: size - 2]

    return answer


_unsorted = _ranked(lambda times, word: -times)


vocabulary.says = "three vocabularies, equally frequent words among them"
vocabulary.cases = lambda: [
    # A cut between equally frequent words, and room for all of them.
    (list(CAPTIONS), 5),
    (list(CAPTIONS), 50),
    (["Zebras, cats!", "two zebras; two cats"], 4),
]
vocabulary.mistakes = {
    "chance cuts between equally frequent words: sort, then cut": (
        # With 99 words there is room for all of them, in their right order.
        lambda captions, size: [
            word for word in vocabulary(captions, 99) if word in _unsorted(captions, size)
        ]
    ),
    "equally frequent words stand in the order of their captions: sort them": _unsorted,
    "two of the `size` places are the special words'": (
        lambda captions, size: vocabulary(captions, size + 2)
    ),
    "the alphabet alone decides: the most frequent words come first": _ranked(
        lambda times, word: word
    ),
    "the right words, sorted once more by the alphabet: the most frequent stay first": (
        lambda captions, size: sorted(_unsorted(captions, size))
    ),
    "the rarest words come first: the most frequent ones are asked for": _ranked(
        lambda times, word: (times, word)
    ),
    "the captions are split at spaces, and punctuation stays: use words() of 3.1": _ranked(
        lambda times, word: (-times, word), tokens=lambda text: text.lower().split()
    ),
    "the captions are split at spaces alone: use words() of 3.1": _ranked(
        lambda times, word: (-times, word), tokens=str.split
    ),
    "each caption counts a word once: count how often it is said": _ranked(
        lambda times, word: (-times, word), tokens=lambda text: [*{*tokenise(text)}]
    ),
}


@exercise("3.3", "Pieces of words", difficulty=3, minutes=25, equation="Sennrich et al., 2016")
def byte_pairs(counts: Counts, number: int) -> Merges:
    """The pairs that are joined, in order: words and how often each is said
    -> the most frequent neighbours, by the alphabet.
    """
    words = _as_letters(counts)
    merges: Merges = []
    for _ in range(number):
        pairs = _neighbours(words)
        most = max(pairs.values())
        pair = min(pair for pair in pairs if pairs[pair] == most)
        merges.append(pair)
        words = _joined(words, pair)
    return merges


def _as_letters(counts: Counts, end: Sequence[str] = ()) -> Counts:
    """Words with spaces between their pieces, which at first are letters, and an end."""
    return {" ".join([*word, *end]): times for word, times in counts.items()}


def _neighbours(words: Counts, within: Callable[..., Any] = list) -> Counter[Pieces]:
    """How often each pair of neighbouring pieces is said; `within`: which pairs of a word count."""
    pairs: Counter[Pieces] = Counter()
    for pieces, times in words.items():
        for pair in within(pairwise(pieces.split())):
            pairs[pair] += times
    return pairs


def _joined(words: Counts, pair: Pieces, most: int = 0) -> Counts:
    """The words with this pair joined wherever it stands, or so many times in a word at most."""
    first, second = pair
    joined = first + second
    # Whole pieces only: the "a" of "ba" is not the piece "a".
    place = re.compile(rf"(?<!\S){re.escape(first)} {re.escape(second)}(?!\S)")
    return {place.sub(joined, pieces, most): times for pieces, times in words.items()}


def _across_borders(words: Counts, pair: Pieces) -> Counts:
    old, new = " ".join(pair), "".join(pair)
    return {pieces.replace(old, new): times for pieces, times in words.items()}


def _sorted(pairs: Counter[Pieces]) -> list[Pieces]:
    return sorted(pairs, key=lambda pair: (-pairs[pair], pair))


def _merged_with(
    neighbours: Answer = _neighbours,
    choose: Answer = lambda pairs: _sorted(pairs)[0],
    join: Answer = _joined,
    end: Sequence[str] = (),
) -> Answer:
    """`byte_pairs` with another step, or an end to each word."""

    def answer(counts: Counts, number: int) -> Merges:
        words = _as_letters(counts, end)
        merges: Merges = []
        for _ in range(number):
            merges.append(choose(neighbours(words)))
            words = join(words, merges[-1])
        return merges

    return answer


byte_pairs.says = "the pairs of four texts, in order, ties among them"
byte_pairs.cases = lambda: [
    ({"low": 5, "lower": 2, "newest": 6, "widest": 3}, 6),
    # A pair that is in a word several times.
    ({"banana": 1, "bandana": 1, "ban": 4}, 4),
    # A letter repeated: its pairs overlap, and only every other one can be joined.
    ({"aaaa": 1, "aab": 3, "cod": 5}, 4),
    ({"aaab": 2}, 3),
]
byte_pairs.mistakes = {
    "each word counts once: a pair counts as often as its word is said": (
        lambda counts, number: byte_pairs(dict.fromkeys(counts, 1), number)
    ),
    "a pair counts as often as it is in a word": _merged_with(
        neighbours=partial(_neighbours, within=set)
    ),
    "of equally frequent pairs the first in the alphabet is joined": _merged_with(
        choose=lambda pairs: max(pairs, key=lambda pair: (pairs[pair], pair))
    ),
    "of equally frequent pairs you join the one seen first: the alphabet decides": _merged_with(
        choose=lambda pairs: max(pairs, key=pairs.get)
    ),
    "parts of pieces are joined: only whole pieces are neighbours": _merged_with(
        join=_across_borders
    ),
    "a pair is joined once in a word: join it wherever it stands": _merged_with(
        join=partial(_joined, most=1)
    ),
    "that is Sennrich's: here a word has no mark at its end": _merged_with(end=["</w>"]),
    "only letters are joined: count again after each pair is joined": (
        lambda counts, number: _sorted(_neighbours(_as_letters(counts)))[:number]
    ),
}


@exercise("3.4", "Batches of one length", difficulty=2, minutes=8, equation="section 4.3")
def same_length_batches(lengths: list[int], size: int) -> list[list[int]]:
    """Batches of at most `size` captions' numbers, those of a batch of one length,
    each caption once, in few batches.
    """
    # satlib's batches are of images and captions: here an image's name is its caption's number.
    pairs = [Pair(str(i), (0,) * length) for i, length in enumerate(lengths)]
    batches = SameLengthBatches(pairs, size).epoch(0)
    return [[int(image_id) for image_id in batch.image_ids] for batch in batches]


def _look_at_batches(answer: Answer, lengths: list[int], size: int) -> Any:
    """What matters about batches, since any order and any division will do."""
    batches = answer(lengths, size)
    if isinstance(batches, Iterator):
        batches = [*batches]  # a generator's batches can be read only once
    try:
        seen = Counter(int(i) for batch in batches for i in batch)
        # get: a number that no caption has is reported as such, below.
        length_of = dict(enumerate(lengths)).get
        mixed = [batch for batch in batches if len({length_of(i) for i in batch}) > 1]
        too_large = [batch for batch in batches if len(batch) > size]
        unknown = {*seen} - {*range(len(lengths))}
        return {
            "numbers that no caption has (the first is 0)": sorted(unknown),
            "how often each caption comes": [seen[i] for i in range(len(lengths))],
            "batches that hold several lengths": len(mixed),
            "batches that are too large": len(too_large),
            "how many batches": len(batches),
        }
    except (TypeError, ValueError, IndexError):
        # These are no batches: the engine compares them with the reference's, and says so.
        return batches


def _worst_of_batches(expected: dict[str, Any], got: dict[str, Any]) -> str | None:
    fault = next(name for name in expected if expected[name] != got[name])
    times = got["how often each caption comes"]
    if fault == "how often each caption comes":
        if 0 in times:
            missing = times.index(0)
            return f"caption {missing} is in no batch: what is left of a length makes a batch, too"
        return f"caption {times.index(max(times))} comes {max(times)} times"
    return {
        "batches that hold several lengths": "a batch holds several lengths: "
        "begin another one with each length",
        "batches that are too large": "a batch is larger than `size`: cut it up",
        "how many batches": "there are more batches than needed: "
        "captions of one length fill a batch before the next begins",
    }.get(fault)


same_length_batches.says = (
    "every caption once, one length in each batch, no batch too large and none more than needed"
)
same_length_batches.cases = lambda: [
    ([4, 2, 4, 3, 4, 2, 4, 4], 2),
    # A batch that is not full, lengths that take turns, and one caption alone.
    ([5, 5, 5], 8),
    ([7, 1, 7, 1, 7, 1, 7], 3),
    ([3], 1),
]
same_length_batches.observe = _look_at_batches
same_length_batches.advise = _worst_of_batches
same_length_batches.mistakes = {
    "a batch holds the captions' numbers, not their lengths": (
        lambda lengths, size: [
            [lengths[i] for i in batch] for batch in same_length_batches(lengths, size)
        ]
    ),
}


@exercise(
    "3.5", "A loss that does not count padding", difficulty=2, minutes=4, equation="section 4.3"
)
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """The mean over all true words, the first n of a caption of n:
    losses (B, C), lengths (B,) -> ().
    """
    rows = zip(losses, lengths.tolist(), strict=True)
    return sum(row[:length].sum() for row, length in rows) / lengths.sum()


def _look_at_loss(answer: Answer, losses: Tensor, lengths: Tensor) -> Any:
    """The mean and its gradient: without one nothing could be trained."""
    leaf = losses.clone().requires_grad_()
    loss = answer(leaf, lengths)
    found = gradients(loss, {"losses": leaf})
    return {"the mean": loss, **found} if isinstance(found, dict) else loss


def _counted_by_losses(losses: Tensor, lengths: Tensor) -> Tensor:
    true = torch.arange(losses.shape[1]) < lengths[:, None]
    kept = losses * true
    return kept.sum() / (kept > 0).sum()


word_loss.says = "captions of 5, 4, 3, 2 and 1 words, with words whose loss is 0, and the gradient"
word_loss.cases = lambda: [
    (numbers(3, 5).abs(), torch.tensor([5, 2, 1])),
    # Clamped, so that some words cost nothing.
    (numbers(2, 4, seed=1).clamp(min=0), torch.tensor([3, 4])),
]
word_loss.observe = _look_at_loss
word_loss.mistakes = {
    "padding is counted": lambda losses, lengths: losses.mean(),
    "the sum is of true words, but padding is counted where you divide": (
        lambda losses, lengths: word_loss(losses, lengths) * lengths.sum() / losses.numel()
    ),
    "divided by the number of captions: divide by that of their words": (
        lambda losses, lengths: word_loss(losses, lengths) * lengths.sum() / len(losses)
    ),
    "padding is in the sum: only the divisor is right": (
        lambda losses, lengths: losses.sum() / lengths.sum()
    ),
    "the last word is left out: n words have places 0 to n - 1": (
        lambda losses, lengths: word_loss(losses, lengths - 1)
    ),
    "a mean of means: every word counts the same": (
        lambda losses, lengths: (
            sum(row[:n].mean() for row, n in zip(losses, lengths, strict=True)) / len(losses)
        )
    ),
    "one word too many: n words have places 0 to n - 1": (
        lambda losses, lengths: word_loss(losses, (lengths + 1).clamp(max=losses.shape[1]))
    ),
    "each caption has its own number of true words: give lengths an axis for the words": (
        lambda losses, lengths: losses[torch.arange(losses.shape[1]) < lengths].mean()
    ),
    "a word whose loss is 0 is a word, too": _counted_by_losses,
    "padding has a loss, too, and a word may have none: only the lengths tell them apart": (
        lambda losses, lengths: losses[losses != 0].mean()
    ),
}


@exercise(
    "3.6", "What goes in, what should come out", difficulty=2, minutes=5, equation="section 3.1.2"
)
def inputs_and_targets(captions: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs (B, C, m), zeros and then the rows in E (K, m) of all words but the last;
    targets (B, C), the words' ids.
    """
    before = E[captions[:, :-1]]  # (B, C - 1, m)
    return functional.pad(before, (0, 0, 1, 0)), captions


def _captions() -> list[tuple[Tensor, Tensor]]:
    cases = []
    for seed, shape in ((0, (3, 5)), (10, (2, 2)), (20, (4, 1))):
        captions = torch.randint(2, 7, shape, generator=generator(seed))
        captions[:, -1] = 0  # the end mark
        cases.append((captions, numbers(7, 4, seed=seed + 1)))
    return cases


def _look_at_inputs(answer: Answer, captions: Tensor, E: Tensor) -> Any:
    """Inputs and targets, and the gradient at E."""
    # Of captions of one id the inputs are zeros alone, and E has no part in them.
    if captions.shape[1] == 1:
        return answer(captions, E)
    observe = with_gradients("E", parts=inputs_and_targets.parts)
    return observe(lambda E: answer(captions, E), E)


inputs_and_targets.says = (
    "captions of five, two and one id: zeros before the first word, the end mark the last target"
)
inputs_and_targets.cases = _captions
inputs_and_targets.parts = ("inputs", "targets")
inputs_and_targets.observe = _look_at_inputs
inputs_and_targets.mistakes = {
    "not shifted: each word goes in when it is asked for itself": (
        lambda captions, E: (E[captions], captions)
    ),
    "before the first word there are zeros, not the end mark's row": (
        lambda captions, E: (E[captions.roll(1, 1)], captions)
    ),
    "the end mark is no target, and never learned": (
        lambda captions, E: [part[:, :-1] for part in inputs_and_targets(captions, E)]
    ),
    "the word after it goes in: it is the word before that goes in": (
        lambda captions, E: (functional.pad(E[captions[:, 1:]], (0, 0, 0, 1)), captions)
    ),
    "the zeros go in last: they go in before the first word": (
        lambda captions, E: (functional.pad(E[captions[:, :-1]], (0, 0, 0, 1)), captions)
    ),
    "zeros are joined along the captions: they go before each caption's words": (
        lambda captions, E: torch.cat([0 * E[captions[:, :1]], E[captions[:, :-1]]])
    ),
    "each word goes in for itself, but the first: the words are not shifted": (
        lambda captions, E: (functional.pad(E[captions[:, 1:]], (0, 0, 1, 0)), captions)
    ),
}


def _finds(pattern: str) -> Tokeniser:
    """A tokeniser: whatever matches, in lower case."""
    return lambda text: re.findall(pattern, text.lower())


def _without_full_stops_and_commas(text: str) -> list[str]:
    return text.lower().replace(".", "").replace(",", "").split()


# What `words` does, but for lower().
def _with_capital_letters(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", text)


# Tokenisers that are wrong in one way each: "one that ..."
IMPOSTORS: dict[str, Tokeniser] = {
    "takes off full stops and commas alone": _without_full_stops_and_commas,
    "ends a word at hyphens and apostrophes": _finds(r"[^\W_]+"),
    "keeps hyphens and apostrophes at the ends, too": _finds(r"[\w'-]+"),
    "knows 26 letters": _finds(r"[a-z0-9]+(?:[-'][a-z0-9]+)*"),
    "keeps capital letters": _with_capital_letters,
}


def _look_at_probes(answer: Answer) -> Any:
    """Who would pass on these captions."""
    texts = answer()
    # Still blank: the engine knows.
    if texts is ...:
        return texts
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise Failed("expected a list of captions, each a string")
    # A whole data set would find them all, and nothing would be learned.
    if len(texts) > 3:
        raise Failed(f"these are {len(texts)} captions: three are enough")

    passing = "(nobody)"
    for fault, tokens in IMPOSTORS.items():
        if all(tokens(text) == tokenise(text) for text in texts):
            passing = fault
            break
    return {"the tokeniser that would pass is one that": passing}


@exercise("3.7", "On trial: 0 of 9,000", difficulty=1, minutes=6)
def probes() -> list[str]:
    """Captions that tell satlib's tokeniser from each impostor."""
    return ["A T-shirt; a dog's ball!", "one café -- and a 'bar'"]


def _who_would_pass(expected: dict[str, str], got: dict[str, str]) -> str:
    (fault,) = got.values()
    return f"the tokeniser that {fault} would have passed with these captions"


probes.says = "each of the five gives itself away"
probes.cases = lambda: [()]
probes.observe = _look_at_probes
probes.advise = _who_would_pass
