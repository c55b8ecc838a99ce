"""The README.md of a Space, as huggingface_hub reads it."""

import pytest

from satlib import recipe
from satlib.page import live


@pytest.mark.parametrize(
    ("names", "licence", "name"),
    [
        (["scenes-soft", "scenes-hard"], "mit", None),
        (["scenes-soft", "flickr8k-lite0-soft"], "other", "terms-of-flickr8k"),
    ],
)
def test_the_hub_reads_what_to_serve_and_the_strictest_terms(names, licence, name):
    text = live.space_readme([recipe.load(each) for each in names])
    read = pytest.importorskip("huggingface_hub").SpaceCard(text).data
    assert (read.sdk, read.app_file, read.title) == ("static", "index.html", "Where does it look?")
    assert (read.license, read.to_dict().get("license_name")) == (licence, name)
    assert all(each in text for each in names)
