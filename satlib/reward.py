"""Beyond the paper: training on the measure itself (self-critical sequence training, Rennie et al., 2017).

Cross-entropy asks for the next word of a true caption; captions are judged whole, and on the model's own words. Here the
model draws N captions y^1..y^N of an image, each is given a reward r, and the expected reward's gradient is estimated as in
section 4.1 of the paper, with words in the place of places:

    1/N sum_n (r(y^n) - b_n) d log p(y^n|a) / dW,    b_n the mean reward of the N - 1 other captions

which is unbiased, since b_n does not depend on y^n. With hard attention the places s~ are drawn as well, and log p(s~|a) is
added to log p(y|s~,a); there, too, the expectation stands in place of the samples for some of the images (`hard.expectation`),
all captions of one image alike. It only works from a model that captions already: from random words, no reward tells more than another.

At temperature 1 nearly every caption that a model draws is worse than the one that it would give, and what is learned is to
draw safer ones; that takes far more captions than these data sets have. At 1/2 the draws are near to what will be given.

The reward is CIDEr-D (Vedantam et al., 2015), or that and sentence BLEU-1, BLEU-4 and METEOR. All but METEOR are of ids that
hold the end mark: a caption that breaks off ("a man in a") is then missing an n-gram that all references have.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from satlib.datasets import Example
from satlib.decoding import Rollout
from satlib.errors import SatlibError
from satlib.meteor import function_words, meteor
from satlib.objectives import log_probability
from satlib.text import END, Vocabulary

LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # of CIDEr-D's penalty on lengths that differ, in words


@dataclass(frozen=True)
class RewardConfig:
    """What is rewarded, where objective.maximise is "reward"."""

    samples: int = 5  # N captions of each image
    cider: float = 1.0  # weight of CIDEr-D (0 to 10)
    bleu1: float = 0.0  # weight of sentence BLEU-1 (0 to 1): the right words, in any order
    bleu4: float = 0.0  # weight of sentence BLEU-4 (0 to 1)
    meteor: float = 0.0  # weight of METEOR of equal words (0 to 1): the references' words, said at all
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
        drawn = alive(made) & (made.places >= 0)
        log_p = log_p + (log_probability(made.alphas, made.places.clamp(min=0)) * drawn).sum(1)
    return log_p


def alive(made: Rollout) -> Tensor:
    """True up to each caption's end mark, (B, C)."""
    return torch.arange(made.words.shape[1], device=made.words.device) < made.lengths.unsqueeze(1)


class Consensus:
    """How far a caption agrees with the references of its image: the weighted sum of CIDEr-D, BLEU-1, BLEU-4 and METEOR.

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
        if not config.cider + config.bleu1 + config.bleu4 + config.meteor > 0:
            raise SatlibError(
                "nothing is rewarded: set reward.cider, reward.bleu1, reward.bleu4 or reward.meteor above 0"
            )
        self.config = config
        self._vocabulary = vocabulary
        self._references = {
            example.image_id: [[*vocabulary.encode(reference), END] for reference in example.references]
            for example in examples
        }
        self._images = Counter(
            ngram
            for references in self._references.values()
            for ngram in {ngram for reference in references for ngram in _ngrams(reference)}
        )
        self._vectors: dict[str, list[_Vector]] = {}
        self._function = frozenset(
            i for i, word in enumerate(vocabulary.words) if config.meteor and word in function_words()
        )

    def __call__(self, key: str, caption: Sequence[int]) -> float:
        """The reward of ids that end with the end mark."""
        reward = 0.0
        if self.config.cider:
            reward += self.config.cider * self.cider(key, caption)
        if self.config.bleu1 or self.config.bleu4:
            bleu1, bleu4 = self.bleu(key, caption)
            reward += self.config.bleu1 * bleu1 + self.config.bleu4 * bleu4
        if self.config.meteor:
            reward += self.config.meteor * self.meteor(key, caption)
        return reward

    def of(self, keys: Sequence[str], made: Rollout) -> Tensor:
        """The rewards of a rollout's captions (B,), on its device."""
        rows = zip(keys, made.words.tolist(), made.lengths.tolist(), strict=True)
        return torch.tensor([self(key, words[:length]) for key, words, length in rows], device=made.words.device)

    def mean(self, captions: Mapping[str, Sequence[str]]) -> float:
        """The mean reward of finished captions, given as words by the name of their image."""
        rewards = [self(key, [*self._vocabulary.encode(" ".join(words)), END]) for key, words in captions.items()]
        return sum(rewards) / len(rewards)

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

    def bleu(self, key: str, caption: Sequence[int]) -> tuple[float, float]:
        """BLEU-1 and BLEU-4 of one caption with their brevity penalty, each 0 to 1.

        Counts beyond n = 1 have one added, so that a caption without a true 4-gram is not worth nothing (Lin and Och, 2004).
        """
        from nltk.translate.bleu_score import (  # here, because it brings seconds of scipy
            SmoothingFunction,
            sentence_bleu,
        )

        bleu1, bleu4 = sentence_bleu(
            self._references[key],
            list(caption),
            weights=[(1.0,), (0.25, 0.25, 0.25, 0.25)],
            smoothing_function=SmoothingFunction().method2,
        )
        return bleu1, bleu4

    def meteor(self, key: str, caption: Sequence[int]) -> float:
        """METEOR 1.5 of equal words, 0 to 1, by `satlib.meteor`; without the end mark, which is no word."""
        references = [reference[:-1] for reference in self._references[key]]
        return meteor([word for word in caption if word != END], references, self._function)

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
