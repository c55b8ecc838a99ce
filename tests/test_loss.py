"""The loss of a training batch is the paper's: -log p + lambda times the penalty, worked out from what the decoder gave.

Neither the values nor the gradients here come from `satlib.objectives`: both are written out.
"""

import pytest
import tiny
import torch

from satlib import encoders, training
from satlib.decoding import rollout
from satlib.text import END

B = 8  # captions of a batch


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)


def begin(folder, *changes, start=None):
    """A session, a batch of 8 with its vectors, and the list that takes what its decoder gives."""
    session = training._Session(
        tiny.the_recipe(*changes), tiny.data(), tiny.Reader(), folder, torch.device("cpu"), False, start
    )
    batch = next(batch for batch in session.batches.epoch(0) if len(batch.keys) == B)
    seen = []
    session.captioner.decoder.register_forward_hook(lambda decoder, inputs, output: seen.append(output))
    return session, batch, tiny.Reader().read(batch.keys), seen


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
        work = session._likelihood(batch, a)
        (output,) = seen
        nll, penalty = (
            mean(-of_words(output.logits, batch.captions).sum(1)).item(),
            mean(penalties(output.alphas.tolist())),
        )
        assert penalty > 0.1
        assert work.loss.item() == pytest.approx(nll + weight * penalty, rel=1e-5)
        assert work.sums["nll"].item() == pytest.approx(nll, rel=1e-5)
        assert work.sums["penalty"].item() == pytest.approx(penalty, rel=1e-5)
        of_logits, of_alphas = torch.autograd.grad(
            work.loss, (output.logits, output.alphas), allow_unused=True, materialize_grads=True
        )
        torch.testing.assert_close(of_logits, by_logits(output, batch.captions))
        if attention == "soft":  # without attention the maps are a constant
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
        work = session._likelihood(batch, a)
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
        torch.testing.assert_close(work.sums["nll"], -log_p.sum(1).mean())
        assert not any(work.sums[name].requires_grad for name in ("nll", "reward", "baseline"))
        parts = (output.logits, output.alphas)
        found, by_hand = (torch.autograd.grad(each, parts, retain_graph=True) for each in (work.loss, expected))
        torch.testing.assert_close(found, by_hand)

    @pytest.mark.parametrize("weight", [0.0, 0.7])
    def test_rewards(self, tmp_path, monkeypatch, weight):
        """Five captions drawn for each image, each rewarded beyond the mean of the other four; no map counts after the end."""
        seen = []

        def watched(*arguments):
            seen.append(rollout(*arguments))
            return seen[-1]

        monkeypatch.setattr(training, "rollout", watched)
        begun = tmp_path / "begun"
        training.train(tiny.the_recipe("training.epochs=1"), tiny.data(), tiny.Reader(), begun, progress=False)
        session, batch, a, _ = begin(
            tmp_path / "run", "objective.maximise=reward", f"objective.doubly_stochastic={weight}", start=begun
        )
        work = session._expected_reward(batch, a)
        (made,) = seen
        lengths = [row.index(END) + 1 if END in row else len(row) for row in made.words.tolist()]
        assert min(lengths) < max(lengths)
        captions = zip([key for key in batch.keys for _ in range(5)], made.words.tolist(), lengths, strict=True)
        rewards = [session.reward(key, row[:length]) for key, row, length in captions]
        others = [(sum(rewards[i - i % 5 : i - i % 5 + 5]) - rewards[i]) / 4 for i in range(5 * B)]
        maps = [alphas[:length] for alphas, length in zip(made.alphas.tolist(), lengths, strict=True)]
        gained = sum((r - b) * row.sum() for r, b, row in zip(rewards, others, made.log_policy, strict=True))
        penalty = mean(penalties(maps))
        assert work.loss.item() == pytest.approx(-gained.item() / (5 * B) + weight * penalty, rel=1e-4)
        assert work.sums["penalty"].item() == pytest.approx(penalty, rel=1e-5)
        if weight:
            (of_alphas,) = torch.autograd.grad(work.loss, made.alphas, retain_graph=True)
            for found, alphas, length in zip(of_alphas, made.alphas, lengths, strict=True):
                expected = -2 * weight / (5 * B) * (1 - alphas[:length].sum(0))
                torch.testing.assert_close(found[:length], expected.expand(length, -1))
                assert (found[length:] == 0).all()
