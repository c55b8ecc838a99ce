"""Attention by hand against definitions, and against one step of the decoder written out."""

import pytest
import tiny
import torch
from tiny import decided

from satcourse.widgets import steering
from satlib.data.text import UNKNOWN
from satlib.errors import SatlibError
from satlib.model import search


@pytest.fixture
def a():
    return tiny.Reader().read([f"test-{i}" for i in range(5)])


class TestTemperature:
    def test_by_hand(self):
        """Weights 1/8, 2/8, 5/8: squared 1, 4, 25 at temperature 1/2, their roots at 2."""
        alpha = torch.tensor([0.125, 0.25, 0.625])
        torch.testing.assert_close(steering.tempered(alpha, 0.5), torch.tensor([1.0, 4.0, 25.0]) / 30)
        roots = torch.tensor([1.0, 2.0, 5.0]).sqrt()
        torch.testing.assert_close(steering.tempered(alpha, 2.0), roots / roots.sum())

    @pytest.mark.parametrize("temperature", [0.1, 0.7, 1.0, 3.0, 50.0])
    def test_is_the_softmax_of_energies_over_it(self, temperature):
        energies = 3 * torch.randn(4, 9)
        made = steering.tempered(energies.softmax(1), temperature)
        torch.testing.assert_close(made, (energies / temperature).softmax(1))

    @pytest.mark.parametrize("weights", [[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [1e-40, 1.0, 0.0]])
    def test_limits(self, weights):
        alpha = torch.tensor(weights)
        assert steering.tempered(alpha, 1e-4).tolist() == [0, 1, 0]
        for temperature in (1e6, float("inf")):
            torch.testing.assert_close(
                steering.tempered(alpha, temperature), torch.full((3,), 1 / 3), atol=1e-3, rtol=0
            )

    @pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
    def test_not_above_zero(self, temperature):
        with pytest.raises(SatlibError, match="must be above 0"):
            steering.tempered(torch.ones(1), temperature)
        with pytest.raises(SatlibError, match="must be above 0"):
            steering.steered(decided().decoder, temperature)


class TestSteered:
    def test_the_decoder_itself_stays_as_it_is(self, a):
        decoder = decided().decoder
        before = search.greedy(decoder, a)
        twin = steering.steered(decoder, 0.2)
        assert all(one is other for one, other in zip(decoder.parameters(), twin.parameters(), strict=True))
        assert any(
            (one.alphas[0] != other.alphas[0]).any() for one, other in zip(before, search.greedy(twin, a), strict=True)
        )
        after = search.greedy(decoder, a)
        assert all(torch.equal(one.alphas, other.alphas) for one, other in zip(before, after, strict=True))

    @pytest.mark.parametrize("attention", ["soft", "hard", "none"])
    def test_untouched_it_says_the_same(self, a, attention):
        decoder = decided(attention).decoder
        for one, other in zip(search.greedy(decoder, a), search.greedy(steering.steered(decoder), a), strict=True):
            assert one.words == other.words
            assert torch.equal(one.alphas, other.alphas)

    def test_near_zero_hard_attention_sees_its_most_probable_place(self, a):
        captioner = decided("hard")
        cold = search.greedy(steering.steered(captioner.decoder, 1e-9), a)
        with captioner.looking("probable"):
            probable = search.greedy(captioner.decoder, a)
        assert [one.words for one in cold] == [other.words for other in probable]
        assert all(alpha.max(1).values.eq(1).all() for alpha in (one.alphas for one in cold))

    def test_maps_that_are_given(self, a):
        """Row 0 is told where to look at word 1, row 1 at word 0; after the given words all look by themselves."""
        decoder, ids = decided().decoder, torch.tensor([[2, 3, 4, 0]] * 5)
        given = torch.zeros(5, 2, 4)
        given[0, 1, 3] = given[1, 0, 2] = 1
        own, made = decoder(a, ids), steering.steered(decoder, given=given)(a, ids)
        assert made.alphas[0, 1].tolist() == [0, 0, 0, 1]
        assert made.alphas[1, 0].tolist() == [0, 0, 1, 0]
        torch.testing.assert_close(made.alphas[0, 0], own.alphas[0, 0])
        torch.testing.assert_close(made.alphas[2:], own.alphas[2:])
        changed = (made.alphas[1, 1:] - own.alphas[1, 1:]).abs().max()
        assert changed > 1e-3  # the state is another, and with it the next look
        again = steering.steered(decoder, given=given)
        assert torch.equal(again(a, ids).alphas, again(a, ids).alphas)  # a new image begins at the first word


class TestLookAgain:
    def captions(self, captioner, a):
        """Greedy captions, and a word of each that is not the first."""
        captions = [captioner.read(best[0]) for best in captioner.hypotheses(a, beam=1)]
        return captions, [min(1 + row % 3, len(caption.words) - 1) for row, caption in enumerate(captions)]

    def test_where_it_looks_by_itself_it_says_the_same(self, a):
        captioner = decided()
        captions, index = self.captions(captioner, a)
        own = torch.stack([caption.alphas[at].flatten() for caption, at in zip(captions, index, strict=True)])
        for maps in (None, own):
            p = steering.look_again(captioner, a, [caption.words for caption in captions], index, maps)
            torch.testing.assert_close(p.sum(1), torch.ones(5))
            assert (p[:, UNKNOWN] == 0).all()
            assert [captioner.vocabulary.words[best] for best in p.argmax(1)] == [
                caption.words[at] for caption, at in zip(captions, index, strict=True)
            ]

    def test_one_step_written_out(self, a):
        captioner = decided()
        captions, index = self.captions(captioner, a)
        maps = torch.eye(4)[torch.tensor([0, 1, 2, 3, 0])]
        p = steering.look_again(captioner, a, [caption.words for caption in captions], index, maps)
        d = captioner.decoder
        for row, (caption, at) in enumerate(zip(captions, index, strict=True)):
            annotations, state, before = (
                d.project(a[row : row + 1]),
                d.initial_state(a[row : row + 1]),
                [-1, *captioner.vocabulary.encode(caption.text)],
            )
            for word in before[:at]:
                state = d.step(annotations, state, d.gates_word(d.embed(torch.tensor([word])))).state
            word = d.embed(torch.tensor([before[at]]))
            z = torch.sigmoid(d.gate(state.h)) * (maps[row] @ a[row])
            i, f, g, o = (d.gates_word(word) + d.gates_state(state.h) + d.gates_context(z)).chunk(4, dim=1)
            h = o.sigmoid() * (f.sigmoid() * state.c + i.sigmoid() * g.tanh()).tanh()
            logits = d.output(word + d.output_state(h) + d.output_context(z))[0]
            logits[UNKNOWN] = -torch.inf
            torch.testing.assert_close(p[row], logits.softmax(0))
