from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib.batching import Pair, SameLengthBatches, pairs
from satlib.errors import SatlibError
from satlib.text import END, Vocabulary

some_pairs = st.lists(st.integers(1, 9), min_size=1, max_size=200).map(
    lambda lengths: [Pair(f"{i}.jpg", (*[2 + i] * length, END)) for i, length in enumerate(lengths)]
)


@given(some_pairs, st.integers(1, 70), st.integers(0, 5), st.integers(0, 3))
@settings(deadline=None)
def test_every_caption_exactly_once_and_one_length_a_batch(all_pairs, batch_size, seed, epoch):
    batches = SameLengthBatches(all_pairs, batch_size, seed)
    seen = Counter()
    drawn = batches.epoch(epoch)
    for batch in drawn:
        assert 1 <= len(batch.keys) == len(batch.captions) <= batch_size
        assert (batch.captions[:, -1] == END).all()  # a tensor without padding: one length
        assert (batch.captions[:, :-1] != END).all()
        seen.update(Pair(key, tuple(row)) for key, row in zip(batch.keys, batch.captions.tolist(), strict=True))
    assert seen == Counter(all_pairs)
    assert len(drawn) == len(batches)


def test_the_order_is_fixed_by_seed_and_epoch():
    all_pairs = [Pair(f"{i}", (2, END)) for i in range(100)]

    def order(seed, epoch):
        return [key for batch in SameLengthBatches(all_pairs, 8, seed).epoch(epoch) for key in batch.keys]

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(*at)) for at in ((0, 1), (0, 2), (1, 1), (1, 2))}) == 4


class TestPairs:
    vocabulary = Vocabulary(["a", "dog"])

    def example(self, *references):
        from satlib.datasets import Example

        return Example(key="1.jpg", split="train", references=references, path=None)

    def test_one_pair_a_caption_with_the_end_mark(self):
        found = pairs([self.example("A dog", "a")], self.vocabulary, max_length=5)
        assert found == [Pair("1.jpg", (2, 3, END)), Pair("1.jpg", (2, END))]

    def test_too_long_and_unknown_only_are_left_out(self):
        found = pairs([self.example("a a a", "zebra quagga", "a zebra", ".")], self.vocabulary, max_length=2)
        assert found == [Pair("1.jpg", (2, 1, END))]

    def test_nothing_left_is_an_error(self):
        with pytest.raises(SatlibError, match="none of the 1 images has a caption of 1 to 2 known words"):
            pairs([self.example("a a a")], self.vocabulary, max_length=2)
