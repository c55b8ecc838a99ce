"""The loss of a training batch is the paper's: -log p + lambda times the penalty, worked out from what the decoder gave.

Neither the values nor the gradients here come from `satlib.model.objective`: both are written out.
"""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import tiny
import torch

from satlib.beyond import rewards as rewards_module
from satlib.data.batches import Batch
from satlib.data.text import END, PAD
from satlib.model.search import rollout

B = 8  # captions of a batch


def begin(folder, *changes, start=None):
    """A session, a batch of 8 with its vectors, and the list that takes what its decoder gives."""
    session = tiny.session(folder, *changes, start=start)
    batch = next(batch for batch in session.data.batches.epoch(0) if len(batch.image_ids) == B)
    seen = []
    session.state.captioner.decoder.register_forward_hook(
        lambda decoder, inputs, output: seen.append(output)
    )
    return session, batch, tiny.Reader().read(batch.image_ids), seen


def mean(values):
    return sum(values) / len(values)


def penalties(alphas):
    """sum_i (1 - sum_t alpha_ti)^2 of each caption, place by place."""
    return [
        sum((1 - sum(word[i] for word in caption)) ** 2 for i in range(len(caption[0])))
        for caption in alphas
    ]


def of_words(logits, captions):
    """log p(y_t), (B, C)."""
    return (logits.gather(2, captions.unsqueeze(2)).exp().squeeze(2) / logits.exp().sum(2)).log()


def of_maps(alphas, lengths):
    """The mean entropy of a word's map, and the mean total variation between those of consecutive words."""
    maps = [row[:length] for row, length in zip(alphas.tolist(), lengths, strict=True)]
    entropies = [-sum(p * math.log(p) for p in word) for row in maps for word in row]
    pairs = [pair for row in maps for pair in pairwise(row)]
    moved = [sum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2 for one, other in pairs]
    return pytest.approx([mean(entropies), mean(moved)], rel=1e-4)


def logged(result, *names):
    return [result.means[name].item() for name in names]


