"""The scrubber without a browser: its light is the caption's, and a forced place changes the word as a decoder by hand says."""

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from satcourse.widgets import still
from satcourse.widgets.reading import annotate
from satcourse.widgets.scrubber import Scrubber
from satlib.data import scenes
from satlib.data.text import END, UNKNOWN
from satlib.errors import SatlibError
from satlib.evaluation import overlay
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.model.decoder import State

WORDS = ("a", "red", "circle", "square", "on", "the", "left", "<b>")
PHOTOS = {f"photo {i}": tiny.draw(example) for i, example in enumerate(tiny.data().examples[:3])}


@pytest.fixture
def captioner():
    return tiny.decided(words=WORDS)


@pytest.fixture
def made(captioner):
    pytest.importorskip("ipywidgets", reason="ipywidgets comes with the extra `course`")
    return Scrubber(captioner, PHOTOS)


def pixels(scrubber):
    with Image.open(io.BytesIO(scrubber.image.value)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def words_in(scrubber):
    return re.findall(r">([^<]+)</span>", scrubber.sentence.value)


def framed(scrubber):
    """The cells with a frame; ipywidgets 7 has one trait for the four borders."""
    borders = [getattr(cell.layout, "border_top", None) or cell.layout.border for cell in scrubber.cells]
    return [number for number, border in enumerate(borders) if "solid" in border]


@torch.inference_mode()
def by_hand(captioner, photo, places):
    """Greedy decoding with all attention of some words on one place, written out step by step."""
    a = annotate(captioner, photo)[None]
    decoder = captioner.decoder
    annotations, state, word, said = decoder.project(a), decoder.initial_state(a), -1, []
    for t in range(captioner.recipe.decoding.max_length):
        embedded = decoder.embed(torch.tensor([word]))
        z = decoder.attention(a, annotations.keys, state.h, None).z
        if t in places:
            row, column = places[t]
            z = a[:, captioner.encoder.grid[1] * row + column]
        z = torch.sigmoid(decoder.gate(state.h)) * z
        gates = decoder.gates_word(embedded) + decoder.gates_state(state.h) + decoder.gates_context(z)
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        state = State(o.sigmoid() * c.tanh(), c)
        logits = decoder.logits(embedded, state.h, z)[0]
        logits[UNKNOWN] = -torch.inf
        word = int(logits.argmax())
        if word == END:
            break
        said.append(captioner.vocabulary.words[word])
    return said


class TestTheLight:
    def test_it_says_and_shows_what_the_captioner_does(self, made, captioner):
        for name, photo in PHOTOS.items():
            made.picture.value = name
            caption = captioner.caption([photo], beam=1)[0]
            assert made.reading.words == caption.words
            assert made.word.max == len(caption.alphas) - 1
            for index in range(len(caption.alphas)):
                made.word.value = index
                expected = overlay.lit(photo, caption.alphas[index : index + 1], 406)[0]
                np.testing.assert_array_equal(pixels(made), expected)

    def test_words_are_text_and_no_html(self, made):
        assert "<b>" in made.reading.words or any("<b>" in dict(step) for step in made.reading.alternatives)
        made.reading.words[0] = "<b>"
        made.word.value = 1
        assert words_in(made)[0] == "&lt;b&gt;"


class TestForcedPlaces:
    def test_a_click_puts_all_attention_on_that_place(self, made):
        made.word.value = 1
        own = made.own
        for number in range(4):
            made.cells[number].click()
            assert made.places == {1: divmod(number, 2)}
            expected = torch.zeros(4)
            expected[number] = 1
            assert torch.equal(made.reading.alphas[1].flatten(), expected)
            assert torch.equal(made.reading.alphas[0], own.alphas[0])
            assert made.reading.words[0] == own.words[0]
            assert framed(made) == [number]
            np.testing.assert_array_equal(
                pixels(made), overlay.lit(PHOTOS["photo 0"], made.reading.alphas[1:2], 406)[0]
            )
            made.word.value = 0
            assert framed(made) == []
            made.word.value = 1

    def test_a_second_click_and_the_button_release(self, made):
        own = made.own.words
        before = made.image.value
        made.cells[3].click()
        made.cells[3].click()
        assert made.places == {}
        assert made.reading.words == own
        assert made.image.value == before
        made.cells[2].click()
        made.word.value = 1
        made.cells[1].click()
        assert made.places == {0: (1, 0), 1: (0, 1)}
        assert not made.release.disabled
        made.release.click()
        made.word.value = 0
        assert (made.places, made.reading.words, made.image.value) == ({}, own, before)
        assert made.release.disabled

    def test_the_words_that_a_decoder_by_hand_says(self):
        pytest.importorskip("ipywidgets")
        model, scene = Captioner.load(shipped.model("scenes-soft")), scenes.scene("test-000003")
        scrubber = Scrubber(model, {"scene": scene.photo()})
        assert by_hand(model, scene.photo(), {}) == scrubber.own.words
        changed = 0
        for index, place in ((3, (11, 11)), (4, (11, 11)), (3, (0, 0)), (2, (13, 2))):
            scrubber.word.value = index
            scrubber.cells[14 * place[0] + place[1]].click()
            expected = by_hand(model, scene.photo(), {index: place})
            assert scrubber.reading.words == expected
            changed += expected[index] != scrubber.own.words[index]
            assert scrubber.sentence.value.count("box-shadow") == 1
            scrubber.release.click()
        assert changed >= 2


class TestForcedWords:
    def test_a_word_is_pressed_and_taken_back(self, made):
        own, before = made.own.words, made.image.value
        made.word.value = 1
        word = next(word for word, _ in made.reading.alternatives[1] if word != own[1])
        button = next(button for button in made.alternatives if button.description == word)
        button.click()
        assert made.reading.words[:2] == [own[0], word]
        assert torch.equal(made.reading.alphas[:2], made.own.alphas[:2])  # it looks before it speaks
        assert made.word.value == 1
        assert made.sentence.value.count("box-shadow") == 1
        made.cells[2].click()
        assert made.reading.words[:2] == [own[0], word]  # what was said stays said
        assert made.reading.alphas[1].flatten().argmax() == 2
        made.release.click()
        made.word.value = 0
        assert (made.said, made.reading.words, made.image.value) == ([], own, before)

    def test_a_word_is_typed(self, made):
        made.word.value = 1
        made.instead.value = "square"
        assert made.reading.words[1] == "square"
        assert made.instead.value == ""
        shown = made.image.value
        made.instead.value = "<b>zebra"
        assert "s vocabulary; give one of" in made.note.value
        assert "<b>" not in made.note.value
        assert (made.reading.words[1], made.image.value) == ("square", shown)
        made.word.value = 0
        assert "vocabulary" not in made.note.value


def test_what_it_needs(captioner, monkeypatch):
    with pytest.raises(SatlibError, match="at least one picture"):
        Scrubber(captioner, {})
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # as if it were not installed
    with pytest.raises(SatlibError, match="needs ipywidgets"):
        Scrubber(captioner, PHOTOS)


@pytest.mark.parametrize("stored", [True, False])
def test_a_notebook_that_is_stored_shows_a_line_and_all_steps_in_its_place(made, monkeypatch, stored):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *things: shown.extend(things))
    monkeypatch.setenv(still.ENVIRONMENT, "1") if stored else monkeypatch.delenv(still.ENVIRONMENT, raising=False)
    made._ipython_display_()
    if stored:
        line, figure = shown
        assert "Run All Cells" in line.data
        titles = [axis.get_title() for axis in figure.axes]
        assert titles[1 : 1 + len(made.reading.labels)] == made.reading.labels
    else:
        assert shown == [made.box]


def test_notebook_00_is_stored_without_widgets():
    text = (Path(__file__).parent.parent / "notebooks" / "00_look.ipynb").read_text(encoding="utf-8")
    assert "widget-view" not in text
    assert text.count("here is a slider along the sentence") == 2
