"""What a recipe trains on, out of a caption set: vocabulary, batches, dev captions, terms of the loss, and rewards."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from satlib.beyond import boxes
from satlib.beyond.rewards import Consensus
from satlib.data.batches import Batch, ImageBatches, Pair, SameLengthBatches, pairs
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model.decoder import Output
from satlib.recipe import Recipe
from satlib.training.distributed import current

# Adds to the loss of a batch, by the places that are left (None: all) and the decoder's output, and gives means to log.
BatchTerm = Callable[[Batch, Tensor | None, Output], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class TrainingData:
    """A caption set as one recipe trains on it."""

    vocabulary: Vocabulary
    batches: SameLengthBatches | ImageBatches  # of an epoch
    train_ids: list[str]
    dev: Sequence[Example]  # the images that select the epoch
    dev_pairs: list[Pair]  # each of their captions with its image
    hash: str  # SHA-256 of the vocabulary, the training captions and their boxes
    terms: Sequence[BatchTerm]  # of the loss, beside the paper's
    reward: Consensus | None  # of generated captions, where it is maximised
    dev_reward: Consensus | None


def training_data(
    data: CaptionSet,
    recipe: Recipe,
    vocabulary: Vocabulary,
    grid: tuple[int, int],
    entities: Entities | None,
) -> TrainingData:
    """Prepare a caption set for training; `grid` is the encoder's (h, w), `entities` has the boxes that supervise attention."""
    train, dev = data.split("train"), data.split("dev")
    if not train or not dev:
        raise SatlibError(
            f"{data.name} needs images in its train and its dev split; see: satlib data check {data.name}"
        )
    config, longest, rewarded = (
        recipe.training,
        recipe.data.max_length,
        recipe.objective.maximise == "reward",
    )
    names = [example.image_id for example in train]
    used = [
        replace(example, references=example.references[: recipe.data.captions]) for example in train
    ]
    train_pairs = pairs(used, vocabulary, longest)
    captions = sum(len(example.references) for example in used)
    if captions > len(train_pairs) and current().first:
        print(
            f"{captions - len(train_pairs):,} of {captions:,} training captions are left out: they have more than data.max_length = "
            f"{longest} words, or none that is known"
        )
    digest = hashlib.sha256(repr([vocabulary.words, train_pairs]).encode()).hexdigest()
    batches: SameLengthBatches | ImageBatches = SameLengthBatches(
        train_pairs, config.batch_size, config.seed
    )
    if rewarded or config.batches == "images":
        batches = ImageBatches(
            names,
            config.batch_size,
            config.seed,
            None if rewarded else train_pairs,
            config.epoch_images,
        )
    terms = boxes.terms(recipe, entities, train, vocabulary, grid)
    digest += "".join(term.hash for term in terms)
    rewards = [
        Consensus(examples, vocabulary, recipe.reward) if rewarded else None
        for examples in (train, dev)
    ]
    return TrainingData(
        vocabulary, batches, names, dev, pairs(dev, vocabulary, longest), digest, terms, *rewards
    )
