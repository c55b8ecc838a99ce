from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib.data.batches import Batch, ImageBatches, Pair, SameLengthBatches, pairs
from satlib.data.caption_set import Example
from satlib.data.text import END, PAD, Vocabulary
from satlib.training.distributed import Ranks


def pairs_of(lengths):
    """A caption of each length, all of different words, each with an image of its own."""
    made = []
    for i, length in enumerate(lengths):
        words = [2 + i] * length
        made.append(Pair(f"{i}.jpg", (*words, END)))
    return made


some_pairs = st.lists(st.integers(1, 9), min_size=1, max_size=200).map(pairs_of)


@given(some_pairs, st.integers(1, 70), st.integers(0, 5), st.integers(0, 3))
def test_every_caption_exactly_once_and_one_length_a_batch(all_pairs, batch_size, seed, epoch):
    batches = SameLengthBatches(all_pairs, batch_size, seed)
    drawn = batches.epoch(epoch)

    seen = Counter()
    for batch in drawn:
        assert 1 <= len(batch.image_ids) == len(batch.captions) <= batch_size
        # All have one length: the end mark is the last of each row and nowhere else.
        assert (batch.captions[:, -1] == END).all()
        assert (batch.captions[:, :-1] != END).all()
        for image_id, caption in zip(batch.image_ids, batch.captions.tolist(), strict=True):
            seen[Pair(image_id, tuple(caption))] += 1
    assert seen == Counter(all_pairs)
    assert len(drawn) == len(batches)


@pytest.mark.parametrize("kind", [SameLengthBatches, ImageBatches])
def test_the_order_is_fixed_by_seed_and_epoch(kind):
    names = [f"{i}" for i in range(100)]
    items = names
    if kind is SameLengthBatches:
        items = [Pair(name, (2, END)) for name in names]

    def order(seed, epoch):
        drawn = []
        for batch in kind(items, 8, seed).epoch(epoch):
            drawn += batch.image_ids
        return tuple(drawn)

    assert order(0, 1) == order(0, 1)
    # Another seed or another epoch gives another order; that two agree by chance is hopeless.
    different = {
        order(0, 1),
        order(0, 2),
        order(1, 1),
        order(1, 2),
    }
    assert len(different) == 4


def test_pairs_of_usable_captions():
    """With the end mark; without what is too long or has no known word."""
    references = ("A dog", "a", "a a a", "zebra quagga", "a zebra", ".")
    example = Example("1.jpg", "train", references)
    found = pairs([example], Vocabulary(["a", "dog"]), max_length=2)

    # Word 1 is the unknown one, which stands for the zebra.
    assert found == [
        Pair("1.jpg", (2, 3, END)),
        Pair("1.jpg", (2, END)),
        Pair("1.jpg", (2, 1, END)),
    ]


def captions_of(batch):
    """The captions of a batch of images, as pairs, without what fills their rows up."""
    found = []
    for name, ids in zip(batch.images, batch.captions.tolist(), strict=True):
        words = ids[: ids.index(END) + 1]
        assert ids[len(words) :] == [PAD] * (len(ids) - len(words))
        found.append(Pair(name, tuple(words)))
    return found


@given(some_pairs, st.integers(1, 12), st.integers(0, 3))
@settings(max_examples=30)
def test_every_image_exactly_once_with_all_its_captions_or_none(all_pairs, batch_size, epoch):
    """Three captions an image, but for the last; one image has none and is left out."""
    all_pairs = [Pair(f"{i // 3}.jpg", pair.caption) for i, pair in enumerate(all_pairs)]
    with_captions = list(dict.fromkeys(pair.image_id for pair in all_pairs))
    names = [*with_captions, "without.jpg"]

    for captions, expected in ((all_pairs, with_captions), (None, names)):
        batches = ImageBatches(names, batch_size, 0, captions)
        drawn = batches.epoch(epoch)
        assert sorted(name for batch in drawn for name in batch.image_ids) == sorted(expected)
        assert len(batches) == len(drawn)
        # Only the last batch may be smaller.
        assert all(len(batch.image_ids) == batch_size for batch in drawn[:-1])

        seen = Counter()
        for batch in drawn:
            if captions:
                seen.update(captions_of(batch))
            else:
                assert batch.captions.shape == (len(batch.image_ids), 0)
        assert seen == Counter(captions or ())


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50))
def test_short_epochs_pass_over_all_images_before_one_comes_again(count, batch_size, per_epoch):
    names = [f"{i}" for i in range(count)]
    batches = ImageBatches(names, batch_size, 3, None, per_epoch)

    # What is left over after whole epochs has its turn in another pass.
    parts = max(1, count // per_epoch)
    seen = Counter()
    for i in range(parts):
        epoch = [name for batch in batches.epoch(i) for name in batch.image_ids]
        assert len(epoch) == min(per_epoch, count)
        seen.update(epoch)
    assert set(seen.values()) == {1}
    assert len(batches) == len(batches.epoch(0))


def test_a_rank_is_weighted_by_its_captions_not_its_images():
    """Images a, b and c have 3, 1 and 1 captions; the first rank gets a and c, the second b."""
    batch = Batch(["a", "b", "c"], torch.zeros(5, 1), torch.tensor([0, 0, 0, 1, 2]))
    weights = [Ranks(rank, 2).share(batch).weight for rank in range(2)]
    # Their mean is 1, because torch takes the mean of the ranks' gradients.
    assert weights == [2 * 4 / 5, 2 * 1 / 5]


def test_every_batch_and_rank_has_its_own_random_numbers():
    drawn = set()
    for step in range(3):
        for rank in range(3):
            Ranks(rank, 3).seed(0, step)
            drawn.add(torch.rand(()).item())
    # Added up, steps and ranks would give only five different seeds.
    assert len(drawn) == 9
