"""Beyond the paper: learning from other models what else could have been said (Hinton et al., 2015; Kim and Rush, 2016).

A true caption says which word came; models that are trained already say how likely every other word was in its place. With
teachers, what training minimises is

    (1 - w) (-log p(y|a))  -  w sum_t sum_k q(k|y_<t,a) log p(k|y_<t,a)

with q the mean of their probabilities, w = objective.teaching, and hard attention's bound in place of log p(y|a). Teachers may
see the photograph by another, a better encoder. They are asked in training alone: what is trained captions by itself.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.captioner import Captioner
from satlib.encoders import weights_hash
from satlib.errors import SatlibError
from satlib.features import Reader
from satlib.recipe import Recipe
from satlib.text import Vocabulary


class Teachers:
    """Trained captioners, each with the reader of what its encoder makes of the training images; one given twice counts twice.

    Attributes:
        hashes: SHA-256 of the weights of each: what a checkpoint is checked by.
        origins: "taught by" and its recipe's name, of each.
    """

    def __init__(self, teachers: Sequence[tuple[Captioner, Reader]], vocabulary: Vocabulary) -> None:
        """Take them as they are; they learn nothing.

        Raises:
            SatlibError: a teacher has other words than the vocabulary of the one to be taught.
        """
        for number, (captioner, _) in enumerate(teachers, 1):
            if captioner.vocabulary != vocabulary:
                raise SatlibError(
                    f"teacher {number}, {captioner.recipe.name}, has another vocabulary; train it on the same captions with "
                    "the same [data] values"
                )
        self._teachers = [(captioner.eval(), reader) for captioner, reader in teachers]
        self.hashes = [weights_hash(captioner) for captioner, _ in teachers]
        self.origins = tuple(dict.fromkeys(f"taught by {captioner.recipe.name}" for captioner, _ in teachers))

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
                'distillation uses the words of true captions: leave --teacher out where objective.maximise = "reward"'
            )
        return cls(teachers, vocabulary)

    @torch.no_grad()
    def probabilities(self, keys: Sequence[str], captions: Tensor) -> Tensor:
        """q(k|y_<t,a) of every word: the images' keys, their captions (B, C) -> (B, C, K). Hard teachers see the expected context."""
        total = torch.zeros((), device=captions.device)
        for captioner, reader in self._teachers:
            a = captioner.annotations(reader.read(keys).to(captions.device))
            with captioner.looking("expected" if captioner.recipe.decoder.attention == "hard" else None):
                logits = captioner.decoder(a, captions).logits
            total = total + logits.softmax(2, dtype=torch.promote_types(logits.dtype, torch.float32))
        return total / len(self._teachers)
