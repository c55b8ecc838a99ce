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
from satlib.model.objective import caption_loss
from satlib.model.search import rollout

B = 8  # captions of a batch


def begin(folder, *changes, start=None):
    """A session, a batch of 8 with its vectors, and the list that takes what its decoder gives."""
    session = tiny.session(folder, *changes, start=start)
    batch = next(batch for batch in session.data.batches.epoch(0) if len(batch.image_ids) == B)
    seen = []
    session.state.captioner.decoder.register_forward_hook(lambda decoder, inputs, output: seen.append(output))
    return session, batch, tiny.Reader().read(batch.image_ids), seen


@pytest.fixture
def rewarded(tmp_path, monkeypatch):
    """Begins a session on rewards: the session, a batch of 8 with its vectors, and the list that takes what is drawn."""
    drawn = []

    def watched(decoder, *given):
        assert not decoder.training  # rewarded as it will generate
        drawn.append(rollout(decoder, *given))
        return drawn[-1]

    monkeypatch.setattr(rewards_module, "rollout", watched)
    tiny.train(tmp_path / "begun", "training.epochs=1")

    def begun(*changes):
        changes = ("objective.maximise=reward", *changes)
        return *begin(tmp_path / "run", *changes, start=tmp_path / "begun")[:3], drawn

    return begun


def penalties(alphas):
    """sum_i (1 - sum_t alpha_ti)^2 of each caption, place by place."""
    return [sum((1 - sum(word[i] for word in caption)) ** 2 for i in range(len(caption[0]))) for caption in alphas]


def of_words(logits, captions):
    """log p(y_t), (B, C)."""
    return (logits.gather(2, captions.unsqueeze(2)).exp().squeeze(2) / logits.exp().sum(2)).log()


def mean(values):
    return sum(values) / len(values)


def by_logits(output, captions):
    """d mean(-log p) / d logits: the softmax less the one-hot target."""
    return (output.logits.softmax(2) - torch.eye(output.logits.shape[2])[captions]) / len(captions)


def by_alphas(alphas, weight):
    """The gradient of lambda times the mean penalty: -2 lambda (1 - sum_t alpha_ti) / B at every word."""
    return (-2 * weight / len(alphas) * (1 - alphas.sum(1, keepdim=True))).expand_as(alphas)


