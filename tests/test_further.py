"""Decoders trained further: each loss against the estimate that `bounds` enumerates, and what is measured against the sum over paths."""

import pytest
import torch
from further import PosteriorLoss, vimco_loss

from satcourse.lessons import bounds, further
from satcourse.lessons.estimators import (
    _forced,
    every_path,
    jacobian,
    path_gradients,
    paths_of,
    run_every_path,
    tiny,
)
from satlib.data import scenes
from satlib.model import shipped
from satlib.model.attention import entropy
from satlib.model.captioner import Captioner
from satlib.model.objective import HardConfig, negative_log_likelihood


def case():
    """Three places, two words: nine paths, three of which are drawn."""
    decoder, a, caption = tiny()
    return decoder, a[:, :3], caption[:, :2], [1, 4, 8]


def flat(loss, weights):
    return jacobian(loss.unsqueeze(0), weights)[0]


def test_vimco_ascends_the_estimate_of_the_paths_that_were_drawn():
    decoder, a, caption, drawn = case()
    weights = list(decoder.parameters())
    paths = every_path(decoder, a, caption)
    attention = bounds.from_attention(paths, path_gradients(paths, weights))
    row = bounds.independent(attention.log_q, 3)[0].tolist().index(drawn)
    with _forced(decoder, paths.places[drawn]):
        loss = vimco_loss(3)(decoder, a, caption)
    torch.testing.assert_close(-flat(loss, weights), bounds.multi_sample(attention, 3, vimco=True).gradient[row])
    found = -torch.logsumexp(paths.log_p_caption[drawn], 0) + torch.tensor(3.0).log()
    log_q, signal = paths.log_p_path[drawn], bounds.vimco_signal(paths.log_p_caption[drawn].unsqueeze(0))[0]
    torch.testing.assert_close(loss, found - (signal * log_q).sum())


def test_the_papers_bound_ascends_the_estimate_of_the_paths_that_were_drawn():
    decoder, a, caption, drawn = case()
    weights = list(decoder.parameters())
    paths = every_path(decoder, a, caption)
    attention = bounds.from_attention(paths, path_gradients(paths, weights))
    for name, baseline in (("leave-one-out", "leave-one-out"), ("moving-average", -4.0)):
        config = HardConfig(expectation=0.0, lambda_e=0.0, baseline=name, samples=3)
        with _forced(decoder, paths.places[drawn]):
            loss = further.hard_loss(config, decoder.config.hidden, average=-4.0)(decoder, a, caption)
        row = bounds.independent(attention.log_q, 3)[0].tolist().index(drawn)
        expected = bounds.score_function(attention, 3, baseline).gradient[row]
        torch.testing.assert_close(-flat(loss, weights), expected)


def test_a_learned_posterior_ascends_the_estimate_of_the_paths_that_were_drawn(monkeypatch):
    decoder, a, caption, drawn = case()
    torch.manual_seed(0)
    loss = PosteriorLoss(decoder, 3, N=3).double()
    torch.nn.init.normal_(loss.q.energy.energy.weight)  # not as the attention
    output = run_every_path(decoder, a, caption)
    paths, log_q = paths_of(output, caption), loss.q(decoder, output, a, caption)
    columns = iter(paths.places[drawn].T)
    monkeypatch.setattr("further._Posterior.draw", lambda self, p: next(columns))
    found, attention = loss(decoder, a, caption), decoder.attention
    row = bounds.independent(log_q, 3)[0].tolist().index(drawn)
    weights, own = list(decoder.parameters()), list(loss.parameters())
    proposal = bounds.from_proposal(paths, path_gradients(paths, weights), log_q)
    expected = bounds.score_function(proposal, 3, "leave-one-out").gradient[row]
    torch.testing.assert_close(-flat(found, weights), expected)
    score = jacobian(log_q, own)
    expected = bounds.score_function(bounds.Drawn(log_q, proposal.log_w, score, -score), 3, "leave-one-out").gradient[
        row
    ]
    torch.testing.assert_close(-flat(found, own), expected)
    assert decoder.attention is attention


def test_what_is_measured_is_near_the_sum_over_paths():
    decoder, a, caption, _ = case()
    paths = every_path(decoder, a, caption)
    p = paths.log_p_path.exp()
    deviation = (p @ (paths.log_p_caption - paths.bound).square()).sqrt().item()
    data = further.Captions(a.float(), [(torch.tensor([0]), caption)])
    found = further.held_out(decoder.float(), data, K=1000)
    assert found.sampled == pytest.approx(paths.bound.item(), abs=4 * deviation / 1000**0.5)
    assert found.several == pytest.approx(paths.log_likelihood.item(), abs=0.2)
    soft = decoder.eval()(a.float(), caption)  # outside of training: the expected context
    assert found.expected == pytest.approx(-negative_log_likelihood(soft.logits, caption).item(), abs=1e-5)
    assert found.spread == pytest.approx(entropy(soft.alphas).mean().item(), abs=1e-5)


def test_training_sees_the_same_captions_whatever_the_loss_and_leaves_the_start_as_it_was():
    decoder, *_ = tiny()
    before = [weight.clone() for weight in decoder.float().parameters()]
    data = further.Captions(torch.randn(5, 3, 3), [(torch.arange(5), torch.randint(0, 5, (5, C))) for C in (1, 2, 3)])
    seen = {}
    for name in ("soft", "hard"):
        seen[name] = []

        def loss(decoder, a, words, name=name):
            seen[name].append((a, words))
            return further.soft_loss(decoder, a, words)

        trained = further.train(decoder, name, loss, data, batch=4, steps=3)
        assert any(not torch.equal(one, other) for one, other in zip(before, trained.parameters(), strict=True))
    assert len(seen["soft"]) == 3
    for one, other in zip(seen["soft"], seen["hard"], strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert all(torch.equal(one, other) for one, other in zip(before, decoder.parameters(), strict=True))


def test_every_caption_of_a_split_is_there_with_its_image():
    captioner, data = Captioner.load(shipped.model("scenes-soft"), "cpu"), scenes.load(1, 1, 3)
    found = further.captions(captioner, data, "test")
    examples = list(data.split("test"))
    texts = sorted(
        (row, captioner.vocabulary.encode(each)) for row, example in enumerate(examples) for each in example.references
    )
    pairs = [
        (row, words[:-1])
        for rows, ids in found.by_length
        for row, words in zip(rows.tolist(), ids.tolist(), strict=True)
    ]
    assert sorted(pairs) == texts
    assert len(found.vectors) == 3
