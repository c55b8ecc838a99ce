"""The statistics of images give the scores of the tools, for all images and for some, and intervals that cover the truth."""

import json
import math
import re
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from PIL import Image
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from satlib import cli
from satlib.data.caption_set import CaptionSet, Example
from satlib.evaluation import evaluate, metrics, statistics, table
from satlib.model import installed

needs_java = pytest.mark.needs_java
WORDS = [
    "a",
    "man",
    "dog",
    "runs",
    "jumps",
    "in",
    "the",
    "grass",
    "water",
    "red",
    "blue",
    "two",
    "boys",
    "ball",
]


def corpus(images=60, seed=0):
    """Captions like random references, some of them equal to one, one of them empty."""
    random = np.random.default_rng(seed)
    spoken, human = {}, {}
    for number in range(images):
        lines = [
            " ".join(random.choice(WORDS, random.integers(3, 12)))
            for _ in range(random.integers(1, 6))
        ]
        words = lines[0].split()
        human[f"{number}.jpg"] = lines
        spoken[f"{number}.jpg"] = (
            lines[-1] if number % 5 == 0 else " ".join([*words[: number % 7], "dog", *words[3:]])
        )
    spoken["1.jpg"] = ""
    return spoken, human


@needs_java
@pytest.mark.parametrize("some", [False, True])
def test_scores_are_those_of_the_tools(few_paraphrases, tmp_path, some):
    """On all images and on half of them. CIDEr's n-gram weights are those of the whole set: there, only the whole is compared."""
    spoken, human = corpus()
    columns, _ = statistics.measure(spoken, human)
    whole = statistics.Statistics.restored(statistics.stored(columns, list(spoken)))
    chosen = np.array(
        [not some or int(image.split(".")[0]) % 2 for image in whole.images], dtype=float
    )
    found = {name: value[0] for name, value in statistics.scores(whole, chosen[None]).items()}
    ids = [image for image, taken in zip(whole.images, chosen, strict=True) if taken]
    part, references = {key: [spoken[key]] for key in ids}, {key: human[key] for key in ids}
    coco, _ = Bleu(4).compute_score(references, part, verbose=0)
    assert [found[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx(
        [100 * value for value in coco]
    )
    assert found["ROUGE-L"] == pytest.approx(
        100 * Rouge().compute_score(references, part)[0], abs=1e-3
    )
    assert found["METEOR"] == pytest.approx(
        meteor_by_the_program(spoken, references, tmp_path), abs=1e-9
    )
    if not some:
        assert found["CIDEr"] == pytest.approx(
            100 * Cider().compute_score(references, part)[0], abs=1e-3
        )


def meteor_by_the_program(spoken, human, folder):
    """The program's own final score, without its statistics."""
    most = max(map(len, human.values()))
    padded = [line for lines in human.values() for line in [*lines, *[lines[-1]] * most][:most]]
    (folder / "h").write_text("".join(f"{spoken[key]}\n" for key in human))
    (folder / "r").write_text("".join(f"{line}\n" for line in padded))
    command = [
        "java",
        "-Xmx2G",
        *metrics._LOCALE,
        "-jar",
        str(metrics._METEOR_JAR),
        "h",
        "r",
        "-r",
        str(most),
    ]
    command += ["-l", "en", "-norm", "-a", str(metrics._PARAPHRASES)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return 100 * float(re.search(r"^Final score:\s+(\S+)$", done.stdout, re.M)[1])


def test_the_stored_results_have_their_scores_in_their_statistics():
    for path in installed.evaluations():
        evaluation = json.loads(path.read_text())
        of_images = statistics.Statistics.restored(evaluation["statistics"])
        assert set(of_images.images) == set(evaluation["captions"])
        found = statistics.scores(of_images, np.ones((1, len(of_images.images))))
        assert {"BLEU-4", "METEOR", "CIDEr", "ROUGE-L"} <= found.keys()
        for name, value in found.items():
            assert value[0] == pytest.approx(evaluation["metrics"][name], abs=1e-3), (path, name)


def test_statistics_with_gaps_and_ratios_by_hand():
    """The mean is over the images that have the value; a share is over words, not images; true or false is percent."""
    columns = {"map movement": [0.25, None, 0.75], "exact match": [1.0, 0.0, 1.0], "named words": [4.0, 0.0, 1.0],
               "peak": [1.0, 0.0, 1.0], "CIDEr": [1.23456, 2.0, 3.0]}  # fmt: skip
    made = statistics.stored(columns, ["c", "b", "a"])
    assert made["images"] == {
        "c": [0.25, 1, 4, 1, 1.235],
        "b": [None, 0, 0, 0, 2],
        "a": [0.75, 1, 1, 1, 3],
    }
    found = statistics.scores(
        statistics.Statistics.restored(made), np.array([[1.0, 1, 1], [2, 0, 1]])
    )  # of a, b, c
    assert found["map movement"] == pytest.approx([0.5, (2 * 0.75 + 0.25) / 3])
    assert found["exact match"] == pytest.approx([200 / 3, 100])
    assert found["peak"] == pytest.approx([100 * 2 / 5, 100 * 3 / 6])


def test_differences_are_paired():
    """A constant difference has no interval, however much the images differ; unpaired, it would be lost in their spread."""
    values = np.random.default_rng(2).normal(50, 20, 200)
    images = tuple(map(str, range(200)))
    a, b = (
        statistics.Statistics(("CIDEr",), images, (values + more)[:, None]) for more in (1.0, 0.0)
    )
    assert statistics.differences(a, b)["CIDEr"] == pytest.approx((1.0, 1.0, 1.0))
    other = statistics.Statistics(
        ("CIDEr",), images, np.random.default_rng(3).permutation(values)[:, None]
    )
    _, low, high = statistics.differences(other, b)["CIDEr"]
    assert low < 0 < high


PAGE = Path(__file__).parent.parent / "docs" / "contributing.md"
SPOKEN = ["a dog runs", "a dog runs fast", "two red cats", "", "a cat sleeps in the sun", "dog"]
HUMAN = [
    "a dog runs far",
    "a dog runs fast",
    "two cats",
    "a man",
    "the cat sleeps in the sun",
    "dog",
]


@pytest.fixture
def metrics_of_the_page(monkeypatch):
    """The example of docs/contributing.md, run with a copy of the list that it adds to."""
    monkeypatch.setattr(statistics, "METRICS", list(statistics.METRICS))
    section = PAGE.read_text(encoding="utf-8").partition("\n## Add a metric\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "docs/contributing.md", "exec"), {})


@pytest.fixture
def evaluated(metrics_of_the_page, tmp_path, capsys):
    """`satlib evaluate` on captions of a folder: (its evaluation, what it printed)."""
    photos = tmp_path / "photos"
    photos.mkdir()
    rows = ["image,caption,split"]
    for number, caption in enumerate(HUMAN):
        Image.new("RGB", (8, 8)).save(photos / f"{number}.png")
        rows.append(f"{number}.png,{caption},test")
    (photos / "captions.csv").write_text("\n".join(rows))
    captions = {f"{number}.png": caption for number, caption in enumerate(SPOKEN)}
    (tmp_path / "captions.json").write_text(json.dumps(captions))

    command = ["evaluate", tmp_path / "captions.json", "--data-set", photos, "--split", "test"]
    assert cli.main([*map(str, command), "--out", str(tmp_path / "run")]) == 0
    evaluation = json.loads((tmp_path / "run" / "evaluation-test.json").read_text())
    return evaluation, capsys.readouterr().out


def smoothed_bleu(caption, reference):
    """BLEU-4 of one caption by its definition; from n = 2 on, all counts of n-grams are one higher."""
    spoken, human = caption.split(), reference.split()
    if not spoken:
        return 0.0
    precisions = []
    for n in (1, 2, 3, 4):
        ours = Counter(tuple(spoken[start : start + n]) for start in range(len(spoken) - n + 1))
        theirs = Counter(tuple(human[start : start + n]) for start in range(len(human) - n + 1))
        more = int(n > 1)
        precisions.append(((ours & theirs).total() + more) / (ours.total() + more))
    penalty = min(1.0, math.exp(1 - len(human) / len(spoken)))
    return 100 * penalty * math.prod(precisions) ** 0.25


def test_metrics_are_added_in_one_place(evaluated, tmp_path, capsys):
    """`satlib evaluate` scores by both metrics of the page, and `satlib table` has a column of each."""
    evaluation, printed = evaluated
    scores = evaluation["metrics"]
    assert scores["sentence BLEU"] == pytest.approx(fmean(map(smoothed_bleu, SPOKEN, HUMAN)))
    # Of 2 + 3 + 2 + 0 + 5 + 0 bigrams, "a dog" and "dog runs" are there twice.
    assert scores["Distinct-2"] == pytest.approx(100 * 10 / 12)
    for name in ("sentence BLEU", "Distinct-2"):
        assert f"  {name:28} {scores[name]:6.2f}\n" in printed
    assert "no metric knows" not in printed

    assert cli.main(["table", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    (ours,) = (line for line in lines if "satlib: run" in line)
    bleu, distinct = scores["sentence BLEU"], scores["Distinct-2"]
    assert lines[0].split()[-2:] == ["S-BLEU", "Distinct-2"]
    assert re.search(rf" {bleu:.1f}±\d+\.\d +{distinct:.1f}±\d+\.\d$", ours)


def test_a_score_that_is_no_sum_has_the_interval_of_a_plain_bootstrap(evaluated):
    """Against captions drawn one by one. As the page says, one drawn twice brings no new bigram."""
    evaluation, _ = evaluated
    kept = statistics.Statistics.restored(evaluation["statistics"], evaluation["captions"])
    intervals = statistics.intervals(kept)

    random = np.random.default_rng(1)
    values = []
    for _ in range(4000):
        bigrams = []
        for caption in random.choice(SPOKEN, len(SPOKEN)):
            bigrams += pairwise(caption.split())
        values.append(100 * len(set(bigrams)) / max(len(bigrams), 1))
    assert intervals["Distinct-2"] == pytest.approx(np.percentile(values, (2.5, 97.5)), abs=2)
    assert np.mean(values) < evaluation["metrics"]["Distinct-2"] - 5

    low, high = intervals["sentence BLEU"]
    assert low < evaluation["metrics"]["sentence BLEU"] < high


@pytest.mark.usefixtures("metrics_of_the_page")
def test_a_column_that_no_metric_names_is_noticed(tmp_path, monkeypatch, capsys):
    """The likeliest mistakes: its metric is forgotten, or names another column than it measures."""
    columns = {"CIDEr": [1.0, 2.0], "sentence BLEU": [3.0, 4.0]}
    assert statistics.unknown(columns) == []
    example = statistics.METRICS[-2]
    misspelt = replace(example, columns=("sentence-BLEU",))
    for known in (statistics.METRICS[:-2], [*statistics.METRICS[:-2], misspelt]):
        monkeypatch.setattr(statistics, "METRICS", known)
        (note,) = statistics.unknown(columns)
        assert "'sentence BLEU'" in note

        data = CaptionSet("own", (Example("a", "test", ("a dog",)), Example("b", "test", ("cat",))))
        evaluation = evaluate.score({"a": "dog", "b": "cat"}, data, "test", columns)
        assert note in evaluation["notes"]
        path = evaluate.save(evaluation, tmp_path)
        assert note in table.render(table.rows([path]))


def test_every_column_of_the_stored_results_has_a_metric():
    for path in installed.evaluations():
        assert statistics.unknown(json.loads(path.read_text())["statistics"]["columns"]) == []
