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
from satlib.training.training_data import Term, TrainingData

# Of a batch, its annotation vectors or images, and the share of the training that is done.
Loss = Callable[[Batch, Tensor, float], BatchLoss]


def create(state: RunState, data: TrainingData) -> Loss:
    """The loss of a run."""
    if data.reward is not None:
        return partial(expected_reward, state, data.reward)
    return partial(likelihood, state, data.terms)


def likelihood(state: RunState, terms: Sequence[Term], batch: Batch, annotations: Tensor, done: float) -> BatchLoss:
    """Equation 14 or hard attention's bound, and other terms, for a batch of captions."""
    captioner, places = state.captioner, None
    config, objective = captioner.recipe.training, captioner.recipe.objective
    if config.augment:
        annotations = random_views(annotations)
    a = captioner.annotations(annotations)
    if config.drop_places or config.drop_dimensions:
        a, places = drop_annotations(a, config)
    added = [partial(term, batch, places) for term in terms]
    a, captions = batch.by_caption(a), batch.captions.to(a.device)
    return caption_loss(captioner.decoder, a, captions, objective.doubly_stochastic, state.bound, done, added)


def expected_reward(state: RunState, reward: Consensus, batch: Batch, annotations: Tensor, done: float) -> BatchLoss:
    """Minus the expected reward of captions that the model samples for a batch of images, as it will generate: without dropout."""
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


def random_views(images: Tensor, smallest: float = 0.7) -> Tensor:
    """A random part of each image, at least `smallest` of its area, enlarged, every other one mirrored: (B, 3, H, W), float32."""
    side = torch.empty(len(images)).uniform_(smallest, 1).sqrt()
    # From the part's coordinates, -1..1, to the image's: x' = +-side x + centre, y' = side y + centre.
    affine = torch.zeros(len(images), 2, 3)
    affine[:, 0, 0] = side * (torch.randint(2, (len(images),)) * 2 - 1)
    affine[:, 1, 1] = side
    affine[:, :, 2] = torch.empty(len(images), 2).uniform_(-1, 1) * (1 - side).unsqueeze(1)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    return functional.grid_sample(images.float(), grid.to(images.device), padding_mode="border", align_corners=False)


def drop_annotations(a: Tensor, config: TrainingConfig) -> tuple[Tensor, Tensor | None]:
    """Leave out some places and dimensions of a batch's annotation vectors, against overfitting.

    a (B, L, D) -> those of the places that are left (B, L', D), and these places in order (L',); None if all are.
    """
    kept = None
    if config.drop_places:
        count = max(1, round(a.shape[1] * (1 - config.drop_places)))
        kept = torch.randperm(a.shape[1], device=a.device)[:count].sort().values
        a = a[:, kept]
    if config.drop_dimensions:
        a = functional.dropout1d(a.transpose(1, 2), config.drop_dimensions).transpose(1, 2)
    return a, kept
