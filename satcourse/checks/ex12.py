"""Exercises of notebook 12: a gate, answers and rewards, and the project."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from satcourse.checks import compare, ex02
from satcourse.checks.calls import Failed
from satcourse.checks.task import Answer, exercise, numbers, with_gradients
from satcourse.lessons.vectors import Vectors
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.images import SIZE
from satlib.evaluation.plots import END_LABEL
from satlib.model import installed
from satlib.model.captioner import Captioner

B, C, d = 2, 3, 8
SCENES, SEED = 100, 1_000_000  # of the project's check: scenes that no notebook has seen
WORDS_BAR = 160  # objects of 200 named right
MAPS_BAR = 0.5  # the share of the words whose map peaks on the object
PASSES = "both bars are passed"


@exercise(
    "12.1",
    "A gate that starts closed",
    difficulty=1,
    minutes=3,
    equation="Alayrac et al., section 2.2",
)
def gated(x: Tensor, found: Tensor, g: Tensor) -> Tensor:
    """All of x (B, C, d), and added to it tanh(g) times what was found."""
    return x + torch.tanh(g) * found


def _gates() -> list[tuple[Tensor, Tensor, Tensor]]:
    x = numbers(B, C, d)
    found = numbers(B, C, d, seed=1)
    return [
        (x, found, torch.tensor(-2.0)),
        (x, found, torch.tensor(0.8)),
        # Shut: what was found adds nothing, but the gate has a gradient.
        (x, found, torch.tensor(0.0)),
    ]


gated.says = "a gate that is shut, open and negative; the gradients"
gated.cases = _gates
gated.observe = with_gradients("x", "found", "g")
gated.mistakes = {
    "a sigmoid is half open at g = 0: with tanh it is shut": (
        lambda x, found, g: x + torch.sigmoid(g) * found
    ),
    "without the tanh nothing keeps it below 1": (lambda x, found, g: x + g * found),
    "x is shut out as the gate opens: all of x stays": (
        lambda x, found, g: x + torch.tanh(g) * (found - x)
    ),
    "the gate is at x: it is for what was found": lambda x, found, g: torch.tanh(g) * x + found,
    "x is behind the gate, too: it is for what was found alone": (
        lambda x, found, g: torch.tanh(g) * (x + found)
    ),
    "the tanh of the product: of g alone, and then times what was found": (
        lambda x, found, g: x + torch.tanh(g * found)
    ),
}


@exercise(
    "12.2",
    "Better than its group",
    difficulty=1,
    minutes=5,
    equation="Liu et al., 2025",
)
def group_loss(log_p: Tensor, rewards: Tensor) -> Tensor:
    """The mean over all answers, (N, G), of -log p times (reward - its group's mean), divided by no
    deviation.
    """
    advantage = rewards - rewards.mean(1, keepdim=True)
    return -(advantage * log_p).mean()


def _groups() -> list[tuple[Tensor, Tensor]]:
    # Where all answers of a group are right, or all wrong, nothing is taught.
    right = torch.tensor(
        [
            [0.0, 1, 1, 0],
            [1, 1, 1, 1],
            [0, 0, 1, 0],
            [0, 0, 0, 0],
        ]
    )
    # Minus 4, so that they are logarithms of small probabilities.
    log_p = numbers(4, 4) - 4
    log_p_of_two = numbers(2, 2, seed=1) - 4
    return [
        (log_p, right),
        (log_p_of_two, torch.eye(2)),
    ]


def _one_mean_for_all(log_p: Tensor, rewards: Tensor) -> Tensor:
    advantage = rewards - rewards.mean()
    return -(advantage * log_p).mean()


def _divided_by_deviation(log_p: Tensor, rewards: Tensor) -> Tensor:
    # A group that agrees has a deviation of 0.
    deviation = rewards.std(1, keepdim=True).clamp(min=1e-6)
    return group_loss(log_p, rewards / deviation)


group_loss.says = "groups that agree teach nothing; the gradient at log p"
group_loss.cases = _groups
group_loss.observe = with_gradients("log_p")
group_loss.mistakes = {
    "there is no baseline: take off the group's mean": (
        lambda log_p, rewards: -(rewards * log_p).mean()
    ),
    "one mean for all groups: every answer to an easy question would look good": _one_mean_for_all,
    "this is p times the advantage: log p is given, and asked for": (
        lambda log_p, rewards: group_loss(log_p.exp(), rewards)
    ),
    "this is GRPO: do not divide by the standard deviation": _divided_by_deviation,
    "each answer less another group's mean: keepdim=True leaves a mean in its row": (
        lambda log_p, rewards: -((rewards - rewards.mean(1)) * log_p).mean()
    ),
    "less the mean of the other answers: the group's mean, of all its answers": (
        lambda log_p, rewards: (
            group_loss(log_p, rewards) * rewards.shape[1] / (rewards.shape[1] - 1)
        )
    ),
}


class _Project(NamedTuple):
    """A trained model, scenes that no notebook has seen, and their vectors (SCENES, L, D)."""

    captioner: Captioner
    drawn: list[scenes.Scene]
    a: Tensor


@cache
def _project() -> _Project:
    # Cached, since every check of 12.3 asks for it, and encoding takes seconds.
    captioner = Captioner.load(installed.model("scenes-soft"))
    data = scenes.load(0, 0, SCENES, SEED)
    ids = [example.image_id for example in data.examples]
    drawn = [scenes.scene(id, SEED) for id in ids]
    vectors = Vectors(captioner, Pixels(data), ids)
    return _Project(captioner, drawn, vectors.a)


@exercise(
    "12.3",
    "Your captioner",
    difficulty=3,
    minutes=30,
    equation="equations 4 to 6",
)
def describe(a: Tensor) -> tuple[list[list[str]], Tensor]:
    """Greedy captions by `scenes-soft`, and their maps: a (B, L, D) -> B lists of words,
    (B, C, L).
    """
    captioner = _project().captioner
    captions = []
    maps = []
    for (best,) in captioner.hypotheses(a, beam=1):
        captions.append(captioner.vocabulary.decode(best.words))
        maps.append(best.alphas.view(len(best.alphas), -1))

    # After a caption's end its maps are uniform, so that every map sums to 1.
    uniform = 1 / a.shape[1]
    padded = torch.nn.utils.rnn.pad_sequence(maps, batch_first=True, padding_value=uniform)
    return captions, padded


def named_right(words: Sequence[str], scene: scenes.Scene) -> int:
    """How many of the two objects of a scene a caption names with the right colour and shape."""
    named = []
    for phrase in scenes.grammar.phrases(words):
        attributes = dict(phrase.attributes.values())
        # Together: of a red star and a blue circle, "a red circle" names neither.
        named.append((attributes.get("colour"), attributes.get("shape")))
    return sum((thing.colour, thing.shape) in named for thing in scene.objects)


def share_on_objects(
    captions: Sequence[Sequence[str]], maps: Tensor, drawn: Sequence[scenes.Scene]
) -> float:
    """Of the words that describe an object rightly, the share whose map, of (B, C, L), peaks in the
    object's box.
    """
    side = math.isqrt(maps.shape[2])
    hits = []
    for words, alphas, scene in zip(captions, maps, drawn, strict=True):
        for t, number in enumerate(scenes.mentions(words, scene)):
            # A word that describes no object, or describes it wrongly.
            if number is None:
                continue
            y, x = ex02.centre(int(alphas[t].argmax()), (side, side), SIZE)
            thing = scene.objects[number]
            middle_x, middle_y = thing.centre
            half = thing.diameter / 2
            in_columns = middle_x - half <= x <= middle_x + half
            in_rows = middle_y - half <= y <= middle_y + half
            hits.append(in_columns and in_rows)
    return sum(hits) / max(1, len(hits))


def judge(answer: Answer, a: Tensor) -> list[str]:
    """[PASSES], or what is missing in a sentence, followed by the captions.

    Raises Failed if the result has the wrong form.
    """
    result = answer(a)
    drawn = _project().drawn
    try:
        captions = _captions(result, a)
    except Failed:
        raise
    except Exception:  # of whatever form the result is
        raise Failed("expected B captions, each a list of words, and one tensor of maps") from None

    maps = result[1]
    right = sum(map(named_right, captions, drawn))
    own = share_on_objects(captions, maps, drawn)
    # Maps that always lie on some object would pass as well one word too late or too early.
    late = share_on_objects(captions, maps.roll(1, 1), drawn)
    early = share_on_objects(captions, maps.roll(-1, 1), drawn)
    if right >= WORDS_BAR and own >= MAPS_BAR and own > max(late, early):
        return [PASSES]

    verdict = (
        f"{right} of {2 * SCENES} objects have the right colour and shape "
        f"(the bar is {WORDS_BAR}); "
        f"{own:.0%} of the words for an object have the peak of their map on it "
        f"(the bar is {MAPS_BAR:.0%}); "
        f"by the maps of the words before them {late:.0%}, after them {early:.0%}: "
        "their own must be the best"
    )
    return [verdict, *map(" ".join, captions)]


def _captions(result: Any, a: Tensor) -> list[list[str]]:
    """The captions of a result in words; Failed, or another exception, if its form is wrong."""
    said, maps = result
    if not isinstance(maps, Tensor):
        raise Failed(f"expected one tensor of maps after the captions, got {compare.kind(maps)}")
    captions = []
    for caption in said:
        text = caption if isinstance(caption, str) else " ".join(caption)
        captions.append(text.split())

    B, L = a.shape[:2]
    if len(captions) != B:
        raise Failed(f"expected a caption for each of {B} pictures, got {len(captions)}")
    if maps.dim() != 3 or maps.shape[::2] != (B, L):
        raise Failed(f"expected maps (B, C, L), here ({B}, C, {L}), got {tuple(maps.shape)}")
    if max(map(len, captions)) > maps.shape[1]:
        raise Failed("expected a map for each word: a caption has more words than maps")
    if not ((maps.sum(2) - 1).abs() < 1e-3).all():
        raise Failed("expected maps that sum to 1, also those that fill up after a caption's end")
    if any(END_LABEL in words or "<end>" in words for words in captions):
        raise Failed("expected captions without the end mark: leave it out")
    return captions


def _first_line(expected: Any, got: Any) -> str:
    return got[0]


describe.says = (
    f"at least {WORDS_BAR} of {2 * SCENES} objects of new scenes named right; "
    "each word's own map beats its neighbours'"
)
describe.cases = lambda: [(_project().a,)]
describe.observe = judge
describe.advise = _first_line
# A hundred scenes, by whatever the learner has written.
describe.seconds = 120.0
