from satcourse.lessons import counts


def test_flickr8k_has_the_published_sizes():
    found = counts.read()
    captions = {split: found[split].lengths.total() for split in ("train", "dev", "test")}
    # 6,000, 1,000 and 1,000 photographs with five captions each.
    assert captions == {"train": 30_000, "dev": 5_000, "test": 5_000}

    for split in found.values():
        words = sum(length * number for length, number in split.lengths.items())
        assert words == split.words.total()
