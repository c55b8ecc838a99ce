"""How many captions with such a score are true."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

import satlib
from satlib.cli import main
from satlib.evaluation import how_sure
from satlib.evaluation.how_sure import Band

RESULTS = Path(satlib.__file__).parent / "results"


@pytest.fixture
def scenes_soft():
    return satlib.load("scenes-soft", "cpu")


def test_the_bands_are_counts_of_the_readers_verdicts():
    with open(RESULTS / "judged-captions.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "flickr8k-lite0-coco"]
    fitted = [row for row in rows if row["part"] == "fit"]
    assert len(fitted) >= 150
    assert len(rows) - len(fitted) >= 60

    stored = json.loads(how_sure.COUNTS.read_text(encoding="utf-8")).values()
    (bands,) = [model["bands"] for model in stored if model["model"] == "flickr8k-lite0-coco"]
    ends = [least for least, _, _ in bands[1:]] + [1.0]
    for (least, true, judged), end in zip(bands, ends, strict=True):
        inside = [row for row in fitted if least <= float(row["score"]) < end]
        both = [row for row in inside if row["first reader"] == row["second reader"] == "true"]
        assert (len(both), len(inside)) == (true, judged)


def test_shares_are_said_in_small_fractions():
    assert Band(0.0, 11, 50).in_words() == "about 1 of 5 such captions are true"
    assert Band(0.0, 37, 50).in_words() == "about 3 of 4 such captions are true"
    assert Band(0.0, 49, 50).in_words() == "nearly all such captions are true"
    assert Band(0.0, 1, 50).in_words() == "hardly any such captions are true"


def test_a_model_of_scenes_says_that_scenes_were_judged(tmp_path, capsys):
    photo = tmp_path / "photo.png"
    Image.new("RGB", (64, 64), "red").save(photo)
    table = tmp_path / "table.csv"
    main(["caption", str(photo), "--model", "scenes-soft", "--table", str(table)])
    assert "such captions of drawn scenes are true" in capsys.readouterr().out


def test_it_is_known_of_the_shipped_weights_alone(scenes_soft):
    bands = how_sure.bands_of(scenes_soft)
    assert len(bands) == 3
    assert how_sure.band_of(bands, 0.0) == bands[0]
    assert how_sure.band_of(bands, bands[1].least) == bands[1]
    assert how_sure.band_of(bands, 1.0) == bands[2]

    # Trained further, were it one number, it is another model.
    weight = next(scenes_soft.decoder.parameters())
    weight.data[0] += 1e-3
    assert how_sure.bands_of(scenes_soft) == []
    assert how_sure.band_of([], 1.0) is None
