"""The terms of the objective, and the variational bound, in numbers worked out by hand."""

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
    spread = [
        [0.5, 0.5],
        [0.25, 0.75],
        [0.75, 0.25],
    ]
    fixed = [
        [1.0, 0.0],
        [1.0, 0.0],
        [1.0, 0.0],
    ]
    penalties = doubly_stochastic_penalty(torch.tensor([spread, fixed]))
    assert penalties.tolist() == [0.5**2 + 0.5**2, 2**2 + 1**2]


def test_penalty_at_uniform_attention():
    """L = 196, C = 12: sum_i (1 - 12/196)^2 = (184/196)^2 * 196."""
    alphas = torch.full((1, 12, 196), 1 / 196)
    penalty = doubly_stochastic_penalty(alphas)
    expected = torch.tensor([184**2 / 196])
    torch.testing.assert_close(penalty, expected)


def test_likelihood_by_hand():
    """p = (1/2, 1/4, 1/4) at the first word, (0.1, 0.2, 0.7) at the second."""
    odds = torch.tensor([[[2.0, 1.0, 1.0], [1.0, 2.0, 7.0]]])
    # A softmax does not change if all its logits are 3 higher.
    logits = odds.log() + 3.0
    captions = torch.tensor([[1, 2]])
    nll = negative_log_likelihood(logits, captions)
    expected = -math.log(0.25) - math.log(0.7)
    torch.testing.assert_close(nll, torch.tensor([expected]))


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_low_precision_is_added_up_in_float32(low):
    """2,100 words of probability 1/2 in each place.

    float16 stops counting ones at 2,048, bfloat16 at 256.
    """
    # 4,200 halves are 2,100, which is 2,099 more than the 1 that each place should get.
    alphas = torch.full((1, 4200, 2), 0.5, dtype=low)
    penalty = doubly_stochastic_penalty(alphas)
    assert penalty.tolist() == [2 * 2099.0**2]
    even = torch.full((1, 4200), math.log(2))
    torch.testing.assert_close(entropy(alphas), even)
    assert movement(alphas).dtype == torch.float32

    # Equal logits of four words: p = 1/4, 4,200 times.
    logits = torch.zeros(1, 4200, 4, dtype=low)
    captions = torch.zeros(1, 4200, dtype=torch.long)
    nll = negative_log_likelihood(logits, captions)
    expected = torch.tensor([4200 * math.log(4)])
    torch.testing.assert_close(nll, expected)


def test_a_place_of_no_weight_has_a_finite_log_probability_and_no_part_in_the_entropy():
    alphas = torch.tensor([[[1.0, 0.0]]], requires_grad=True)
    first = torch.tensor([[0]])
    second = torch.tensor([[1]])
    # 2^-126 is the smallest normal number of float32.
    smallest = math.log(2.0**-126)
    assert log_probability(alphas, second).item() == pytest.approx(smallest)
    assert log_probability(alphas, first).item() == 0
    assert entropy(alphas).item() == 0


def output(logits, places, states=None):
    """Of captions of two words; even maps over two places."""
    size = logits.shape[:2]  # (B, C)
    alphas = torch.full((*size, 2), 0.5, requires_grad=True)
    if states is None:
        states = torch.zeros(*size, 4)
    return Output(logits, alphas, torch.ones(size), places, states)


class TestVariationalBound:
    def test_the_learned_baseline_is_fitted_to_the_places_that_were_sampled(self):
        """By squares of what the average leaves: of two captions, one sampled its places."""
        # A vocabulary of two words; those of the captions have a log p of -1 and -2.
        log_p = torch.tensor([[-1.0, -2.0], [-1.0, -2.0]])
        p = log_p.exp()
        logits = torch.stack([p, 1 - p], 2).log()
        captions = torch.zeros(2, 2, dtype=torch.long)
        states = torch.randn(2, 2, 4, requires_grad=True)
        places = torch.tensor([[0, 1], [-1, -1]])
        given = output(logits, places, states)
        config = HardConfig(baseline="learned", lambda_e=0.0, lambda_r=0.0)
        bound = VariationalBound(config, hidden=4)
        loss = bound(given, captions).loss

        # -log p is 3; the reward is -3 and the baseline, from zero weights, 0: the square is 9.
        assert loss.item() == pytest.approx(3 + 9)
        weight = bound.learned.weight
        by_weight, by_states = torch.autograd.grad(loss, (weight, states), allow_unused=True)
        # d (-3 - w h)^2 / dw = 2 * 3 h at w = 0, in the mean over the two words.
        by_hand = (2 * 3 * states[0].detach()).mean(0, keepdim=True)
        torch.testing.assert_close(by_weight, by_hand)
        # The baseline learns from the states, not the decoder from the baseline.
        assert by_states is None

        # Nothing was sampled: nothing is fitted.
        nowhere = torch.full((2, 2), -1)
        given = given._replace(places=nowhere)
        loss = bound(given, captions).loss
        assert loss.item() == pytest.approx(3)

    def test_after_the_end_mark_nothing_counts(self):
        """Captions of two words and of one, p = 1/2 each."""
        logits = torch.zeros(2, 2, 2)
        places = torch.zeros(2, 2, dtype=torch.long)
        given = output(logits, places)
        captions = torch.tensor([[1, 0], [0, PAD]])
        one = math.log(2)  # -log p of one word

        # By words to come the rewards are -ln 4 and -ln 2 (twice), not 0.
        config = HardConfig(reward="to-come", lambda_r=1.0, lambda_e=0.0)
        by_words = VariationalBound(config, hidden=4)
        found = by_words(given, captions)
        assert found.nll.tolist() == pytest.approx([2 * one, one])
        rewards = sorted(found.advantage.tolist())
        assert rewards == pytest.approx([-2 * one, -one, -one])
        # An average for 0, 1, 2, ... words to come takes a tenth of the mean reward.
        averages = by_words.average[:4].tolist()
        assert averages == pytest.approx([0, -0.1 * one, -0.2 * one, 0])
        # The score is reward times log alpha, which is -ln 2; in the mean over two captions.
        score = (-2 * one - one - one) * -one / 2
        assert found.loss.item() == pytest.approx(1.5 * one - score)

        # The entropy of an even map over two places is ln 2, for two words and for one.
        config = HardConfig(lambda_r=0.0, lambda_e=1.0)
        by_caption = VariationalBound(config, hidden=4, longest=2)
        loss = by_caption(given, captions).loss
        spread = (2 * one + one) / 2
        assert loss.item() == pytest.approx(1.5 * one - spread)
        average = by_caption.average.tolist()
        assert average == pytest.approx([-0.1 * 2 * one])  # of the longest, two words

    def test_in_evaluation_the_average_stays(self):
        bound = VariationalBound(HardConfig(), hidden=4)
        bound.eval()
        logits = torch.zeros(1, 1, 2)
        places = torch.zeros(1, 1, dtype=torch.long)
        captions = torch.zeros(1, 1, dtype=torch.long)
        sampled = output(logits, places)
        bound(sampled, captions)
        assert bound.average.tolist() == [0]
