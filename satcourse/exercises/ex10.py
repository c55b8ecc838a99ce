"""Exercises of notebook 10: attention with heads, who may look at whom, light moved in some heads; and the project."""

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from satcourse.exercises import ex02
from satcourse.exercises.compare import kind
from satcourse.exercises.task import Answer, distribution, exercise, numbers, sums_to_one
from satcourse.lessons.vectors import Vectors
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.images import SIZE
from satlib.evaluation.plots import END_LABEL
from satlib.model import shipped, transformer
from satlib.model.captioner import Captioner

B, C, L, d, HEADS = 2, 3, 5, 8, 2
SCENES, SEED = 100, 1_000_000  # of the project's check: scenes that no notebook has seen
WORDS_BAR, MAPS_BAR = 160, 0.5  # objects of 200 named right; the share of the words whose map peaks on the object
PASSES = "both bars are passed"


@exercise("10.1", "Where the heads look", difficulty=2, minutes=10, equation="Vaswani et al., section 3.2")
def weights(
    q: Tensor, k: Tensor, heads: int, visible: Tensor | None = None, *, scaled: bool = True, hide_late: bool = False
) -> Tensor:
    """The maps of all heads: (B, C, d), (B, L, d) -> (B, heads, C, L); energies of hidden keys are set to minus infinity."""
    q, k = transformer.split(q, heads), transformer.split(k, heads)
    e = q @ k.mT / (math.sqrt(q.shape[-1]) if scaled else 1)
    if visible is not None and not hide_late:
        e = e.masked_fill(~visible, -torch.inf)
    alpha = torch.softmax(e, -1)
    return alpha * visible if visible is not None and hide_late else alpha


weights.says = "two heads and four, with and without a mask, and large energies"
weights.cases = lambda: [
    (numbers(B, C, d), numbers(B, L, d, seed=1), HEADS),
    (numbers(B, 4, d, seed=2, scale=5), numbers(B, 4, d, seed=3, scale=5), 4, visible(0, 4)),
]
weights.advise = sums_to_one(-1, over="the keys")
weights.mistakes = {
    "the energies are not divided by the square root of d / heads": partial(weights, scaled=False),
    "hidden keys are taken out after the softmax: hide their energies before it": partial(weights, hide_late=True),
}


@exercise("10.2", "What the heads read", difficulty=2, minutes=8, equation="Vaswani et al., section 3.2.2")
def read(alpha: Tensor, v: Tensor) -> Tensor:
    """What the heads read, next to each other: maps (B, heads, C, L), values (B, L, d) -> (B, C, d)."""
    return transformer.joined(alpha @ transformer.split(v, alpha.shape[1]))


read.says = "two heads and three, each with its share of the values"
read.cases = lambda: [
    (distribution(B, HEADS, C, L, sharp=2), numbers(B, L, d, seed=1)),
    (distribution(1, 3, 4, 4, seed=2, sharp=2), numbers(1, 4, 6, seed=3)),
]
read.mistakes = {
    "the heads' results lie one after the other: transpose back to (B, C, heads, d / heads) before you join them": (
        lambda alpha, v: (alpha @ transformer.split(v, alpha.shape[1])).reshape(len(v), -1, v.shape[2])
    ),
}


@exercise("10.3", "Who may look at whom", difficulty=1, minutes=5, equation="Vaswani et al., section 3.2.3")
def visible(places: int, words: int, *, words_ahead: bool = False) -> Tensor:
    """Rows may look at columns: places at all places, words at all places and at the words up to themselves."""
    mask = torch.ones(places + words, places + words).tril() > 0
    mask[:places, :places] = True
    if words_ahead:
        mask[places:, places:] = True
    return mask


visible.says = "words alone, and words after places"
visible.cases = lambda: [(0, 4), (3, 2), (2, 5)]
visible.mistakes = {
    "a word may look at itself": lambda p, w: visible(p, w) & ~torch.diag(torch.arange(p + w) >= p),
    "a word sees those after it: that is the caption which it should predict": partial(visible, words_ahead=True),
}


def _lights(*words: int, seed: int = 0) -> Tensor:
    """Maps (B, C, L) for some words, dark at their first place; zero at the other words."""
    light = torch.zeros(B, C, L)
    light[:, list(words), 1:] = distribution(B, len(words), L - 1, seed=seed, sharp=2)
    return light


@exercise("10.4", "Move the light in some heads", difficulty=2, minutes=8, equation="notebook 09")
def force(alpha: Tensor, light: Tensor, moved: Tensor) -> Tensor:
    """The maps (B, heads, C, L) with a light (B, C, L) in the moved heads (heads,); where it is zero, their own."""
    changed = (light.sum(-1, keepdim=True) > 0).unsqueeze(1) & moved.view(-1, 1, 1)
    return torch.where(changed, light.unsqueeze(1), alpha)


force.says = "some heads and all, some words, and rows of zeros"
force.cases = lambda: [
    (distribution(B, 4, C, L), _lights(1), torch.tensor([True, False, False, True])),
    (distribution(B, 3, C, L, seed=1), _lights(0, 2, seed=2), torch.tensor([True, True, True])),
]
force.advise = sums_to_one(-1)
force.mistakes = {
    "the light is moved in all heads: only in those of `moved`": lambda *x: force(*x[:2], x[2] | True),
    "words without a light of their own have gone dark: a row of zeros means that the maps stay": (
        lambda alpha, light, moved: torch.where(moved.view(-1, 1, 1), light.unsqueeze(1), alpha)
    ),
}


@exercise("10.5", "A loss that is too good", difficulty=2, minutes=5, equation="section 4.3", kind="bug")
def so_far(captions: Tensor, start: int) -> Tensor:
    """What a decoder has read when it chooses each word: the words before it, and first the number of "none yet"."""
    return functional.pad(captions[:, :-1], (1, 0), value=start)


