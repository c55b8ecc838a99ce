"""Beyond the paper: training on the evaluation metric.

Cross-entropy trains the model to predict the next word of a true caption; evaluation scores whole
captions that the model generates. Here the model samples N captions y^1..y^N of an image, each gets
a reward r, and the gradient of the expected reward is estimated as in section 4.1 of the paper,
with words in the role of places:

    1/N sum_n A_n d log p(y^n|a) / dW

The advantage A_n says how much better a caption is than its baseline (`reward.baseline`):

- leave-one-out: r_n less the mean reward of the N - 1 other captions (`objective.leave_one_out`:
  RLOO). Unbiased, because the baseline does not depend on y^n.
- greedy: r_n less the reward of the greedy caption: self-critical sequence training (Rennie et al.,
  2017, arXiv:1612.00563). Unbiased for the same reason, at the cost of one more caption.
- group: r_n less the mean of all N, divided by their standard deviation: GRPO's advantage (Shao et
  al., 2024, arXiv:2402.03300). Biased: the mean contains r_n, which shortens the gradient by
  (N - 1)/N, and the division makes an image whose captions get nearly the same reward count as much
  as any other (Liu et al., 2025, arXiv:2503.20783).

With hard attention the places s~ are sampled as well, and log p(s~|a) is added to log p(y|s~,a);
for some images (`hard.expectation`) the expected context replaces the samples, in all captions of
the image. Training must start from a model that already captions: random captions all get about the
same reward.

At temperature 1 nearly every sampled caption is worse than the one that beam search would give, and
the model mostly learns to sample safer captions; that takes far more captions than these data sets
have. At 1/2 the samples are close to those captions.

The reward is a weighted sum of CIDEr-D (Vedantam et al., 2015), sentence BLEU-1 and sentence
BLEU-4. N-grams include the end token: a caption that breaks off ("a man in a") lacks an n-gram that
every reference has.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from satlib.data.caption_set import Example
from satlib.data.text import END, Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation.metrics import Cider, bleu_counts
from satlib.model.decoder import select
from satlib.model.objective import (
    BatchLoss,
    leave_one_out,
    log_probability,
    map_means,
)
from satlib.model.search import Rollout, rollout
from satlib.model.transformer import AnyDecoder
from satlib.recipe import RewardConfig


class Consensus:
    """The reward of a caption, given its image's references: a sum of CIDEr-D, BLEU-1 and BLEU-4.

    The n-gram weights of CIDEr-D (inverse document frequencies) are computed once, from the
    references of the images given.
    """

    def __init__(
        self, examples: Sequence[Example], vocabulary: Vocabulary, config: RewardConfig
    ) -> None:
        """Count the n-grams in the references of all images whose captions will be rewarded.

        Raises:
            SatlibError: all weights of the reward are 0.
        """
        if not config.cider + config.bleu1 + config.bleu4 > 0:
            raise SatlibError(
                "all weights of the reward are 0: "
                "set reward.cider, reward.bleu1 or reward.bleu4 above 0"
            )
        self.config = config
        self._vocabulary = vocabulary
        # With the end token, so that a caption that breaks off lacks an n-gram.
        self._references = {}
        for example in examples:
            references = [[*vocabulary.encode(text), END] for text in example.references]
            self._references[example.image_id] = references
        self._cider = Cider(self._references)

    def __call__(self, key: str, caption: Sequence[int]) -> float:
        """The reward of a caption, given as ids with the end token."""
        config = self.config
        reward = 0.0
        # A metric without weight is not computed: each caption of each batch is scored.
        if config.cider:
            reward += config.cider * self._cider.score(key, caption)
        if config.bleu1 or config.bleu4:
            bleu1, bleu4 = self.bleu(key, caption)
            reward += config.bleu1 * bleu1 + config.bleu4 * bleu4
        return reward

    def of_rollout(self, image_ids: Sequence[str], captions: Rollout) -> Tensor:
        """The rewards (B N,) of captions sampled for B images, N side by side for each.

        They are on the captions' device.
        """
        samples = len(captions.words) // len(image_ids)
        words = captions.words.tolist()  # (B N, C), each row padded after the end token
        lengths = captions.lengths.tolist()

        rewards = []
        for row, length in enumerate(lengths):
            key = image_ids[row // samples]
            rewards.append(self(key, words[row][:length]))
        return torch.tensor(rewards, device=captions.words.device)

    def mean(self, captions: Mapping[str, Sequence[str]]) -> float:
        """The mean reward of generated captions: lists of words by the key of their image."""
        rewards = []
        for key, words in captions.items():
            ids = self._vocabulary.encode(" ".join(words))
            rewards.append(self(key, [*ids, END]))
        return sum(rewards) / len(rewards)

    def bleu(self, key: str, caption: Sequence[int]) -> tuple[float, float]:
        """BLEU-1 and BLEU-4 of one caption with their brevity penalty, each 0 to 1.

        Counts for n > 1 are smoothed by adding one: a caption without a matching 4-gram does not
        score 0 (Lin and Och, 2004).
        """
        length, reference, *matches = bleu_counts(caption, self._references[key])
        # No word is right, and the logarithm of 0 is not defined.
        if not matches[0]:
            return 0.0, 0.0

        precisions = [matches[0] / max(length, 1)]
        for n in (2, 3, 4):
            # Captions shorter than n have no n-gram, but one is added anyway.
            ngrams = max(length - n + 1, 1)
            precisions.append((matches[n - 1] + 1) / (ngrams + 1))

        # Brevity penalty.
        penalty = 1.0
        if length <= reference:
            penalty = math.exp(1 - reference / length)
        # A geometric mean of the four precisions.
        bleu4 = math.exp(math.fsum(0.25 * math.log(precision) for precision in precisions))
        return penalty * precisions[0], penalty * bleu4


def reward_loss(
    decoder: AnyDecoder,
    a: Tensor,
    reward: Callable[[Rollout], Tensor],
    config: RewardConfig,
    max_length: int,
    doubly_stochastic: float = 0.0,
    expected: Tensor | None = None,
) -> BatchLoss:
    """Minus the expected reward of N captions of each image, and the penalty on their maps.

    a: annotation vectors (B, L, D) -> a loss (). Words are drawn from p(y_t)^(1/temperature).
    reward: gives the rewards (B N,) of the captions of all images, N of each side by side.
    expected: (B,), with hard attention, which images take the expectation in place of a sample.
    """
    annotations = decoder.project(a, expected)
    state = decoder.initial_state(a)
    # Each image N times; it is encoded and projected once.
    rows = torch.arange(len(a), device=a.device).repeat_interleave(config.samples)  # (B N,)
    sampled = rollout(
        decoder, select(annotations, rows), select(state, rows), max_length, config.temperature
    )
    rewards = reward(sampled)  # (B N,)

    greedy = None
    if config.baseline == "greedy":
        with torch.no_grad():
            best = rollout(decoder, annotations, state, max_length, temperature=0.0)
            greedy = reward(best)  # (B,)
    by_image = rewards.unflatten(0, (-1, config.samples))  # (B, N)
    advantage = advantages(by_image, config.baseline, greedy).flatten()

    within = within_caption(sampled)
    penalty, of_maps = map_means(sampled.alphas, within)
    loss = -(advantage * log_policy(sampled)).mean() + doubly_stochastic * penalty
    means = {"reward": rewards.mean(), **of_maps}
    return BatchLoss(loss, means, len(rows), int(within.sum()))


def advantages(rewards: Tensor, baseline: str, greedy: Tensor | None = None) -> Tensor:
    """How much better each caption is than its baseline (section 4.1, with captions for places).

    rewards (B, N), and for the greedy baseline those of greedy captions (B,) -> (B, N).
    """
    if baseline == "greedy":
        assert greedy is not None
        return rewards - greedy.unsqueeze(1)
    if baseline == "group":
        mean = rewards.mean(1, keepdim=True)
        # Captions with equal rewards have no advantage, whatever the 0 is divided by.
        deviation = rewards.std(1, keepdim=True).clamp(min=1e-8)
        return (rewards - mean) / deviation
    return rewards - leave_one_out(rewards)


def log_policy(sampled: Rollout) -> Tensor:
    """Log-probability of everything drawn for each caption (B,).

    That is its words and, with hard attention, its places.
    """
    log_p = sampled.log_policy.sum(1)
    if sampled.places is not None:
        # An image that takes the expected context has the place -1 at every word.
        drawn = within_caption(sampled) & (sampled.places >= 0)
        places = sampled.places.clamp(min=0)
        log_p = log_p + (log_probability(sampled.alphas, places) * drawn).sum(1)
    return log_p


def within_caption(sampled: Rollout) -> Tensor:
    """True up to each caption's end mark, (B, C)."""
    words = sampled.words
    steps = torch.arange(words.shape[1], device=words.device)
    return steps < sampled.lengths.unsqueeze(1)
