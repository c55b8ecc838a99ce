import json
from pathlib import Path

import numpy as np
import pytest

from satlib import recipe
from satlib.data import scenes
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, metrics, statistics, table
from satlib.model import shipped
from satlib.model.captioner import Captioner

SCORES = {
    "BLEU-1": 64.04, "BLEU-2": 45.0, "BLEU-3": 31.0, "BLEU-4": 20.06,
    "BLEU-1 (no brevity penalty)": 67.08, "BLEU-2 (no brevity penalty)": 46.0, "BLEU-3 (no brevity penalty)": 32.0,
    "BLEU-4 (no brevity penalty)": 22.16, "METEOR": 19.304, "ROUGE-L": 47.77, "CIDEr": 53.25,
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal of 100 columns, wherever the tests run: the table leaves out columns in a narrower one."""
    monkeypatch.setenv("COLUMNS", "100")


def write(root: Path, run: str = "flickr8k-soft", name: str = "test", **changes) -> Path:
    evaluation = {
        "recipe": "flickr8k-soft", "data": "flickr8k", "split": "test", "encoder": "vgg19", "attention": "soft", "beam": 5,
        "metrics": SCORES, "protocol": metrics.PTB, "images": 1000, "captions": {"a.jpg": "a dog"},
    } | changes  # fmt: skip
    path = root / run / f"evaluation-{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(evaluation))
    return path


def line_of(text: str, part: str) -> str:
    (line,) = [line for line in text.splitlines() if part in line]
    return line


def test_ours_stands_below_the_published_rows_of_its_data_set(tmp_path):
    rows = table.rows([write(tmp_path)])
    flickr8k = [row.model for row in rows if row.data == "Flickr8k"]
    assert flickr8k[-2:] == ["Hard-Attention", "satlib: flickr8k-soft, vgg19, soft, beam 5"]
    assert [row.ours for row in rows if row.data == "Flickr8k"] == [False] * 4 + [True]
    assert [row.data for row in rows] == ["Flickr8k"] * 5 + ["Flickr30k"] * 4 + ["COCO"] * 7


def test_each_figure_stands_in_its_column(tmp_path):
    above, below, *_ = table.render(table.rows([write(tmp_path)])).split("\n\n")
    expected = [
        {
            "BLEU-1": "67.1",
            "BLEU-2": "46.0",
            "BLEU-3": "32.0",
            "BLEU-4": "22.2",
            "METEOR": "19.30",
            "COCO BLEU-4": "20.1",
        },
        {"CIDEr": "53.2"},
    ]
    for text, figures in zip((above, below), expected, strict=True):
        heading, ours = text.splitlines()[0], line_of(text, "satlib: flickr8k-soft")
        for column, figure in figures.items():
            assert heading.index(column) + len(column) == ours.index(f" {figure}") + 1 + len(figure), column


def test_what_captions_invent_stands_in_a_table_of_its_own(tmp_path):
    with_inventions = {"invented objects": 12.3, "captions that invent": 20.1}
    rows = table.rows([write(tmp_path, metrics=SCORES | with_inventions), write(tmp_path, "without")])
    assert "invent" not in table.render(rows)
    lines = table.render(rows, inventions=True).splitlines()
    assert lines[0].split() == ["Model", "invented", "objects", "captions", "that", "invent"]
    assert [line.split()[-2:] for line in lines if "satlib: " in line] == [["12.3", "20.1"]]
    with pytest.raises(SatlibError, match="satlib evaluate FILE"):
        table.render(table.rows([write(tmp_path, "without")]), inventions=True)


def test_published_figures_are_as_printed():
    rows = table.rows([])
    assert sum(len(row.figures) for row in rows) == 3 + 3 * 5 + 4 + 3 * 5 + 2 * 1 + 2 * 4 + 3 * 5
    text = table.render(rows)
    assert text.splitlines()[5].split() == ["Hard-Attention", *["67", "45.7", "31.4", "21.3", "20.30", "-", "-"]]
    assert text.splitlines()[2].split()[-7:] == ["63", "41", "27", "-", "-", "-", "-"]
    assert line_of(text, "BRNN").split() == ["BRNN", "64.2", "45.1", "30.4", "20.3", "-", "-", "-"]
    assert "satlib:" not in text


def test_only_the_test_split_unless_asked(tmp_path):
    paths = [write(tmp_path), write(tmp_path, name="dev", split="dev")]
    assert sum(row.ours for row in table.rows(paths)) == 1
    both = [row.model for row in table.rows(paths, split=None) if row.ours]
    assert both == [
        "satlib: flickr8k-soft, vgg19, soft, beam 5",
        "satlib: flickr8k-soft, vgg19, soft, beam 5, dev split",
    ]
    assert [row.model for row in table.rows(paths, split="dev") if row.ours] == both[1:]


def test_other_data_sets_come_last_with_their_own_columns(tmp_path):
    scenes = write(
        tmp_path, "scenes-soft", data="scenes", recipe="scenes-soft", metrics={"exact match": 91.23, "pointing": 64.7}
    )
    rows = table.rows([scenes])
    assert rows[-1].data == "scenes"
    text = table.render(rows)
    below = text.split("\n\n")[1]
    assert below.splitlines()[0].split()[-3:] == ["exact", "match", "pointing"]
    assert line_of(below, "satlib: scenes-soft").split()[-3:] == ["-", "91.2", "64.7"]
    assert "Pointing: " in text
    assert "exact match" not in table.render(table.rows([]))
    assert "ointing" not in table.render(table.rows([]))


def test_two_runs_of_a_recipe_are_told_apart_by_folder(tmp_path):
    rows = table.rows([write(tmp_path, "first"), write(tmp_path, "second")])
    assert [row.model[-9:] for row in rows if row.ours] == ["5 [first]", " [second]"]


FROM = ["distilled from flickr8k-lite0-soft", "begun from flickr8k-hard", "weights averaged with 0.3 of flickr8k-hard"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"length_normalisation": 0.7}, "soft, beam 5, normalised 0.7"),
        ({"normaliser": "sparsemax"}, "soft, sparsemax, beam 5"),
        ({"boxes": 1.0}, "soft, attention supervised by boxes, beam 5"),
        ({"maximised": "reward"}, "soft, trained on rewards, beam 5"),
        (
            {"maximised": "reward", "rewards": {"CIDEr-D": 2.0, "METEOR": 12.0}},
            "soft, trained on rewards (CIDEr-D, METEOR), beam 5",
        ),
        (  # what a model began from is said by its recipe; its teachers and what it was averaged with only by its origins
            {"maximised": "reward", "origins": FROM},
            "soft, distilled from flickr8k-lite0-soft, trained on rewards, weights averaged with 0.3 of flickr8k-hard, beam 5",
        ),
        (
            {"origins": [*FROM[1:], *["weights averaged with 0.5 of another flickr8k-soft"] * 2]},
            "soft, weights of 3 such models averaged, weights averaged with 0.3 of flickr8k-hard, beam 5",
        ),
    ],
)
def test_what_a_model_is_is_named(tmp_path, changes, named):
    (row,) = [row for row in table.rows([write(tmp_path, **changes)]) if row.ours]
    assert row.model == f"satlib: flickr8k-soft, vgg19, {named}"


def test_the_protocols_stand_below(tmp_path):
    paths = [write(tmp_path, "a"), write(tmp_path, "b", recipe="b", protocol=metrics.CHARACTERS)]
    text = table.render(table.rows(paths), "markdown").replace(r"\*", "*")
    said = "COCO tools, PTB tokenizer, lower case, no punctuation, on both sides (captions and references)."
    assert f'Protocol of the rows with "satlib": {said}' in text
    assert 'Protocol of the rows with "satlib*": satlib\'s tokeniser, characters' in text
    assert "beam 5*" in line_of(text, "satlib: b,")
    assert "*" not in line_of(text, "satlib: flickr8k-soft")
    assert "without brevity penalty" in text
    assert "satlib: b*  " in table.render(table.rows(paths[1:]))


def test_markdown_is_one_table(tmp_path):
    text = table.render(table.rows([write(tmp_path, recipe="a|b")]), style="markdown")
    lines = text.split("\n\n")[0].splitlines()
    assert {line.replace(r"\|", "").count("|") for line in lines} == {11}
    assert lines[1] == "| --- | --- |" + " ---: |" * 8
    assert r"satlib: a\|b, vgg19" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"recipe": "x", "da', "not valid JSON"),
        ('{"recipe": "x"}', r"\(data is missing\)"),
        (None, "does not exist"),
    ],
)
def test_a_bad_file_is_named_in_one_line(tmp_path, content, said):
    path = tmp_path / "evaluation-test.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SatlibError, match=said) as raised:
        table.rows([path])
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": {"METEOR": "19.3"}}, r"metrics\[\.\.\.\] must be a number, not text"),
        ({"metrics": {"METEOR": float("nan")}}, r"not valid JSON \(NaN, byte \d+, is not a number of JSON\)"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, changes, said):
    with pytest.raises(SatlibError, match=said):
        table.rows([write(tmp_path, **changes)])


def of_images(cider, images=200):
    """Statistics of images with normally distributed CIDEr."""
    values = np.random.default_rng(0).normal(0, 10, images) + cider
    return {"columns": ["CIDEr"], "images": {f"{i}.jpg": [round(value, 3)] for i, value in enumerate(values)}}


def test_intervals_and_differences(tmp_path):
    """The images' spread of 10 gives 1.96 * 10 / sqrt(200) = 1.39; the rows differ by the same in every image."""
    paths = [
        write(tmp_path, statistics=of_images(53.25)),
        write(tmp_path, "flickr8k-none", recipe="flickr8k-none", attention="none", statistics=of_images(50.25)),
    ]
    rows = table.rows(paths)
    half = [float(row.half_widths["CIDEr"]) for row in rows if row.ours]
    assert half == pytest.approx([1.39, 1.39], abs=0.15)
    text = table.render(rows)
    assert f"53.2±{half[0]}" in text
    assert line_of(text, "flickr8k-none  flickr8k-soft").split()[-4:] == ["-3.0", "(-3.0", "to", "-3.0)"]
    assert "±" not in table.render(rows, with_intervals=False)
    assert "compared with" not in table.render(rows, with_intervals=False)
    assert "compared with" not in table.render(table.rows([write(tmp_path, "plain")]))


@pytest.mark.parametrize("term", ["boxes"])
def test_an_evaluation_states_what_taught_the_attention(term):
    captioner, data = Captioner.load(shipped.model("scenes-soft")), scenes.load(1, 1, 1)
    assert term not in evaluate.settings(captioner, data, "test")
    values = captioner.recipe.to_dict()
    values["objective"][term] = 0.5
    captioner.recipe = recipe.from_dict(values)
    assert evaluate.settings(captioner, data, "test")[term] == 0.5


@pytest.mark.parametrize(
    "other",
    [{"normaliser": "entmax"}, {"boxes": 1.0}, {"maximised": "reward"}, {"decoder": "transformer"}],
)
def test_nothing_is_compared_with_soft_attention_of_another_kind(tmp_path, other):
    paths = [
        write(tmp_path, statistics=of_images(53.25), **other),
        write(tmp_path, "flickr8k-hard", recipe="flickr8k-hard", attention="hard", statistics=of_images(53.25)),
    ]
    assert {line[2] for line in table.compare(table.rows(paths))} == {"paper, Soft-Attention", "paper, Hard-Attention"}


def test_a_difference_within_its_interval_is_none_and_the_paper_is_compared(tmp_path):
    hard = of_images(53.25)
    shuffled = np.random.default_rng(1).permutation([value for (value,) in hard["images"].values()])
    hard["images"] = {image: [value] for image, value in zip(hard["images"], shuffled, strict=True)}
    paths = [
        write(tmp_path, statistics=of_images(53.25)),
        write(tmp_path, "flickr8k-hard", recipe="flickr8k-hard", attention="hard", statistics=hard),
    ]
    lines = table.compare(table.rows(paths))
    assert [line[1:3] for line in lines] == [
        ("flickr8k-soft", "paper, Soft-Attention"),
        ("flickr8k-hard", "flickr8k-soft"),
        ("flickr8k-hard", "paper, Hard-Attention"),
    ]
    assert lines[1][-1].startswith("none (-")
    paths[1] = write(tmp_path, "flickr8k-hard", recipe="flickr8k-hard", attention="hard", statistics=of_images(53.25))
    assert table.compare(table.rows(paths))[1][-1] == "none (+0.0 to +0.0)"  # the same captions
    assert lines[1][3] == "-"


@pytest.mark.parametrize(("printed", "said"), [("40", "above"), ("50.2", "within"), ("60", "below")])
def test_beside_the_paper(tmp_path, printed, said):
    (ours,) = (row for row in table.rows([write(tmp_path, statistics=of_images(50))]) if row.ours)
    assert table._beside(ours, table.TableRow("Flickr8k", "paper", {"CIDEr": printed})) == ["-", "-", "-", said]


def test_figures_for_boxes_stand_in_columns_of_their_own(tmp_path):
    path = write(tmp_path)
    assert "peak in box" not in table.render(table.rows([path]))
    measured = {"true": {"all": {"mass": 39.74, "peak": 44.16}}, "generated": {"all": {"peak": 50.0}}}
    (path.parent / "ground-test.json").write_text(json.dumps({"entities": measured}))
    (row,) = (row for row in table.rows([path]) if row.ours)
    assert [row.figures[column] for column in ("mass in boxes", "peak in box", "generated peak")] == [
        "39.7",
        "44.2",
        "50.0",
    ]
    assert "peak in box" in table.render(table.rows([path]))
    (path.parent / "ground-test.json").write_text(json.dumps({"entities": {"true": {}}}))
    with pytest.raises(SatlibError, match="create it again with `satlib ground --entities`"):
        table.rows([path])


def test_damaged_statistics_are_named(tmp_path):
    with pytest.raises(SatlibError, match="statistics"):
        table.rows([write(tmp_path, statistics={"columns": ["CIDEr"], "images": {"a.jpg": [1], "b.jpg": [1, 2]}})])


def changed_run(root: Path, change, run: str = "c", **settings) -> Path:
    """A run of flickr8k-lite0-soft with other captions, and with BLEU's statistics of those: number -> caption, None for its own."""
    (stored,) = (path for path in shipped.evaluations() if path.parent.name == "flickr8k-lite0-soft")
    evaluation = json.loads(stored.read_text())
    at = [evaluation["statistics"]["columns"].index(name) for name in (statistics.BLEU[0], *statistics.BLEU[2:])]
    for number, image in enumerate(evaluation["captions"]):
        caption = change(number)
        if caption is not None:
            evaluation["captions"][image] = caption
            words = len(caption.split())
            for column, count in zip(at, (words, words, 0, 0, 0), strict=True):
                evaluation["statistics"]["images"][image][column] = count
    of_images = statistics.Statistics.of(evaluation["statistics"])
    scores = statistics.scores(of_images, np.ones((1, len(of_images.images))))
    evaluation["metrics"] |= {name: float(score[0]) for name, score in scores.items()}
    return write(root, run, **evaluation | settings)


FEW = [
    path
    for path in shipped.evaluations()
    if path.parent.name in ("flickr8k-lite0-soft", "flickr8k-lite0-none", "flickr8k-soft")
]


def test_one_word_for_nearly_all_photographs_gets_no_verdict(tmp_path):
    """It says "a" for 918 of 1,000: 89 BLEU-1 without brevity penalty, far above the paper's 67."""
    path = changed_run(tmp_path, lambda number: "a" if number < 918 else None)
    rows = table.rows([*FEW, path])
    (ours,) = (row for row in rows if row.name == "c")
    assert float(ours.figures["BLEU-1"]) > 80
    assert float(ours.figures["length"]) < 0.3
    said = f'no verdict: the captions have {ours.figures["length"]} of the references\' words; 918 of 1,000 are "a"'
    text = table.render(rows).splitlines()
    assert text[text.index(next(line for line in text if line.startswith("satlib: c "))) + 1].strip() == said
    assert f"[c] ({said})" in table.render(rows, "markdown")
    assert ours.to_json()["remark"] in said
    soft, paper = (line for line in table.compare(rows) if line[1] == "c")
    assert paper[2:] == ("paper, Soft-Attention", *["no verdict"] * 4)
    assert soft[2:5] == ("flickr8k-lite0-soft", "no verdict", "no verdict")
    assert [line for line in table.compare(rows) if line[1] != "c"] == table.compare(table.rows(FEW))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda number: None, ""),
        (
            lambda number: "a man in a red shirt stands in the street" if number < 500 else None,
            '500 of 1,000 are "a man',
        ),
        (
            lambda number: f"number {number % 9} of the nine captions that it has",
            "1,000 images have 9 different captions",
        ),
        (lambda number: f"caption {number}", "the captions have 0."),
    ],
)
def test_what_gets_no_verdict(tmp_path, change, said):
    (row,) = (row for row in table.rows([changed_run(tmp_path, change)]) if row.ours)
    assert row.remark.startswith(said)
    assert bool(row.remark) == bool(said)


