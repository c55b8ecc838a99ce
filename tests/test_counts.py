from satcourse.lessons import counts


def test_flickr8k_has_the_published_sizes():
    found = counts.read()
    assert [found[split].lengths.total() for split in ("train", "dev", "test")] == [
        30_000,
        5_000,
        5_000,
    ]
    for split in found.values():
        assert (
            sum(length * number for length, number in split.lengths.items()) == split.words.total()
        )
