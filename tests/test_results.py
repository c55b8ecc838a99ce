"""Captions of other captioners: both forms of a file are read and scored alike."""

import json

import pytest

from satlib.data.caption_set import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.evaluation import evaluate

CAPTIONS = {f"{number}.jpg": f"a dog runs {number}" for number in range(3)}
DATA = CaptionSet("own", tuple(Example(image_id, "test", ("a dog runs",)) for image_id in CAPTIONS))


def test_each_form_of_a_file(tmp_path):
    path = tmp_path / "captions.json"
    scored = json.loads(json.dumps(evaluate.score(CAPTIONS, DATA, "test")))
    for content, earlier in ((CAPTIONS, {}), (scored, scored)):
        path.write_text(json.dumps(content))
        assert evaluate.read_captions(path) == (earlier, CAPTIONS)
    for content in ([], {"a": 1}):
        path.write_text(json.dumps(content))
        with pytest.raises(SatlibError, match=r"captions\.json"):
            evaluate.read_captions(path)


def test_an_image_without_a_caption_is_named():
    with pytest.raises(SatlibError, match=r"1 images .*2\.jpg, for example"):
        evaluate.score(dict(list(CAPTIONS.items())[:2]), DATA, "test")
