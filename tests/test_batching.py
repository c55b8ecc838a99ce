from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib.data.batches import ImageBatches, Pair, SameLengthBatches, pairs
from satlib.data.caption_set import Example
from satlib.data.text import END, PAD, Vocabulary

some_pairs = st.lists(st.integers(1, 9), min_size=1, max_size=200).map(
    lambda lengths: [Pair(f"{i}.jpg", (*[2 + i] * length, END)) for i, length in enumerate(lengths)]
)


@given(some_pairs, st.integers(1, 70), st.integers(0, 5), st.integers(0, 3))
def test_every_caption_exactly_once_and_one_length_a_batch(all_pairs, batch_size, seed, epoch):
    batches = SameLengthBatches(all_pairs, batch_size, seed)
    seen = Counter()
    drawn = batches.epoch(epoch)
    for batch in drawn:
        assert 1 <= len(batch.image_ids) == len(batch.captions) <= batch_size
        assert (batch.captions[:, -1] == END).all()  # a tensor without padding: one length
        assert (batch.captions[:, :-1] != END).all()
        seen.update(map(Pair, batch.image_ids, map(tuple, batch.captions.tolist())))
    assert seen == Counter(all_pairs)
    assert len(drawn) == len(batches)


@pytest.mark.parametrize("kind", [SameLengthBatches, ImageBatches])
def test_the_order_is_fixed_by_seed_and_epoch(kind):
    given = [Pair(f"{i}", (2, END)) if kind is SameLengthBatches else f"{i}" for i in range(100)]

    def order(seed, epoch):
        return [
            image_id for batch in kind(given, 8, seed).epoch(epoch) for image_id in batch.image_ids
        ]

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(*at)) for at in ((0, 1), (0, 2), (1, 1), (1, 2))}) == 4


def test_pairs_of_usable_captions():
    """With the end mark; without what is too long or has no known word."""
    references = ("A dog", "a", "a a a", "zebra quagga", "a zebra", ".")
    found = pairs([Example("1.jpg", "train", references)], Vocabulary(["a", "dog"]), max_length=2)
    assert found == [
        Pair("1.jpg", (2, 3, END)),
        Pair("1.jpg", (2, END)),
        Pair("1.jpg", (2, 1, END)),
    ]


@given(some_pairs, st.integers(1, 12), st.integers(0, 3))
@settings(max_examples=30)
def test_every_image_exactly_once_with_all_its_captions_or_none(all_pairs, batch_size, epoch):
    """Three captions an image, but for the last; one image has none and is left out."""
    all_pairs = [Pair(f"{i // 3}.jpg", pair.caption) for i, pair in enumerate(all_pairs)]
    names = [*dict.fromkeys(pair.image_id for pair in all_pairs), "without.jpg"]
    for captions, expected in ((all_pairs, names[:-1]), (None, names)):
        batches = ImageBatches(names, batch_size, 0, captions)
        drawn = batches.epoch(epoch)
        assert sorted(name for batch in drawn for name in batch.image_ids) == sorted(expected)
        assert len(batches) == len(drawn)
        assert all(len(batch.image_ids) == batch_size for batch in drawn[:-1])
        seen = Counter()
        for batch in drawn:
            assert captions or batch.captions.shape == (len(batch.image_ids), 0)
            for name, ids in zip(
                batch.images if captions else (), batch.captions.tolist(), strict=bool(captions)
            ):
                words = ids[: ids.index(END) + 1]
                assert ids[len(words) :] == [PAD] * (len(ids) - len(words))
                seen[Pair(name, tuple(words))] += 1
        assert seen == Counter(captions or ())


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 50))
def test_short_epochs_pass_over_all_images_before_one_comes_again(count, batch_size, per_epoch):
    names = [f"{i}" for i in range(count)]
    batches = ImageBatches(names, batch_size, 3, None, per_epoch)
    parts = max(1, count // per_epoch)  # what is left over has its turn in another pass
    epochs = [
        [name for batch in batches.epoch(i) for name in batch.image_ids] for i in range(parts)
    ]
    assert {len(epoch) for epoch in epochs} == {min(per_epoch, count)}
    seen = Counter(name for epoch in epochs for name in epoch)
    assert set(seen.values()) == {1}
    assert len(batches) == len(batches.epoch(0))
