"""Beyond the paper: distillation from other models (Hinton et al., 2015; Kim and Rush, 2016).

A true caption gives one word at each position; a trained model gives a probability for every word. With teachers, training
minimises

    (1 - w) (-log p(y|a))  -  w sum_t sum_k q(k|y_<t,a) log p(k|y_<t,a)

where q is the mean of the teachers' probabilities and w = objective.distillation; with hard attention the bound replaces
log p(y|a). Teachers may use another, better encoder. They are needed in training only: the trained model captions by itself.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.data.batches import Batch
from satlib.data.features import Reader
from satlib.data.text import PAD, Vocabulary
from satlib.errors import SatlibError
from satlib.model.captioner import Captioner
from satlib.model.decoder import Output
from satlib.model.encoders import weights_hash
from satlib.model.objective import BatchTerm
from satlib.recipe import Recipe


def distillation_loss(logits: Tensor, q: Tensor) -> Tensor:
    """-sum_t sum_k q_tk log p_tk, the cross-entropy with teachers' probabilities q: (B, C, K), (B, C, K) -> (B,)."""
    return -(q * logits.to(q.dtype).log_softmax(2)).sum((1, 2))


class Teachers:
    """Trained captioners, each with a reader of its encoder's annotation vectors; a teacher given twice counts twice.

    A term of the loss (`satlib.model.objective`).

    Attributes:
        weight: w.
        hashes: SHA-256 of each teacher's weights; a checkpoint is checked against them.
    """

    def __init__(
        self, teachers: Sequence[tuple[Captioner, Reader]], vocabulary: Vocabulary, weight: float = 0.5
    ) -> None:
        """Take trained captioners; their weights do not change.

        Raises:
            SatlibError: a teacher's vocabulary is not the one given, which is the student's.
        """
        for number, (captioner, _) in enumerate(teachers, 1):
            if captioner.vocabulary != vocabulary:
                raise SatlibError(
                    f"teacher {number}, {captioner.recipe.name}, has another vocabulary; train it on the same captions with "
                    "the same [data] values"
                )
        self.weight = weight
        self._teachers = [(captioner.eval(), reader) for captioner, reader in teachers]
        self.hashes = [weights_hash(captioner) for captioner, _ in teachers]

    @classmethod
    def of(
        cls, teachers: Sequence[tuple[Captioner, Reader]], vocabulary: Vocabulary, recipe: Recipe
    ) -> "Teachers | None":
        """The teachers of a run; None where it has none.

        Raises:
            SatlibError: the recipe maximises a reward, or a teacher has another vocabulary.
        """
        if not teachers:
            return None
        if recipe.objective.maximise == "reward":
            raise SatlibError(
                'distillation needs the words of true captions: leave out --teacher, or set objective.maximise = "likelihood"'
            )
        return cls(teachers, vocabulary, recipe.objective.distillation)

    @torch.no_grad()
    def probabilities(self, image_ids: Sequence[str], captions: Tensor) -> Tensor:
        """q(k|y_<t,a) for every word: image ids and their captions (B, C) -> (B, C, K).

        Teachers with hard attention use the expected context vector.
        """
        total = torch.zeros((), device=captions.device)
        for captioner, reader in self._teachers:
            a = captioner.annotations(reader.read(image_ids).to(captions.device))
            with captioner.looking("expected" if captioner.recipe.decoder.attention == "hard" else None):
                logits = captioner.decoder(a, captions).logits
            total = total + logits.softmax(2, dtype=torch.promote_types(logits.dtype, torch.float32))
        return total / len(self._teachers)

    def term(self, batch: Batch, a: Tensor, places: Tensor | None) -> BatchTerm:
        """The cross-entropy with the teachers, mixed into the loss: (1 - w) loss + w term."""
        captions = batch.captions.to(a.device)
        q = self.probabilities(batch.images, captions) * (captions != PAD).unsqueeze(2)

        def mix(loss: Tensor, output: Output) -> tuple[Tensor, dict[str, Tensor]]:
            targets = q.repeat_interleave(len(output.logits) // len(q), 0)
            return torch.lerp(loss, distillation_loss(output.logits, targets).mean(), self.weight), {}

        return mix
