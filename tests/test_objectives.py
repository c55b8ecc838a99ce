import math

import pytest
import torch

from satlib.objectives import doubly_stochastic_penalty, entropy, movement, negative_log_likelihood


def test_penalty_by_hand():
    """Two places, three words: sums over the words are 1.5 and 1.5, then 3 and 0."""
    alphas = torch.tensor([[[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])
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


def test_each_caption_has_its_own_sum():
    logits, captions = torch.randn(3, 4, 5), torch.randint(0, 5, (3, 4))
    together = negative_log_likelihood(logits, captions)
    alone = [negative_log_likelihood(logits[b : b + 1], captions[b : b + 1]).item() for b in range(3)]
    torch.testing.assert_close(together, torch.tensor(alone))


def test_label_smoothing_by_hand():
    """The target's share is 1 - s + s / K, every other word's s / K."""
    p = torch.tensor([0.5, 0.3, 0.2])
    nll = negative_log_likelihood(p.log().view(1, 1, 3), torch.tensor([[0]]), label_smoothing=0.3)
    torch.testing.assert_close(nll, -(torch.tensor([0.8, 0.1, 0.1]) * p.log()).sum().view(1))


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
