"""Captions of other captioners: each form of a file is read, and images go by any of their names."""

import json
from pathlib import Path

import pytest

from satlib.data.caption_set import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, results

IDS = ("val2014/COCO_val2014_000000391895.jpg", "val2017/000000000007.jpg", "photos/dog.jpg", "7.png")
DATA = CaptionSet("own", tuple(Example(image_id, "test", ("a dog runs",), Path(image_id)) for image_id in IDS))
CAPTIONS = {image_id: f"a dog {number}" for number, image_id in enumerate(IDS)}


def test_each_name_of_an_image():
    for names in (("391895", "000000000007.jpg", "dog.jpg", "7.png"), IDS):
        assert results.by_our_ids(dict(zip(names, CAPTIONS.values(), strict=True)), DATA) == CAPTIONS
    assert results.by_our_ids({"dog": "x"}, DATA) == {"dog": "x"}


def test_each_form_of_a_file(tmp_path):
    path = tmp_path / "captions.json"
    scored = evaluate.score(CAPTIONS, DATA, "test")
    coco = [{"image_id": 391895, "caption": "a dog 0"}, *({"image_id": id, "caption": CAPTIONS[id]} for id in IDS[1:])]
    for content, earlier in ((CAPTIONS, {}), (coco, {}), (scored, json.loads(json.dumps(scored)))):
        path.write_text(json.dumps(content))
        assert results.read(path)[0] == earlier
        assert results.by_our_ids(results.read(path)[1], DATA) == CAPTIONS
    for content in ([{"image_id": 1}], 3, {"a": 1}):
        path.write_text(json.dumps(content))
        with pytest.raises(SatlibError, match=r"captions\.json"):
            results.read(path)


def test_an_image_without_a_caption_is_named():
    with pytest.raises(SatlibError, match=f"1 images .*{IDS[3]}, for example"):
        evaluate.score(dict.fromkeys(IDS[:3], "a dog"), DATA, "test")
