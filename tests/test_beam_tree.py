from satcourse.widgets.beam_tree import tree_figure
from satlib.evaluation.plots import END_LABEL

TABLE = {
    (): {"a": 0.6, "the": 0.4}, ("a",): {"dog": 0.5, "cat": 0.5}, ("a", "dog"): {END_LABEL: 1.0},
    ("a", "cat"): {END_LABEL: 1.0}, ("the",): {"dog": 1.0}, ("the", "dog"): {END_LABEL: 1.0},
}  # fmt: skip


def drawn(**arguments):
    axis = tree_figure(TABLE.__getitem__, **arguments).axes[0]
    return [text.get_text() for text in axis.texts], axis


def test_every_word_and_every_captions_probability_is_there():
    texts, axis = drawn()
    assert sorted(text for text in texts if text.startswith("p =")) == ["p = 0.300", "p = 0.300", "p = 0.400"]
    assert [texts.count(word) for word in ("(start)", "a", "the", "dog", "cat", END_LABEL)] == [1, 1, 1, 2, 1, 3]
    assert len(axis.lines) == 8


def test_kept_dropped_and_best_differ_in_more_than_colour():
    _, axis = drawn(kept={("a",), ("the",), ("the", "dog")}, best=("the", "dog", END_LABEL))
    looks = [(line.get_color(), line.get_linewidth(), line.get_linestyle()) for line in axis.lines]
    assert len(set(looks)) == 3
    assert len({look[1:] for look in looks}) == 3
    assert sorted(looks.count(look) for look in set(looks)) == [1, 3, 4]
    bold = [text.get_text() for text in axis.texts if text.get_fontweight() == "bold"]
    assert bold == ["p = 0.400"]
