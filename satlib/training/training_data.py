"""What a recipe trains on, out of a caption set: vocabulary, batches, dev captions, and the reward where one is maximised."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from satlib.beyond.rewards import Consensus
from satlib.data.batches import ImageBatches, Pair, SameLengthBatches, pairs
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.recipe import Recipe, TrainingConfig


@dataclass(frozen=True)
class TrainingData:
    """A caption set as one recipe trains on it."""

    vocabulary: Vocabulary
    batches: SameLengthBatches | ImageBatches  # of an epoch
    train_ids: list[str]
    dev: Sequence[Example]  # the images that select the epoch
    dev_pairs: list[Pair]  # each of their captions with its image
    hash: str  # SHA-256 of the vocabulary and the training captions
    reward: Consensus | None = None  # of generated captions, where it is maximised
    dev_reward: Consensus | None = None


def training_data(data: CaptionSet, recipe: Recipe) -> TrainingData:
    """Prepare a caption set for training.

    Raises:
        SatlibError: the train or the dev split is empty.
    """
    data = data.shortened(recipe.data.train_images)
    train, dev = data.split("train"), data.split("dev")
    if not train or not dev:
        raise SatlibError(
            f"{data.name} needs images in its train and its dev split; see: satlib data check {data.name}"
        )
    vocabulary = data.vocabulary(recipe.data.vocabulary_size, recipe.data.min_count)
    config, longest, rewarded = recipe.training, recipe.data.max_length, recipe.objective.maximise == "reward"
    names = [example.image_id for example in train]
    train_pairs = pairs(train, vocabulary, longest)
    digest = hashlib.sha256(repr([vocabulary.words, train_pairs]).encode()).hexdigest()
    batches: SameLengthBatches | ImageBatches = SameLengthBatches(train_pairs, config.batch_size, config.seed)
    if rewarded or config.batches == "images":
        batches = ImageBatches(names, config.batch_size, config.seed, None if rewarded else train_pairs)
    rewards = [Consensus(examples, vocabulary, recipe.reward) if rewarded else None for examples in (train, dev)]
    return TrainingData(vocabulary, batches, names, dev, pairs(dev, vocabulary, longest), digest, *rewards)


def random_views(images: Tensor, smallest: float = 0.7) -> Tensor:
    """A random part of each image, enlarged to its size, and mirrored every other time: (B, 3, H, W) -> the same, float32.

    A part has the image's proportions and at least `smallest` of its area.
    """
    side = torch.empty(len(images)).uniform_(smallest, 1).sqrt()
    # From the part's coordinates, -1..1, to the image's: x' = +-side x + centre, y' = side y + centre; it does not leave the image.
    affine = torch.zeros(len(images), 2, 3)
    affine[:, 0, 0] = side * (torch.randint(2, (len(images),)) * 2 - 1)
    affine[:, 1, 1] = side
    affine[:, :, 2] = torch.empty(len(images), 2).uniform_(-1, 1) * (1 - side).unsqueeze(1)
    grid = functional.affine_grid(affine, list(images.shape), align_corners=False)
    return functional.grid_sample(images.float(), grid.to(images.device), padding_mode="border", align_corners=False)


def drop_annotations(a: Tensor, config: TrainingConfig) -> tuple[Tensor, Tensor | None]:
    """Leave out some places and dimensions of a batch's annotation vectors, against overfitting.

    a (B, L, D) -> those of the places that are left, in their order (B, L', D), and the places (L',); None if all are.
    """
    kept = None
    if config.drop_places:
        count = max(1, round(a.shape[1] * (1 - config.drop_places)))
        kept = torch.randperm(a.shape[1], device=a.device)[:count].sort().values
        a = a[:, kept]
    if config.drop_dimensions:
        a = functional.dropout1d(a.transpose(1, 2), config.drop_dimensions).transpose(1, 2)
    return a, kept
