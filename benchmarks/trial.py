"""What the page "Attention on trial" knows: `python benchmarks/trial.py`, six minutes.

Writes satlib/results/trial.json, a record for each exhibit but the visitor's own photograph:

    picture, grid           the file, and rows and columns of a map
    words                   the model's own sentence
    at, word, before        the number of the word on trial, that word, and the one before it
    alpha                   the map of the word on trial, (L,)
    sentences, places       what is said with all light on each place alone, (L,), by number
    control                 another map, or the places that are left, and its sentence
    light, controls         one character a case: 1 where the light did it, where a control did it
    of, count, most         how many cases, and in how many the light and the best control did it
    margin                  by how many standard errors the light did more than a control: the least
                            over the controls, 0 where there is none
    cases                   "cure": the false words, as model, scene, number of the word
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

import satlib
from satcourse import demo
from satcourse.lessons.mistakes import scene_mistakes
from satcourse.widgets.reading import annotate
from satcourse.widgets.steering import everywhere, look_again, steered
from satlib.data import images, scenes
from satlib.data.caption_set import Example
from satlib.evaluation.maps import Target
from satlib.files import progress_bar, write_json
from satlib.model import installed
from satlib.model.captioner import Caption, Captioner
from satlib.model.search import beam_search

RESULTS = Path(satlib.__file__).parent / "results" / "trial.json"
SCENES = [Path(f"test-{number:06}.webp") for number in range(200)]  # for "green" and "neighbour"
PATIENTS = 2000  # scenes in which false words are looked for
# A false shape (a size has two values, so that any push may flip it). The drawn map cures it, and
# so does the model's own map a place higher.
PATIENT = "scenes-soft test-001401 3"
SHARE = 0.95  # of the places elsewhere, where a label's word has to be less likely
SIDE, CELL = 14, 16  # places a side, and pixels a side of a place
EVEN = torch.full((SIDE * SIDE,), 1 / SIDE**2)


def covered(mask: Tensor) -> Tensor:
    """The part of each place that an object covers, (L,). mask: (224, 224)."""
    return mask.float().view(SIDE, CELL, SIDE, CELL).mean((1, 3)).flatten()


def said(captioner: Captioner, a: Tensor, words: list[str], at: int, maps: Tensor) -> list[str]:
    """The word that each map (N, L) gives at word `at` of a caption."""
    N = len(maps)
    p = look_again(captioner, a.expand(N, -1, -1), [words] * N, [at] * N, maps)
    return [captioner.vocabulary.words[id] for id in p.argmax(1).tolist()]


def sentences(captioner: Captioner, a: Tensor, at: int, maps: Tensor) -> list[str]:
    """The caption with each map (N, L) at word `at` alone, as satlib decodes greedily."""
    N = len(maps)
    given = torch.zeros(N, at + 1, len(a))
    given[:, at] = maps
    decoder = steered(captioner.decoder, given=given)
    decoding = captioner.recipe.decoding
    once = captioner.content_words if decoding.no_repeat else None
    with torch.inference_mode():
        found = beam_search(decoder, a.expand(N, -1, -1), 1, decoding.max_length, once=once)
    return [" ".join(captioner.vocabulary.decode(best.words)) for best, *_ in found]


class Reading(NamedTuple):
    """What a captioner makes of a picture: vectors a (L, D), and a caption with maps (C, L)."""

    a: Tensor
    words: list[str]
    alphas: Tensor


def reading(captioner: Captioner, picture: Path) -> Reading:
    """A picture as a captioner sees and describes it, greedily."""
    photo = picture_of(picture)
    (caption,) = captioner.caption([photo], beam=1)
    return Reading(annotate(captioner, photo), caption.words, caption.alphas.flatten(1))


def record(captioner: Captioner, picture: Path, at: int, control: Tensor) -> dict[str, Any]:
    """What the page shows of a picture with the light of word `at` moved; control: a map (L,)."""
    a, words, alphas = reading(captioner, picture)
    told = sentences(captioner, a, at, torch.eye(len(a)))
    different = sorted(set(told))
    (of_control,) = sentences(captioner, a, at, control[None])
    return {
        "picture": picture.name,
        "grid": list(captioner.encoder.grid),
        "words": words,
        "at": at,
        "word": words[at],
        "before": words[at - 1],
        "alpha": rounded(alphas[at]),
        "sentences": different,
        "places": [different.index(sentence) for sentence in told],
        "control": {"map": rounded(control), "sentence": of_control},
    }


def picture_of(picture: Path) -> Image.Image:
    """A drawn scene by its name, or a photograph."""
    if picture.suffix == ".webp":
        return scenes.scene(picture.stem).photo()
    return images.open_photo(picture)


def rounded(values: Tensor) -> list[float]:
    """Numbers for a file."""
    return [round(value, 4) for value in values.tolist()]


def margin(light: Sequence[bool], control: Sequence[bool]) -> float:
    """By how many standard errors the light did it more often than a control in the same cases.

    The rule of notebook 10: the mean of the cases' differences over its standard error. 0 where no
    case differs, infinite where all differ alike.
    """
    differences = torch.tensor(light).float() - torch.tensor(control).float()
    if not differences.any():
        return 0.0
    error = differences.std() / len(light) ** 0.5
    return float(differences.mean() / error)


def outcomes(light: Sequence[bool], *controls: Sequence[bool]) -> dict[str, Any]:
    """What the light and its controls did, case by case, and the counts."""
    margins = [margin(light, control) for control in controls]
    return {
        "light": characters(light),
        "controls": [characters(control) for control in controls],
        "of": len(light),
        "count": sum(light),
        "most": max((sum(control) for control in controls), default=0),
        "margin": round(min(margins, default=0), 2),
    }


def characters(cases: Sequence[bool]) -> str:
    """A 1 for each case in which it was so, and a 0 for each other."""
    return "".join(str(int(case)) for case in cases)


# --- The light of a colour, and the map of the word before ---------------------------------------


def colours_and_noun(words: list[str]) -> tuple[int, int, int]:
    """The numbers of the two colours of a caption, and of the second one's noun."""
    first, second = [at for at, word in enumerate(words) if word in scenes.grammar.COLOURS]
    return first, second, second + 1