class TestEquation14:
    @pytest.mark.parametrize("weight", [0.0, 0.7])
    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_likelihood(self, tmp_path, attention, weight):
        changes = (f"decoder.attention={attention}", f"objective.doubly_stochastic={weight}")
        session, batch, a, seen = begin(tmp_path, *changes)
        result = session.loss(batch, a, 0.0)
        (output,), captions = seen, batch.captions
        nll, penalty = (
            mean(-of_words(output.logits, captions).sum(1)).item(),
            mean(penalties(output.alphas.tolist())),
        )
        assert penalty > 0.1
        assert result.loss.item() == pytest.approx(nll + weight * penalty, rel=1e-5)
        assert logged(result, "nll", "penalty") == pytest.approx([nll, penalty], rel=1e-5)
        assert logged(result, "entropy", "movement") == (
            of_maps(output.alphas, [captions.shape[1]] * B)
            if attention == "soft"
            else pytest.approx([math.log(4), 0])
        )
        assert (result.captions, result.words) == (B, captions.numel())
        # d mean(-log p) / d logits is the softmax less the one-hot target; that of the penalty -2 lambda (1 - sum_t alpha_ti) / B.
        (of_logits,) = torch.autograd.grad(result.loss, output.logits, retain_graph=True)
        by_hand = (output.logits.softmax(2) - torch.eye(output.logits.shape[2])[captions]) / B
        torch.testing.assert_close(of_logits, by_hand)
        if attention == "soft":
            (of_alphas,) = torch.autograd.grad(
                result.loss, output.alphas, allow_unused=True, materialize_grads=True
            )
            by_hand = -2 * weight / B * (1 - output.alphas.sum(1, keepdim=True))
            torch.testing.assert_close(of_alphas, by_hand.expand_as(of_alphas))

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_hard_attention_has_its_bound_and_a_penalty_if_asked_for(self, tmp_path, weight):
        """Two samples of each caption, half of the images with the expectation; the first baseline is 0."""
        hard = (
            "decoder.attention=hard",
            "hard.samples=2",
            "hard.lambda_r=0.6",
            "hard.lambda_e=0.3",
        )
        session, batch, a, seen = begin(tmp_path, *hard, f"objective.doubly_stochastic={weight}")
        result = session.loss(batch, a, 0.0)
        (output,), captions = seen, batch.captions.repeat_interleave(2, 0)
        assert len(output.logits) == result.captions == 2 * B
        log_p = of_words(output.logits, captions)
        sampled = output.places >= 0
        assert 0 < sampled.sum() < sampled.numel()
        alpha_of_place = output.alphas.gather(2, output.places.clamp(min=0).unsqueeze(2)).squeeze(2)
        score = (log_p.sum(1, keepdim=True).detach() * alpha_of_place.log() * sampled).sum(1)
        spread = -(output.alphas * output.alphas.log()).sum((1, 2))
        penalty = torch.stack([(1 - caption.sum(0)).square().sum() for caption in output.alphas])
        expected = (-log_p.sum(1) - 0.6 * score - 0.3 * spread + weight * penalty).mean()
        torch.testing.assert_close(result.loss, expected)
        torch.testing.assert_close(result.means["nll"], -log_p.sum(1).mean())
        assert not any(result.means[name].requires_grad for name in ("nll", "reward", "baseline"))
        parts = (output.logits, output.alphas)
        found, by_hand = (
            torch.autograd.grad(each, parts, retain_graph=True) for each in (result.loss, expected)
        )
        torch.testing.assert_close(found, by_hand)

    def test_what_hard_attention_logs(self, tmp_path):
        """The mean log p(y) of the captions that sampled, and the average that it is held against."""
        session, batch, a, seen = begin(tmp_path, "decoder.attention=hard")
        session.state.bound.average.fill_(-7.0 / batch.captions.shape[1])
        result = session.loss(batch, a, 0.0)
        (output,) = seen
        sampled = (output.places >= 0).all(1)
        assert 0 < sampled.sum() < B
        log_p = of_words(output.logits, batch.captions).sum(1).detach()
        assert logged(result, "reward", "baseline") == pytest.approx(
            [log_p[sampled].mean().item(), -7]
        )
        average = batch.captions.shape[1] * session.state.bound.average.item()
        assert average == pytest.approx(0.9 * -7 + 0.1 * log_p.mean().item())

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_rewards(self, tmp_path, monkeypatch, weight):
        """Five captions drawn for each image, each rewarded beyond the mean of the other four; no map counts after the end."""
        drawn = []

        def watched(decoder, *given):
            assert not decoder.training  # rewarded as it will generate
            drawn.append(rollout(decoder, *given))
            return drawn[-1]

        monkeypatch.setattr(rewards_module, "rollout", watched)
        tiny.train(tmp_path / "begun", "training.epochs=1")
        changes = ("objective.maximise=reward", f"objective.doubly_stochastic={weight}")
        session, batch, a, _ = begin(tmp_path / "run", *changes, start=tmp_path / "begun")
        result = session.loss(batch, a, 0.0)
        (made,) = drawn
        lengths = [row.index(END) + 1 if END in row else len(row) for row in made.words.tolist()]
        assert min(lengths) < max(lengths) == 13  # decoding.max_length and the end mark
        keys = [image_id for image_id in batch.image_ids for _ in range(5)]
        captions = zip(keys, made.words.tolist(), lengths, strict=True)
        rewards = [session.data.reward(key, row[:length]) for key, row, length in captions]
        others = [(sum(rewards[i - i % 5 : i - i % 5 + 5]) - rewards[i]) / 4 for i in range(5 * B)]
        gained = sum(
            (r - b) * row.sum() for r, b, row in zip(rewards, others, made.log_policy, strict=True)
        )
        penalty = mean(
            penalties([alphas[:n] for alphas, n in zip(made.alphas.tolist(), lengths, strict=True)])
        )
        assert result.loss.item() == pytest.approx(
            -gained.item() / (5 * B) + weight * penalty, rel=1e-4
        )
        assert logged(result, "penalty", "reward") == pytest.approx(
            [penalty, mean(rewards)], rel=1e-5
        )
        assert logged(result, "entropy", "movement") == of_maps(made.alphas.detach(), lengths)
        assert (result.captions, result.words) == (5 * B, sum(lengths))
        if weight:
            (of_alphas,) = torch.autograd.grad(result.loss, made.alphas, retain_graph=True)
            for found, alphas, length in zip(of_alphas, made.alphas, lengths, strict=True):
                expected = -2 * weight / (5 * B) * (1 - alphas[:length].sum(0))
                torch.testing.assert_close(found[:length], expected.expand(length, -1))
                assert (found[length:] == 0).all()


