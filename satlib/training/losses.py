"""What a run minimises: equation 14 for a batch of captions, or minus the reward of captions that the model samples."""

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
    """The loss of a batch, its annotation vectors or images, and the share of the training that is done."""
    if data.reward is not None:
        return partial(expected_reward, state, data.reward)
    return partial(likelihood, state, data.terms)


def likelihood(
    state: RunState, terms: Sequence[BatchTerm], batch: Batch, annotations: Tensor, done: float
) -> BatchLoss:
    """Equation 14 or hard attention's bound, and other terms, for a batch of captions."""
    captioner, recipe, places = state.captioner, state.captioner.recipe, None
    if recipe.training.augment:
        annotations = random_views(annotations)
    a = captioner.annotations(annotations)
    if recipe.training.drop_places or recipe.training.drop_dimensions:
        a, places = drop_annotations(a, recipe.training)
    added = [partial(term, batch, places) for term in terms]
    a, captions = batch.by_caption(a), batch.captions.to(a.device)
    return caption_loss(
        captioner.decoder, a, captions, recipe.objective.doubly_stochastic, state.bound, done, added
    )


def expected_reward(
    state: RunState, reward: Consensus, batch: Batch, annotations: Tensor, done: float
) -> BatchLoss:
    """Minus the expected reward of captions that the model samples for a batch of images; without dropout."""
    captioner, recipe = state.captioner, state.captioner.recipe
    hard = recipe.decoder.attention == "hard"
    with captioner.evaluating(), captioner.looking("sample" if hard else None):
        a = captioner.annotations(annotations)
        return reward_loss(
            captioner.decoder,
            a,
            partial(reward.of_rollout, batch.image_ids),
            recipe.reward,
            recipe.decoding.max_length,
            recipe.objective.doubly_stochastic,
            coins(recipe.hard, len(a), a.device, done) if hard else None,
        )


def random_views(images: Tensor) -> Tensor:
    """A random part of each image, 70 % of its area or more, enlarged, mirrored with probability 1/2: (B, 3, H, W), float32."""
    side = torch.empty(len(images)).uniform_(0.7, 1).sqrt()
    # From the part's coordinates, -1..1, to the image's: x' = +-side x + centre, y' = side y + centre.
    affine = torch.zeros(len(images), 2, 3)
    affine[:, 0, 0] = side * (torch.randint(2, (len(images),)) * 2 - 1)
    affine[:, 1, 1] = side
    affine[:, :, 2] = torch.empty(len(images), 2).uniform_(-1, 1) * (1 - side).unsqueeze(1)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    return functional.grid_sample(
        images.float(), grid.to(images.device), padding_mode="border", align_corners=False
    )


def drop_annotations(a: Tensor, config: TrainingConfig) -> tuple[Tensor, Tensor | None]:
    """Leave out some places and dimensions, against overfitting: a (B, L, D) -> (B, L', D), and the places (L',) or None for all."""
    places = None
    if config.drop_places:
        count = max(1, round(a.shape[1] * (1 - config.drop_places)))
        places = torch.randperm(a.shape[1], device=a.device)[:count].sort().values
        a = a[:, places]
    if config.drop_dimensions:
        a = functional.dropout1d(a.transpose(1, 2), config.drop_dimensions).transpose(1, 2)
    return a, places
