"""Decoders trained further, from vectors in memory: what they are trained on."""

import torch

from satcourse.lessons import further
from satcourse.lessons.estimators import tiny as tiny_case


def all_equal(ones, others):
    pairs = zip(ones, others, strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def test_training_sees_the_same_captions_whatever_the_attention_and_leaves_the_start_as_it_was():
    decoder, *_ = tiny_case()
    before = [weight.clone() for weight in decoder.float().parameters()]
    # Five captions each of one, two and three words.
    vectors = torch.randn(5, 3, 3)
    groups = []
    for C in (1, 2, 3):
        captions = torch.randint(0, 5, (5, C))
        groups.append((torch.arange(5), captions))
    data = further.Captions(vectors, groups)

    seen = {"soft": [], "hard": []}
    for name, batches in seen.items():

        def loss(decoder, a, words, batches=batches):
            # What the loss is given, in a row; the order of batches counts, too.
            batches.append(torch.cat([a.flatten(), words.flatten()]))
            return further.soft_loss(decoder, a, words)

        trained = further.train(decoder, name, loss, data, batch=4, steps=3)
        assert not all_equal(before, trained.parameters())

    assert all_equal(seen["soft"], seen["hard"])
    assert all_equal(before, decoder.parameters())
