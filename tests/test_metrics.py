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
    columns, _ = statistics.measure(hypotheses, references)
    return statistics.whole(columns)


def bleus(hypothesis, references):
    """The BLEU of a single caption."""
    return metrics.bleu({0: hypothesis}, {0: references})


def test_unigrams_are_clipped():
    references = ["the cat is on the mat", "there is a cat on the mat"]
    values = bleus("the the the the the the the", references)
    # The example of the BLEU paper: "the" occurs at most twice in one reference, so 2 of 7 count.
    assert values["BLEU-1"] == pytest.approx(100 * 2 / 7)


def test_brevity_penalty_by_hand():
    values = bleus("a b c d", ["a b c d e f"])
    # Precisions 4/4, 3/3, 2/2, 1/1; 4 words against 6: exp(1 - 6/4).
    for n in range(1, 5):
        assert values[f"BLEU-{n}"] == pytest.approx(100 * math.exp(-0.5))
        assert values[f"BLEU-{n} (no brevity penalty)"] == pytest.approx(100)


# Few words, so that captions and references share n-grams.
sentences = st.lists(st.sampled_from("abcd"), min_size=4, max_size=9).map(" ".join)
images = st.tuples(sentences, st.lists(sentences, min_size=1, max_size=4))


@given(st.lists(images, min_size=1, max_size=5))
def test_bleu_and_cider_equal_pycocoevalcap(corpus):
    spoken = {i: line for i, (line, _) in enumerate(corpus)}
    references = {i: lines for i, (_, lines) in enumerate(corpus)}
    one_each = {i: [line] for i, line in spoken.items()}

    expected, _ = Bleu(4).compute_score(references, one_each, verbose=0)
    values = metrics.bleu(spoken, references)
    for n in range(1, 5):
        assert values[f"BLEU-{n}"] == pytest.approx(100 * expected[n - 1], rel=1e-12)

    _, expected = Cider().compute_score(references, one_each)
    words = {}
    for i, lines in references.items():
        words[i] = [line.split() for line in lines]
    cider = metrics.Cider(words)
    values = [cider.score(i, line.split()) for i, line in spoken.items()]
    assert values == pytest.approx(expected.tolist(), abs=1e-12)


@needs_java
def test_all_captions_are_split_and_scored_as_by_the_coco_tools(few_paraphrases):
    spoken = {}
    human = {}
    for key, hypothesis in HYPOTHESES.items():
        # In METEOR's files the bars separate captions.
        spoken[key] = [{"caption": hypothesis.replace("|||", " ")}]
        # A reference without a word is left out.
        human[key] = [{"caption": line} for line in REFERENCES[key] if line != "..."]
    tokenise = PTBTokenizer().tokenize
    human = tokenise(human)
    spoken = tokenise(spoken)

    found = scores(HYPOTHESES, REFERENCES)
    coco, _ = Bleu(4).compute_score(human, spoken, verbose=0)
    for n in range(1, 5):
        assert found[f"BLEU-{n}"] == pytest.approx(100 * coco[n - 1])
    rouge, _ = Rouge().compute_score(human, spoken)
    assert found["ROUGE-L"] == pytest.approx(100 * rouge)
    cider, _ = Cider().compute_score(human, spoken)
    assert found["CIDEr"] == pytest.approx(100 * cider)
    assert found["CIDEr"] > 1


def test_without_java_the_other_scores_are_given(monkeypatch, tmp_path):
    # An empty folder has no program.
    monkeypatch.setenv("PATH", str(tmp_path))
    columns, (note,) = statistics.measure(HYPOTHESES, REFERENCES)
    others = {"BLEU-4", "BLEU-1 (no brevity penalty)", "ROUGE-L", "CIDEr"}
    assert others <= statistics.whole(columns).keys()
    assert "METEOR is missing" in note


def test_a_java_that_fails_costs_its_own_score_only(tmp_path, monkeypatch):
    # It tells its version, and then fails.
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && exit 0\necho "Out of memory" >&2; exit 3\n')
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SatlibError, match="METEOR is missing: Out of memory"):
        metrics.meteor_statistics({"a": "a dog"}, {"a": ["a dog"]})


def test_an_empty_caption_counts_in_the_mean():
    spoken = {"a": "a dog runs fast", "b": "two red cats sleep"}
    references = {key: [line] for key, line in spoken.items()}
    # Captions that are their own references; CIDEr is ten times a cosine, and printed as percent.
    perfect = scores(spoken, references)
    assert perfect["ROUGE-L"] == pytest.approx(100)
    assert perfect["CIDEr"] == pytest.approx(1000)

    # BLEU's brevity penalty is of all words together: 4 of 8.
    with_empty = scores(spoken | {"b": ""}, references)
    assert with_empty["ROUGE-L"] == pytest.approx(50)
    assert with_empty["BLEU-1"] == pytest.approx(100 * math.exp(1 - 8 / 4))


def test_characters_of_scripts_without_spaces_are_words():
    captions = {"a": "穿nike的人。"}
    spoken, human = metrics.split_words(captions, {"a": ["หมา"]})
    assert spoken == {"a": "穿 nike 的 人"}
    assert human == {"a": ["ห ม า"]}

    # METEOR's stems and paraphrases are English.
    _, notes = statistics.measure(captions, {"a": ["人"]})
    assert "METEOR is missing: it is for English" in notes


def test_an_image_without_words_to_compare_is_named():
    with pytest.raises(SatlibError, match="no reference of a has a word"):
        statistics.measure({"a": "x"}, {"a": ["...", ""]})
