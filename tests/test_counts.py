from collections import Counter

from satcourse.lessons import counts
from satlib.data.datasets import Example


def test_counts_by_hand():
    found = counts.count([Example("1", "train", ("A dog.", "a dog's dog")), Example("2", "test", ("Café, a-b!",))])
    assert found.lengths == Counter({2: 2, 3: 1})
    assert found.words == Counter({"a": 2, "dog": 2, "dog's": 1, "café": 1, "a-b": 1})


def test_flickr8k_has_the_published_sizes():
    found = counts.read()
    assert [found[split].lengths.total() for split in ("train", "dev", "test")] == [30_000, 5_000, 5_000]
    for split in found.values():
        assert sum(length * number for length, number in split.lengths.items()) == split.words.total()
