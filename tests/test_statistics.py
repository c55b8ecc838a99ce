"""Statistics of images give the scores of the tools, for all images and for some; new metrics."""

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
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, metrics, statistics, table
from satlib.model import installed

needs_java = pytest.mark.needs_java
WORDS = [
    "a", "man", "dog", "runs", "jumps", "in", "the",
    "grass", "water", "red", "blue", "two", "boys", "ball",
]  # fmt: skip


def corpus(images=60, seed=0):
    """Captions like random references, some of them equal to one, one of them empty."""
    random = np.random.default_rng(seed)
    spoken = {}
    human = {}
    for number in range(images):
        lines = []
        for _ in range(random.integers(1, 6)):
            words = random.choice(WORDS, random.integers(3, 12))
            lines.append(" ".join(words))
        human[f"{number}.jpg"] = lines

        if number % 5 == 0:
            spoken[f"{number}.jpg"] = lines[-1]
        else:
            words = lines[0].split()
            changed = [*words[: number % 7], "dog", *words[3:]]
            spoken[f"{number}.jpg"] = " ".join(changed)
    spoken["1.jpg"] = ""
    return spoken, human


@needs_java
@pytest.mark.parametrize("some", [False, True])
def test_scores_are_those_of_the_tools(few_paraphrases, tmp_path, some):
    """On all images and on half of them.

    CIDEr's n-gram weights are those of the whole set: there, only the whole is compared.
    """
    spoken, human = corpus()
    columns, _ = statistics.measure(spoken, human)
    # Stored and restored, as in a file: with three decimals.
    stored = statistics.stored(columns, list(spoken))
    whole = statistics.Statistics.restored(stored)

    # How often each image counts: once, or only the odd ones.
    counts = np.ones((1, len(whole.images)))
    if some:
        numbers = [int(image.split(".")[0]) for image in whole.images]
        counts[0] = np.array(numbers) % 2
    found = {}
    for name, (score,) in statistics.scores(whole, counts).items():
        found[name] = score

    ids = [image for image, count in zip(whole.images, counts[0], strict=True) if count]
    part = {image: [spoken[image]] for image in ids}
    references = {image: human[image] for image in ids}
    coco, _ = Bleu(4).compute_score(references, part, verbose=0)
    for n in range(1, 5):
        assert found[f"BLEU-{n}"] == pytest.approx(100 * coco[n - 1])

    rouge, _ = Rouge().compute_score(references, part)
    assert found["ROUGE-L"] == pytest.approx(100 * rouge, abs=1e-3)
    meteor = meteor_by_the_program(spoken, references, tmp_path)
    assert found["METEOR"] == pytest.approx(meteor, abs=1e-9)
    if not some:
        cider, _ = Cider().compute_score(references, part)
        assert found["CIDEr"] == pytest.approx(100 * cider, abs=1e-3)


def meteor_by_the_program(spoken, human, folder):
    """The program's own final score, without its statistics."""
    # It wants the same number of references for each caption; a repeated one changes nothing.
    most = max(map(len, human.values()))
    padded = []
    for lines in human.values():
        repeated = [lines[-1]] * most
        padded += [*lines, *repeated][:most]
    captions = [spoken[key] for key in human]
    (folder / "h").write_text("".join(f"{line}\n" for line in captions))
    (folder / "r").write_text("".join(f"{line}\n" for line in padded))

    command = ["java", "-Xmx2G", *metrics._LOCALE, "-jar", str(metrics._METEOR_JAR)]
    command += ["h", "r", "-r", str(most)]
    command += ["-l", "en", "-norm", "-a", str(metrics._PARAPHRASES)]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    score = re.search(r"^Final score:\s+(\S+)$", done.stdout, re.M)[1]
    return 100 * float(score)


def test_the_stored_results_have_their_scores_in_their_statistics():
    for path in installed.evaluations():
        evaluation = json.loads(path.read_text())
        of_images = statistics.Statistics.restored(evaluation["statistics"])
        assert set(of_images.images) == set(evaluation["captions"])

        # Every image counts once.
        once = np.ones((1, len(of_images.images)))
        found = statistics.scores(of_images, once)
        assert {"BLEU-4", "METEOR", "CIDEr", "ROUGE-L"} <= found.keys()
        for name, (value,) in found.items():
            expected = evaluation["metrics"][name]
            assert value == pytest.approx(expected, abs=1e-3), (path, name)


