"""Flickr30k Entities: phrases and boxes by hand, folders and zip files, and a clear line for each kind of damage."""

import zipfile

import entities_files
import numpy as np
import pytest
from entities_files import CHILD, GIRL, annotation
from PIL import Image

from satlib.data import images
from satlib.data.entities import Entities, Phrase
from satlib.data.text import tokenise
from satlib.errors import SatlibError

WHOLE = (
    (0.1, 0.1, 0.3, 0.9),
    (0.1, 0.5, 0.3, 0.7),
)  # of the two boxes, in a picture of 200 x 100 pixels


@pytest.fixture
def folder(tmp_path):
    return entities_files.write(tmp_path / "entities", {"17": (annotation(), [GIRL, CHILD])})


@pytest.fixture(params=["folder", "zip"])
def entities(folder, request):
    if request.param == "folder":
        return Entities(folder)
    with zipfile.ZipFile(folder.parent / "annotations.zip", "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder).as_posix())
    return Entities(folder.parent / "annotations.zip")


def test_phrases_by_hand(entities):
    assert entities.phrases("17_ab.jpg", tokenise("A child, in a pink dress, near the hills")) == [
        Phrase(1, ("people",), WHOLE[:1]),
        Phrase(5, ("clothing",), WHOLE[1:]),
        Phrase(8, ("scene",), ()),
    ]
    # Entities has "girl 's", which is one word elsewhere
    assert entities.phrases("photos/17.jpg", tokenise("The girl's dress, which is pink.")) == [
        Phrase(1, ("people",), WHOLE[:1]),
        Phrase(2, ("clothing", "other"), WHOLE[1:]),
        Phrase(3, ("notvisual",), ()),
    ]
    assert (
        entities.phrases("17.jpg", ["a", "boy", "in", "a", "pink", "dress", "near", "the", "hills"])
        == []
    )
    assert entities.size("17.jpg") == (200, 100)
    assert "17_x.jpg" in entities
    assert "18.jpg" not in entities
    with pytest.raises(SatlibError, match="has no annotations of 18"):
        entities.phrases("18.jpg", ["a", "dog"])


def test_several_boxes_several_entities_and_boxes_a_little_outside(tmp_path):
    objects = ((("1", "2"), (-2, 0, 100, 101)), (("1",), (100, 0, 202, 50)))
    captions = [
        "[/EN#1/people Two men] and [/EN#2/people one] and [/EN#9/other something] [/EN#2/people .]"
    ]
    entities = Entities(
        entities_files.write(tmp_path, {"1": (annotation(objects=objects), captions)})
    )
    two, one, unknown = entities.phrases(
        "1.jpg", ["Two", "men", "and", "one", "and", "something", "."]
    )
    assert two.boxes == ((0, 0, 0.5, 1), (0.5, 0, 1, 0.5))
    assert one.boxes == ((0, 0, 0.5, 1),)
    assert unknown.boxes == ()  # no object has its id; and a phrase of punctuation alone is none


@pytest.mark.parametrize("view", ["whole", "crop"])
@pytest.mark.parametrize(
    ("size", "squeezed"), [((500, 400), None), ((300, 900), (224, 224)), ((500, 400), (288, 288))]
)
def test_boxes_are_where_the_encoder_sees_them(tmp_path, view, size, squeezed):
    """Against the picture itself: a white box drawn on black, squeezed as the file is, and as encoders see it."""
    box = tuple(
        round(share * side)
        for share, side in zip((0.3, 0.35, 0.6, 0.6), (*size, *size), strict=True)
    )
    objects = ((("1",), box), (("2",), (1, 1, 3, 3)))
    xml, caption = annotation(size, objects), "[/EN#1/other Box] [/EN#2/other corner]"
    annotations = Entities(entities_files.write(tmp_path, {"1": (xml, [caption])}))
    first, corner = annotations.phrases(
        "1.jpg", ["box", "corner"], images.seen_part(squeezed or size, view)
    )
    pixels = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    photo = Image.fromarray(pixels)
    photo = photo.resize(squeezed) if squeezed else photo
    ys, xs = np.nonzero(np.asarray(images.square(photo, view))[:, :, 0] > 127)
    seen = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
    assert np.abs(224 * np.array(first.boxes[0]) - seen).max() <= 1.5
    cropped = view == "crop" and squeezed != (224, 224)
    assert len(corner.boxes) == (0 if cropped else 1)  # the crop removes the corner


def test_what_is_not_entities_is_refused(tmp_path):
    for place, words in (
        (tmp_path / "nowhere", "neither a folder nor"),
        (tmp_path, "lacks the folders Annotations and"),
    ):
        with pytest.raises(SatlibError, match=words):
            Entities(place)
