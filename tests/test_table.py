"""The table of results: the paper's rows and ours, with the right figures in the right columns."""

import json

import numpy as np
import pytest

from satlib.evaluation import table
from satlib.model import installed

SCORES = {
    "BLEU-4": 20.06,
    "BLEU-1 (no brevity penalty)": 67.08,
    "METEOR": 19.304,
    "CIDEr": 53.25,
}


def write(root, run="flickr8k-soft", cider=53.25, **changes):
    """An evaluation of 200 images with normally distributed CIDEr."""
    values = np.random.default_rng(0).normal(0, 10, 200) + cider
    images = {f"{number}.jpg": [round(value, 3)] for number, value in enumerate(values)}
    statistics = {"columns": ["CIDEr"], "images": images}
    evaluation = {
        "data": "flickr8k",
        "split": "test",
        "metrics": SCORES,
        "statistics": statistics,
    } | changes
    path = root / run / f"evaluation-{evaluation['split']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(evaluation))
    return path


def test_published_figures_are_as_printed():
    # Table 1 of the paper.
    rows = table.rows([])
    data = [row.data for row in rows]
    assert data == ["Flickr8k"] * 4 + ["Flickr30k"] * 4 + ["COCO"] * 7

    # Most rows have all five scores, some models of others only a few.
    figures = sum(len(row.figures) for row in rows)
    assert figures == 3 + 3 * 5 + 4 + 3 * 5 + 2 * 1 + 2 * 4 + 3 * 5

    # Hard attention on Flickr8k.
    assert dict(rows[3].figures) == {
        "BLEU-1": 67,
        "BLEU-2": 45.7,
        "BLEU-3": 31.4,
        "BLEU-4": 21.3,
        "METEOR": 20.30,
    }


def test_ours_stand_below_the_published_rows_of_their_data_set(tmp_path):
    """The figures for boxes are those of true captions, from the file of `satlib ground`."""
    first = write(tmp_path)
    measured = {"true": {"all": {"words": 3, "mass": 39.7, "peak": 44.2}}}
    (first.parent / "ground-test.json").write_text(json.dumps(measured))
    paths = [
        first,
        write(tmp_path, "dev", split="dev"),
        write(tmp_path, "x", data="own", metrics={"peak": 64.7}),
    ]
    rows = table.rows(paths)
    ours = [(row.data, row.name) for row in rows if row.ours]
    assert ours == [("Flickr8k", "flickr8k-soft"), ("own", "x")]

    # After the last of the four published rows.
    last, first_of_ours = rows[3:5]
    assert last.name == "Hard-Attention"
    assert first_of_ours.name == "flickr8k-soft"
    # The paper's BLEU has no brevity penalty; that of COCO's tools has a column of its own.
    assert first_of_ours.figures == {
        "BLEU-1": 67.08,
        "METEOR": 19.304,
        "COCO BLEU-4": 20.06,
        "CIDEr": 53.25,
        "mass": 39.7,
        "peak": 44.2,
    }
    assert [row.name for row in table.rows(paths, "dev") if row.ours] == ["dev"]


def test_intervals_and_differences(tmp_path):
    """The images' spread of 10 gives 1.96 * 10 / sqrt(200) = 1.39.

    The rows differ by the same in every image.
    """
    soft = write(tmp_path)
    none = write(tmp_path, "flickr8k-none", cider=50.25)
    rows = table.rows([soft, none])
    intervals = [row.intervals["CIDEr"] for row in rows if row.ours]
    widths = [(high - low) / 2 for low, high in intervals]
    assert widths == pytest.approx([1.39, 1.39], abs=0.15)

    # Whatever the spread, a constant difference is certain.
    ((data, name, compared_with, *cells),) = table.compare(rows)
    assert data == "Flickr8k"
    assert name == "flickr8k-none"
    assert compared_with == "flickr8k-soft"
    assert cells[3] == "-3.0 (-3.0 to -3.0)"
    assert "flickr8k-none  flickr8k-soft" in table.render(rows)


def test_a_note_on_an_evaluation_stands_below_the_table(tmp_path):
    path = write(tmp_path, notes=["trained by hand"])
    assert "flickr8k-soft: trained by hand" in table.render(table.rows([path])).splitlines()


def test_the_stored_results_are_a_table():
    rows = table.rows(installed.evaluations())
    peaks = {}
    for row in rows:
        if row.ours and "peak" in row.figures:
            peaks[row.name] = round(row.figures["peak"])
    assert peaks["scenes-soft"] == 95
    assert peaks["scenes-hard"] == 94
    assert peaks["flickr8k-lite0-boxes"] == 69

    compared = {line[1] for line in table.compare(rows)}
    assert {"flickr8k-lite0-none", "scenes-hard"} <= compared
