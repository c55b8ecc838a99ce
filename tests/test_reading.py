"""Readings against the captioner's own captions, and with words that are given."""

import math

import pytest
import tiny
import torch
from tiny import decided

from satcourse.widgets.reading import ALTERNATIVES, annotate, read
from satlib.errors import SatlibError

PHOTOS = [tiny.draw(example) for example in tiny.data().examples[:5]]


@pytest.mark.parametrize("attention", ["soft", "hard", "none"])
def test_left_alone_it_is_the_greedy_caption(attention):
    captioner = decided(attention)
    for photo in PHOTOS:
        caption, reading = captioner.caption([photo], beam=1)[0], read(captioner, annotate(captioner, photo))
        assert reading.words == caption.words
        assert torch.equal(reading.alphas, caption.alphas)
        assert torch.equal(reading.betas, caption.betas)
        assert math.fsum(map(math.log, reading.probabilities)) == pytest.approx(caption.log_probability, abs=1e-4)


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_word_that_is_given_keeps_those_before_it(index):
    captioner = decided()
    a = annotate(captioner, PHOTOS[1])
    alone = read(captioner, a)
    word = next(other for other in captioner.vocabulary.words[2:] if other != alone.words[index])
    forced = read(captioner, a, [*alone.words[:index], word])
    assert forced.words[: index + 1] == [*alone.words[:index], word]
    assert torch.equal(forced.alphas[: index + 1], alone.alphas[: index + 1])  # it looks before it speaks
    assert forced.alternatives[index] == alone.alternatives[index]
    assert forced.probabilities[:index] == alone.probabilities[:index]
    assert forced.probabilities[index] < alone.probabilities[index]
    # The look before word t + 1 is decided by h_t, which has read the words up to t - 1.
    assert torch.equal(forced.alphas[index + 1], alone.alphas[index + 1])
    assert not torch.equal(forced.alphas[index + 2], alone.alphas[index + 2])


def test_the_end_may_be_given():
    captioner = decided()
    reading = read(captioner, annotate(captioner, PHOTOS[0]), ["a", "red", "(end)"])
    assert reading.words == ["a", "red"]
    assert reading.labels == ["a", "red", "(end)"]
    assert len(reading.alphas) == len(reading.alternatives) == len(reading.probabilities) == 3


def test_alternatives():
    captioner = decided()
    reading = read(captioner, annotate(captioner, PHOTOS[3]))
    assert len(reading.words) == captioner.recipe.decoding.max_length  # so that the end had to come
    for t, (label, p) in enumerate(zip(reading.labels, reading.probabilities, strict=True)):
        alternatives = reading.alternatives[t]
        assert (alternatives[0] == (label, p)) == (t < len(reading.words))
        assert [each[1] for each in alternatives] == sorted((each[1] for each in alternatives), reverse=True)
        assert len({each[0] for each in alternatives}) == ALTERNATIVES
        assert "<unknown>" not in dict(alternatives)


def test_a_word_that_it_never_learnt():
    captioner = decided()
    with pytest.raises(SatlibError, match="'zebra' is not in the model's vocabulary; give one of its 10 words"):
        read(captioner, annotate(captioner, PHOTOS[0]), ["a", "zebra"])
