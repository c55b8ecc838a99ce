"""The statistics of images give the scores of the tools, for all images and for some, and intervals that cover the truth."""

import json
import re
import subprocess

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from satlib.evaluation import metrics, statistics
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
    columns, _ = metrics.measure(spoken, human)
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
