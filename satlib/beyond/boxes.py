"""Supervised attention: training draws the map of a word into the boxes of its phrase.

Liu, Mao, Sha and Yuille ("Attention correctness in neural image captioning", AAAI 2017) train the
attention of this paper's model with the boxes that people drew for Flickr30k Entities. The word
whose map is supervised is the last one of a phrase, its head noun. They use the cross-entropy with
an even map over the boxes. `box_loss` takes -log of the mass inside, so the model is free to choose
where in the boxes it looks.
"""

import functools
import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.data.batches import Batch
from satlib.data.caption_set import Example
from satlib.data.entities import Entities
from satlib.data.images import SIZE, Box
from satlib.data.text import END, PAD, Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.model.attention import precise
from satlib.model.decoder import Output
from satlib.recipe import Recipe

_Boxes = tuple[Box, ...]  # left, top, right, bottom as fractions of the photograph's sides


def box_loss(alphas: Tensor, covers: Tensor) -> Tensor:
    """-sum_t log sum_i c_ti alpha_ti over the words with boxes, (B,).

    alphas: the maps (B, C, L). covers: the cells' shares in the boxes, c (B, C, L). The sum over i
    is the mass in the boxes (the "attention correctness" of Liu et al., 2017).
    """
    mass = (precise(alphas) * covers).sum(2)  # (B, C)
    named = covers.any(2)
    # A map may have no mass in the boxes, and words without boxes never have.
    tiny = torch.finfo(mass.dtype).tiny
    log_mass = mass.clamp(min=tiny).log()
    return -(log_mass * named).sum(1)


class BoxTargets:
    """The boxes of the words of training captions, as shares of the encoder's cells: a loss term.

    phrases: the number of phrases with boxes. hash: SHA-256 of all words and boxes.
    """

    def __init__(
        self,
        entities: Entities,
        examples: Sequence[Example],
        vocabulary: Vocabulary,
        grid: tuple[int, int],
        weight: float = 1.0,
    ) -> None:
        """Look up the phrases of every caption of the examples; `grid` is the encoder's (h, w).

        Raises:
            SatlibError: no caption has a phrase with boxes.
        """
        self._grid = grid
        self.weight = weight
        # By image id and caption: words, by their place in the caption, with their phrase's boxes.
        self._boxes: dict[tuple[str, tuple[int, ...]], list[tuple[int, _Boxes]]] = {}

        for example in examples:
            image_id = example.image_id
            if image_id not in entities:
                continue
            for reference in example.references:
                phrases = entities.phrases(image_id, tokenise(reference))
                named = [(phrase.head, phrase.boxes) for phrase in phrases if phrase.boxes]
                if named:
                    self._boxes[image_id, (*vocabulary.encode(reference), END)] = named

        self.phrases = sum(map(len, self._boxes.values()))
        if not self.phrases:
            raise SatlibError(
                f"none of the {len(examples):,} training images has a phrase with boxes in "
                f"{entities.path}; do these annotations belong to the data set?"
            )
        # Sorted: the order of the examples does not matter.
        boxes = repr(sorted(self._boxes.items()))
        self.hash = hashlib.sha256(boxes.encode()).hexdigest()

    def of(self, image_ids: Sequence[str], captions: Tensor) -> Tensor:
        """The share of each cell that lies in the boxes of each word, 0 for words without boxes.

        image_ids: the image of each caption. captions: (B, C) -> (B, C, L).
        """
        height, width = self._grid
        covers = torch.zeros(*captions.shape, height * width)
        for row, (image_id, ids) in enumerate(zip(image_ids, captions.tolist(), strict=True)):
            caption = tuple(number for number in ids if number != PAD)
            for word, boxes in self._boxes.get((image_id, caption), ()):
                covers[row, word] = cover(boxes, self._grid)
        return covers

    def __call__(
        self, batch: Batch, places: Tensor | None, output: Output
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted `box_loss` of a batch, and its mean over the words with boxes, to log.

        places: those that the batch kept, None for all.
        """
        alphas = output.alphas
        covers = self.of(batch.images, batch.captions).to(alphas.device)
        if places is not None:
            covers = covers[:, :, places]
        # With hard attention, each caption has as many maps as paths are sampled.
        covers = covers.repeat_interleave(len(alphas) // len(covers), 0)

        loss = box_loss(alphas, covers)
        words = covers.any(2).sum().clamp(min=1)
        return self.weight * loss.mean(), {"boxes": loss.sum() / words}


def terms(
    recipe: Recipe,
    entities: Entities | None,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    grid: tuple[int, int],
) -> list[BoxTargets]:
    """What a recipe's `objective.boxes` adds to the loss: one term, or none if its weight is 0.

    Raises:
        SatlibError: the boxes are given without a weight, or missing with one.
    """
    weight = recipe.objective.boxes
    if (entities is not None) != (weight > 0):
        state = "missing" if entities is None else "given"
        raise SatlibError(
            f"objective.boxes is {weight:g} and --entities is {state}; training with boxes needs "
            "a weight above 0 and --entities, training without them neither"
        )
    if entities is None:
        return []
    return [BoxTargets(entities, examples, vocabulary, grid, weight)]


@functools.cache
def cover(boxes: _Boxes, grid: tuple[int, int]) -> Tensor:
    """The share of each cell (L,) inside the union of boxes.

    Exact for boxes on whole pixels of the 224-pixel square.
    """
    # A mask of pixels, so that boxes that overlap count once.
    mask = torch.zeros(SIZE, SIZE)
    for left, top, right, bottom in boxes:
        rows = slice(round(top * SIZE), round(bottom * SIZE))
        columns = slice(round(left * SIZE), round(right * SIZE))
        mask[rows, columns] = 1

    # A cell need not be a whole number of pixels. Of h copies of each pixel it is: 224 of them.
    height, width = grid
    down = mask.repeat_interleave(height, 0)  # (224 h, 224)
    means = down.unflatten(0, (height, SIZE)).mean(1)  # (h, 224)
    across = means.repeat_interleave(width, 1)  # (h, 224 w)
    return across.unflatten(1, (width, SIZE)).mean(2).flatten()