def empty_place(scene: scenes.Scene, generator: torch.Generator) -> int:
    """A random place that no object touches."""
    bare = (covered(torch.as_tensor(scene.masks).any(0)) == 0).nonzero().flatten()
    return int(bare[torch.randint(len(bare), (), generator=generator)])


def green(captioner: Captioner) -> dict[str, Any]:
    """Does the second colour become the first one, with all light where the first one looked?

    The control has all light on an empty place.
    """
    generator = torch.Generator().manual_seed(0)
    follows, follows_empty, lights = [], [], []
    for picture in progress_bar(SCENES, desc="green"):
        a, words, alphas = reading(captioner, picture)
        first, second, _ = colours_and_noun(words)
        bare = empty_place(scenes.scene(picture.stem), generator)
        light = torch.zeros(2, len(a))
        light[0, alphas[first].argmax()] = 1
        light[1, bare] = 1
        lights.append(light)

        moved, empty = said(captioner, a, words, second, light)
        follows.append(moved == words[first])
        follows_empty.append(empty == words[first])

    # The example is the first of the scenes.
    _, words, _ = reading(captioner, SCENES[0])
    _, second, _ = colours_and_noun(words)
    shown = record(captioner, SCENES[0], second, lights[0][1])
    return shown | outcomes(follows, follows_empty)


def neighbour(captioner: Captioner) -> dict[str, Any]:
    """Does the second noun stay, with the map of the word before it? The control is even light."""
    stays, stays_even = [], []
    for picture in progress_bar(SCENES, desc="neighbour"):
        a, words, alphas = reading(captioner, picture)
        _, second, noun = colours_and_noun(words)
        borrowed, even = said(captioner, a, words, noun, torch.stack([alphas[second], EVEN]))
        stays.append(borrowed == words[noun])
        stays_even.append(even == words[noun])

    _, words, alphas = reading(captioner, SCENES[0])
    _, second, noun = colours_and_noun(words)
    shown = record(captioner, SCENES[0], noun, alphas[second])
    return shown | outcomes(stays, stays_even)


# --- The labels of the elephants -----------------------------------------------------------------


def living_labels(captioner: Captioner, words: list[str], at: int) -> Tensor:
    """Which labels of the elephants pass the test of notebook 00, (L,) bool.

    A label is the likeliest word that the caption may have there: no content word twice.
    """
    spoken = {}
    for path in demo.photographs():
        a = annotate(captioner, images.open_photo(path))
        spoken[path.stem] = everywhere(captioner, a, words, at)
    here = spoken.pop("elephants")
    elsewhere = torch.cat([*spoken.values()])

    before = torch.tensor(captioner.vocabulary.encode(" ".join(words[:at])))
    barred = before[captioner.content_words[before]]
    p, word = here.index_fill(1, barred, 0).max(1)
    return p > elsewhere[:, word].quantile(SHARE, dim=0)