so_far.start = lambda captions, start: functional.pad(captions[:, 1:], (1, 0), value=start)
so_far.says = "each position holds the word before it, and the first the number of none yet"
so_far.cases = lambda: [(torch.tensor([[3, 1, 4, 0], [5, 2, 6, 0]]), 7), (torch.tensor([[9, 2, 6, 5, 3, 0]]), 70)]
so_far.mistakes = {
    "the words have moved the wrong way": lambda *x: functional.pad(x[0][:, 1:], (0, 1), value=x[1]),
    "the caption's last word has come round to its beginning": lambda captions, start: captions.roll(1, 1),
}


@cache
def _project() -> tuple[Captioner, list[scenes.Scene], Tensor]:
    """A trained model, scenes that no notebook has seen, and their annotation vectors (SCENES, L, D)."""
    captioner, data = Captioner.load(shipped.model("scenes-soft")), scenes.load(0, 0, SCENES, SEED)
    ids = [example.image_id for example in data.examples]
    return captioner, [scenes.scene(id, SEED) for id in ids], Vectors(captioner, Pixels(data), ids).a


@exercise("10.6", "Your captioner", difficulty=3, minutes=30, equation="equations 4 to 6")
def describe(a: Tensor) -> tuple[list[list[str]], Tensor]:
    """Greedy captions by `scenes-soft`, and their maps: a (B, L, D) -> B lists of words, (B, C, L)."""
    captioner, *_ = _project()
    output = [best for (best,) in captioner.hypotheses(a, beam=1)]
    captions = [captioner.vocabulary.decode(each.words) for each in output]
    maps = [each.alphas.view(len(each.alphas), -1) for each in output]
    return captions, torch.nn.utils.rnn.pad_sequence(maps, batch_first=True, padding_value=1 / a.shape[1])


def named_right(words: Sequence[str], scene: scenes.Scene) -> int:
    """How many of the two objects of a scene a caption names with the right colour and shape."""
    phrases = [dict(phrase.attributes.values()) for phrase in scenes.grammar.phrases(words)]
    named = [(phrase.get("colour"), phrase.get("shape")) for phrase in phrases]
    return sum((thing.colour, thing.shape) in named for thing in scene.objects)


def share_on_objects(captions: Sequence[Sequence[str]], maps: Tensor, drawn: Sequence[scenes.Scene]) -> float:
    """Of the words that describe an object rightly, the share whose map, of (B, C, L), peaks in the object's box."""
    hits, side = [], math.isqrt(maps.shape[2])
    for words, alphas, scene in zip(captions, maps, drawn, strict=True):
        for t, number in enumerate(scenes.mentions(words, scene)):
            if number is not None:
                y, x = ex02.centre(int(alphas[t].argmax()), (side, side), SIZE)
                left, top, right, bottom = scene.objects[number].box
                hits.append(left <= x <= right and top <= y <= bottom)
    return sum(hits) / max(1, len(hits))


def judge(answer: Answer, a: Tensor) -> list[str]:
    """[PASSES], or what is missing in a sentence, followed by the captions."""
    result = answer(a)
    problem = _unusable(result, *a.shape[:2])
    if problem:
        return [problem]
    captions, maps = [_words(each) for each in result[0]], result[1]
    _, drawn, _ = _project()
    right, on_objects = sum(map(named_right, captions, drawn)), share_on_objects(captions, maps, drawn)
    if right >= WORDS_BAR and on_objects >= MAPS_BAR:
        return [PASSES]
    named = f"{right} of {2 * SCENES} objects have the right colour and shape (the bar is {WORDS_BAR})"
    peaks = f"{on_objects:.0%} of the words for an object have the peak of their map on it (the bar is {MAPS_BAR:.0%})"
    return [f"{named}; {peaks}", *map(" ".join, captions)]


def _words(caption: str | Sequence[str]) -> list[str]:
    return caption.split() if isinstance(caption, str) else list(caption)


def _unusable(result: Any, size: int, places: int) -> str | None:
    """What is wrong with the form of a result; None if nothing is."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return f"expected captions and maps, got {kind(result)}"
    captions, maps = result
    if isinstance(captions, str) or not isinstance(captions, Sequence) or len(captions) != size:
        return f"expected a list of {size} captions, got {kind(captions)}"
    if not all(isinstance(word, str) and word != END_LABEL for caption in captions for word in _words(caption)):
        return "expected captions of words, without the end mark; got something else: decode the ids"
    longest = max(len(_words(caption)) for caption in captions)
    if not isinstance(maps, Tensor) or maps.dim() != 3 or len(maps) != size or maps.shape[1] < longest:
        return f"expected maps of shape {(size, longest, places)}, or with more than {longest} words, got {kind(maps)}"
    if ((maps.sum(2) - 1).abs() > 1e-3).any():
        return "expected maps that sum to 1 over the places, padded ones too, got others"
    return None


def _one_map(a: Tensor) -> tuple[list[list[str]], Tensor]:
    captions, maps = describe(a)
    lengths = [len(each) for each in captions]
    means = torch.stack([each[:length].mean(0) for each, length in zip(maps, lengths, strict=True)])
    return captions, means.unsqueeze(1).expand_as(maps)


describe.says = f"at least {WORDS_BAR} of {2 * SCENES} objects of new scenes named right, and maps on what is named"
describe.cases = lambda: [(_project()[2],)]
describe.observe = judge
describe.advise = lambda expected, got: got[0]
describe.seconds = 120.0
describe.mistakes = {
    "the words pass, but each caption has one map for all of its words: give each word the map it was chosen with": _one_map,
}
