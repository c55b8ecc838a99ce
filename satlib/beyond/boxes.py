"""Supervised attention: in training, the map of a word is drawn into the boxes that people gave for its phrase (Liu et al., 2017).

Liu, Mao, Sha and Yuille ("Attention correctness in neural image captioning", AAAI 2017) train the attention of this paper's
model with the boxes of Flickr30k Entities. The word whose map is supervised is the last one of a phrase, its head noun. Where
they use the cross-entropy with an even map over the boxes, `box_loss` takes -log of the mass inside: where in the
boxes the model looks stays free.
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from satlib.data.batches import Batch
from satlib.data.caption_set import Example
from satlib.data.entities import Entities
from satlib.data.images import SIZE, Box, seen_part
from satlib.data.text import END, PAD, Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.model.attention import precise
from satlib.model.decoder import Output
from satlib.recipe import Recipe

_Boxes = tuple[Box, ...]  # left, top, right, bottom as fractions of what the encoder sees


def box_loss(alphas: Tensor, covers: Tensor) -> Tensor:
    """-sum_t log sum_i c_ti alpha_ti over the words with boxes: alphas (B, C, L), the cells' shares in the boxes c (B, C, L) -> (B,).

    The sum over i is the mass in the boxes (the "attention correctness" of Liu et al., 2017).
    """
    mass = (precise(alphas) * covers).sum(2)
    named = covers.any(2)
    return -(mass.clamp(min=torch.finfo(mass.dtype).tiny).log() * named).sum(1)


class BoxTargets:
    """The boxes of the words of training captions, as shares of the encoder's cells.

    phrases: the number of phrases with boxes. hash: SHA-256 of all words and boxes.
    """

    def __init__(
        self,
        entities: Entities,
        examples: Sequence[Example],
        vocabulary: Vocabulary,
        grid: tuple[int, int],
        view: str = "whole",
        weight: float = 1.0,
    ) -> None:
        """Look up the phrases of every caption of the examples; `grid` is the encoder's (h, w)."""
        self._grid, self.weight = grid, weight
        self._boxes: dict[tuple[str, tuple[int, ...]], list[tuple[int, _Boxes]]] = {}
        for image_id, reference in (
            (one.image_id, caption) for one in examples for caption in one.references
        ):
            if image_id not in entities:
                continue
            seen = seen_part(entities.size(image_id), view)
            phrases = entities.phrases(image_id, tokenise(reference), seen)
            named = [(phrase.head, phrase.boxes) for phrase in phrases if phrase.boxes]
            if named:
                self._boxes[image_id, (*vocabulary.encode(reference), END)] = named
        self.phrases = sum(map(len, self._boxes.values()))
        if not self.phrases:
            raise SatlibError(
                f"none of the {len(examples):,} training images has a phrase with boxes in {entities.path}; "
                "do these annotations belong to the data set?"
            )
        self.hash = hashlib.sha256(repr(sorted(self._boxes.items())).encode()).hexdigest()

    def of(self, image_ids: Sequence[str], captions: Tensor) -> Tensor:
        """The share of each cell that lies in the boxes of each word: captions (B, C) -> (B, C, L), 0 for words without boxes."""
        covers = torch.zeros(*captions.shape, self._grid[0] * self._grid[1])
        for row, (image_id, ids) in enumerate(zip(image_ids, captions.tolist(), strict=True)):
            for word, boxes in self._boxes.get((image_id, tuple(i for i in ids if i != PAD)), ()):
                covers[row, word] = cover(boxes, self._grid)
        return covers

    def __call__(
        self, batch: Batch, places: Tensor | None, output: Output
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted `box_loss` of a batch, and its mean over the words with boxes; `places`: those kept, None if all are."""
        covers = self.of(batch.images, batch.captions).to(output.alphas.device)
        covers = covers if places is None else covers[:, :, places]
        covers = covers.repeat_interleave(len(output.alphas) // len(covers), 0)
        loss = box_loss(output.alphas, covers)
        return self.weight * loss.mean(), {"boxes": loss.sum() / covers.any(2).sum().clamp(min=1)}


def terms(
    recipe: Recipe,
    entities: Entities | None,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    grid: tuple[int, int],
) -> list[BoxTargets]:
    """The terms that a recipe's `objective.boxes` adds to the loss: one, or none where its weight is 0."""
    weight = recipe.objective.boxes
    if (entities is not None) != (weight > 0):
        raise SatlibError(
            f"objective.boxes is {weight:g} and --entities is {'missing' if entities is None else 'given'}; training with "
            "boxes needs a weight above 0 and --entities, training without them neither"
        )
    return (
        []
        if entities is None
        else [BoxTargets(entities, examples, vocabulary, grid, recipe.encoder.view, weight)]
    )


@functools.cache
def cover(boxes: _Boxes, grid: tuple[int, int]) -> Tensor:
    """The share of each cell (L,) inside the union of boxes, exact for boxes on whole pixels of the 224-pixel square."""
    mask = np.zeros((SIZE, SIZE))
    for left, top, right, bottom in boxes:
        mask[round(top * SIZE) : round(bottom * SIZE), round(left * SIZE) : round(right * SIZE)] = 1
    down, across = (_shares(cells) for cells in grid)
    return torch.from_numpy(down @ mask @ across.T).float().flatten()


def _shares(cells: int) -> np.ndarray:
    """How much of each cell (rows) each of the square's pixels (columns) makes up: (cells, 224), rows sum to 1."""
    edges, pixels = np.linspace(0, SIZE, cells + 1), np.arange(SIZE)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return overlap.clip(min=0) * cells / SIZE
