"""Beyond the paper: training on the measure itself (self-critical sequence training, Rennie et al., 2017).

Cross-entropy asks for the next word of a true caption; captions are judged whole, and on the model's own words. Here the
model draws N captions y^1..y^N of an image, each is given a reward r, and the expected reward's gradient is estimated as in
section 4.1 of the paper, with words in the place of places:

    1/N sum_n (r(y^n) - b_n) d log p(y^n|a) / dW,    b_n the mean reward of the N - 1 other captions

which is unbiased, since b_n does not depend on y^n. With hard attention the places s~ are drawn as well, and log p(s~|a) is
added to log p(y|s~,a). It only works from a model that captions already: from random words, no reward tells more than another.

At temperature 1 nearly every caption that a model draws is worse than the one that it would give, and what is learned is to
draw safer ones; that takes far more captions than these data sets have. At 1/2 the draws are near to what will be given.

The reward is CIDEr-D (Vedantam et al., 2015), or that and sentence BLEU, of ids that hold the end mark: a caption that
breaks off ("a man in a") is then missing an n-gram that all references have.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from torch import Tensor

from satlib.datasets import Example
from satlib.decoding import Rollout
from satlib.errors import SatlibError
from satlib.objectives import log_probability
from satlib.text import END, Vocabulary

LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # of CIDEr-D's penalty on lengths that differ, in words


@dataclass(frozen=True)
class RewardConfig:
    """What is rewarded, where objective.maximise is "reward"."""

    samples: int = 5  # N captions of each image
    cider: float = 1.0  # weight of CIDEr-D (0 to 10)
    bleu: float = 0.0  # weight of sentence BLEU-4 (0 to 1)
    temperature: float = 0.5  # words are drawn from, and made likelier under, p(y_t)^(1/temperature)


def self_critical(log_p: Tensor, rewards: Tensor, samples: int) -> Tensor:
    """What falls where rewarded captions become likelier: minus the estimate above, of log p and rewards (B N,), -> ()."""
    grouped = rewards.unflatten(0, (-1, samples))
    others = (grouped.sum(1, keepdim=True) - grouped) / (samples - 1)
    return -((grouped - others).flatten() * log_p).mean()


def policy(made: Rollout) -> Tensor:
    """Log-probability of all that was drawn for each caption (B,): its words, and with hard attention its places."""
    log_p = made.log_policy.sum(1)
    if made.places is not None:
        log_p = log_p + (log_probability(made.alphas, made.places) * alive(made)).sum(1)
    return log_p


def alive(made: Rollout) -> Tensor:
    """True up to each caption's end mark, (B, C)."""
    return torch.arange(made.words.shape[1], device=made.words.device) < made.lengths.unsqueeze(1)


class Consensus:
    """How far a caption agrees with the references of its image: cider CIDEr-D + bleu BLEU.

    N-grams are weighed by how few images of those given they are said of, once and for all.
    """

    def __init__(self, examples: Sequence[Example], vocabulary: Vocabulary, config: RewardConfig) -> None:
        """Count the references of all images that rewards will be asked of.

        Raises:
            SatlibError: fewer than two samples (there is no baseline then), or nothing to reward.
        """
        if config.samples < 2:
            raise SatlibError(
                f"reward.samples must be at least 2, not {config.samples}: each is compared with the others"
            )
        if not config.cider + config.bleu > 0:
            raise SatlibError("nothing is rewarded: set reward.cider or reward.bleu above 0")
        self.config = config
        self._references = {
            example.key: [[*vocabulary.encode(reference), END] for reference in example.references]
            for example in examples
        }
        self._images = Counter(
            ngram
            for references in self._references.values()
            for ngram in {ngram for reference in references for ngram in _ngrams(reference)}
        )
        self._vectors: dict[str, list[_Vector]] = {}

    def __call__(self, key: str, caption: Sequence[int]) -> float:
        """The reward of ids that end with the end mark."""
        reward = 0.0
        if self.config.cider:
            reward += self.config.cider * self.cider(key, caption)
        if self.config.bleu:
            reward += self.config.bleu * self.bleu(key, caption)
        return reward

    def of(self, keys: Sequence[str], made: Rollout) -> Tensor:
        """The rewards of a rollout's captions (B,), on its device."""
        rows = zip(keys, made.words.tolist(), made.lengths.tolist(), strict=True)
        return torch.tensor([self(key, words[:length]) for key, words, length in rows], device=made.words.device)

    def cider(self, key: str, caption: Sequence[int]) -> float:
        """CIDEr-D, 0 to 10: equal to pycocoevalcap's, whose n-gram weights come from the captions that it is given."""
        if key not in self._vectors:
            self._vectors[key] = [self._vector(reference) for reference in self._references[key]]
        ours, total = self._vector(caption), 0.0
        for theirs in self._vectors[key]:
            similarity = 0.0
            for n in range(LONGEST):
                if ours.norms[n] and theirs.norms[n]:
                    shared = sum(
                        min(w, theirs.weights[n].get(g, 0.0)) * theirs.weights[n].get(g, 0.0)
                        for g, w in ours.weights[n].items()
                    )
                    similarity += shared / (ours.norms[n] * theirs.norms[n])
            total += similarity * math.exp(-((ours.length - theirs.length) ** 2) / (2 * SIGMA**2))
        return 10 * total / LONGEST / len(self._vectors[key])

    def bleu(self, key: str, caption: Sequence[int]) -> float:
        """BLEU-4 of one caption with its brevity penalty, 0 to 1; counts beyond n = 1 have one added (Lin and Och, 2004)."""
        return sentence_bleu(self._references[key], list(caption), smoothing_function=SmoothingFunction().method2)

    def _vector(self, caption: Sequence[int]) -> "_Vector":
        weights: list[dict[tuple[int, ...], float]] = [{} for _ in range(LONGEST)]
        for ngram, count in _ngrams(caption).items():
            weights[len(ngram) - 1][ngram] = count * math.log(len(self._references) / max(self._images[ngram], 1))
        norms = [math.sqrt(sum(weight**2 for weight in each.values())) for each in weights]
        return _Vector(weights, norms, len(caption))


@dataclass(frozen=True)
class _Vector:
    """A caption as CIDEr-D sees it: for every n, its n-grams' weights and their norm; its length in words."""

    weights: list[dict[tuple[int, ...], float]]
    norms: list[float]
    length: int


def _ngrams(words: Sequence[int]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(words[start : start + n]) for n in range(1, LONGEST + 1) for start in range(len(words) - n + 1)
    )
