"""What a recipe trains on: a caption set's vocabulary, batches, dev captions and rewards."""

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
from satlib.files import collector_paused, say
from satlib.model.decoder import Output
from satlib.recipe import Recipe
from satlib.training.distributed import current

# A term of the loss: from a batch, the places that it kept (None: all) and the decoder's output to
# what is added to the loss, and the means to log.
BatchTerm = Callable[[Batch, Tensor | None, Output], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class TrainingData:
    """A caption set as one recipe trains on it."""

    vocabulary: Vocabulary
    batches: SameLengthBatches | ImageBatches  # of an epoch
    dev: Sequence[Example]  # the images that select the epoch
    dev_pairs: list[Pair]  # each of their captions with its image
    hash: str  # of the vocabulary, the training captions and their boxes: SHA-256 digests
    terms: Sequence[BatchTerm]  # of the loss, beside the paper's
    reward: Consensus | None  # of generated captions, where it is maximised
    dev_reward: Consensus | None


@collector_paused()
def training_data(
    data: CaptionSet,
    recipe: Recipe,
    vocabulary: Vocabulary,
    grid: tuple[int, int],
    entities: Entities | None,
) -> TrainingData:
    """Prepare a caption set for training.

    grid: the encoder's (h, w). entities: the boxes that supervise attention, if any.

    Raises:
        SatlibError: a split has no images, none of the captions is usable, or the boxes do not fit
            the recipe.
    """
    train = data.split("train")
    dev = data.split("dev")
    if not train or not dev:
        raise SatlibError(
            f"{data.name} needs images in its train and its dev split; "
            f"see: satlib data check {data.name}"
        )
    config = recipe.training
    longest = recipe.data.max_length
    rewarded = recipe.objective.maximise == "reward"

    used = []
    for example in train:
        first = example.references[: recipe.data.captions]
        used.append(replace(example, references=first))
    train_pairs = pairs(used, vocabulary, longest)

    captions = sum(len(example.references) for example in used)
    left_out = captions - len(train_pairs)
    if left_out and current().first:
        say(
            f"{left_out:,} of {captions:,} training captions are left out: "
            f"they have more than data.max_length = {longest} words, or none that is known"
        )

    # A run resumes only with the words and captions that it began with.
    digest = hashlib.sha256(repr([vocabulary.words, train_pairs]).encode()).hexdigest()

    names = [example.image_id for example in train]
    batches: SameLengthBatches | ImageBatches
    if rewarded or config.batches == "images":
        # Where captions are rewarded, the model samples its own.
        own = None if rewarded else train_pairs
        batches = ImageBatches(names, config.batch_size, config.seed, own, config.epoch_images)
    else:
        batches = SameLengthBatches(train_pairs, config.batch_size, config.seed)

    terms = boxes.terms(recipe, entities, train, vocabulary, grid)
    digest += "".join(term.hash for term in terms)

    reward = None
    dev_reward = None
    if rewarded:
        # All references count, also those beyond data.captions.
        reward = Consensus(train, vocabulary, recipe.reward)
        dev_reward = Consensus(dev, vocabulary, recipe.reward)

    return TrainingData(
        vocabulary=vocabulary,
        batches=batches,
        dev=dev,
        dev_pairs=pairs(dev, vocabulary, longest),
        hash=digest,
        terms=terms,
        reward=reward,
        dev_reward=dev_reward,
    )
