"""The table of results: the paper's rows and ours, with the right figures in the right columns."""

import json

import numpy as np
import pytest

from satlib import recipe
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, table
from satlib.model import shipped

SCORES = {"BLEU-4": 20.06, "BLEU-1 (no brevity penalty)": 67.08, "BLEU-4 (no brevity penalty)": 22.16, "METEOR": 19.304,
          "CIDEr": 53.25}  # fmt: skip


def write(root, run="flickr8k-soft", **changes):
    """An evaluation of 200 images with normally distributed CIDEr."""
    values = np.random.default_rng(0).normal(0, 10, 200) + changes.get("metrics", SCORES).get("CIDEr", 50)
    rows = {f"{number}.jpg": [round(value, 3)] for number, value in enumerate(values)}
    evaluation = {
        "recipe": recipe.load("flickr8k-soft").to_dict(), "data": "flickr8k", "split": "test", "metrics": SCORES,
        "captions": {"a.jpg": "a dog"}, "statistics": {"columns": ["CIDEr"], "images": rows},
    } | changes  # fmt: skip
    path = root / run / f"evaluation-{evaluation['split']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(evaluation))
    return path


def test_published_figures_are_as_printed():
    rows = table.rows([])
    assert [row.data for row in rows] == ["Flickr8k"] * 4 + ["Flickr30k"] * 4 + ["COCO"] * 7
    assert sum(len(row.figures) for row in rows) == 3 + 3 * 5 + 4 + 3 * 5 + 2 * 1 + 2 * 4 + 3 * 5
    assert dict(rows[3].figures) == {"BLEU-1": 67, "BLEU-2": 45.7, "BLEU-3": 31.4, "BLEU-4": 21.3, "METEOR": 20.30}
    assert "satlib:" not in table.render(rows)


def test_ours_stand_below_the_published_rows_of_their_data_set(tmp_path):
    paths = [
        write(tmp_path),
        write(tmp_path, "dev", split="dev"),
        write(tmp_path, "x", data="own", metrics={"peak": 64.7}),
    ]
    rows = table.rows(paths)
    assert [(row.data, row.name) for row in rows if row.ours] == [("Flickr8k", "flickr8k-soft"), ("own", "x")]
    assert [row.name for row in rows[:5]][-2:] == ["Hard-Attention", "flickr8k-soft"]
    assert rows[4].figures == {"BLEU-1": 67.08, "BLEU-4": 22.16, "METEOR": 19.304, "COCO BLEU-4": 20.06, "CIDEr": 53.25}
    assert [row.name for row in table.rows(paths, "dev") if row.ours] == ["dev"]


def test_the_figures_for_boxes_are_those_of_true_captions(tmp_path):
    path = write(tmp_path)
    (path.parent / "ground-test.json").write_text(
        json.dumps({"true": {"all": {"words": 3, "mass": 39.7, "peak": 44.2}}})
    )
    (row,) = (row for row in table.rows([path]) if row.ours)
    assert (row.figures["mass"], row.figures["peak"]) == (39.7, 44.2)


@pytest.mark.parametrize("markdown", [False, True])
def test_the_table_is_laid_out(tmp_path, markdown):
    rows = table.rows([write(tmp_path, "a|b")])
    heading, _, *lines = table.render(rows, markdown).splitlines()
    columns = heading.strip("|").replace("COCO ", "").split("|" if markdown else None)
    assert [column.strip() for column in columns][:3] == ["Data", "Model", "BLEU-1"]
    assert "exact match" not in heading
    (ours,) = (line for line in lines if "satlib: " in line)
    assert "67.1" in ours
    assert "19.30" in ours
    assert len(table.render(rows, markdown, with_intervals=False)) < len(table.render(rows, markdown))


def test_intervals_and_differences(tmp_path):
    """The images' spread of 10 gives 1.96 * 10 / sqrt(200) = 1.39; the rows differ by the same in every image."""
    paths = [write(tmp_path), write(tmp_path, "flickr8k-none", metrics=SCORES | {"CIDEr": 50.25})]
    rows = table.rows(paths)
    half = [row.half_widths["CIDEr"] for row in rows if row.ours]
    assert half == pytest.approx([1.39, 1.39], abs=0.15)
    ((data, name, soft, *cells),) = table.compare(rows)
    assert (data, name, soft, cells[3]) == ("Flickr8k", "flickr8k-none", "flickr8k-soft", "-3.0 (-3.0 to -3.0)")
    assert "flickr8k-none  flickr8k-soft" in table.render(rows)


def test_the_stored_results_are_a_table():
    rows = table.rows(shipped.evaluations())
    figures = {row.name: row.figures for row in rows if row.ours}
    assert [round(figures[name]["peak"]) for name in ("scenes-soft", "scenes-hard", "flickr8k-lite0-boxes")] == [
        92,
        94,
        69,
    ]
    assert {"flickr8k-lite0-none", "scenes-hard"} <= {line[1] for line in table.compare(rows)}


@pytest.mark.parametrize(
    ("content", "named"), [('{"recipe": "x", "da', "evaluation-test.json"), ("{}", "is not an evaluation")]
)
def test_a_bad_file_is_named(tmp_path, content, named):
    path = tmp_path / "evaluation-test.json"
    path.write_text(content)
    with pytest.raises(SatlibError, match=named):
        evaluate.read(path)
