"""Decoders trained further, and from vectors in memory: what is measured against sums over paths, and what they are trained on."""

import pytest
import torch

from satcourse.lessons import further
from satcourse.lessons.estimators import every_path
from satcourse.lessons.estimators import tiny as tiny_case
from satlib.model.attention import entropy
from satlib.model.objective import negative_log_likelihood


def test_what_is_measured_is_near_the_sum_over_paths():
    decoder, a, caption = tiny_case()
    paths = every_path(decoder, a, caption)
    deviation = (paths.log_p_path.exp() @ (paths.log_p_caption - paths.bound).square()).sqrt().item()
    data = further.Captions(a.float(), [(torch.tensor([0]), caption)])
    result = further.held_out(decoder.float(), data, K=1000)
    assert result.sampled == pytest.approx(paths.bound.item(), abs=4 * deviation / 1000**0.5)
    soft = decoder.eval()(a.float(), caption)  # outside of training: the expected context
    assert result.expected == pytest.approx(-negative_log_likelihood(soft.logits, caption).item(), abs=1e-5)
    assert result.spread == pytest.approx(entropy(soft.alphas).mean().item(), abs=1e-5)


def test_training_sees_the_same_captions_whatever_the_attention_and_leaves_the_start_as_it_was():
    decoder, *_ = tiny_case()
    before = [weight.clone() for weight in decoder.float().parameters()]
    data = further.Captions(torch.randn(5, 3, 3), [(torch.arange(5), torch.randint(0, 5, (5, C))) for C in (1, 2, 3)])
    seen = {"soft": [], "hard": []}
    for name, batches in seen.items():

        def loss(decoder, a, words, batches=batches):
            batches.append(torch.cat([a.flatten(), words.flatten()]))
            return further.soft_loss(decoder, a, words)

        trained = further.train(decoder, name, loss, data, batch=4, steps=3)
        assert any(not torch.equal(one, other) for one, other in zip(before, trained.parameters(), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(*seen.values(), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(before, decoder.parameters(), strict=True))
