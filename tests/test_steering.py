"""Attention by hand against one step of the decoder written out; captions continued after given words."""

import pytest
import tiny
import torch
from tiny import decided

from satcourse.widgets import steering
from satcourse.widgets.reading import ALTERNATIVES, annotate, read
from satlib.data.text import UNKNOWN
from satlib.errors import SatlibError

PHOTOS = [tiny.draw(example) for example in tiny.data().examples[:5]]


@pytest.fixture
def a():
    return tiny.Reader().read([f"test-{i}" for i in range(5)])


@pytest.mark.parametrize("temperature", [0.1, 1.0, 50.0])
def test_a_temperature_divides_the_energies(temperature):
    energies = 3 * torch.randn(4, 9)
    tempered = steering.tempered(energies.softmax(1), temperature)
    torch.testing.assert_close(tempered, (energies / temperature).softmax(1))
    assert steering.tempered(torch.tensor([1e-40, 1.0, 0.0]), 1e-4).tolist() == [0, 1, 0]


def test_maps_that_are_given(a):
    """Row 0 is told where to look at word 1, row 1 at word 0; after the given words all look by themselves."""
    decoder, ids = decided().decoder, torch.tensor([[2, 3, 4, 0]] * 5)
    given = torch.zeros(5, 2, 4)
    given[0, 1, 3] = given[1, 0, 2] = 1
    own, alphas = decoder(a, ids).alphas, steering.steered(decoder, given=given)(a, ids).alphas
    assert alphas[0, 1].tolist() == [0, 0, 0, 1]
    assert alphas[1, 0].tolist() == [0, 0, 1, 0]
    torch.testing.assert_close(alphas[0, 0], own[0, 0])
    torch.testing.assert_close(alphas[2:], own[2:])
    assert (
        alphas[1, 1:] - own[1, 1:]
    ).abs().max() > 1e-3  # the state is another, and with it the next look


def captions_of(captioner, a):
    """Greedy captions, and the index of a word of each that is not the first."""
    captions = [captioner.read(best[0]) for best in captioner.hypotheses(a, beam=1)]
    return captions, [
        min(1 + row % 3, len(caption.words) - 1) for row, caption in enumerate(captions)
    ]


def test_where_it_looks_by_itself_it_says_the_same(a):
    captioner = decided()
    captions, index = captions_of(captioner, a)
    own = torch.stack(
        [caption.alphas[at].flatten() for caption, at in zip(captions, index, strict=True)]
    )
    for maps in (None, own):
        p = steering.look_again(captioner, a, [caption.words for caption in captions], index, maps)
        torch.testing.assert_close(p.sum(1), torch.ones(5))
        said = [caption.words[at] for caption, at in zip(captions, index, strict=True)]
        assert [captioner.vocabulary.words[best] for best in p.argmax(1)] == said


def test_one_step_written_out(a):
    captioner = decided()
    captions, index = captions_of(captioner, a)
    maps = torch.eye(4)[torch.tensor([0, 1, 2, 3, 0])]
    p = steering.look_again(captioner, a, [caption.words for caption in captions], index, maps)
    d = captioner.decoder
    for row, (caption, at) in enumerate(zip(captions, index, strict=True)):
        annotations, state = d.project(a[row : row + 1]), d.initial_state(a[row : row + 1])
        before = [-1, *captioner.vocabulary.encode(caption.text)]
        for word in before[:at]:
            state = d.step(annotations, state, d.gates_word(d.embed(torch.tensor([word])))).state
        word = d.embed(torch.tensor([before[at]]))
        z = torch.sigmoid(d.gate(state.h)) * (maps[row] @ a[row])
        i, f, g, o = (d.gates_word(word) + d.gates_state(state.h) + d.gates_context(z)).chunk(
            4, dim=1
        )
        h = o.sigmoid() * (f.sigmoid() * state.c + i.sigmoid() * g.tanh()).tanh()
        logits = d.output(word + d.output_state(h) + d.output_context(z))[0]
        logits[UNKNOWN] = -torch.inf
        torch.testing.assert_close(p[row], logits.softmax(0))


@pytest.mark.parametrize("attention", ["soft", "hard", "none"])
def test_a_reading_left_alone_is_the_greedy_caption(attention):
    captioner = decided(attention)
    for photo in PHOTOS:
        caption, reading = (
            captioner.caption([photo], beam=1)[0],
            read(captioner, annotate(captioner, photo)),
        )
        assert reading.words == caption.words
        assert torch.equal(reading.alphas, caption.alphas)
        assert {len(words) for words in reading.alternatives} == {ALTERNATIVES}


def test_a_word_that_is_given_keeps_those_before_it():
    captioner, index = decided(), 1
    a = annotate(captioner, PHOTOS[1])
    alone = read(captioner, a)
    word = next(other for other in captioner.vocabulary.words[2:] if other != alone.words[index])
    forced = read(captioner, a, [*alone.words[:index], word])
    assert forced.words[: index + 1] == [*alone.words[:index], word]
    # The look before word t + 1 is decided by h_t, which has read the words up to t - 1.
    assert torch.equal(forced.alphas[: index + 2], alone.alphas[: index + 2])
    assert not torch.equal(forced.alphas[index + 2], alone.alphas[index + 2])
    assert read(captioner, a, ["a", "red", "(end)"]).labels == ["a", "red", "(end)"]
    with pytest.raises(SatlibError, match="'zebra' is not in the model's vocabulary"):
        read(captioner, a, ["a", "zebra"])
