"""Drawings: nothing cut off, nothing on top of anything else, and they show what they were given."""

import itertools

import numpy as np
import pytest
from PIL import Image

from satcourse.widgets import drawings
from satcourse.widgets.beam_tree import tree_figure
from satlib.data.images import seen_box
from satlib.evaluation.plots import END_LABEL

TREE = {
    (): {"a": 0.6, "the": 0.4}, ("a",): {"dog": 0.5, "cat": 0.5}, ("a", "dog"): {END_LABEL: 1.0},
    ("a", "cat"): {END_LABEL: 1.0}, ("the",): {"dog": 1.0}, ("the", "dog"): {END_LABEL: 1.0},
}  # fmt: skip


def photo(width=224, height=224):
    return Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    )


def check(figure):
    """No text leaves the figure, and none touches another."""
    figure.draw_without_rendering()
    texts = figure.findobj(
        lambda each: hasattr(each, "get_text") and each.get_text() and each.get_visible()
    )
    boxes = [text.get_window_extent() for text in texts]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_gallery_is_whole_and_marks_wrong_words():
    caption = [
        "a",
        "big",
        "dotted",
        "purple",
        "triangle",
        "to",
        "the",
        "left",
        "of",
        "an",
        "orange",
        "square",
    ]
    entry = (np.asarray(photo()), caption, {4, 10}, "really a big striped star\na small circle")
    figure = drawings.gallery_figure([entry] * 5)
    check(figure)
    italics = [text.get_text() for text in figure.axes[0].texts if text.get_fontstyle() == "italic"]
    assert italics == ["triangle", "orange"] * 5


@pytest.mark.parametrize(("size", "view"), [((320, 240), "crop"), ((240, 320), "whole")])
def test_each_place_has_its_answer_where_it_lies(size, view):
    words = [["blue", "red", "purple"], ["red", "striped", "antidisestablishmentarianism"]]
    answers = [[(word, len(word) / 30) for word in row] for row in words]
    figure = drawings.answers_figure(photo(*size), answers, "red", view)
    check(figure)
    left, top, right, bottom = (448 / max(size) * edge for edge in seen_box(size, view))
    for text, (row, column) in zip(
        figure.axes[0].texts, itertools.product(range(2), range(3)), strict=True
    ):
        assert (text.get_text(), text.get_alpha()) == answers[row][column]
        x, y = text.get_position()
        assert x == pytest.approx(left + (column + 0.5) * (right - left) / 3)
        assert 448 * size[1] / max(size) - y == pytest.approx(
            top + (row + 0.5) * (bottom - top) / 2
        )
    assert [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"] == [
        "red",
        "red",
    ]


def test_a_tree_has_every_word_and_shows_the_best_in_more_than_colour():
    kept, best = {("a",), ("the",), ("the", "dog")}, ("the", "dog", END_LABEL)
    axis = tree_figure(TREE.__getitem__, kept, best).axes[0]
    texts = [text.get_text() for text in axis.texts]
    assert [
        texts.count(word) for word in ("(start)", "a", "dog", END_LABEL, "p = 0.300", "p = 0.400")
    ] == [
        1,
        1,
        2,
        3,
        2,
        1,
    ]
    styles = [(line.get_linewidth(), line.get_linestyle()) for line in axis.lines]
    assert sorted(styles.count(style) for style in set(styles)) == [1, 3, 4]  # kept, best, dropped
    assert [text.get_text() for text in axis.texts if text.get_fontweight() == "bold"] == [
        "p = 0.400"
    ]
