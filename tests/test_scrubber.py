"""The scrubber without a browser.

Its light is the caption's; a forced place or word changes the caption; stored, it is a picture.
"""

import io

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from satcourse.widgets import still, upload
from satcourse.widgets.scrubber import Scrubber
from satlib.evaluation import plots

WORDS = ("a", "red", "circle", "square", "on", "the", "left", "<b>")
PHOTOS = {f"photo {i}": tiny.draw(example) for i, example in enumerate(tiny.data().examples[:3])}


@pytest.fixture
def scrubber():
    return Scrubber(tiny.decided(words=WORDS), PHOTOS)


def test_it_says_and_shows_what_the_captioner_does(scrubber):
    captioner = tiny.decided(words=WORDS)
    for name, photo in PHOTOS.items():
        scrubber.picture.value = name
        (caption,) = captioner.caption([photo], beam=1)
        assert scrubber.reading.words == caption.words
        buttons = scrubber.sentence.children
        assert [button.description for button in buttons] == scrubber.reading.labels

        for index, button in enumerate(buttons):
            button.click()
            alpha = caption.alphas[index : index + 1]
            (lit,) = plots.lit(photo, alpha, 406)
            with Image.open(io.BytesIO(scrubber.image.value)) as image:
                np.testing.assert_array_equal(np.asarray(image), lit)


def test_a_click_puts_all_attention_on_a_place_and_a_second_click_releases_it(scrubber):
    scrubber.words[1].click()
    own = scrubber.own
    before = scrubber.image.value

    for number in range(4):
        scrubber.cells[number].click()
        # A grid of two by two.
        assert scrubber.places == {1: divmod(number, 2)}
        forced = scrubber.reading.alphas[1].flatten()
        assert torch.equal(forced, torch.eye(4)[number])
        # The word before it is left alone.
        assert torch.equal(scrubber.reading.alphas[0], own.alphas[0])
        assert scrubber.reading.words[0] == own.words[0]

    scrubber.cells[3].click()
    assert scrubber.places == {}
    assert scrubber.reading.words == own.words
    assert scrubber.image.value == before


def test_a_word_is_pressed_typed_and_taken_back(scrubber):
    own = scrubber.own.words
    scrubber.words[1].click()

    # Pressed: the likeliest word but the model's own.
    word = next(word for word, _ in scrubber.reading.alternatives[1] if word != own[1])
    button = next(button for button in scrubber.alternatives if button.description == word)
    button.click()
    assert scrubber.reading.words[:2] == [own[0], word]
    # It looks before it speaks.
    looks = scrubber.own.alphas[:2]
    assert torch.equal(scrubber.reading.alphas[:2], looks)

    # Typed: a word of the vocabulary, then another, which must not be read as HTML.
    scrubber.instead.value = "square"
    assert scrubber.reading.words[1] == "square"
    scrubber.instead.value = "<b>zebra"
    assert "vocabulary" in scrubber.note.value
    assert "<b>" not in scrubber.note.value

    scrubber.release.click()
    assert scrubber.said == []
    assert scrubber.reading.words == own


def test_a_notebook_that_is_stored_shows_a_line_and_all_steps_in_its_place(scrubber, monkeypatch):
    shown = []
    monkeypatch.setattr(still, "display", lambda *things: shown.extend(things))
    monkeypatch.setenv(still.ENVIRONMENT, "1")
    scrubber._ipython_display_()

    line, figure = shown
    assert "Run All Cells" in line.data
    titles = [axis.get_title() for axis in figure.axes]
    labels = scrubber.reading.labels
    # The photograph comes first.
    assert titles[1 : 1 + len(labels)] == labels


def test_an_upload_is_read_as_either_ipywidgets_gives_it():
    buffer = io.BytesIO()
    Image.new("L", (9, 7)).save(buffer, "PNG")
    file = {"content": buffer.getvalue()}

    # Version 7 gives a dictionary by name, version 8 a tuple.
    for value in ({"a.png": file}, (file,)):
        (photo,) = upload.photographs(value)
        assert photo.size == (9, 7)
        assert photo.mode == "RGB"
