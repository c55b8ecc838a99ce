"""The loss of a training batch is the paper's: -log p + lambda times the penalty.

It is computed from what the decoder returned. Neither the values nor the gradients here come from
`satlib.model.objective`: both are written out.
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
    """A session, a batch of 8 with its vectors, and the list that takes the decoder's outputs."""
    session = tiny.session(folder, *changes, start=start)
    # Captions of a rare length make a smaller batch.
    batches = session.data.batches.epoch(0)
    batch = next(batch for batch in batches if len(batch.image_ids) == B)
    a = tiny.Reader().read(batch.image_ids)

    outputs = []
    session.state.captioner.decoder.register_forward_hook(
        lambda decoder, inputs, output: outputs.append(output)
    )
    return session, batch, a, outputs


def mean(values):
    return sum(values) / len(values)


def penalties(alphas):
    """sum_i (1 - sum_t alpha_ti)^2 of each caption, place by place."""
    sums = []
    for caption in alphas:
        penalty = 0
        for i in range(len(caption[0])):
            received = sum(word[i] for word in caption)
            penalty += (1 - received) ** 2
        sums.append(penalty)
    return sums


def of_words(logits, captions):
    """log p(y_t), (B, C)."""
    right = logits.gather(2, captions.unsqueeze(2)).squeeze(2)
    return (right.exp() / logits.exp().sum(2)).log()


def of_maps(alphas, lengths):
    """The mean entropy of a word's map, and the mean total variation of consecutive words' maps."""
    entropies = []
    moved = []
    for row, length in zip(alphas.tolist(), lengths, strict=True):
        words = row[:length]
        for word in words:
            entropies.append(-sum(p * math.log(p) for p in word))
        for one, other in pairwise(words):
            changes = [abs(p - q) for p, q in zip(one, other, strict=True)]
            moved.append(sum(changes) / 2)
    return pytest.approx([mean(entropies), mean(moved)], rel=1e-4)


def logged(result, *names):
    return [result.means[name].item() for name in names]


