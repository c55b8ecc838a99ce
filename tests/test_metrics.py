import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from satlib.errors import SatlibError
from satlib.evaluation import metrics

# Different numbers of references, a line break, a tab, METEOR's own separator, an accent, a caption of punctuation alone.
HYPOTHESES = {
    "dog": "A brown dog runs\nthrough the grass.",
    "girl": "a girl in a pink dress ||| climbs some stairs",
    "café": "two men sit outside a café",
    "silent": "...",
}
REFERENCES = {
    "girl": ["A child in a pink dress is climbing up a set of stairs .", "A little girl climbing\tthe stairs (again)"],
    "dog": ["The brown dog is running.", "a dog's run through tall grass", "Dog runs in the grass!", "a puppy plays"],
    "café": ["Two men are sitting at a café's table"],
    "silent": ["a man on a bicycle", "somebody cycles"],
}

needs_java = pytest.mark.needs_java


@pytest.fixture(scope="module")
def measured(few_paraphrases, tmp_path_factory) -> metrics.Scores:
    """Where the path of the installation has a space."""
    spaced = tmp_path_factory.mktemp("meteor") / "a folder"
    spaced.mkdir()  # with copies: of a link Java would see where it leads to
    with pytest.MonkeyPatch.context() as patch:
        for name in ("METEOR_JAR", "_METEOR_PARAPHRASES"):
            patch.setattr(metrics, name, Path(shutil.copy(getattr(metrics, name), spaced)))
        return metrics.score(HYPOTHESES, REFERENCES)


@pytest.fixture
def without_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def fake_java(folder: Path, monkeypatch, script: str) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")


def bleus(hypotheses: list[str], references: list[list[str]]) -> dict[str, float]:
    return metrics.bleu({i: [line] for i, line in enumerate(hypotheses)}, dict(enumerate(references)))


def test_unigrams_are_clipped():
    # The example of the BLEU paper: "the" occurs at most twice in one reference, so 2 of 7 count.
    values = bleus(["the the the the the the the"], [["the cat is on the mat", "there is a cat on the mat"]])
    assert values["BLEU-1"] == pytest.approx(100 * 2 / 7)


def test_brevity_penalty_by_hand():
    # Precisions 4/4, 3/3, 2/2, 1/1; 4 words against 6: exp(1 - 6/4).
    values = bleus(["a b c d"], [["a b c d e f"]])
    for n in range(1, 5):
        assert values[f"BLEU-{n}"] == pytest.approx(100 * math.exp(-0.5))
        assert values[f"BLEU-{n} (no brevity penalty)"] == pytest.approx(100)


lines = st.lists(st.sampled_from("abcd"), min_size=4, max_size=9).map(" ".join)


@pytest.mark.filterwarnings("ignore:\\s+The hypothesis contains 0 counts:UserWarning")
@given(st.lists(st.tuples(lines, st.lists(lines, min_size=1, max_size=4)), min_size=1, max_size=5))
def test_bleu_equals_nltk_and_pycocoevalcap(corpus):
    hypotheses, references = [line for line, _ in corpus], [lines for _, lines in corpus]
    values = bleus(hypotheses, references)
    coco, _ = Bleu(4).compute_score(dict(enumerate(references)), {i: [h] for i, h in enumerate(hypotheses)}, verbose=0)
    for n in range(1, 5):
        split = [[line.split() for line in lines] for lines in references], [line.split() for line in hypotheses]
        expected = 100 * corpus_bleu(*split, weights=(1 / n,) * n)
        assert values[f"BLEU-{n}"] == 100 * coco[n - 1]
        # No n-gram in common: 0 in nltk, the n-th root of about 1e-15 in the COCO tools.
        assert values[f"BLEU-{n}"] == pytest.approx(expected, rel=1e-6, abs=0.02 if expected < 1e-9 else 1e-6)
        assert values[f"BLEU-{n}"] <= values[f"BLEU-{n} (no brevity penalty)"] + 1e-9


def test_accents_stay_and_half_characters_go():
    assert metrics.split_words(["A dog's cafe\u0301.", "\ud83d\u2028x"])[0] == ["a dog 's café", "x"]