def test_of_images_with_all_their_captions_it_is_the_mean_over_captions(tmp_path):
    """Captions of unlike lengths, padded: the loss and its gradients are the mean of those of each caption alone."""
    changes = ("training.batches=images", "decoder.dropout=0.0", "objective.doubly_stochastic=0.7")
    session, reader = tiny.session(tmp_path / "run", *changes), tiny.Reader()
    (batch, *_) = session.data.batches.epoch(0)
    assert (batch.captions == PAD).any()
    assert len(batch.captions) == 3 * len(batch.image_ids)
    together = session.loss(batch, reader.read(batch.image_ids), 0.0)
    alone = [
        session.loss(Batch([name], ids[ids != PAD][None]), reader.read([name]), 0.0)
        for name, ids in zip(batch.images, batch.captions, strict=True)
    ]
    assert (together.captions, together.words) == (len(alone), sum(one.words for one in alone))
    one_by_one = sum(one.loss for one in alone) / len(alone)
    torch.testing.assert_close(together.loss, one_by_one)
    parameters = list(session.state.captioner.decoder.parameters())
    gradients = (torch.autograd.grad(loss, parameters) for loss in (together.loss, one_by_one))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    entropies = sum(one.means["entropy"] * one.words for one in alone) / together.words
    torch.testing.assert_close(together.means["entropy"], entropies)


class TestUpdate:
    """Updates against the gradient of the loss by itself, without dropout, at a learning rate of 0."""

    def gradients(self, folder, clip=0.0, weight=1.0, updates=1):
        """(What the update leaves in `grad`, the gradient by itself), each as one vector; the progress, and the loss."""
        still = ("decoder.dropout=0.0", "training.learning_rate=0", f"training.clip={clip}")
        session, batch, a, _ = begin(folder, *still)
        parameters = [p for p in session.state.captioner.parameters() if p.requires_grad]
        result = session.loss(batch, a, 0.0)
        alone = torch.cat([g.flatten() for g in torch.autograd.grad(result.loss, parameters)])
        for _ in range(updates):
            session.update(replace(batch, weight=weight), a)
        return (
            torch.cat([p.grad.flatten() for p in parameters]),
            alone,
            session.state.progress,
            result,
        )

    def test_the_gradient_is_that_of_this_batch_alone_and_sums_are_over_captions(self, tmp_path):
        found, alone, p, result = self.gradients(tmp_path, updates=3)
        torch.testing.assert_close(found, alone)
        assert p.sums == pytest.approx(
            {name: 3 * B * value.item() for name, value in result.means.items()}, rel=1e-5
        )
        assert (p.batch, p.words, p.captions, p.sampled) == (3, 3 * result.words, 3 * B, 0)

    def test_a_share_is_weighted_in_the_gradient_and_counted_whole_in_the_log(self, tmp_path):
        found, alone, p, _ = self.gradients(tmp_path, weight=0.25)
        torch.testing.assert_close(found, alone / 4)
        assert p.captions == B

    def test_clipped_to_a_length(self, tmp_path):
        found, alone, *_ = self.gradients(tmp_path, clip=0.01)
        assert alone.norm() > 0.02
        torch.testing.assert_close(found, alone * 0.01 / alone.norm(), rtol=1e-3, atol=1e-8)

    def test_clipped_to_the_same_length_where_fp16_scales_the_loss(self, tmp_path):
        """The limit is for the gradient of the loss, not for one that is 256 times as large."""
        session, batch, a, _ = begin(tmp_path, "training.precision=fp16", "training.clip=0.01")
        session.state.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)  # nothing overflows
        session.update(batch, a)
        gradients = [p.grad.flatten() for p in session.state.captioner.decoder.parameters()]
        assert torch.cat(gradients).norm().item() == pytest.approx(0.01, rel=1e-3)
