"""Decoders trained further, from vectors in memory: what they are trained on."""

import torch

from satcourse.lessons import further
from satcourse.lessons.estimators import tiny as tiny_case


def test_training_sees_the_same_captions_whatever_the_attention_and_leaves_the_start_as_it_was():
    decoder, *_ = tiny_case()
    before = [weight.clone() for weight in decoder.float().parameters()]
    data = further.Captions(
        torch.randn(5, 3, 3), [(torch.arange(5), torch.randint(0, 5, (5, C))) for C in (1, 2, 3)]
    )
    seen = {"soft": [], "hard": []}
    for name, batches in seen.items():

        def loss(decoder, a, words, batches=batches):
            batches.append(torch.cat([a.flatten(), words.flatten()]))
            return further.soft_loss(decoder, a, words)

        trained = further.train(decoder, name, loss, data, batch=4, steps=3)
        assert any(
            not torch.equal(one, other)
            for one, other in zip(before, trained.parameters(), strict=True)
        )
    assert all(torch.equal(one, other) for one, other in zip(*seen.values(), strict=True))
    assert all(
        torch.equal(one, other) for one, other in zip(before, decoder.parameters(), strict=True)
    )
