"""`read`: complete a caption whose first words are given, with its maps and the words that were
probable at each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from satcourse.widgets.steering import steered
from satlib.data.images import square, to_rgb, to_tensor
from satlib.data.text import END, UNKNOWN
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model.captioner import Captioner

ALTERNATIVES = 6  # words that are listed for each step


@dataclass(frozen=True)
class Reading:
    """A caption of C steps whose first words may have been given."""

    words: list[str]  # without the end mark
    alphas: Tensor  # (C, h, w)
    alternatives: list[list[tuple[str, float]]]  # of each step, the most probable words and their p

    @property
    def labels(self) -> list[str]:
        """The words, and "(end)" for the end mark: one label for each map."""
        return [*self.words, plots.END_LABEL][: len(self.alphas)]


def annotate(captioner: Captioner, picture: Image.Image) -> Tensor:
    """The annotation vectors (L, D) of one image, as `read` expects them."""
    pixels = to_tensor(square(to_rgb(picture)))  # (3, H, W)
    with torch.inference_mode():
        return captioner.annotations(pixels[None].to(captioner.device))[0]


@torch.inference_mode()
def read(
    captioner: Captioner, a: Tensor, forced: Sequence[str] = (), given: Tensor | None = None
) -> Reading:
    """Complete a caption greedily, of one image with annotation vectors a (L, D), to at most
    `decoding.max_length` words.

    forced: the first words of the caption, "(end)" for the end mark; words outside the vocabulary
    are refused. given: attention weights (C, L) for the first C words; a row of zeros leaves the
    model's own.
    """
    maps_given = None if given is None else given[None].to(a)
    decoder = steered(captioner.decoder, given=maps_given)
    # The end mark, which is id 0, goes by its label.
    names = [plots.END_LABEL, *captioner.vocabulary.words[1:]]
    for unknown in set(forced) - set(names):
        raise SatlibError(
            f"{unknown!r} is not in the model's vocabulary of {len(captioner.vocabulary)} words"
        )
    ids = [names.index(word) for word in forced]
    most_words = max(captioner.recipe.decoding.max_length, len(ids))

    annotations = decoder.project(a[None])
    state: Any = decoder.initial_state(a[None])
    word = -1  # before the first
    words, maps, alternatives = [], [], []
    for t in range(most_words + 1):
        previous = torch.tensor([word], device=a.device)
        logits, state, alpha, *_ = decoder.predict(annotations, state, previous)
        p = torch.softmax(logits[0], dim=0)  # (K,)
        p[UNKNOWN] = 0.0  # never generated

        # The words that are given come first, and the end after the longest caption.
        if t < len(ids):
            word = ids[t]
        elif t == most_words:
            word = END
        else:
            word = int(p.argmax())
        words.append(word)
        maps.append(alpha[0].cpu())
        # A vocabulary may have fewer words than are listed.
        best = p.topk(min(ALTERNATIVES, len(p))).indices.tolist()
        alternatives.append([(names[id], float(p[id])) for id in best])
        if word == END:
            break

    alphas = torch.stack(maps).unflatten(1, captioner.encoder.grid)
    return Reading(captioner.vocabulary.decode(words), alphas, alternatives)


def labels(captioner: Captioner, p: Tensor) -> list[list[tuple[str, float]]]:
    """Each place's likeliest word and its probability, by the rows of places: p (L, K)."""
    likeliest = p.max(1)
    said = []
    for chance, id in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True):
        said.append((captioner.vocabulary.words[id], chance))

    # Row by row, as a drawing needs them.
    columns = captioner.encoder.grid[1]
    return [said[start : start + columns] for start in range(0, len(p), columns)]
