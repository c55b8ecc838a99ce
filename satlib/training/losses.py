"""What a run minimises: equation 14 of given captions, or penalty minus reward of sampled ones."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from satlib.beyond.rewards import Consensus, reward_loss
from satlib.data.batches import Batch
from satlib.model.objective import BatchLoss, caption_loss, coins
from satlib.recipe import TrainingConfig
from satlib.training.checkpoint import RunState
from satlib.training.training_data import BatchTerm, TrainingData


def create(state: RunState, data: TrainingData) -> Callable[[Batch, Tensor, float], BatchLoss]:
    """The recipe's loss, a function of a batch and what the reader gives for its images.

    Its third argument is the share of the training that is done, 0 to 1.
    """
    if data.reward is not None:
        return partial(expected_reward, state, data.reward)
    return partial(likelihood, state, data.terms)


def likelihood(
    state: RunState, terms: Sequence[BatchTerm], batch: Batch, annotations: Tensor, done: float
) -> BatchLoss:
    """Equation 14 or hard attention's bound, and other terms, for a batch of captions."""
    captioner = state.captioner
    recipe = captioner.recipe
    if recipe.training.augment:
        annotations = random_views(annotations)
    a = captioner.annotations(annotations)  # (images, L, D)

    a, places = drop_annotations(a, recipe.training)
    terms_of_batch = [partial(term, batch, places) for term in terms]

    # Only now a row for each caption: an image with five of them is encoded once.
    a = batch.by_caption(a)  # (B, L, D)
    captions = batch.captions.to(a.device)
    return caption_loss(
        captioner.decoder,
        a,
        captions,
        doubly_stochastic=recipe.objective.doubly_stochastic,
        bound=state.bound,
        done=done,
        terms=terms_of_batch,
    )


def expected_reward(
    state: RunState, reward: Consensus, batch: Batch, annotations: Tensor, done: float
) -> BatchLoss:
    """Minus the expected reward of captions that the model samples for images, without dropout.

    To it the penalty on their maps is added (`rewards.reward_loss`).
    """
    captioner = state.captioner
    recipe = captioner.recipe
    hard = recipe.decoder.attention == "hard"
    with captioner.evaluating(), captioner.looking("sample" if hard else None):
        a = captioner.annotations(annotations)
        expected = None
        if hard:
            expected = coins(recipe.hard, len(a), a.device, done)

        return reward_loss(
            captioner.decoder,
            a,
            reward=partial(reward.of_rollout, batch.image_ids),
            config=recipe.reward,
            max_length=recipe.decoding.max_length,
            doubly_stochastic=recipe.objective.doubly_stochastic,
            expected=expected,
        )


def random_views(images: Tensor) -> Tensor:
    """A random part of each image, 70 % of its area or more, enlarged: (B, 3, H, W), float32.

    It is mirrored with probability 1/2.
    """
    B = len(images)
    side = torch.empty(B).uniform_(0.7, 1).sqrt()  # (B,), of an image's 1
    mirror = torch.randint(2, (B,)) * 2 - 1  # (B,), 1 or -1
    # A part of side s may move its centre by 1 - s either way, from -1 to 1, and stays inside.
    centre = torch.empty(B, 2).uniform_(-1, 1) * (1 - side).unsqueeze(1)  # (B, 2)

    # From the part's coordinates, -1 to 1, to the image's:
    # x' = mirror side x + centre, y' = side y + centre.
    affine = torch.zeros(B, 2, 3)
    affine[:, 0, 0] = side * mirror
    affine[:, 1, 1] = side
    affine[:, :, 2] = centre
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    return functional.grid_sample(
        images.float(), grid.to(images.device), padding_mode="border", align_corners=False
    )


def drop_annotations(a: Tensor, config: TrainingConfig) -> tuple[Tensor, Tensor | None]:
    """Leave out some places and dimensions, against overfitting.

    a (B, L, D) -> (B, L', D), and the places that are left, (L',) or None for all.
    """
    places = None
    if config.drop_places:
        L = a.shape[1]
        count = max(1, round(L * (1 - config.drop_places)))
        places = torch.randperm(L, device=a.device)[:count].sort().values
        a = a[:, places]
    if config.drop_dimensions:
        # dropout1d leaves out whole channels (B, D, L): a dimension is missing in all places.
        a = functional.dropout1d(a.transpose(1, 2), config.drop_dimensions).transpose(1, 2)
    return a, places
