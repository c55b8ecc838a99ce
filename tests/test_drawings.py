"""Drawings of the course: nothing cut off, nothing on top of anything else, and what they say is what they were given."""

import itertools

import numpy as np
import pytest
from PIL import Image

from satcourse.widgets import drawings
from satlib.data.images import seen_box

LONG = ["antidisestablishmentarianism", "$5$", "skateboarding", "grasshoppers"]


def photo(width=224, height=224):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def texts(figure):
    figure.draw_without_rendering()
    found = figure.findobj(lambda each: hasattr(each, "get_text") and each.get_text() and each.get_visible())
    return {text: text.get_window_extent() for text in found}


def check(figure):
    """No text leaves the figure, and none touches another."""
    boxes = list(texts(figure).items())
    for i, (text, box) in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, text
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, text
        for other, taken in boxes[i + 1 :]:
            assert not box.overlaps(taken), (text, other)


def test_a_gallery_is_whole_and_marks_wrong_words():
    pixels = np.asarray(photo())
    caption = [
        "a", "big", "dotted", "purple", "triangle", "to", "the", "left", "of", "a", "small", "striped", "orange",
        "square",
    ]  # fmt: skip
    figure = drawings.gallery_figure([(pixels, caption, {4, 12}, "really a big striped star\na small circle")] * 5)
    check(figure)
    italics = [text.get_text() for text in figure.axes[0].texts if text.get_fontstyle() == "italic"]
    assert italics == ["triangle", "orange"] * 5
    assert len(figure.axes[0].images) == 5


@pytest.mark.parametrize("size", [(224, 224), (320, 240), (240, 320)])
@pytest.mark.parametrize("view", ["whole", "crop"])
def test_each_place_has_its_answer_where_it_lies(size, view):
    answers = [["blue", "red", "purple"], ["red", "striped", LONG[0]]]
    figure = drawings.answers_figure(photo(*size), answers, "red", view)
    check(figure)
    left, top, right, bottom = (448 / max(size) * edge for edge in seen_box(size, view))
    for text, (row, column) in zip(figure.axes[0].texts, itertools.product(range(2), range(3)), strict=True):
        assert text.get_text() == answers[row][column]
        x, y = text.get_position()
        assert x == pytest.approx(left + (column + 0.5) * (right - left) / 3)
        assert 448 * size[1] / max(size) - y == pytest.approx(top + (row + 0.5) * (bottom - top) / 2)
    assert [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"] == ["red", "red"]
    assert len({text.get_fontsize() for text in figure.axes[0].texts}) == 1