def test_statistics_with_gaps_and_ratios_by_hand():
    """The mean is over the images that have the value; a share is over words, not images.

    True or false is percent.
    """
    columns = {
        "map movement": [0.25, None, 0.75],
        "exact match": [1.0, 0.0, 1.0],
        "named words": [4.0, 0.0, 1.0],
        "peak": [1.0, 0.0, 1.0],
        "CIDEr": [1.23456, 2.0, 3.0],
    }
    stored = statistics.stored(columns, ["c", "b", "a"])
    assert stored["images"] == {
        "c": [0.25, 1, 4, 1, 1.235],
        "b": [None, 0, 0, 0, 2],
        "a": [0.75, 1, 1, 1, 3],
    }

    # Two samples: how often they have a, b and c.
    counts = np.array([[1.0, 1, 1], [2, 0, 1]])
    restored = statistics.Statistics.restored(stored)
    found = statistics.scores(restored, counts)
    # b has no movement.
    movement = [0.5, (2 * 0.75 + 0.25) / 3]
    assert found["map movement"] == pytest.approx(movement)
    assert found["exact match"] == pytest.approx([200 / 3, 100])
    # Of five named words two are hit, of six three.
    assert found["peak"] == pytest.approx([100 * 2 / 5, 100 * 3 / 6])


def test_every_process_draws_the_same_resamples():
    """So that models evaluated on different days can still be compared in pairs."""
    first = statistics.resamples(5)
    # Within a process, the cache would hide a draw without a seed.
    statistics.resamples.cache_clear()
    assert np.array_equal(statistics.resamples(5), first)


def test_differences_are_paired():
    """A constant difference has no interval, however much the images differ.

    Unpaired, it would be lost in their spread.
    """
    images = tuple(map(str, range(200)))

    def with_cider(values):
        return statistics.Statistics(("CIDEr",), images, values[:, None])

    values = np.random.default_rng(2).normal(50, 20, 200)
    a = with_cider(values + 1)
    b = with_cider(values)
    difference = statistics.differences(a, b)["CIDEr"]
    assert difference == pytest.approx((1.0, 1.0, 1.0))

    # The same values, of other images.
    shuffled = np.random.default_rng(3).permutation(values)
    c = with_cider(shuffled)
    _, low, high = statistics.differences(c, b)["CIDEr"]
    assert low < 0 < high


PAGE = Path(__file__).parent.parent / "docs" / "contributing.md"
# One equal to its reference, one shorter, one empty, and one without a bigram.
SPOKEN = [
    "a dog runs",
    "a dog runs fast",
    "two red cats",
    "",
    "a cat sleeps in the sun",
    "dog",
]
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
    text = PAGE.read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Add a metric\n")
    _, _, rest = section.partition("```python\n")
    code, _, _ = rest.partition("```")
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
    file = tmp_path / "captions.json"
    file.write_text(json.dumps(captions))

    run = tmp_path / "run"
    command = ["evaluate", str(file), "--data-set", str(photos)]
    command += ["--split", "test", "--out", str(run)]
    assert cli.main(command) == 0
    evaluation = json.loads((run / "evaluation-test.json").read_text())
    return evaluation, capsys.readouterr().out


def ngrams(words, n):
    starts = range(len(words) - n + 1)
    return Counter(tuple(words[start : start + n]) for start in starts)


def smoothed_bleu(caption, reference):
    """BLEU-4 of one caption by its definition; from n = 2 on, all counts are one higher."""
    spoken = caption.split()
    human = reference.split()
    if not spoken:
        return 0.0
    precisions = []
    for n in (1, 2, 3, 4):
        ours = ngrams(spoken, n)
        # An n-gram matches at most as often as the reference has it.
        matches = ours & ngrams(human, n)
        more = 0 if n == 1 else 1
        precision = (matches.total() + more) / (ours.total() + more)
        precisions.append(precision)
    penalty = min(1.0, math.exp(1 - len(human) / len(spoken)))
    return 100 * penalty * math.prod(precisions) ** 0.25


