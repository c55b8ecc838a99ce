"""Word detectors: captions say which words an image has, detectors find where, and teach attention to look there.

Fang et al. ("From captions to visual concepts and back", CVPR 2015, arXiv 1411.4952, section 3) learn detectors of words
without boxes, by multiple-instance learning: an image is a bag of places, and a word that occurs in any of its captions is at one
of them or more. Here the detectors are one linear layer on the annotation vectors. Their loss trains an encoder that trains, and
their maps take the place of the boxes of `satlib.beyond.boxes`. A trained model does without them.
"""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from satlib.beyond.boxes import box_loss, require_maps
from satlib.data.batches import Batch, Pair, pairs
from satlib.data.caption_set import CaptionSet
from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.errors import SatlibError
from satlib.model.attention import precise
from satlib.model.captioner import Captioner
from satlib.model.decoder import Output
from satlib.model.objective import BatchTerm
from satlib.recipe import Recipe

WORDS = 600  # detectors: the commonest content words
COMMON = 0.6  # a word that more of the images have, in any language, says little about an image
# Words that say nothing about what is at a place; English ones, as other languages only have `COMMON`.
_ENGLISH = """
's a about above across after against all along also among an and another are around as at away be because been before behind being
below beneath beside between both but by can do does down during each for from has have having he her here him his how i in inside
into is it its just like many more most near next no not of off on one onto or other out over she so some someone something than that
the their them then there these they this those through to together too toward towards under underneath up upon very was we were what
when where which while whilst who with you your
"""
FUNCTION_WORDS = frozenset(_ENGLISH.split())


def detection_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """-sum_k log p(label k), in nats: scores of places (B, L, K), whether the image has the word (B, K) -> (B,).

    p(word k) = 1 - prod_i (1 - sigmoid(s_ik)), the noisy-OR of Fang et al. (section 3.1).
    """
    # Noisy-OR makes sigmoid(s_ik) the probability of the word at place i: one sure place is enough, and an image without the
    # word lowers all. A log-mean-exp compares the places with each other: one of L must exceed its image's score by log L, which
    # saturates the sigmoids that the maps are made of.
    absent = softplus(precise(scores)).sum(1)  # -log prod_i (1 - p_i)
    absent = absent.clamp(min=torch.finfo(absent.dtype).tiny)
    return torch.where(labels, -(-torch.expm1(-absent)).log(), absent).sum(1)


def content_words(labels: Sequence[set[int]], vocabulary: Vocabulary) -> dict[int, float]:
    """The words that get detectors, the commonest first, with the share of the images that have them.

    They are words of the vocabulary that at most `COMMON` of the images have and that are not `FUNCTION_WORDS`.

    Args:
        labels: the ids of the words that each image has.
        vocabulary: of these ids.
    """
    counts = Counter(word for words in labels for word in words)
    kept = [
        word
        for word in sorted(counts, key=lambda word: (-counts[word], word))
        if counts[word] <= COMMON * len(labels) and vocabulary.words[word] not in FUNCTION_WORDS
    ]
    return {word: counts[word] / len(labels) for word in kept[:WORDS]}


class WordDetectors(nn.Module):
    """s_ik = w_k . a_i + b_k, the score of word k at place i. A term of the loss (`satlib.model.objective`)."""

    def __init__(
        self, pairs: Sequence[Pair], vocabulary: Vocabulary, size: tuple[int, int], weight: float = 1.0
    ) -> None:
        """Detectors of the `content_words` of training captions.

        Args:
            pairs: the training captions.
            vocabulary: that they are encoded with.
            size: (L, D) of the annotation vectors.
            weight: of both losses, that of the detectors and that of the maps.

        Raises:
            SatlibError: there is no such word.
        """
        super().__init__()
        has: dict[str, set[int]] = {}
        for pair in pairs:
            has.setdefault(pair.image_id, set()).update(set(pair.caption) - {END, UNKNOWN})
        rates = content_words(list(has.values()), vocabulary)
        if not rates:
            raise SatlibError(
                f"objective.words finds nothing to detect: no content word is in the captions of at most {COMMON:.0%} of the "
                f"{len(has):,} training images; set it to 0"
            )
        self.weight, self.words = weight, [vocabulary.words[word] for word in rates]
        self._has = {name: torch.tensor([word in words for word in rates]) for name, words in has.items()}
        number = torch.full((len(vocabulary),), -1)
        number[list(rates)] = torch.arange(len(rates))
        self.register_buffer("number", number, persistent=False)  # of each word's detector, -1 without one
        # No weights at first: each image has a word with the probability that images have it, and no map teaches anything.
        self.matrix = nn.Parameter(torch.zeros(len(rates), size[1]))
        self.bias = nn.Parameter(torch.tensor([_logit(1 - (1 - rate) ** (1 / size[0])) for rate in rates.values()]))

    def labels(self, image_ids: Sequence[str]) -> Tensor:
        """Whether any training caption of each image has each word (B, K)."""
        return torch.stack([self._has[name] for name in image_ids])

    def scores(self, a: Tensor) -> Tensor:
        """Annotation vectors (B, L, D) -> scores (B, L, K)."""
        return precise(a @ self.matrix.T) + self.bias  # rare words' biases are large: added in float32

    def covers(self, scores: Tensor, batch: Batch) -> Tensor:
        """c_i = sigmoid(s_i) / max_i sigmoid(s_i) of each word of each caption: (I, L, K) -> (B, C, L), 0 without a detector."""
        detector = self.number[
            batch.captions.to(scores.device).clamp(min=0)
        ]  # PAD becomes the end mark, which has none
        image = batch.by_caption(torch.arange(len(scores), device=scores.device)).unsqueeze(1)
        log_p = logsigmoid(scores.detach().transpose(1, 2)[image, detector.clamp(min=0)])
        return (log_p - log_p.amax(2, keepdim=True)).exp() * (detector >= 0).unsqueeze(2)

    def term(self, batch: Batch, a: Tensor, places: Tensor | None) -> BatchTerm:
        """`detection_loss` and, with the detectors' maps in place of boxes, `box_loss`, added to the loss."""
        scores = self.scores(a)
        # In nats per caption, as the loss of its words; over captions, because processes that share a batch are weighted by them.
        detection = batch.by_caption(detection_loss(scores, self.labels(batch.image_ids).to(a.device))).mean()
        maps = self.covers(scores, batch)

        def add(loss: Tensor, output: Output) -> tuple[Tensor, dict[str, Tensor]]:
            covers = maps.repeat_interleave(len(output.alphas) // len(maps), 0)
            taught = box_loss(output.alphas, covers).mean()
            return loss + self.weight * (detection + taught), {"detection": detection, "taught": taught}

        return add


def detectors(data: CaptionSet, recipe: Recipe, captioner: Captioner) -> WordDetectors | None:
    """What a recipe's `objective.words` asks for, on the captioner's device; None where its weight is 0.

    Raises:
        SatlibError: the recipe and the data do not go together with detectors.
    """
    if not recipe.objective.words:
        return None
    require_maps("objective.words", data, recipe)
    train = data.shortened(recipe.data.train_images).split("train")
    captions = pairs(train, captioner.vocabulary, recipe.data.max_length)
    height, width = captioner.encoder.grid
    size = height * width, captioner.encoder.dim
    return WordDetectors(captions, captioner.vocabulary, size, recipe.objective.words).to(captioner.device)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))