def labels() -> dict[str, Any]:
    """Which places of the elephants keep their label where the same light falls elsewhere?"""
    captioner = Captioner.load(installed.PHOTOGRAPHS)
    (elephants,) = [path for path in demo.photographs() if path.stem == "elephants"]
    _, words, _ = reading(captioner, elephants)
    last = len(words) - 1
    lives = living_labels(captioner, words, last)
    return record(captioner, elephants, last, lives.float()) | outcomes(lives.tolist())


# --- The cure and its placebos -------------------------------------------------------------------


def is_true(words: list[str], at: int, new: str, scene: scenes.Scene, target: Target) -> bool:
    """Whether a new word at the place of a false one is true of its object."""
    kind = target.kinds[0]
    (thing,) = [
        thing
        for thing, mask in zip(scene.objects, scene.masks, strict=True)
        if (mask == target.mask).all()
    ]
    changed = [*words[:at], new, *words[at + 1 :]]
    attributes = {}
    for phrase in scenes.grammar.phrases(changed):
        attributes |= phrase.attributes
    return attributes.get(at) == (kind, getattr(thing, kind))


# Where two of the maps stand that `cures` gives.
DRAWN = 0
UP = 2


def cures(target: Target, caption: Caption) -> Tensor:
    """Maps (6, L): the drawn one, and five placebos.

    These are even light, and the model's own map moved up, down, left and right.
    """
    drawn = covered(torch.as_tensor(target.mask))
    own = caption.alphas[target.index]
    moved = [own.roll(way, axis).flatten() for axis in (0, 1) for way in (-1, 1)]
    return torch.stack([drawn / drawn.sum(), EVEN, *moved])


def false_words(
    captioner: Captioner, examples: list[Example]
) -> Iterator[tuple[Example, Caption, Target]]:
    """Each false word of a model's captions: the example, the caption, and the word."""
    for start in progress_bar(range(0, len(examples), 50), desc=captioner.recipe.name):
        batch = examples[start : start + 50]
        photos = [scenes.scene(example.image_id).photo() for example in batch]
        for example, caption in zip(batch, captioner.caption(photos, beam=1), strict=True):
            if scenes.exact_match(caption.words, scenes.scene(example.image_id)):
                continue
            for target in scene_mistakes(example, caption.words):
                yield example, caption, target


def cure(soft: Captioner) -> dict[str, Any]:
    """Does the drawn map make a model's false words true? The controls are the placebos."""
    cases, maps, cured = [], [], []
    examples = scenes.load(0, 0, PATIENTS).split("test")
    for captioner in (soft, Captioner.load("scenes-hard")):
        for example, caption, target in false_words(captioner, examples):
            scene = scenes.scene(example.image_id)
            a = annotate(captioner, scene.photo())
            tried = cures(target, caption)
            new = said(captioner, a, caption.words, target.index, tried)
            maps.append(tried)
            cured.append(
                [is_true(caption.words, target.index, word, scene, target) for word in new]
            )
            cases.append(f"{captioner.recipe.name} {example.image_id} {target.index}")

    patient = cases.index(PATIENT)
    assert cured[patient][DRAWN], f"the drawn map should cure {PATIENT}"
    assert cured[patient][UP], f"the model's own map a place higher should cure {PATIENT}"
    _, scene_id, word = PATIENT.split()
    shown = record(soft, Path(f"{scene_id}.webp"), int(word), maps[patient][UP])
    return shown | outcomes(*zip(*cured, strict=True)) | {"cases": cases}


def main() -> None:
    """Write the four exhibits, and print how each went."""
    torch.set_num_threads(1)
    soft = Captioner.load("scenes-soft")
    exhibits = {
        "green": green(soft),
        "labels": labels(),
        "neighbour": neighbour(soft),
        "cure": cure(soft),
    }
    write_json(RESULTS, exhibits)
    for name, exhibit in exhibits.items():
        print(name, *[f"{key} {exhibit[key]}" for key in ("count", "most", "of", "margin")])


if __name__ == "__main__":
    main()