def test_metrics_are_added_in_one_place(evaluated, tmp_path, capsys):
    """`satlib evaluate` has both metrics of the page, and `satlib table` a column of each."""
    evaluation, printed = evaluated
    scores = evaluation["metrics"]
    bleu = scores["sentence BLEU"]
    distinct = scores["Distinct-2"]
    assert bleu == pytest.approx(fmean(map(smoothed_bleu, SPOKEN, HUMAN)))
    # Of 2 + 3 + 2 + 0 + 5 + 0 bigrams, "a dog" and "dog runs" are there twice.
    assert distinct == pytest.approx(100 * 10 / 12)
    for name in ("sentence BLEU", "Distinct-2"):
        assert f"  {name:28} {scores[name]:6.2f}\n" in printed
    assert "no metric knows" not in printed

    assert cli.main(["table", str(tmp_path / "run")]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["S-BLEU", "Distinct-2"]
    # Each score with half the width of its interval.
    (ours,) = (line for line in lines if "satlib: run" in line)
    assert re.search(rf" {bleu:.1f}±\d+\.\d +{distinct:.1f}±\d+\.\d$", ours)


def test_a_score_that_is_no_sum_has_the_interval_of_a_plain_bootstrap(evaluated):
    """Against captions drawn one by one. As the page says, one drawn twice brings no new bigram."""
    evaluation, _ = evaluated
    scores = evaluation["metrics"]
    kept = statistics.Statistics.restored(evaluation["statistics"], evaluation["captions"])
    intervals = statistics.intervals(kept)

    random = np.random.default_rng(1)
    values = []
    for _ in range(4000):
        bigrams = []
        for caption in random.choice(SPOKEN, len(SPOKEN)):
            bigrams += pairwise(caption.split())
        distinct = len(set(bigrams))
        values.append(100 * distinct / max(len(bigrams), 1))

    expected = np.percentile(values, (2.5, 97.5))
    assert intervals["Distinct-2"] == pytest.approx(expected, abs=2)
    # So the samples score less than the whole.
    assert np.mean(values) < scores["Distinct-2"] - 5

    low, high = intervals["sentence BLEU"]
    assert low < scores["sentence BLEU"] < high


@pytest.mark.usefixtures("metrics_of_the_page")
def test_a_column_that_no_metric_names_is_noticed(tmp_path, monkeypatch, capsys):
    """The likeliest mistakes: its metric is forgotten, or names another column than it measures."""
    columns = {"CIDEr": [1.0, 2.0], "sentence BLEU": [3.0, 4.0]}
    assert statistics.unknown(columns) == []
    *others, sentence_bleu, _ = statistics.METRICS
    misspelt = replace(sentence_bleu, columns=("sentence-BLEU",))
    examples = (
        Example("a", "test", ("a dog",)),
        Example("b", "test", ("cat",)),
    )
    data = CaptionSet("own", examples)
    for known in (others, [*others, misspelt]):
        monkeypatch.setattr(statistics, "METRICS", known)
        (note,) = statistics.unknown(columns)
        assert "'sentence BLEU'" in note

        # The evaluation says so, and so does the table of it.
        evaluation = evaluate.score({"a": "dog", "b": "cat"}, data, "test", columns)
        assert note in evaluation["notes"]
        path = evaluate.save(evaluation, tmp_path)
        rows = table.rows([path])
        assert note in table.render(rows)


def test_every_column_of_the_stored_results_has_a_metric():
    for path in installed.evaluations():
        evaluation = json.loads(path.read_text())
        columns = evaluation["statistics"]["columns"]
        assert statistics.unknown(columns) == []


def test_two_metrics_may_not_measure_one_column(monkeypatch):
    """BLEU has a column "words" already: another one would silently change BLEU."""

    def measure(captions, references):
        return {"words": [0.0 for _ in captions]}

    theirs = statistics.Metric.mean("words", measure=measure)
    monkeypatch.setattr(statistics, "METRICS", [*statistics.METRICS, theirs])
    with pytest.raises(SatlibError, match="'words'"):
        statistics.measure({"1": "a dog"}, {"1": ["a dog"]})


@pytest.mark.parametrize("words", [1, 3])
def test_what_has_nothing_to_count_is_left_out_with_a_reason(monkeypatch, words):
    """References of so many words, none of them an object: no BLEU of more, and nothing invented."""
    monkeypatch.setattr(metrics, "java_available", lambda: False)
    examples = []
    for letter in "abcd":
        text = " ".join(["echo", letter * 3, "noise"][:words])
        examples.append(Example(letter, "test", (text,)))
    texts = {example.image_id: example.references[0] for example in examples}
    texts["a"] = "echo bbb noise echo bbb"
    movements = {"map entropy": [1.0] * 4, "map movement": [None] * 4}
    found = evaluate.score(texts, CaptionSet("radar", tuple(examples)), "test", movements)

    notes = "\n".join(found["notes"])
    for n in range(1, 5):
        for name in (f"BLEU-{n}", f"BLEU-{n} (no brevity penalty)"):
            assert (name in found["metrics"]) == (n <= words)
        assert (f"BLEU-{n} is missing: no reference has {n} words" in notes) == (n > words)
    assert "captions that invent" not in found["metrics"]
    assert "invented objects are missing" in notes
    assert "map movement" not in found["metrics"]
    assert "map movement is missing" in notes
    # With a single word all references are the same, so no n-gram has a weight.
    assert ("CIDEr" in found["metrics"]) == (words > 1)
    assert ("CIDEr is missing" in notes) == (words == 1)

    # What is left is as it would be among the others.
    references = {example.image_id: example.references for example in examples}
    assert found["metrics"]["BLEU-1"] == metrics.bleu(texts, references)["BLEU-1"]
    # The table and its intervals compute from what is stored.
    stored = statistics.Statistics.restored(found["statistics"])
    assert statistics.intervals(stored).keys() == found["metrics"].keys()
