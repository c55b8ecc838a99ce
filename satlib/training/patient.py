"""What `satlib.training.doctor` knows about a run or a model, and the form of its checks (`satlib.training.symptoms`)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from satlib.data.caption_set import CaptionSet
from satlib.data.text import Vocabulary, tokenise
from satlib.evaluation import statistics
from satlib.model.captioner import Captioner
from satlib.recipe import Recipe
from satlib.training.checkpoint import Progress

FEWEST = 20  # captions: of fewer, shares say little


class Unknown(Exception):  # noqa: N818 (an answer, not an error)
    """What a check needs is not there; the text says what, and how to get it."""


@dataclass
class Patient:
    """What is known about a run or a model.

    Attributes:
        evaluations: by split.
        log: a record for each epoch.
        recipe, vocabulary: of the run's folder, beside those of the model.
        captioner: the model.
        data: the recipe's data set, if it is there.
        sampled: what the model says of some images, in the form of an evaluation, if there is no evaluation.
        progress: of the run's checkpoint.
        distances: how far these images are from the model's training images (`satlib.model.familiarity`).
    """

    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    recipe: Recipe | None = None
    vocabulary: Vocabulary | None = None
    captioner: Captioner | None = None
    data: CaptionSet | None = None
    sampled: dict[str, Any] = field(default_factory=dict)
    progress: Progress | None = None
    distances: list[float] = field(default_factory=list)

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """The evaluation of test, or else of dev, or else what was sampled."""
        found = self.evaluations.get("test") or self.evaluations.get("dev") or self.sampled
        if not found:
            raise Unknown(
                "there are no captions; name the folder of the data sets with --data, or make captions with: satlib evaluate"
            )
        return found

    @cached_property
    def captions(self) -> list[list[str]]:
        """The words of each caption."""
        language = self.captioner.vocabulary.language if self.captioner else ""
        captions = [tokenise(text, language) for text in self.evaluation.get("captions", {}).values()]
        if len(captions) < FEWEST:
            raise Unknown(f"there are {len(captions)} captions, and {FEWEST} are needed; evaluate more images")
        return captions

    @cached_property
    def statistics(self) -> statistics.Statistics:
        """The figures of each image."""
        stored = self.evaluation.get("statistics")
        if not stored:
            raise Unknown("the evaluation has no figures for each image; make it again with: satlib evaluate")
        return statistics.Statistics.of(stored)


class Result(NamedTuple):
    """Whether something is wrong, and what was measured."""

    wrong: bool
    measured: str


@dataclass(frozen=True)
class Check:
    """A check: its name, what it measures, its advice, and the function that does it."""

    name: str
    measure: str
    advice: str
    of: Callable[[Patient], Result]


CHECKS: list[Check] = []


def check(name: str, measure: str, advice: str) -> Callable[[Callable[[Patient], Result]], Callable[[Patient], Result]]:
    """Add a function to `CHECKS`."""

    def add(function: Callable[[Patient], Result]) -> Callable[[Patient], Result]:
        CHECKS.append(Check(name, measure, advice, function))
        return function

    return add
