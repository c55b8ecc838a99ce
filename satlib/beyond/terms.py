"""The terms that a run's recipe, teachers and boxes add to the loss of captions (`satlib.model.objective`)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from satlib.beyond import boxes, distillation
from satlib.data.batches import Batch
from satlib.data.caption_set import CaptionSet
from satlib.data.entities import Entities
from satlib.data.features import Reader
from satlib.model.captioner import Captioner
from satlib.model.objective import BatchTerm


class Term(Protocol):
    """A term of the loss."""

    def term(self, batch: Batch, a: Tensor, places: Tensor | None) -> BatchTerm:
        """The term for a batch whose images have the annotation vectors a (I, L, D), of these `places`; None if of all."""


class Terms(NamedTuple):
    """The terms in their order; what identifies them in a checkpoint: SHA-256 of the boxes ("" without), of each teacher."""

    terms: list[Term]
    boxes: str
    teachers: list[str] | None


def create(
    captioner: Captioner,
    data: CaptionSet,
    teachers: Sequence[tuple[Captioner, Reader]] = (),
    entities: Entities | None = None,
) -> Terms:
    """The terms of a run.

    Raises:
        SatlibError: the recipe does not go together with the teachers, the boxes or the data.
    """
    distilled = distillation.Teachers.of(teachers, captioner.vocabulary, captioner.recipe)
    supervised = boxes.targets(entities, data, captioner.recipe, captioner)
    return Terms(
        [term for term in (distilled, supervised) if term],
        supervised.hash if supervised else "",
        distilled.hashes if distilled else None,
    )
