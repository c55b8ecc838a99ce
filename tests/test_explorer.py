"""The explorer without a browser: readings against the captioner's own captions, and controls that redraw."""

import importlib
import io
import math
import sys

import pytest
import tiny
import torch
from PIL import Image
from tiny import decided

from satcourse.widgets import explorer
from satcourse.widgets.explorer import annotate, read
from satlib.errors import SatlibError

PHOTOS = [tiny.draw(example) for example in tiny.data().examples[:5]]


class TestRead:
    @pytest.mark.parametrize("attention", ["soft", "hard", "none"])
    def test_left_alone_it_is_the_greedy_caption(self, attention):
        captioner = decided(attention)
        for photo in PHOTOS:
            caption, reading = captioner.caption([photo], beam=1)[0], read(captioner, annotate(captioner, photo))
            assert reading.words == caption.words
            assert reading.forced == 0
            assert torch.equal(reading.alphas, caption.alphas)
            assert torch.equal(reading.betas, caption.betas)
            assert math.fsum(map(math.log, reading.probabilities)) == pytest.approx(caption.log_probability, abs=1e-4)

    def test_temperature(self):
        captioner = decided()
        a = annotate(captioner, PHOTOS[0])
        assert read(captioner, a, temperature=1e-9).alphas.flatten(1).max(1).values.eq(1).all()
        even = read(captioner, a, temperature=1e6).alphas
        torch.testing.assert_close(even, torch.full_like(even, 1 / 4), atol=1e-3, rtol=0)
        with pytest.raises(SatlibError, match="must be above 0"):
            read(captioner, a, temperature=0)

    @pytest.mark.parametrize("index", [0, 1, 3])
    def test_a_word_that_is_given_keeps_those_before_it(self, index):
        captioner = decided()
        a = annotate(captioner, PHOTOS[1])
        alone = read(captioner, a)
        word = next(other for other in captioner.vocabulary.words[2:] if other != alone.words[index])
        forced = read(captioner, a, [*alone.words[:index], word])
        assert forced.words[: index + 1] == [*alone.words[:index], word]
        assert forced.forced == index + 1
        assert torch.equal(forced.alphas[: index + 1], alone.alphas[: index + 1])  # it looks before it speaks
        assert forced.alternatives[index] == alone.alternatives[index]
        assert forced.probabilities[:index] == alone.probabilities[:index]
        assert forced.probabilities[index] < alone.probabilities[index]
        # The look before word t + 1 is decided by h_t, which has read the words up to t - 1.
        assert torch.equal(forced.alphas[index + 1], alone.alphas[index + 1])
        assert not torch.equal(forced.alphas[index + 2], alone.alphas[index + 2])

    def test_the_end_may_be_given(self):
        captioner = decided()
        reading = read(captioner, annotate(captioner, PHOTOS[0]), ["a", "red", "(end)"])
        assert reading.words == ["a", "red"]
        assert reading.labels == ["a", "red", "(end)"]
        assert len(reading.alphas) == len(reading.alternatives) == len(reading.probabilities) == reading.forced == 3

    def test_alternatives(self):
        captioner = decided()
        reading = read(captioner, annotate(captioner, PHOTOS[3]), alternatives=4)
        assert len(reading.words) == captioner.recipe.decoding.max_length  # so that the end had to come
        for t, (label, p) in enumerate(zip(reading.labels, reading.probabilities, strict=True)):
            alternatives = reading.alternatives[t]
            assert (alternatives[0] == (label, p)) == (t < len(reading.words))
            assert [each[1] for each in alternatives] == sorted((each[1] for each in alternatives), reverse=True)
            assert len({each[0] for each in alternatives}) == 4
            assert "<unknown>" not in dict(alternatives)

    def test_a_word_that_it_never_learnt(self):
        captioner = decided()
        with pytest.raises(SatlibError, match="'zebra' is not in the model's vocabulary; give one of its 10 words"):
            read(captioner, annotate(captioner, PHOTOS[0]), ["a", "zebra"])


class TestExplorer:
    @pytest.fixture
    def made(self):
        pytest.importorskip("ipywidgets", reason="ipywidgets comes with the extra `course`")
        captioners = {"soft": decided(), "hard": decided("hard", seed=6)}
        return explorer.Explorer(captioners, {"one": PHOTOS[0], "other": PHOTOS[1]})

    def test_a_notebook_shows_its_controls(self, made, monkeypatch):
        shown = []
        monkeypatch.setattr("IPython.display.display", shown.append)
        made._ipython_display_()
        assert shown == [made.box]

    def test_it_shows_what_the_model_says(self, made):
        assert made.reading.words == decided().caption([PHOTOS[0]], beam=1)[0].words
        assert [label.rstrip("\u200b") for label, _ in made.word.options] == made.reading.labels
        assert len(dict(made.word.options)) == len(made.reading.labels) > len(set(made.reading.labels))
        with Image.open(io.BytesIO(made.image.value)) as image:
            assert image.format == "PNG"
            assert image.width == 1296  # two pixels per point

    @pytest.mark.parametrize(
        ("control", "value"), [("temperature", 0.1), ("word", 2), ("model", "hard"), ("picture", "other")]
    )
    def test_each_control_redraws(self, made, control, value):
        before = made.image.value
        getattr(made, control).value = value
        assert made.image.value != before
        assert getattr(made, control).value == value
        expected = read(
            decided("hard", seed=6) if control == "model" else decided(),
            annotate(decided(), PHOTOS[1 if control == "picture" else 0]),
            temperature=0.1 if control == "temperature" else 1.0,
        )
        assert made.reading.words == expected.words
        assert torch.equal(made.reading.alphas, expected.alphas)

    def test_a_word_is_said_and_taken_back(self, made):
        alone, before = made.reading.words, made.image.value
        made.word.value = 1
        word = made.reading.alternatives[1][2][0]
        assert made.alternatives[2].description.startswith(word)
        made.alternatives[2].click()
        assert made.reading.words[:2] == [alone[0], word]
        assert made.reading.forced == 2
        assert made.word.value == 1
        made.temperature.value = 0.5
        assert made.reading.words[:2] == [alone[0], word]  # what was said stays said
        made.word.value = 0
        made.alone.click()
        made.temperature.value = 1
        assert made.reading.words == alone
        assert made.image.value == before

    def test_a_word_is_typed(self, made):
        made.word.value = 2
        made.instead.value = "blue"
        assert made.reading.words[2] == "blue"
        assert made.instead.value == ""
        assert made.note.value == ""
        shown = made.image.value
        made.instead.value = "<b>zebra"
        assert "s vocabulary; give one of" in made.note.value
        assert "<b>" not in made.note.value
        assert made.reading.words[2] == "blue"
        assert made.image.value == shown
        made.word.value = 1
        assert made.note.value == ""


def test_what_the_explorer_needs(monkeypatch):
    with pytest.raises(SatlibError, match="at least one captioner"):
        explorer.Explorer({}, {"one": PHOTOS[0]})
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # as if it were not installed
    importlib.reload(explorer)
    with pytest.raises(SatlibError, match="needs ipywidgets"):
        explorer.Explorer({"soft": decided()}, {"one": PHOTOS[0]})
