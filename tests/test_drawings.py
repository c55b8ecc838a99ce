"""Drawings: nothing cut off, nothing on top of anything else, and they show what they were
given.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from satcourse.widgets import drawings
from satcourse.widgets.beam_tree import tree_figure
from satlib.evaluation.plots import END_LABEL

# p of each word that may follow some words.
TREE = {
    (): {"a": 0.6, "the": 0.4},
    ("a",): {"dog": 0.5, "cat": 0.5},
    ("a", "dog"): {END_LABEL: 1.0},
    ("a", "cat"): {END_LABEL: 1.0},
    ("the",): {"dog": 1.0},
    ("the", "dog"): {END_LABEL: 1.0},
}


def photo(width=224, height=224):
    random = np.random.default_rng(0)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def is_shown_text(each):
    return hasattr(each, "get_text") and each.get_text() and each.get_visible()


def check(figure):
    """No text leaves the figure, and none touches another."""
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.findobj(is_shown_text)]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_gallery_is_whole_and_marks_wrong_words():
    # As long as captions of scenes get.
    text = "a big dotted purple triangle to the left of an orange square"
    told = "really a big striped star\na small circle"
    entry = (np.asarray(photo()), text.split(), {4, 10}, told)
    figure = drawings.gallery_figure([entry] * 5)
    check(figure)

    texts = figure.axes[0].texts
    italics = [text.get_text() for text in texts if text.get_fontstyle() == "italic"]
    assert italics == ["triangle", "orange"] * 5


@pytest.mark.parametrize("size", [(320, 240), (240, 320)])
def test_each_place_has_its_answer_where_it_lies(size):
    words = [["blue", "red", "purple"], ["red", "striped", "antidisestablishmentarianism"]]
    answers = [[(word, len(word) / 30) for word in row] for row in words]
    figure = drawings.answers_figure(photo(*size), answers, "red")
    check(figure)

    # The figure's longer side is 448 wide; the photograph is cut into 2 rows of 3 places.
    width, height = (448 / 320 * side for side in size)
    texts = figure.axes[0].texts
    places = itertools.product(range(2), range(3))
    for text, (row, column) in zip(texts, places, strict=True):
        assert (text.get_text(), text.get_alpha()) == answers[row][column]
        x, y = text.get_position()
        assert x == pytest.approx((column + 0.5) * width / 3)
        # matplotlib's y grows upwards.
        assert height - y == pytest.approx((row + 0.5) * height / 2)

    bold = [text.get_text() for text in texts if text.get_weight() == "bold"]
    assert bold == ["red", "red"]
    assert figure.texts[0].get_text().startswith("Blue: the model's own word.")


def test_a_tree_has_every_word_and_shows_the_best_in_more_than_colour():
    best = ("the", "dog", END_LABEL)
    kept = {("a",), ("the",), ("the", "dog")}
    axis = tree_figure(TREE.__getitem__, kept, best).axes[0]

    counts = Counter(text.get_text() for text in axis.texts)
    assert counts["(start)"] == 1
    assert counts["a"] == 1
    assert counts["dog"] == 2
    assert counts[END_LABEL] == 3
    # Of three captions, .6 x .5 twice and .4.
    assert counts["p = 0.300"] == 2
    assert counts["p = 0.400"] == 1

    # A line to each of eight nodes, in three styles: one is kept, three are the best, the rest.
    styles = Counter((line.get_linewidth(), line.get_linestyle()) for line in axis.lines)
    assert sorted(styles.values()) == [1, 3, 4]
    bold = [text.get_text() for text in axis.texts if text.get_fontweight() == "bold"]
    assert bold == ["p = 0.400"]