@needs_java
def test_bleu_rouge_cider_equal_pycocoevalcap(measured):
    tokenise = PTBTokenizer().tokenize
    human = tokenise({key: [{"caption": line} for line in REFERENCES[key]] for key in HYPOTHESES})
    spoken = tokenise({key: [{"caption": line.replace("|||", " ")}] for key, line in HYPOTHESES.items()})
    assert measured.protocol == metrics.PTB
    coco, _ = Bleu(4).compute_score(human, spoken, verbose=0)
    assert [measured.values[f"BLEU-{n}"] for n in range(1, 5)] == pytest.approx([100 * value for value in coco])
    assert measured.values["ROUGE-L"] == pytest.approx(100 * Rouge().compute_score(human, spoken)[0])
    assert measured.values["CIDEr"] == pytest.approx(100 * Cider().compute_score(human, spoken)[0])
    assert measured.values["CIDEr"] > 1


@needs_java
def test_meteor_equals_the_jar_called_by_hand(measured):
    """The jar over its pipes, one caption after the other, as the COCO tools call it; no reference is repeated."""
    jar = [shutil.which("java"), "-Xmx2G", *metrics.LOCALE, "-jar", str(metrics.METEOR_JAR)]
    spoken = dict(zip(HYPOTHESES, metrics.split_words(list(HYPOTHESES.values()))[0], strict=True))
    human = {key: metrics.split_words(references)[0] for key, references in REFERENCES.items()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "encoding": "utf-8"}
    paraphrases = ["-a", str(metrics._METEOR_PARAPHRASES)]  # its own default, which it does not find below a space
    with subprocess.Popen([*jar, "-", "-", "-stdio", "-l", "en", "-norm", *paraphrases], **pipes) as process:
        statistics = []
        for key, line in spoken.items():
            print("SCORE", *human[key], line, sep=" ||| ", file=process.stdin, flush=True)
            statistics.append(process.stdout.readline().strip())
        output, _ = process.communicate(" ||| ".join(["EVAL", *statistics]) + "\n", timeout=240)
    *segments, final = (float(line) for line in output.split())
    assert len(segments) == len(HYPOTHESES)
    assert measured.values["METEOR"] == pytest.approx(100 * final, abs=1e-10)
    assert 20 < measured.values["METEOR"] < 60


@needs_java
@pytest.mark.usefixtures("few_paraphrases")
def test_meteor_of_each_caption_by_hand():
    """Every word agrees: P = R = 1; c chunks of m words cost 0.6 (c/m)^0.2, and one chunk nothing. "the cat", "chases", "the dog"."""
    said = {"same": ["the dog chases the cat"], "swapped": ["the cat chases the dog"], "other": ["two men sit"]}
    found = metrics.meteor_of_each(said, {key: ["the dog chases the cat"] for key in said})
    assert found["same"] == pytest.approx(100)
    assert found["swapped"] == pytest.approx(100 * (1 - 0.6 * (3 / 5) ** 0.2), abs=1e-3)
    assert found["other"] == 0


def test_meteor_of_each_caption_without_java(without_java):
    with pytest.raises(SatlibError, match="METEOR cannot be started"):
        metrics.meteor_of_each({"a": ["a dog"]}, {"a": ["a dog"]})


def test_without_java_the_other_figures_are_given_and_said_how_to_get_the_rest(without_java, capfd):
    scores = metrics.score(HYPOTHESES, REFERENCES)
    assert not metrics.java_available()
    assert scores.protocol == metrics.PTB
    assert "METEOR" not in scores.values
    assert {"BLEU-4", "BLEU-1 (no brevity penalty)", "ROUGE-L", "CIDEr"} <= scores.values.keys()
    (note,) = scores.notes
    assert "METEOR" in note
    assert "openjdk" in note
    assert "\n" not in note
    assert capfd.readouterr() == ("", "")


