from collections import Counter

from satlib.data import counts
from satlib.data.datasets import CaptionSet, Example


def test_counts_by_hand():
    data = CaptionSet(
        "two", (Example("1", "train", ("A dog.", "a dog's dog")), Example("2", "test", ("Café, a-b!", "A dog")))
    )
    found = counts.count(data)
    assert found["train"] == counts.Counts(Counter({2: 1, 3: 1}), Counter({"a": 2, "dog": 2, "dog's": 1}))
    assert found["dev"] == counts.Counts()
    assert found["test"].words == Counter({"café": 1, "a-b": 1, "a": 1, "dog": 1})


def test_flickr8k_has_the_published_sizes():
    found = counts.read()
    assert [found[split].lengths.total() for split in ("train", "dev", "test")] == [30_000, 5_000, 5_000]
    for split in found.values():
        assert sum(length * number for length, number in split.lengths.items()) == split.words.total()