class TestEquation14:
    @pytest.mark.parametrize("weight", [0.0, 0.7, 2.0])
    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_likelihood(self, tmp_path, attention, weight):
        session, batch, a, seen = begin(
            tmp_path, f"decoder.attention={attention}", f"objective.doubly_stochastic={weight}"
        )
        work = session.loss(batch, a, 0.0)
        (output,) = seen
        nll, penalty = (
            mean(-of_words(output.logits, batch.captions).sum(1)).item(),
            mean(penalties(output.alphas.tolist())),
        )
        assert penalty > 0.1
        assert work.loss.item() == pytest.approx(nll + weight * penalty, rel=1e-5)
        assert work.means["nll"].item() == pytest.approx(nll, rel=1e-5)
        assert work.means["penalty"].item() == pytest.approx(penalty, rel=1e-5)
        (of_logits,) = torch.autograd.grad(work.loss, output.logits, retain_graph=True)
        torch.testing.assert_close(of_logits, by_logits(output, batch.captions))
        if attention == "none":
            assert not output.alphas.requires_grad
            return
        (of_alphas,) = torch.autograd.grad(work.loss, output.alphas, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(of_alphas, by_alphas(output.alphas, weight))

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_hard_attention_has_its_bound_and_a_penalty_if_asked_for(self, tmp_path, weight):
        """Two samples of each caption, half of the images with the expectation; the first baseline is 0."""
        session, batch, a, seen = begin(
            tmp_path,
            "decoder.attention=hard",
            "hard.samples=2",
            "hard.lambda_r=0.6",
            "hard.lambda_e=0.3",
            f"objective.doubly_stochastic={weight}",
        )
        work = session.loss(batch, a, 0.0)
        (output,), captions = seen, batch.captions.repeat_interleave(2, 0)
        assert len(output.logits) == work.captions == 2 * B
        log_p = of_words(output.logits, captions)
        sampled = output.places >= 0
        assert 0 < sampled.sum() < sampled.numel()
        alpha_of_place = output.alphas.gather(2, output.places.clamp(min=0).unsqueeze(2)).squeeze(2)
        score = (log_p.sum(1, keepdim=True).detach() * alpha_of_place.log() * sampled).sum(1)
        spread = -(output.alphas * output.alphas.log()).sum((1, 2))
        penalty = torch.stack([(1 - caption.sum(0)).square().sum() for caption in output.alphas])
        expected = (-log_p.sum(1) - 0.6 * score - 0.3 * spread + weight * penalty).mean()
        torch.testing.assert_close(work.loss, expected)
        torch.testing.assert_close(work.means["nll"], -log_p.sum(1).mean())
        assert not any(work.means[name].requires_grad for name in ("nll", "reward", "baseline"))
        parts = (output.logits, output.alphas)
        found, by_hand = (torch.autograd.grad(each, parts, retain_graph=True) for each in (work.loss, expected))
        torch.testing.assert_close(found, by_hand)

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_rewards(self, rewarded, weight):
        """Five captions drawn for each image, each rewarded beyond the mean of the other four; no map counts after the end."""
        session, batch, a, seen = rewarded(f"objective.doubly_stochastic={weight}")
        work = session.loss(batch, a, 0.0)
        (made,) = seen
        lengths = [row.index(END) + 1 if END in row else len(row) for row in made.words.tolist()]
        assert min(lengths) < max(lengths)
        captions = zip(
            [image_id for image_id in batch.image_ids for _ in range(5)], made.words.tolist(), lengths, strict=True
        )
        rewards = [session.data.reward(key, row[:length]) for key, row, length in captions]
        others = [(sum(rewards[i - i % 5 : i - i % 5 + 5]) - rewards[i]) / 4 for i in range(5 * B)]
        maps = [alphas[:length] for alphas, length in zip(made.alphas.tolist(), lengths, strict=True)]
        gained = sum((r - b) * row.sum() for r, b, row in zip(rewards, others, made.log_policy, strict=True))
        penalty = mean(penalties(maps))
        assert work.loss.item() == pytest.approx(-gained.item() / (5 * B) + weight * penalty, rel=1e-4)
        assert work.means["penalty"].item() == pytest.approx(penalty, rel=1e-5)
        if weight:
            (of_alphas,) = torch.autograd.grad(work.loss, made.alphas, retain_graph=True)
            for found, alphas, length in zip(of_alphas, made.alphas, lengths, strict=True):
                expected = -2 * weight / (5 * B) * (1 - alphas[:length].sum(0))
                torch.testing.assert_close(found[:length], expected.expand(length, -1))
                assert (found[length:] == 0).all()


class TestBatchesOfImages:
    """Images with all their captions, padded: the loss and its gradients are the mean of those of each caption alone."""

    def test_the_mean_over_captions(self, tmp_path):
        session = tiny.session(
            tmp_path / "run",
            "training.batches=images",
            "decoder.dropout=0.0",
            "objective.doubly_stochastic=0.7",
        )
        (batch, *_), reader = session.data.batches.epoch(0), tiny.Reader()
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
        for ours, theirs in zip(
            *(torch.autograd.grad(loss, parameters) for loss in (together.loss, one_by_one)), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        entropies = sum(one.means["entropy"] * one.words for one in alone) / together.words
        torch.testing.assert_close(together.means["entropy"], entropies)


class TestWhatIsLogged:
    """The means beside the loss, worked out place by place, word by word."""

    @staticmethod
    def of_maps(alphas, lengths):
        """The mean entropy of a word's map, and the mean total variation between those of consecutive words."""
        maps = [row[:length] for row, length in zip(alphas.tolist(), lengths, strict=True)]
        entropies = [-sum(p * math.log(p) for p in word) for row in maps for word in row]
        moved = [
            sum(abs(p - q) for p, q in zip(one, other, strict=True)) / 2 for row in maps for one, other in pairwise(row)
        ]
        return mean(entropies), mean(moved)

    def test_likelihood(self, tmp_path):
        session, batch, a, seen = begin(tmp_path)
        work = session.loss(batch, a, 0.0)
        (output,) = seen
        logged = [work.means[name].item() for name in ("entropy", "movement")]
        assert logged == pytest.approx(self.of_maps(output.alphas, [batch.captions.shape[1]] * B), rel=1e-4)
        assert (work.captions, work.words) == (B, batch.captions.numel())
        assert session.state.captioner.training

    def test_hard_attention(self, tmp_path):
        """The mean log p(y) of the captions that sampled, and the average that it is held against."""
        session, batch, a, seen = begin(tmp_path, "decoder.attention=hard")
        session.state.bound.average.fill_(-7.0)
        work = session.loss(batch, a, 0.0)
        (output,) = seen
        sampled = (output.places >= 0).all(1)
        assert 0 < sampled.sum() < B
        log_p = of_words(output.logits, batch.captions).sum(1)
        torch.testing.assert_close(work.means["reward"], log_p[sampled].mean().detach())
        assert work.means["baseline"].item() == pytest.approx(-7)
        torch.testing.assert_close(
            session.state.bound.average, 0.9 * torch.tensor([-7.0]) + 0.1 * log_p.mean().detach()
        )

    def test_rewards(self, rewarded):
        session, batch, a, seen = rewarded()
        work = session.loss(batch, a, 0.0)
        (made,) = seen
        lengths = [row.index(END) + 1 if END in row else len(row) for row in made.words.tolist()]
        keys = [image_id for image_id in batch.image_ids for _ in range(5)]
        rewards = [
            session.data.reward(k, row[:n]) for k, row, n in zip(keys, made.words.tolist(), lengths, strict=True)
        ]
        logged = [work.means[name].item() for name in ("reward", "entropy", "movement")]
        assert logged == pytest.approx([mean(rewards), *self.of_maps(made.alphas.detach(), lengths)], rel=1e-4)
        assert (work.captions, work.words) == (5 * B, sum(lengths))
        assert max(lengths) == 13  # decoding.max_length and the end mark


class TestUpdate:
    """One update against the gradient of the loss that `_likelihood` gives, without dropout."""

    STILL = ("decoder.dropout=0.0", "training.learning_rate=0")

    def gradients(self, folder, *changes, weight=1.0, updates=1):
        """(What the update leaves in `grad`, the gradient by itself), each as one vector; and the session."""
        session, batch, a, _ = begin(folder, *self.STILL, *changes)
        parameters = [p for p in session.state.captioner.parameters() if p.requires_grad]
        loss = session.loss(batch, a, 0.0).loss
        alone = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
        for _ in range(updates):
            session.update(replace(batch, weight=weight), a)
        return torch.cat([p.grad.flatten() for p in parameters]), alone, session

    @pytest.mark.parametrize("updates", [1, 3])
    def test_the_gradient_is_that_of_this_batch_alone(self, tmp_path, updates):
        found, alone, session = self.gradients(tmp_path, "training.clip=0", updates=updates)
        torch.testing.assert_close(found, alone)
        assert session.state.progress.batch == updates

    def test_a_share_is_weighted_in_the_gradient_and_counted_whole_in_the_log(self, tmp_path):
        found, alone, session = self.gradients(tmp_path, "training.clip=0", weight=0.25)
        torch.testing.assert_close(found, alone / 4)
        assert session.state.progress.captions == B

    def test_clipped_to_a_length(self, tmp_path):
        found, alone, _ = self.gradients(tmp_path, "training.clip=0.01")
        assert alone.norm() > 0.02
        torch.testing.assert_close(found, alone * 0.01 / alone.norm(), rtol=1e-3, atol=1e-8)

    def test_sums_over_captions(self, tmp_path):
        """Two updates at a learning rate of 0: twice the loss of 8 captions."""
        session, batch, a, _ = begin(tmp_path, *self.STILL)
        work = session.loss(batch, a, 0.0)
        for _ in range(2):
            session.update(batch, a)
        p = session.state.progress
        assert p.sums == pytest.approx({name: 2 * B * value.item() for name, value in work.means.items()}, rel=1e-5)
        assert (p.words, p.captions, p.sampled) == (2 * batch.captions.numel(), 2 * B, 0)


def test_terms_are_added():
    """Before the penalty."""
    decoder, captions = tiny.decided().decoder, torch.tensor([[2, 3, END]] * 2)
    terms = [lambda output: (output.alphas.sum(), {}), lambda output: (1, {"more": torch.ones(())})]
    plain, both = (
        caption_loss(decoder, tiny.Reader().read(["dev-0", "dev-1"]), captions, 1.0, terms=t) for t in ([], terms)
    )
    torch.testing.assert_close(both.loss, plain.loss + 6 + 1)
    assert "more" in both.means