class TestEquation14:
    @pytest.mark.parametrize("weight", [0.0, 0.7])
    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_likelihood(self, tmp_path, attention, weight):
        changes = (f"decoder.attention={attention}", f"objective.doubly_stochastic={weight}")
        session, batch, a, outputs = begin(tmp_path, *changes)
        result = session.loss(batch, a, 0.0)

        (output,) = outputs
        captions = batch.captions
        log_p = of_words(output.logits, captions).sum(1)
        nll = mean(-log_p).item()
        penalty = mean(penalties(output.alphas.tolist()))
        # Otherwise the weight would make no difference that one sees.
        assert penalty > 0.1
        expected = nll + weight * penalty
        assert result.loss.item() == pytest.approx(expected, rel=1e-5)
        assert logged(result, "nll", "penalty") == pytest.approx([nll, penalty], rel=1e-5)

        if attention == "soft":
            lengths = [captions.shape[1]] * B
            expected = of_maps(output.alphas, lengths)
        else:
            # An even map over four places, which never moves.
            expected = pytest.approx([math.log(4), 0])
        assert logged(result, "entropy", "movement") == expected
        assert result.captions == B
        assert result.words == captions.numel()

        # d mean(-log p) / d logits is the softmax less the one-hot target.
        (of_logits,) = torch.autograd.grad(result.loss, output.logits, retain_graph=True)
        one_hot = torch.eye(output.logits.shape[2])[captions]
        by_hand = (output.logits.softmax(2) - one_hot) / B
        torch.testing.assert_close(of_logits, by_hand)

        # The penalty's is -2 lambda (1 - sum_t alpha_ti) / B.
        if attention == "soft":
            (of_alphas,) = torch.autograd.grad(
                result.loss, output.alphas, allow_unused=True, materialize_grads=True
            )
            missing = 1 - output.alphas.sum(1, keepdim=True)
            by_hand = -2 * weight / B * missing
            torch.testing.assert_close(of_alphas, by_hand.expand_as(of_alphas))

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_hard_attention_has_its_bound_and_a_penalty_if_asked_for(self, tmp_path, weight):
        """Two samples of each caption, half of the images with the expectation."""
        session, batch, a, outputs = begin(
            tmp_path,
            "decoder.attention=hard",
            "hard.samples=2",
            "hard.lambda_r=0.6",
            "hard.lambda_e=0.3",
            f"objective.doubly_stochastic={weight}",
        )
        result = session.loss(batch, a, 0.0)

        (output,) = outputs
        captions = batch.captions.repeat_interleave(2, 0)
        assert len(output.logits) == result.captions == 2 * B
        sampled = output.places >= 0
        assert 0 < sampled.sum() < sampled.numel()

        # The reward is log p itself: the first baseline is 0.
        log_p = of_words(output.logits, captions)
        nll = -log_p.sum(1)
        reward = log_p.sum(1, keepdim=True).detach()
        alphas = output.alphas
        places = output.places.clamp(min=0).unsqueeze(2)
        log_alpha = alphas.gather(2, places).squeeze(2).log()
        score = (reward * log_alpha * sampled).sum(1)
        spread = -(alphas * alphas.log()).sum((1, 2))
        penalty = (1 - alphas.sum(1)).square().sum(1)
        expected = (nll - 0.6 * score - 0.3 * spread + weight * penalty).mean()

        torch.testing.assert_close(result.loss, expected)
        torch.testing.assert_close(result.means["nll"], nll.mean())
        for name in ("nll", "reward", "baseline"):
            assert not result.means[name].requires_grad

        # The value alone would not show which factor is a constant to autograd.
        parts = (output.logits, alphas)
        found = torch.autograd.grad(result.loss, parts, retain_graph=True)
        by_hand = torch.autograd.grad(expected, parts, retain_graph=True)
        torch.testing.assert_close(found, by_hand)

    def test_what_hard_attention_logs(self, tmp_path):
        """The mean log p(y) of the captions that sampled, and the average it is compared with."""
        session, batch, a, outputs = begin(tmp_path, "decoder.attention=hard")
        average = session.state.bound.average
        C = batch.captions.shape[1]
        share = C / session.state.bound.longest  # of the average, that of the longest captions
        average.fill_(-7.0 / share)
        result = session.loss(batch, a, 0.0)

        (output,) = outputs
        sampled = (output.places >= 0).all(1)
        assert 0 < sampled.sum() < B
        log_p = of_words(output.logits, batch.captions).sum(1).detach()
        reward = log_p[sampled].mean().item()
        assert logged(result, "reward", "baseline") == pytest.approx([reward, -7])
        # Section 4.1: b_k = 0.9 b_{k-1} + 0.1 log p, over all captions of the batch.
        expected = 0.9 * -7 + 0.1 * log_p.mean().item()
        assert share * average.item() == pytest.approx(expected)

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_rewards(self, tmp_path, monkeypatch, weight):
        """Five captions drawn for each image, each rewarded beyond the mean of the other four."""
        drawn = []

        def watched(decoder, *arguments):
            # Captions are sampled as they will be generated: without dropout.
            assert not decoder.training
            drawn.append(rollout(decoder, *arguments))
            return drawn[-1]

        monkeypatch.setattr(rewards_module, "rollout", watched)
        tiny.train(tmp_path / "begun", "training.epochs=1")
        changes = ("objective.maximise=reward", f"objective.doubly_stochastic={weight}")
        session, batch, a, _ = begin(tmp_path / "run", *changes, start=tmp_path / "begun")
        result = session.loss(batch, a, 0.0)

        (sample,) = drawn
        words = sample.words.tolist()
        lengths = [row.index(END) + 1 if END in row else len(row) for row in words]
        # The longest has decoding.max_length and the end mark; others end before it.
        assert min(lengths) < max(lengths) == 13

        rewards = []
        for i, (row, length) in enumerate(zip(words, lengths, strict=True)):
            rewards.append(session.data.reward(batch.image_ids[i // 5], row[:length]))
        gained = 0
        for i, log_policy in enumerate(sample.log_policy):
            first = i - i % 5  # of this image's five captions
            of_image = rewards[first : first + 5]
            baseline = (sum(of_image) - rewards[i]) / 4
            gained += ((rewards[i] - baseline) * log_policy.sum()).item()

        # No map counts after the end mark.
        maps = []
        for alphas, length in zip(sample.alphas.tolist(), lengths, strict=True):
            maps.append(alphas[:length])
        penalty = mean(penalties(maps))
        expected = -gained / (5 * B) + weight * penalty
        assert result.loss.item() == pytest.approx(expected, rel=1e-4)
        means = [penalty, mean(rewards)]
        assert logged(result, "penalty", "reward") == pytest.approx(means, rel=1e-5)
        assert logged(result, "entropy", "movement") == of_maps(sample.alphas.detach(), lengths)
        assert result.captions == 5 * B
        assert result.words == sum(lengths)

        if weight:
            (of_alphas,) = torch.autograd.grad(result.loss, sample.alphas, retain_graph=True)
            for found, alphas, length in zip(of_alphas, sample.alphas, lengths, strict=True):
                missing = 1 - alphas[:length].sum(0)
                expected = -2 * weight / (5 * B) * missing
                torch.testing.assert_close(found[:length], expected.expand(length, -1))
                assert (found[length:] == 0).all()


def test_of_images_with_all_their_captions_it_is_the_mean_over_captions(tmp_path):
    """Captions of different lengths, padded: loss and gradients are the mean of each one's own."""
    changes = ("training.batches=images", "decoder.dropout=0.0", "objective.doubly_stochastic=0.7")
    session = tiny.session(tmp_path / "run", *changes)
    reader = tiny.Reader()
    batch = next(iter(session.data.batches.epoch(0)))
    assert (batch.captions == PAD).any()
    assert len(batch.captions) == 3 * len(batch.image_ids)

    together = session.loss(batch, reader.read(batch.image_ids), 0.0)
    alone = []
    for name, ids in zip(batch.images, batch.captions, strict=True):
        one = Batch([name], ids[ids != PAD][None])
        alone.append(session.loss(one, reader.read([name]), 0.0))
    assert together.captions == len(alone)
    assert together.words == sum(one.words for one in alone)
    one_by_one = sum(one.loss for one in alone) / len(alone)
    torch.testing.assert_close(together.loss, one_by_one)

    parameters = list(session.state.captioner.decoder.parameters())
    ours = torch.autograd.grad(together.loss, parameters)
    expected = torch.autograd.grad(one_by_one, parameters)
    for our_gradient, gradient in zip(ours, expected, strict=True):
        torch.testing.assert_close(our_gradient, gradient, rtol=1e-4, atol=1e-5)

    # Entropy is a mean over words, not over captions.
    entropies = sum(one.means["entropy"] * one.words for one in alone) / together.words
    torch.testing.assert_close(together.means["entropy"], entropies)


class TestUpdate:
    """Updates against the gradient of the loss by itself, without dropout, at a rate of 0."""

    def gradients(self, folder, clip=0.0, weight=1.0, updates=1):
        """What the update leaves in `grad` and the gradient by itself, each as one vector.

        After them, the progress and the loss.
        """
        # A learning rate of 0 keeps the weights, so that every update sees the same gradient.
        still = ("decoder.dropout=0.0", "training.learning_rate=0", f"training.clip={clip}")
        session, batch, a, _ = begin(folder, *still)
        parameters = [p for p in session.state.captioner.parameters() if p.requires_grad]
        result = session.loss(batch, a, 0.0)
        gradients = torch.autograd.grad(result.loss, parameters)
        alone = torch.cat([gradient.flatten() for gradient in gradients])

        for _ in range(updates):
            session.update(replace(batch, weight=weight), a)
        found = torch.cat([p.grad.flatten() for p in parameters])
        return found, alone, session.state.progress, result

    def test_the_gradient_is_that_of_this_batch_alone_and_sums_are_over_captions(self, tmp_path):
        found, alone, progress, result = self.gradients(tmp_path, updates=3)
        torch.testing.assert_close(found, alone)

        sums = {name: 3 * B * value.item() for name, value in result.means.items()}
        assert progress.sums == pytest.approx(sums, rel=1e-5)
        assert progress.batch == 3
        assert progress.words == 3 * result.words
        assert progress.captions == 3 * B
        assert progress.sampled == 0

    def test_a_share_is_weighted_in_the_gradient_and_counted_whole_in_the_log(self, tmp_path):
        found, alone, progress, _ = self.gradients(tmp_path, weight=0.25)
        torch.testing.assert_close(found, alone / 4)
        assert progress.captions == B

    def test_clipped_to_a_length(self, tmp_path):
        found, alone, *_ = self.gradients(tmp_path, clip=0.01)
        assert alone.norm() > 0.02
        expected = alone * 0.01 / alone.norm()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-8)

    def test_clipped_to_the_same_length_where_fp16_scales_the_loss(self, tmp_path):
        """The limit is for the gradient of the loss, not for one that is 256 times as large."""
        session, batch, a, _ = begin(tmp_path, "training.precision=fp16", "training.clip=0.01")
        # So small a scale makes nothing overflow.
        session.state.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        session.update(batch, a)

        parameters = session.state.captioner.decoder.parameters()
        gradient = torch.cat([p.grad.flatten() for p in parameters])
        assert gradient.norm().item() == pytest.approx(0.01, rel=1e-3)
