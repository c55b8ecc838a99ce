"""The final project: an attention of the learner's own, judged on new scenes by what it says and by where it looks."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.compare import kind
from satcourse.exercises.task import Answer, Exploration, Task, chosen_class_seed, explain
from satcourse.lessons.vectors import Vectors
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.images import SIZE
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.model.search import greedy

SCENES = 100  # of the check
WORDS_BAR, MAPS_BAR = 160, 0.5  # objects of 200 named right; the share of the words whose map peaks on the object
SEED = 1_000_000  # of the scenes that are drawn for the check: no notebook has seen them
PASSES = "both bars are passed"


@lru_cache(maxsize=1)
def _eyes() -> Captioner:
    return Captioner.load(shipped.model("scenes-soft"))


@lru_cache(maxsize=2)
def _new_scenes(seed: int) -> tuple[list[scenes.Scene], Tensor]:
    """Scenes that no notebook has seen, and their annotation vectors (SCENES, L, D)."""
    data = scenes.load(0, 0, SCENES, seed)
    ids = [example.image_id for example in data.examples]
    return [scenes.scene(each, seed) for each in ids], Vectors(_eyes(), Pixels(data), ids).a


def describe(a: Tensor) -> tuple[list[list[str]], Tensor]:
    """Greedy captions by `scenes-soft`, and their maps: a (B, L, D) -> B lists of words, (B, C, L)."""
    captioner = _eyes()
    with torch.no_grad():
        output = greedy(captioner.decoder, a)
    captions = [captioner.vocabulary.decode(each.words) for each in output]
    maps = [each.alphas.view(len(each.alphas), -1) for each in output]
    return captions, torch.nn.utils.rnn.pad_sequence(maps, batch_first=True, padding_value=1 / a.shape[1])


def named_right(words: Sequence[str], scene: scenes.Scene) -> int:
    """How many of the two objects of a scene a caption names with the right colour and shape."""
    said = [dict(phrase.attributes.values()) for phrase in scenes.grammar.phrases(words)]
    return sum(
        any(each.get("colour") == thing.colour and each.get("shape") == thing.shape for each in said)
        for thing in scene.objects
    )


def share_on_objects(captions: Sequence[Sequence[str]], maps: Tensor, drawn: Sequence[scenes.Scene]) -> float:
    """Of the words that describe an object rightly, the share whose map has its heaviest cell's middle in the object's box.

    Args:
        captions: a list of words for each scene.
        maps: (B, C, L), one for each word.
        drawn: the scenes.
    """
    hits, side = [], math.isqrt(maps.shape[2])
    cell = SIZE / side  # pixels
    for words, map_of, scene in zip(captions, maps, drawn, strict=True):
        for t, index in enumerate(scenes.mentions(words, scene)):
            if index is not None:
                row, column = divmod(map_of[t].argmax().item(), side)
                left, top, right, bottom = scene.objects[index].box
                x, y = (column + 0.5) * cell, (row + 0.5) * cell
                hits.append(left <= x <= right and top <= y <= bottom)
    return sum(hits) / len(hits) if hits else 0.0


def judge(answer: Answer, a: Tensor) -> list[str]:
    """[PASSES], or what is missing in a sentence, followed by the captions."""
    result = answer(a)
    problem = _unusable(result, *a.shape[:2])
    if problem:
        return [problem]
    captions = [each.split() if isinstance(each, str) else list(each) for each in result[0]]
    drawn, _ = _new_scenes(SEED + chosen_class_seed())
    right = sum(map(named_right, captions, drawn))
    on_objects = share_on_objects(captions, result[1], drawn)
    said = f"{right} of {2 * SCENES} objects have the right colour and shape (the bar is {WORDS_BAR})"
    looked = f"{on_objects:.0%} of the words that describe an object have the peak of their map on it (the bar is {MAPS_BAR:.0%})"
    if right >= WORDS_BAR and on_objects >= MAPS_BAR:
        return [PASSES]
    return [f"{said}; {looked}", *map(" ".join, captions)]


def _unusable(result: Any, size: int, places: int) -> str | None:
    """What is wrong with the form of a result; None if nothing is."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return f"expected captions and maps, got {kind(result)}"
    captions, maps = result
    if isinstance(captions, str) or not isinstance(captions, Sequence) or len(captions) != size:
        return f"expected a list of {size} captions, got {kind(captions)}"
    if not all(isinstance(word, str) for each in captions for word in each):
        return "expected captions of words, as strings, got something else; decode the ids"
    longest = max(len(each.split() if isinstance(each, str) else each) for each in captions)
    shape = (size, longest, places)
    if not isinstance(maps, Tensor) or maps.dim() != 3 or maps.shape[::2] != shape[::2] or maps.shape[1] < longest:
        return f"expected maps of shape {shape}, or with more than {longest} words, got {kind(maps)}"
    if not torch.allclose(maps.double().sum(2), torch.ones(maps.shape[:2], dtype=torch.float64), atol=1e-3):
        return "expected maps that sum to 1 over the places, got others"
    return None


def _backwards(a: Tensor) -> tuple[list[list[str]], Tensor]:
    captions, maps = describe(a)
    return captions[::-1], maps.flip(0)


def _one_for_all(a: Tensor) -> tuple[list[list[str]], Tensor]:
    captions, maps = describe(a)
    return [captions[0]] * len(a), maps[:1].expand_as(maps)


def _one_map(a: Tensor) -> tuple[list[list[str]], Tensor]:
    captions, maps = describe(a)
    lengths = [len(each) for each in captions]
    means = torch.stack([each[:length].mean(0) for each, length in zip(maps, lengths, strict=True)])
    return captions, means.unsqueeze(1).expand_as(maps)


def _first_object(a: Tensor) -> tuple[list[list[str]], Tensor]:
    captions, maps = describe(a)
    return [each[: len(each) // 2] for each in captions], maps


TASKS = (
    Task(
        id="10.1",
        name="describe",
        title="An attention of your own",
        difficulty=3,
        minutes=30,
        equation="equations 4 to 6",
        after="04: Training from captions and given vectors",
        reference=describe,
        cases=lambda: [(_new_scenes(SEED + chosen_class_seed())[1],)],
        observe=judge,
        mistakes={
            "the captions are in another order than the vectors: caption i has to describe scene i": _backwards,
            "all scenes get the caption of the first: write one for each row of a": _one_for_all,
            "the words pass, but each caption has one map for all of its words: give each word the map it was chosen with": _one_map,
            "the captions break off in the middle: go on until the end mark": _first_object,
        },
        says=f"at least {WORDS_BAR} of {2 * SCENES} objects of new scenes are named right, and the maps lie on what is named",
        others=(lambda a: ([" ".join(words) for words in describe(a)[0]], describe(a)[1].double()),),
        advise=lambda got: got[0],
        seconds=120.0,
    ),
    explain(
        "10.2",
        "what_shows_it",
        right="b",
        wrong={
            "a": "a loss that falls shows that something was learnt, not that the maps had a part in it",
            "c": "it shows that size is not enough; it does not show that yours uses its maps",
            "d": "a map may lie on an object and still not be what the word was chosen by",
        },
        title="Was it the attention?",
        difficulty=2,
        minutes=5,
        equation="section 5.4",
        after="04: Sharpen it, blur it: what does it cost?",
        says="only there the maps are taken away, and everything else stays",
    ),
)
EXPLORATIONS = (Exploration("Make it better", 3, 15, "06: Train it, and train the control"),)
