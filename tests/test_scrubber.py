"""The scrubber without a browser: its light is the caption's; a forced place or word changes the caption; stored, it is a picture."""

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
        caption = captioner.caption([photo], beam=1)[0]
        assert scrubber.reading.words == caption.words
        assert [
            button.description for button in scrubber.sentence.children
        ] == scrubber.reading.labels
        for index, button in enumerate(scrubber.sentence.children):
            button.click()
            with Image.open(io.BytesIO(scrubber.image.value)) as image:
                lit = plots.lit(photo, caption.alphas[index : index + 1], 406)[0]
                np.testing.assert_array_equal(np.asarray(image), lit)


def test_a_click_puts_all_attention_on_a_place_and_a_second_click_releases_it(scrubber):
    scrubber.words[1].click()
    own, before = scrubber.own, scrubber.image.value
    for number in range(4):
        scrubber.cells[number].click()
        assert scrubber.places == {1: divmod(number, 2)}
        assert torch.equal(scrubber.reading.alphas[1].flatten(), torch.eye(4)[number])
        assert torch.equal(scrubber.reading.alphas[0], own.alphas[0])
        assert scrubber.reading.words[0] == own.words[0]
    scrubber.cells[3].click()
    assert (scrubber.places, scrubber.reading.words, scrubber.image.value) == (
        {},
        own.words,
        before,
    )


def test_a_word_is_pressed_typed_and_taken_back(scrubber):
    own = scrubber.own.words
    scrubber.words[1].click()
    word = next(word for word, _ in scrubber.reading.alternatives[1] if word != own[1])
    next(button for button in scrubber.alternatives if button.description == word).click()
    assert scrubber.reading.words[:2] == [own[0], word]
    assert torch.equal(
        scrubber.reading.alphas[:2], scrubber.own.alphas[:2]
    )  # it looks before it speaks
    scrubber.instead.value = "square"
    assert scrubber.reading.words[1] == "square"
    scrubber.instead.value = "<b>zebra"  # not in the vocabulary
    assert "vocabulary" in scrubber.note.value
    assert "<b>" not in scrubber.note.value
    scrubber.release.click()
    assert (scrubber.said, scrubber.reading.words) == ([], own)


def test_a_notebook_that_is_stored_shows_a_line_and_all_steps_in_its_place(scrubber, monkeypatch):
    shown = []
    monkeypatch.setattr(still, "display", lambda *things: shown.extend(things))
    monkeypatch.setenv(still.ENVIRONMENT, "1")
    scrubber._ipython_display_()
    assert "Run All Cells" in shown[0].data
    titles = [axis.get_title() for axis in shown[1].axes]
    assert titles[1 : 1 + len(scrubber.reading.labels)] == scrubber.reading.labels


def test_an_upload_is_read_as_either_ipywidgets_gives_it():
    buffer = io.BytesIO()
    Image.new("L", (9, 7)).save(buffer, "PNG")
    for value in ({"a.png": {"content": buffer.getvalue()}}, ({"content": buffer.getvalue()},)):
        assert [(photo.size, photo.mode) for photo in upload.photographs(value)] == [
            ((9, 7), "RGB")
        ]
