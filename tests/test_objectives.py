import math

import pytest
import torch

from satlib.data.text import PAD
from satlib.model.attention import entropy, movement
from satlib.model.decoder import Output
from satlib.model.objective import (
    HardConfig,
    VariationalBound,
    doubly_stochastic_penalty,
    log_probability,
    negative_log_likelihood,
)


def test_penalty_by_hand():
    """Two places, three words: sums over the words are 1.5 and 1.5, then 3 and 0."""
    alphas = torch.tensor(
        [[[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]
    )
    assert doubly_stochastic_penalty(alphas).tolist() == [0.5**2 + 0.5**2, 2**2 + 1**2]


def test_penalty_at_uniform_attention():
    """L = 196, C = 12: sum_i (1 - 12/196)^2 = (184/196)^2 * 196."""
    alphas = torch.full((1, 12, 196), 1 / 196)
    torch.testing.assert_close(doubly_stochastic_penalty(alphas), torch.tensor([184**2 / 196]))


def test_likelihood_by_hand():
    """p = (1/2, 1/4, 1/4) at the first word, (0.1, 0.2, 0.7) at the second."""
    logits = torch.tensor([[[2.0, 1.0, 1.0], [1.0, 2.0, 7.0]]]).log() + 3.0
    nll = negative_log_likelihood(logits, torch.tensor([[1, 2]]))
    torch.testing.assert_close(nll, torch.tensor([-math.log(0.25) - math.log(0.7)]))


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_low_precision_is_added_up_in_float32(low):
    """2,100 words of probability 1/2 in each place: float16 stops counting ones at 2,048, bf16 at 256."""
    alphas = torch.full((1, 4200, 2), 0.5, dtype=low)
    assert doubly_stochastic_penalty(alphas).tolist() == [2 * 2099.0**2]
    torch.testing.assert_close(entropy(alphas), torch.full((1, 4200), math.log(2)))
    assert movement(alphas).dtype == torch.float32
    logits = torch.zeros(1, 4200, 4, dtype=low)
    nll = negative_log_likelihood(logits, torch.zeros(1, 4200, dtype=torch.long))
    torch.testing.assert_close(nll, torch.tensor([4200 * math.log(4)]))


def test_a_place_of_no_weight_has_a_finite_log_probability_and_no_part_in_the_entropy():
    alphas = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    assert log_probability(alphas, torch.tensor([[1]])).item() == pytest.approx(math.log(2.0**-126))
    assert log_probability(alphas, torch.tensor([[0]])).item() == 0
    assert entropy(alphas).item() == 0


def output(logits, places, states=None):
    """Of captions of two words; even maps over two places."""
    alphas = torch.full((*logits.shape[:2], 2), 0.5, requires_grad=True)
    states = torch.zeros(*logits.shape[:2], 4) if states is None else states
    return Output(logits, alphas, torch.ones(logits.shape[:2]), places, states)


class TestVariationalBound:
    def test_without_samples_to_score_it_is_the_likelihood_alone(self):
        """Of words of p = 1/2 and 1/4: -log p is ln 8; nothing is left to log, and what is logged has no gradient."""
        logits = torch.tensor([[[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]]).log().requires_grad_()
        given, bound = output(logits, None), VariationalBound(HardConfig(), hidden=4)
        found = bound(given, torch.tensor([[0, 1]]))
        assert found.loss.item() == pytest.approx(math.log(8))
        assert found.nll.tolist() == pytest.approx([math.log(8)])
        assert found.loss.requires_grad
        assert not found.nll.requires_grad
        assert found.advantage.shape == found.baseline.shape == (0,)
        assert bound.average.tolist() == [0]
        assert torch.autograd.grad(found.loss, given.alphas, allow_unused=True) == (None,)

    def test_the_learned_baseline_is_fitted_to_the_places_that_were_sampled(self):
        """By squares of what the average leaves: rewards of -3, a baseline of 0 from its zero weights, one place of two."""
        log_p, captions = (
            torch.tensor([[-1.0, -2.0], [-1.0, -2.0]]),
            torch.zeros(2, 2, dtype=torch.long),
        )
        logits = torch.stack([log_p.exp(), 1 - log_p.exp()], 2).log()
        states = torch.randn(2, 2, 4, requires_grad=True)
        given = output(logits, torch.tensor([[0, 1], [-1, -1]]), states)
        bound = VariationalBound(
            HardConfig(baseline="learned", lambda_e=0.0, lambda_r=0.0), hidden=4
        )
        loss = bound(given, captions).loss
        assert loss.item() == pytest.approx(3 + 9)
        by_weight, by_states = torch.autograd.grad(
            loss, (bound.learned.weight, states), allow_unused=True
        )
        torch.testing.assert_close(by_weight, (2 * 3 * states[0].detach()).mean(0, keepdim=True))
        assert by_states is None
        everywhere = given._replace(places=torch.full((2, 2), -1))
        assert bound(everywhere, captions).loss.item() == pytest.approx(3)

    def test_after_the_end_mark_nothing_counts(self):
        """Captions of two words and of one, p = 1/2 each: by words to come the rewards are -ln 4 and -ln 2 (twice), not 0."""
        given = output(torch.zeros(2, 2, 2), torch.zeros(2, 2, dtype=torch.long))
        captions, one = torch.tensor([[1, 0], [0, PAD]]), math.log(2)
        by_words = VariationalBound(
            HardConfig(reward="to-come", lambda_r=1.0, lambda_e=0.0), hidden=4
        )
        found = by_words(given, captions)
        assert found.nll.tolist() == pytest.approx([2 * one, one])
        assert sorted(found.advantage.tolist()) == pytest.approx([-2 * one, -one, -one])
        assert by_words.average[:4].tolist() == pytest.approx([0, -0.1 * one, -0.2 * one, 0])
        assert found.loss.item() == pytest.approx(1.5 * one - (-2 * one - one - one) * -one / 2)
        by_caption = VariationalBound(HardConfig(lambda_r=0.0, lambda_e=1.0), hidden=4)
        assert by_caption(given, captions).loss.item() == pytest.approx(
            1.5 * one - (2 * one + one) / 2
        )
        assert by_caption.average.tolist() == pytest.approx([-0.1 * one])  # per word

    def test_in_evaluation_the_average_stays(self):
        bound = VariationalBound(HardConfig(), hidden=4).eval()
        bound(
            output(torch.zeros(1, 1, 2), torch.tensor([[0]])), torch.zeros(1, 1, dtype=torch.long)
        )
        assert bound.average.tolist() == [0]
