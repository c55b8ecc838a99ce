"""Captions of other captioners: all forms of a file are read and scored alike."""

import json

import pytest

from satlib.data.caption_set import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.evaluation import evaluate

CAPTIONS = {
    "0.jpg": "a dog runs 0",
    "1.jpg": "a dog runs 1",
    "2.jpg": "a dog runs 2",
}
EXAMPLES = [Example(image_id, "test", ("a dog runs",)) for image_id in CAPTIONS]
DATA = CaptionSet("own", tuple(EXAMPLES))


def test_each_form_of_a_file(tmp_path):
    path = tmp_path / "captions.json"

    # Captions alone have no earlier evaluation.
    path.write_text(json.dumps(CAPTIONS))
    assert evaluate.read_captions(path) == ({}, CAPTIONS)

    evaluation = evaluate.score(CAPTIONS, DATA, "test")
    scored = json.loads(json.dumps(evaluation))
    path.write_text(json.dumps(scored))
    assert evaluate.read_captions(path) == (scored, CAPTIONS)

    # COCO's results, of images with names.
    results = [{"image_id": name, "caption": text} for name, text in CAPTIONS.items()]
    path.write_text(json.dumps(results))
    assert evaluate.read_captions(path) == ({}, CAPTIONS)

    # None of them: a number for a caption, a list of something else, two captions of an image.
    for content in ({"a": 1}, [{"image": "0.jpg", "caption": "a dog"}], [*results, results[0]]):
        path.write_text(json.dumps(content))
        with pytest.raises(SatlibError, match=r"captions\.json"):
            evaluate.read_captions(path)


def test_an_image_without_a_caption_is_named():
    without_last = dict(CAPTIONS)
    del without_last["2.jpg"]
    with pytest.raises(SatlibError, match=r"without a caption: 1 \(2\.jpg"):
        evaluate.score(without_last, DATA, "test")


def test_images_by_their_numbers():
    """COCO's results know an image by its number: 42 of 000000000042.jpg."""
    names = ["val2014/COCO_val2014_000000000042.jpg", "train2017/000000000000.jpg", "7", "a_8.jpg"]
    examples = [Example(name, "test", ("a dog",)) for name in names]
    # COCO's files of captions say the number, whatever the name.
    examples.append(Example("IMG_0024.jpg", "test", ("a dog",), number="21"))

    captions = {"42": "one", "0": "two", "7": "three", "21": "four", "8": "of none"}
    found = [*names[:3], "IMG_0024.jpg", "8"]
    by_id = evaluate.by_image_id(captions, examples)
    assert by_id == dict(zip(found, captions.values(), strict=True))

    with pytest.raises(SatlibError, match="two captions"):
        evaluate.by_image_id({"42": "one", names[0]: "another"}, examples)