def test_a_run_takes_no_shipped_row_s_place(tmp_path):
    """Runs of the twins "own", of twins whose soft one says one word, and of a shipped recipe, two in folders of shipped names."""
    runs = [
        changed_run(tmp_path, lambda number: None, "a", recipe="own-soft"),
        changed_run(tmp_path, lambda number: None, "flickr8k-soft", recipe="own-hard", attention="hard"),
        changed_run(tmp_path, lambda number: None, "flickr8k-lite0-soft"),
        changed_run(tmp_path, lambda number: "a", "one-word", recipe="c-soft"),
        changed_run(tmp_path, lambda number: None, "b", recipe="c-hard", attention="hard"),
        changed_run(tmp_path, lambda number: None, "d", recipe="d-hard", attention="hard", encoder="own"),
        changed_run(tmp_path, lambda number: None, "e", recipe="e-soft", encoder="own"),
    ]
    stored = table.compare(table.rows(FEW))
    lines = table.compare(table.rows([*runs, *FEW]))
    assert [line for line in lines if line in stored] == stored
    here = tmp_path.name
    assert {line[1]: line[2] for line in lines if line not in stored and "paper" not in line[2]} == {
        "a": "flickr8k-lite0-soft",
        f"{here}/flickr8k-soft": "a",
        f"{here}/flickr8k-lite0-soft": "flickr8k-lite0-soft",
        "one-word": "flickr8k-lite0-soft",
        "b": "flickr8k-lite0-soft",
        "d": "flickr8k-soft",  # rather than with "e", which has its encoder
        "e": "flickr8k-soft",
    }


