"""Attention by hand against one step of the decoder written out; captions after given words."""

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
    found = steering.tempered(energies.softmax(1), temperature)
    expected = (energies / temperature).softmax(1)
    torch.testing.assert_close(found, expected)

    # Weights of 0, or nearly, whose logarithms could be infinite.
    peaked = torch.tensor([1e-40, 1.0, 0.0])
    assert steering.tempered(peaked, 1e-4).tolist() == [0, 1, 0]


def test_maps_that_are_given(a):
    """Row 0 is told where to look at word 1, row 1 at word 0; the others look by themselves."""
    decoder = decided().decoder
    ids = torch.tensor([[2, 3, 4, 0]] * 5)
    own = decoder(a, ids).alphas

    # Two words of each caption may be steered; a map of zeros steers nothing.
    given = torch.zeros(5, 2, 4)
    given[0, 1, 3] = 1
    given[1, 0, 2] = 1
    steered = steering.steered(decoder, given=given)
    alphas = steered(a, ids).alphas
    assert alphas[0, 1].tolist() == [0, 0, 0, 1]
    assert alphas[1, 0].tolist() == [0, 0, 1, 0]
    torch.testing.assert_close(alphas[0, 0], own[0, 0])
    torch.testing.assert_close(alphas[2:], own[2:])

    # The state is another, and with it the next look.
    moved = (alphas[1, 1:] - own[1, 1:]).abs()
    assert moved.max() > 1e-3


def captions_of(captioner, a):
    """Greedy captions, and the index of a word of each that is not the first."""
    captions = []
    index = []
    for row, hypotheses in enumerate(captioner.hypotheses(a, beam=1)):
        caption = captioner.read(hypotheses[0])
        captions.append(caption)
        index.append(min(1 + row % 3, len(caption.words) - 1))
    return captions, index


def test_where_it_looks_by_itself_it_says_the_same(a):
    captioner = decided()
    captions, index = captions_of(captioner, a)
    words = [caption.words for caption in captions]
    said = []
    own = []
    for caption, at in zip(captions, index, strict=True):
        said.append(caption.words[at])
        own.append(caption.alphas[at].flatten())

    # Without maps, and with those of its own look.
    for maps in (None, torch.stack(own)):
        p = steering.look_again(captioner, a, words, index, maps)
        torch.testing.assert_close(p.sum(1), torch.ones(5))
        likeliest = [captioner.vocabulary.words[best] for best in p.argmax(1)]
        assert likeliest == said


def test_one_step_written_out(a):
    captioner = decided()
    captions, index = captions_of(captioner, a)
    words = [caption.words for caption in captions]
    # Each caption is told to look at one place alone.
    places = torch.tensor([0, 1, 2, 3, 0])
    maps = torch.eye(4)[places]
    p = steering.look_again(captioner, a, words, index, maps)

    decoder = captioner.decoder
    for row, (caption, at) in enumerate(zip(captions, index, strict=True)):
        vectors = a[row : row + 1]
        annotations = decoder.project(vectors)
        state = decoder.initial_state(vectors)
        # Up to the word in question the decoder looks by itself.
        before = [-1, *captioner.vocabulary.encode(caption.text)]
        for word in before[:at]:
            embedded = decoder.embed(torch.tensor([word]))
            step = decoder.step(annotations, state, decoder.gates_word(embedded))
            state = step.state

        # Section 4.2.1: z is gated by beta.
        beta = torch.sigmoid(decoder.gate(state.h))
        z = beta * (maps[row] @ a[row])
        # Equations 1 to 3.
        word = decoder.embed(torch.tensor([before[at]]))
        gates = decoder.gates_word(word) + decoder.gates_state(state.h)
        gates = gates + decoder.gates_context(z)
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        # Equation 7.
        hidden = word + decoder.output_state(h) + decoder.output_context(z)
        logits = decoder.output(hidden)[0]
        logits[UNKNOWN] = -torch.inf
        torch.testing.assert_close(p[row], logits.softmax(0))


@pytest.mark.parametrize("attention", ["soft", "hard", "none"])
def test_a_reading_left_alone_is_the_greedy_caption(attention):
    captioner = decided(attention)
    for photo in PHOTOS:
        (caption,) = captioner.caption([photo], beam=1)
        reading = read(captioner, annotate(captioner, photo))
        assert reading.words == caption.words
        assert torch.equal(reading.alphas, caption.alphas)
        assert {len(words) for words in reading.alternatives} == {ALTERNATIVES}


def test_a_word_that_is_given_keeps_those_before_it():
    captioner = decided()
    a = annotate(captioner, PHOTOS[1])
    alone = read(captioner, a)

    # The second word becomes another one.
    others = captioner.vocabulary.words[2:]
    word = next(other for other in others if other != alone.words[1])
    given = [alone.words[0], word]
    forced = read(captioner, a, given)
    assert forced.words[:2] == given

    # The look before word t + 1 is decided by h_t, which has read the words up to t - 1.
    assert torch.equal(forced.alphas[:3], alone.alphas[:3])
    assert not torch.equal(forced.alphas[3], alone.alphas[3])

    # The end can be given, too; a word that the model does not know cannot.
    ended = read(captioner, a, ["a", "red", "(end)"])
    assert ended.labels == ["a", "red", "(end)"]
    with pytest.raises(SatlibError, match="'zebra' is not in the model's vocabulary"):
        read(captioner, a, ["a", "zebra"])
