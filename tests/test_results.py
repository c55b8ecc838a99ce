"""Captions of other captioners: both forms of a file are read and scored alike."""

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

    # Neither form: a list, and a number for a caption.
    for content in ([], {"a": 1}):
        path.write_text(json.dumps(content))
        with pytest.raises(SatlibError, match=r"captions\.json"):
            evaluate.read_captions(path)


def test_an_image_without_a_caption_is_named():
    without_last = dict(CAPTIONS)
    del without_last["2.jpg"]
    with pytest.raises(SatlibError, match=r"1 images .*2\.jpg, for example"):
        evaluate.score(without_last, DATA, "test")
