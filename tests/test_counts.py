from collections import Counter

import pytest

from satlib.data import counts, scenes
from satlib.data.datasets import CaptionSet, Example
from satlib.errors import SatlibError


def test_counts_by_hand():
    data = CaptionSet(
        "two", (Example("1", "train", ("A dog.", "a dog's dog")), Example("2", "test", ("Café, a-b!", "A dog")))
    )
    found = counts.count(data)
    assert found["train"] == counts.Counts(1, Counter({2: 1, 3: 1}), Counter({"a": 2, "dog": 2, "dog's": 1}))
    assert found["dev"] == counts.Counts()
    assert found["test"].words == Counter({"café": 1, "a-b": 1, "a": 1, "dog": 1})


def test_what_is_written_is_read(tmp_path):
    found = counts.count(scenes.load(30, 10, 0))
    counts.save(found, tmp_path / "counts.tsv")
    assert counts.read(tmp_path / "counts.tsv") == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a table of counts"),
        ("a,b\n", "not a table of counts"),
        ("what\ttrain\tdev\ttest\nword dog\t1\t2\n", "line 2: expected"),
        ("what\ttrain\tdev\ttest\nword dog\t1\t2\tx\n", "line 2: expected"),
        ("what\ttrain\tdev\ttest\ndog\t1\t2\t3\n", "line 2: expected"),
    ],
)
def test_what_is_no_table_is_named(tmp_path, text, said):
    (tmp_path / "counts.tsv").write_text(text)
    with pytest.raises(SatlibError, match=said):
        counts.read(tmp_path / "counts.tsv")


def test_flickr8k_has_the_published_sizes():
    found = counts.read()
    assert [found[split].images for split in ("train", "dev", "test")] == [6000, 1000, 1000]
    for split in found.values():
        assert split.lengths.total() == 5 * split.images
        assert sum(length * number for length, number in split.lengths.items()) == split.words.total()
