"""Beyond the paper: training on the evaluation metric.

Cross-entropy trains the model to predict the next word of a true caption; evaluation scores whole captions that the model
generates. Here the model samples N captions y^1..y^N of an image, each gets a reward r, and the gradient of the expected
reward is estimated as in section 4.1 of the paper, with words in the role of places:

    1/N sum_n A_n d log p(y^n|a) / dW

The advantage A_n says how much better a caption is than its baseline (`reward.baseline`):

- leave-one-out: r_n less the mean reward of the N - 1 other captions (`objective.leave_one_out`: RLOO). Unbiased, because the
  baseline does not depend on y^n.
- greedy: r_n less the reward of the greedy caption: self-critical sequence training (Rennie et al., 2017, arXiv:1612.00563).
  Unbiased for the same reason, for one more caption.
- group: r_n less the mean of all N, divided by their standard deviation: GRPO's advantage (Shao et al., 2024, arXiv:2402.03300).
  Biased: the mean contains r_n, which shortens the gradient by (N - 1)/N, and the division makes an image whose captions get
  nearly the same reward count as much as any other (Liu et al., 2025, arXiv:2503.20783).

With hard attention the places s~ are sampled as well, and log p(s~|a) is added to log p(y|s~,a); for some images
(`hard.expectation`) the expected context replaces the samples, in all captions of the image. Training must start from a model that
already captions: random captions all get about the same reward.

At temperature 1 nearly every sampled caption is worse than the one that beam search would give, and the model mostly learns to
sample safer captions; that takes far more captions than these data sets have. At 1/2 the samples are close to those captions.

The reward is a weighted sum of CIDEr-D (Vedantam et al., 2015), sentence BLEU-1 and sentence BLEU-4. N-grams
include the end token: a caption that breaks off ("a man in a") lacks an n-gram that every reference has.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from satlib.data.caption_set import Example
from satlib.data.text import END, Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation.metrics import Cider, bleu_counts
from satlib.model.attention import entropy, movement
from satlib.model.decoder import select
from satlib.model.objective import (
    BatchLoss,
    doubly_stochastic_penalty,
    leave_one_out,
    log_probability,
)
from satlib.model.search import Rollout, rollout
from satlib.model.transformer import AnyDecoder
from satlib.recipe import RewardConfig


class Consensus:
    """The reward of a caption, given the references of its image: a weighted sum of CIDEr-D, BLEU-1 and BLEU-4.

    The n-gram weights of CIDEr-D (inverse document frequencies) are computed once, from the references of the images given.
    """

    def __init__(
        self, examples: Sequence[Example], vocabulary: Vocabulary, config: RewardConfig
    ) -> None:
        """Count the n-grams in the references of all images whose captions will be rewarded."""
        if not config.cider + config.bleu1 + config.bleu4 > 0:
            raise SatlibError(
                "all weights of the reward are 0: set reward.cider, reward.bleu1 or reward.bleu4 above 0"
            )
        self.config = config
        self._vocabulary = vocabulary
        self._references = {
            example.image_id: [
                [*vocabulary.encode(reference), END] for reference in example.references
            ]
            for example in examples
        }
        self._cider = Cider(self._references)

    def __call__(self, key: str, caption: Sequence[int]) -> float:
        """The reward of a caption, given as ids with the end token."""
        reward = 0.0
        if self.config.cider:
            reward += self.config.cider * self._cider.score(key, caption)
        if self.config.bleu1 or self.config.bleu4:
            bleu1, bleu4 = self.bleu(key, caption)
            reward += self.config.bleu1 * bleu1 + self.config.bleu4 * bleu4
        return reward

    def of_rollout(self, image_ids: Sequence[str], captions: Rollout) -> Tensor:
        """The rewards of captions sampled for B images (B N,), N side by side for each, on their device."""
        samples = len(captions.words) // len(image_ids)
        keys = [key for key in image_ids for _ in range(samples)]
        rows = zip(keys, captions.words.tolist(), captions.lengths.tolist(), strict=True)
        return torch.tensor(
            [self(key, words[:length]) for key, words, length in rows], device=captions.words.device
        )

    def mean(self, captions: Mapping[str, Sequence[str]]) -> float:
        """The mean reward of generated captions: lists of words by the key of their image."""
        rewards = [
            self(key, [*self._vocabulary.encode(" ".join(words)), END])
            for key, words in captions.items()
        ]
        return sum(rewards) / len(rewards)

    def bleu(self, key: str, caption: Sequence[int]) -> tuple[float, float]:
        """BLEU-1 and BLEU-4 of one caption with their brevity penalty, each 0 to 1.

        Counts for n > 1 are smoothed by adding one: a caption without a matching 4-gram does not score 0 (Lin and Och, 2004).
        """
        length, reference, *matches = bleu_counts(caption, self._references[key])
        if not matches[0]:
            return 0.0, 0.0
        first, *others = [(match, max(length - n, 1)) for n, match in enumerate(matches)]
        precisions = [
            first[0] / first[1],
            *((match + 1) / (number + 1) for match, number in others),
        ]
        penalty = 1.0 if length > reference else math.exp(1 - reference / length)
        return penalty * precisions[0], penalty * math.exp(
            math.fsum(0.25 * math.log(p) for p in precisions)
        )


def reward_loss(
    decoder: AnyDecoder,
    a: Tensor,
    reward: Callable[[Rollout], Tensor],
    config: RewardConfig,
    max_length: int,
    doubly_stochastic: float = 0.0,
    expected: Tensor | None = None,
) -> BatchLoss:
    """Minus the expected reward of N captions of each image, and the penalty on their maps: a (B, L, D) -> a loss ().

    Words are drawn from p(y_t)^(1/temperature). `reward` gives the rewards (B N,) of the captions of all images, N of each side
    by side; `expected` (B,) says, with hard attention, which images take the expectation in place of a sample.
    """
    rows = torch.arange(len(a), device=a.device).repeat_interleave(config.samples)
    annotations, state = decoder.project(a, expected), decoder.initial_state(a)
    sampled = rollout(
        decoder, select(annotations, rows), select(state, rows), max_length, config.temperature
    )
    rewards, within, greedy = reward(sampled), within_caption(sampled), None
    if config.baseline == "greedy":
        with torch.no_grad():
            greedy = reward(rollout(decoder, annotations, state, max_length, temperature=0.0))
    penalty = doubly_stochastic_penalty(sampled.alphas, within).mean()
    words = int(within.sum())
    means = {
        "reward": rewards.mean(),
        "penalty": penalty,
        "entropy": (entropy(sampled.alphas) * within).sum() / words,
        "movement": (movement(sampled.alphas) * within[:, 1:]).sum() / max(words - len(rows), 1),
    }
    better = advantages(
        rewards.unflatten(0, (-1, config.samples)), config.baseline, greedy
    ).flatten()
    loss = -(better * log_policy(sampled)).mean() + doubly_stochastic * penalty
    return BatchLoss(loss, means, len(rows), words)


def advantages(rewards: Tensor, baseline: str, greedy: Tensor | None = None) -> Tensor:
    """How much better each caption is than its baseline: rewards (B, N), those of greedy captions (B,) -> (B, N)."""
    if baseline == "greedy":
        assert greedy is not None
        return rewards - greedy.unsqueeze(1)
    if (
        baseline == "group"
    ):  # captions with equal rewards have no advantage, whatever the 0 is divided by
        return (rewards - rewards.mean(1, keepdim=True)) / rewards.std(1, keepdim=True).clamp(
            min=1e-8
        )
    return rewards - leave_one_out(rewards)


def log_policy(sampled: Rollout) -> Tensor:
    """Log-probability of everything drawn for each caption (B,): its words and, with hard attention, its places."""
    log_p = sampled.log_policy.sum(1)
    if sampled.places is not None:
        drawn = within_caption(sampled) & (sampled.places >= 0)
        log_p = log_p + (log_probability(sampled.alphas, sampled.places.clamp(min=0)) * drawn).sum(
            1
        )
    return log_p


def within_caption(sampled: Rollout) -> Tensor:
    """True up to each caption's end mark, (B, C)."""
    return torch.arange(
        sampled.words.shape[1], device=sampled.words.device
    ) < sampled.lengths.unsqueeze(1)
