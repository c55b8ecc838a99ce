"""`read`: complete a caption whose first words are given, with its maps and the words that were probable at each step."""

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
    """A caption of C steps whose first words may have been given.

    words: without the end mark. alphas: (C, h, w). alternatives: the most probable words of each step, with their probabilities.
    """

    words: list[str]
    alphas: Tensor
    alternatives: list[list[tuple[str, float]]]

    @property
    def labels(self) -> list[str]:
        """The words, and "(end)" for the end mark: one label for each map."""
        return [*self.words, plots.END_LABEL][: len(self.alphas)]


def annotate(captioner: Captioner, picture: Image.Image) -> Tensor:
    """The annotation vectors (L, D) of one image, as `read` expects them."""
    with torch.inference_mode():
        return captioner.annotations(
            to_tensor(square(to_rgb(picture), captioner.view))[None].to(captioner.device)
        )[0]


@torch.inference_mode()
def read(
    captioner: Captioner, a: Tensor, forced: Sequence[str] = (), given: Tensor | None = None
) -> Reading:
    """Complete a caption greedily, of one image with annotation vectors a (L, D), to at most `decoding.max_length` words.

    forced: the first words of the caption, "(end)" for the end mark; words outside the vocabulary are refused. given: attention
    weights (C, L) for the first C words; a row of zeros leaves the model's own.
    """
    decoder = steered(captioner.decoder, given=None if given is None else given[None].to(a))
    names = [plots.END_LABEL, *captioner.vocabulary.words[1:]]
    for unknown in set(forced) - set(names):
        raise SatlibError(
            f"{unknown!r} is not in the model's vocabulary of {len(captioner.vocabulary)} words"
        )
    ids = [names.index(word) for word in forced]
    longest = max(captioner.recipe.decoding.max_length, len(ids))
    annotations = decoder.project(a[None])
    state: Any = decoder.initial_state(a[None])
    word, words, maps, alternatives = -1, [], [], []
    for t in range(longest + 1):
        logits, state, alpha, *_ = decoder.predict(
            annotations, state, torch.tensor([word], device=a.device)
        )
        p = torch.softmax(logits[0], dim=0)
        p[UNKNOWN] = 0.0  # never generated
        word = ids[t] if t < len(ids) else END if t == longest else int(p.argmax())
        words.append(word)
        maps.append(alpha[0].cpu())
        alternatives.append(
            [(names[i], float(p[i])) for i in p.topk(min(ALTERNATIVES, len(p))).indices.tolist()]
        )
        if word == END:
            break
    alphas = torch.stack(maps).unflatten(1, captioner.encoder.grid)
    return Reading(captioner.vocabulary.decode(words), alphas, alternatives)


def labels(captioner: Captioner, p: Tensor) -> list[list[tuple[str, float]]]:
    """Each place's likeliest word and its probability, by the rows of places: p (L, K)."""
    likeliest, columns = p.max(1), captioner.encoder.grid[1]
    said = [
        (captioner.vocabulary.words[i], chance)
        for chance, i in zip(*(x.tolist() for x in likeliest), strict=True)
    ]
    return [said[start : start + columns] for start in range(0, len(p), columns)]
