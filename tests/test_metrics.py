"""Scores of captions: by hand, and against pycocoevalcap."""

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from satlib.errors import SatlibError
from satlib.evaluation import metrics, statistics

# Different numbers of references, a line break, a tab, METEOR's own separator, an accent, a caption
# of punctuation alone.
HYPOTHESES = {
    "dog": "A brown dog runs\nthrough the grass.",
    "girl": "a girl in a pink dress ||| climbs some stairs",
    "café": "two men sit outside a café",
    "silent": "...",
}
REFERENCES = {
    "girl": [
        "A child in a pink dress is climbing up a set of stairs .",
        "A little girl climbing\tthe stairs (again)",
    ],
    "dog": [
        "The brown dog is running.",
        "a dog's run through tall grass",
        "Dog runs in the grass!",
        "a puppy plays",
    ],
    "café": ["Two men are sitting at a café's table"],
    "silent": ["a man on a bicycle", "somebody cycles", "..."],
}

needs_java = pytest.mark.needs_java


def scores(hypotheses, references):
    return statistics.whole(statistics.measure(hypotheses, references)[0])


def bleus(hypotheses, references):
    return metrics.bleu(dict(enumerate(hypotheses)), dict(enumerate(references)))


def test_unigrams_are_clipped():
    # The example of the BLEU paper: "the" occurs at most twice in one reference, so 2 of 7 count.
    values = bleus(
        ["the the the the the the the"], [["the cat is on the mat", "there is a cat on the mat"]]
    )
    assert values["BLEU-1"] == pytest.approx(100 * 2 / 7)


def test_brevity_penalty_by_hand():
    # Precisions 4/4, 3/3, 2/2, 1/1; 4 words against 6: exp(1 - 6/4).
    values = bleus(["a b c d"], [["a b c d e f"]])
    for n in range(1, 5):
        assert values[f"BLEU-{n}"] == pytest.approx(100 * math.exp(-0.5))
        assert values[f"BLEU-{n} (no brevity penalty)"] == pytest.approx(100)


lines = st.lists(st.sampled_from("abcd"), min_size=4, max_size=9).map(" ".join)


@given(st.lists(st.tuples(lines, st.lists(lines, min_size=1, max_size=4)), min_size=1, max_size=5))
def test_bleu_and_cider_equal_pycocoevalcap(corpus):
    spoken = {i: line for i, (line, _) in enumerate(corpus)}
    references = {i: lines for i, (_, lines) in enumerate(corpus)}
    one_each = {i: [line] for i, line in spoken.items()}
    expected, _ = Bleu(4).compute_score(references, one_each, verbose=0)
    values = metrics.bleu(spoken, references)
    assert [values[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx(
        [100 * value for value in expected], rel=1e-12
    )
    _, expected = Cider().compute_score(references, one_each)
    words = {}
    for i, lines in references.items():
        words[i] = [line.split() for line in lines]
    cider = metrics.Cider(words)
    values = [cider.score(i, line.split()) for i, line in spoken.items()]
    assert values == pytest.approx(expected.tolist(), abs=1e-12)


@needs_java
def test_all_captions_are_split_and_scored_as_by_the_coco_tools(few_paraphrases):
    tokenise = PTBTokenizer().tokenize
    human = tokenise(
        {
            key: [{"caption": line} for line in REFERENCES[key] if line != "..."]
            for key in HYPOTHESES
        }
    )
    spoken = tokenise(
        {key: [{"caption": line.replace("|||", " ")}] for key, line in HYPOTHESES.items()}
    )
    found = scores(HYPOTHESES, REFERENCES)
    coco, _ = Bleu(4).compute_score(human, spoken, verbose=0)
    assert [found[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx(
        [100 * value for value in coco]
    )
    rouge, _ = Rouge().compute_score(human, spoken)
    assert found["ROUGE-L"] == pytest.approx(100 * rouge)
    cider, _ = Cider().compute_score(human, spoken)
    assert found["CIDEr"] == pytest.approx(100 * cider)
    assert found["CIDEr"] > 1


def test_without_java_the_other_scores_are_given(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    columns, (note,) = statistics.measure(HYPOTHESES, REFERENCES)
    assert {"BLEU-4", "BLEU-1 (no brevity penalty)", "ROUGE-L", "CIDEr"} <= statistics.whole(
        columns
    ).keys()
    assert "METEOR is missing" in note


def test_a_java_that_fails_costs_its_own_score_only(tmp_path, monkeypatch):
    (tmp_path / "java").write_text(
        '#!/bin/sh\n[ "$1" = -version ] && exit 0\necho "Out of memory" >&2; exit 3\n'
    )
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SatlibError, match="METEOR is missing: Out of memory"):
        metrics.meteor_statistics({"a": "a dog"}, {"a": ["a dog"]})


def test_an_empty_caption_counts_in_the_mean():
    spoken = {"a": "a dog runs fast", "b": "two red cats sleep"}
    references = {key: [line] for key, line in spoken.items()}
    assert scores(spoken, references)["ROUGE-L"] == pytest.approx(100)
    assert scores(spoken, references)["CIDEr"] == pytest.approx(1000)
    assert scores(spoken | {"b": ""}, references)["ROUGE-L"] == pytest.approx(50)
    assert scores(spoken | {"b": ""}, references)["BLEU-1"] == pytest.approx(
        100 * math.exp(1 - 8 / 4)
    )


def test_characters_of_scripts_without_spaces_are_words():
    captions = {"a": "穿nike的人。"}
    assert metrics.split_words(captions, {"a": ["หมา"]}) == (
        {"a": "穿 nike 的 人"},
        {"a": ["ห ม า"]},
    )
    assert "METEOR is missing: it is for English" in statistics.measure(captions, {"a": ["人"]})[1]


def test_an_image_without_words_to_compare_is_named():
    with pytest.raises(SatlibError, match="no reference of a has a word"):
        statistics.measure({"a": "x"}, {"a": ["...", ""]})
