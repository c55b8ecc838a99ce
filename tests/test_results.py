"""Captions of other captioners: both forms of a file are read and scored alike."""

import json

import pytest

from satlib.data.caption_set import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.evaluation import evaluate

CAPTIONS = {f"{number}.jpg": f"a dog runs {number}" for number in range(3)}
EXAMPLES = [Example(image_id, "test", ("a dog runs",)) for image_id in CAPTIONS]
DATA = CaptionSet("own", tuple(EXAMPLES))


def test_each_form_of_a_file(tmp_path):
    path = tmp_path / "captions.json"
    evaluation = evaluate.score(CAPTIONS, DATA, "test")
    scored = json.loads(json.dumps(evaluation))
    for content, earlier in ((CAPTIONS, {}), (scored, scored)):
        path.write_text(json.dumps(content))
        assert evaluate.read_captions(path) == (earlier, CAPTIONS)
    for content in ([], {"a": 1}):
        path.write_text(json.dumps(content))
        with pytest.raises(SatlibError, match=r"captions\.json"):
            evaluate.read_captions(path)


def test_an_image_without_a_caption_is_named():
    without_last = {image_id: CAPTIONS[image_id] for image_id in ("0.jpg", "1.jpg")}
    with pytest.raises(SatlibError, match=r"1 images .*2\.jpg, for example"):
        evaluate.score(without_last, DATA, "test")