@needs_java
def test_without_java_the_other_figures_are_the_same(measured, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    without = metrics.score(HYPOTHESES, REFERENCES)
    assert "METEOR" in measured.values
    assert without.values == {name: value for name, value in measured.values.items() if name != "METEOR"}
    assert without.protocol == measured.protocol


@given(st.text(max_size=30))
@settings(max_examples=40)
def test_any_text_is_measured(caption):
    spoken = metrics.split_words([caption, "a dog"])[0]
    assert len(spoken) == 2
    values = metrics.bleu({0: [spoken[0]], 1: [spoken[1]]}, {0: ["a dog"], 1: ["a dog"]})
    assert all(0 <= value <= 100 + 1e-9 for value in values.values())


def test_an_empty_caption_counts_in_the_mean(without_java):
    said = {"a": "a dog runs fast", "b": "two red cats sleep"}
    references = {key: [line] for key, line in said.items()}
    assert metrics.score(said, references).values["ROUGE-L"] == pytest.approx(100)
    assert metrics.score(said, references).values["CIDEr"] == pytest.approx(1000)
    assert metrics.score(said | {"b": ""}, references).values["ROUGE-L"] == pytest.approx(50)
    assert metrics.score(said | {"b": ""}, references).values["BLEU-1"] == pytest.approx(100 * math.exp(1 - 8 / 4))


def test_a_single_image(without_java):
    scores = metrics.score({"a": "a dog runs here"}, {"a": ["a dog runs here"]})
    assert scores.values["BLEU-4"] == pytest.approx(100)
    assert scores.values["CIDEr"] == 0
    assert any("CIDEr" in note for note in scores.notes)


@pytest.mark.parametrize(
    ("hypotheses", "references", "said"),
    [
        ({}, {}, "no caption to score"),
        ({"a": "x"}, {"a": ["x"], "b": ["y"], "c": ["z"]}, "2 images have no caption, the first is b"),
        ({"a": "x", "b": "y"}, {"a": ["x"]}, "1 images have no reference, the first is b"),
        ({"a": "x"}, {"a": []}, "references of a "),
        ({"a": "x"}, {"a": "one string"}, "references of a "),
        ({"a": "x"}, {"a": ["...", ""]}, "no reference of a has a word"),
    ],
)
def test_bad_input_is_named(without_java, hypotheses, references, said):
    with pytest.raises(SatlibError, match=said) as raised:
        metrics.score(hypotheses, references)
    assert "\n" not in str(raised.value)


HANGS = '[ "$1" = -version ] && exit 0\n(echo begun; exec sleep 9999) >{pipe} &\nwait'


def test_a_java_that_hangs_is_stopped_with_all_it_started(tmp_path, monkeypatch):
    """What it started holds a pipe open, which ends when the last of them is gone."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    fake_java(tmp_path, monkeypatch, HANGS.format(pipe=tmp_path / "pipe"))
    # On a busy machine it may be stopped before it has begun: then it gets more time.
    for timeout in (0.5, 2, 8, 32):
        scores = metrics.score(HYPOTHESES, REFERENCES, timeout=timeout)
        assert "METEOR" not in scores.values
        assert f"after {timeout} seconds" in scores.notes[0]
        if said := os.read(pipe, 9):
            break
    assert said == b"begun\n"
    os.set_blocking(pipe, True)
    assert os.read(pipe, 9) == b""  # would wait for hours for one that is still there
    os.close(pipe)


def test_a_java_that_hangs_is_stopped_on_windows_too(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "killpg")
    fake_java(tmp_path, monkeypatch, '[ "$1" = -version ] && exit 0\nexec sleep 9999')
    assert "after 0.5 seconds" in metrics.score(HYPOTHESES, REFERENCES, timeout=0.5).notes[0]


def test_a_java_that_fails_costs_its_own_figure_only(tmp_path, monkeypatch):
    fake_java(tmp_path, monkeypatch, '[ "$1" = -version ] && exit 0\necho "Out of memory" >&2; exit 3')
    scores = metrics.score(HYPOTHESES, REFERENCES)
    assert scores.protocol == metrics.PTB
    assert "METEOR" not in scores.values
    assert scores.values["BLEU-1"] > 10
    assert scores.notes == ("METEOR is missing: it ended with status 3 (Out of memory); the other scores are complete",)
    assert metrics.score(HYPOTHESES, REFERENCES, meteor=False).notes == ()


def test_a_java_that_only_says_what_to_install_is_none(tmp_path, monkeypatch):
    fake_java(tmp_path, monkeypatch, "echo 'The operation could not be completed' >&2; exit 1")
    assert not metrics.java_available()


def test_spice_where_its_files_are(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(metrics, "_SPICE", tmp_path)
    assert not metrics._spice_installed()
    for name in metrics._SPICE_MODELS:
        (tmp_path / "lib" / name).touch()
    answer = '[{"scores": {"All": {"f": 0.5}}}, {"scores": {"All": {"f": 0.25}}}]'
    fake_java(
        tmp_path,
        monkeypatch,
        f"case \"$*\" in *spice*) echo '{answer}' >scores.json ;; esac",
    )
    scores = metrics.score({"a": "a dog", "b": "a cat"}, {"a": ["a dog"], "b": ["a cat"]})
    assert scores.values["SPICE"] == pytest.approx(37.5)