def test_a_transformer_is_compared_with_the_lstm(tmp_path):
    """With that of the recipe of the same name, or else with the main one; and nothing is compared with it."""
    recipes = {"a": "own-soft", "b": "own-transformer", "c": "x-soft", "d": "t"}
    runs = [
        changed_run(
            tmp_path, lambda number: None, run, recipe=name, **({"decoder": "transformer"} if run in "bd" else {})
        )
        for run, name in recipes.items()
    ]
    lines = table.compare(table.rows(runs))
    assert {line[1]: line[2] for line in lines if "paper" not in line[2]} == {"a": "c", "b": "a", "d": "c"}


@pytest.mark.parametrize(("columns", "extra"), [(80, []), (100, ["length", "METEOR"]), (200, ["length", "METEOR"])])
def test_it_fits_the_terminal_and_differences_have_the_names_of_rows(tmp_path, monkeypatch, columns, extra):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = table.rows([*shipped.evaluations(), changed_run(tmp_path, lambda number: "a")])
    text = table.render(rows)
    assert max(map(len, text.splitlines())) <= min(columns, 100)
    heading = ["Model", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", *extra]
    assert text.splitlines()[0].split() == heading
    compared = [line[1] for line in table.compare(rows)]
    assert "flickr8k-hard-distilled" in compared
    for name in compared:
        assert any(row.model.startswith(f"satlib: {name},") or row.model.endswith(f"[{name}]") for row in rows)
