"""Captions of other captioners: COCO's results format is read as the COCO tools write it, and each bad file is refused in one line."""

import json
from pathlib import Path

import pytest

from satlib import cli
from satlib.data.caption_set import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.evaluation import results

IDS = ("val2014/COCO_val2014_000000391895.jpg", "val2017/000000000007.jpg", "photos/dog.jpg", "7.png")


def data():
    return CaptionSet("own", tuple(Example(image_id, "test", ("a dog",), Path(image_id)) for image_id in IDS))


def by_our_ids(*image_ids, path=Path("r.json")):
    return results.by_our_ids([results.Result(name, f"caption {n}") for n, name in enumerate(image_ids)], data(), path)


def test_each_name_of_an_image():
    assert by_our_ids(391895, "000000000007", "dog.jpg", "7.png") == dict(
        zip(IDS, (f"caption {n}" for n in range(4)), strict=True)
    )
    assert by_our_ids(*reversed(IDS)) == dict(zip(reversed(IDS), (f"caption {n}" for n in range(4)), strict=True))
    assert by_our_ids("391895") == {IDS[0]: "caption 0"}


@pytest.mark.parametrize(
    ("image_ids", "says"),
    [
        ((391895, 5), "r.json: [1].image_id is 5, which is no image of own; name images as satlib does, for example"),
        ((7,), "[0].image_id is 7, which fits 2 images of own"),
        (("cat.jpg",), 'image_id is "cat.jpg", which is no image'),
        (("dog", "photos/dog.jpg"), '[1].image_id is "photos/dog.jpg", and that image has a caption already'),
    ],
)
def test_an_image_that_is_not_there_or_there_twice(image_ids, says):
    with pytest.raises(SatlibError) as caught:
        by_our_ids(*image_ids)
    assert says in str(caught.value)


def test_the_command_scores_them_as_captions_by_our_ids(tmp_path, capsys):
    """COCO's form of a file gives the scores that the same captions give in satlib's form."""
    rows = [{"image": f"{n}.jpg", "caption": [f"a dog runs {n}", "a dog"], "split": "test"} for n in range(3)]
    (tmp_path / "captions.json").write_text(json.dumps(rows))
    for n in range(3):
        (tmp_path / f"{n}.jpg").write_bytes(b"never opened")
    said = {f"{n}.jpg": f"a dog runs {n % 2}" for n in range(3)}
    forms = {"ours": said, "coco": [{"image_id": int(name[0]), "caption": text} for name, text in said.items()]}
    found = {}
    for form, content in forms.items():
        (tmp_path / f"{form}.json").write_text(json.dumps(content))
        command = [
            "evaluate",
            tmp_path / f"{form}.json",
            "--data-set",
            tmp_path,
            "--split",
            "test",
            "--out",
            tmp_path / form,
        ]
        assert cli.main([str(word) for word in command]) == 0
        found[form] = json.loads((tmp_path / form / "evaluation-test.json").read_text())
    assert found["coco"] == found["ours"]
    assert found["coco"]["captions"] == said
    capsys.readouterr()
    command[1] = tmp_path / "bad.json"
    for content, says in (
        ([{"image": 1, "caption": "a"}], "is not an evaluation of satlib"),
        ([{"image_id": 1.5, "caption": "a"}], "[0].image_id must be"),
        ([{"image_id": 1}], "[0].caption is missing"),
        (3, "COCO's results format"),
        (forms["coco"][:2], "1 images have no caption, the first is 2.jpg"),
        ([], "there is no caption to score"),
    ):
        (tmp_path / "bad.json").write_text(json.dumps(content))
        assert cli.main([str(word) for word in command]) == 2
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1
