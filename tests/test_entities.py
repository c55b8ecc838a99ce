"""Flickr30k Entities: phrases and boxes by hand, folders and zip files, and a clear line for each
kind of damage.
"""

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

# The two boxes of `entities_files` as shares of their picture of 200 x 100 pixels.
PERSON = (0.1, 0.1, 0.3, 0.9)
DRESS = (0.1, 0.5, 0.3, 0.7)


@pytest.fixture
def folder(tmp_path):
    return entities_files.write(tmp_path / "entities", {"17": (annotation(), [GIRL, CHILD])})


@pytest.fixture(params=["folder", "zip"])
def entities(folder, request):
    if request.param == "folder":
        return Entities(folder)

    # As its authors distribute it.
    path = folder.parent / "annotations.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(folder).as_posix())
    return Entities(path)


def test_phrases_by_hand(entities):
    # A phrase is where its last word is. Names in Flickr8k go on after the number.
    caption = tokenise("A child, in a pink dress, near the hills")
    assert entities.phrases("17_ab.jpg", caption) == [
        Phrase(1, ("people",), (PERSON,)),
        Phrase(5, ("clothing",), (DRESS,)),
        Phrase(8, ("scene",), ()),
    ]

    # Entities has "girl 's", which is one word elsewhere.
    caption = tokenise("The girl's dress, which is pink.")
    assert entities.phrases("photos/17.jpg", caption) == [
        Phrase(1, ("people",), (PERSON,)),
        Phrase(2, ("clothing", "other"), (DRESS,)),
        Phrase(3, ("notvisual",), ()),
    ]

    # A caption that Entities does not have: it says boy.
    assert entities.phrases("17.jpg", tokenise("A boy, in a pink dress, near the hills")) == []
    assert "17_x.jpg" in entities
    assert "18.jpg" not in entities
    with pytest.raises(SatlibError, match="has no annotations of 18"):
        entities.phrases("18.jpg", ["a", "dog"])


def test_several_boxes_several_entities_and_boxes_a_little_outside(tmp_path):
    # The first box is of both entities; two leave the picture of 200 x 100 pixels a little, and
    # nothing of the others is in it.
    objects = (
        (("1", "2"), (-2, 0, 100, 101)),
        (("1",), (100, 0, 202, 50)),
        (("2",), (200, 0, 205, 50)),
        (("2",), (0, -9, 100, 0)),
    )
    xml = annotation(objects=objects)
    caption = (
        "[/EN#1/people Two men] and [/EN#2/people one] and [/EN#9/other something] [/EN#2/people .]"
    )
    entities = Entities(entities_files.write(tmp_path, {"1": (xml, [caption])}))

    words = ["Two", "men", "and", "one", "and", "something", "."]
    two, one, unknown = entities.phrases("1.jpg", words)
    assert two.boxes == ((0, 0, 0.5, 1), (0.5, 0, 1, 0.5))
    assert one.boxes == ((0, 0, 0.5, 1),)
    # No object has its id; and a phrase of punctuation alone is none.
    assert unknown.boxes == ()


@pytest.mark.parametrize(
    ("size", "squeezed"),
    [
        ((500, 400), None),
        ((300, 900), (224, 224)),
        ((500, 400), (288, 288)),
    ],
)
def test_boxes_are_where_the_encoder_sees_them(tmp_path, size, squeezed):
    """Against the picture itself: a white box drawn on black, squeezed as the file is, and as
    encoders see it.
    """
    width, height = size
    left = round(0.3 * width)
    top = round(0.35 * height)
    right = round(0.6 * width)
    bottom = round(0.6 * height)
    objects = [(("1",), (left, top, right, bottom))]
    caption = "[/EN#1/other Box]"
    place = entities_files.write(tmp_path, {"1": (annotation(size, objects), [caption])})
    (phrase,) = Entities(place).phrases("1.jpg", ["box"])

    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[top:bottom, left:right] = 255
    photo = Image.fromarray(pixels)
    if squeezed:
        photo = photo.resize(squeezed)
    square = np.asarray(images.square(photo))
    ys, xs = np.nonzero(square[:, :, 0] > 127)
    seen = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
    assert np.abs(224 * np.array(phrase.boxes[0]) - seen).max() <= 1.5


def test_what_is_not_entities_is_refused(tmp_path):
    with pytest.raises(SatlibError, match="neither a folder nor"):
        Entities(tmp_path / "nowhere")
    with pytest.raises(SatlibError, match="lacks the folders Annotations and"):
        Entities(tmp_path)
