"""Distillation: learning from the word probabilities of other models."""

import pytest
import tiny
import torch

from satlib.beyond.distillation import Teachers, distillation_loss
from satlib.errors import SatlibError
from satlib.model.captioner import Captioner
from satlib.model.decoder import State
from satlib.model.objective import negative_log_likelihood


def run(folder, *changes, teachers=()):
    return tiny.train(folder, *changes, teachers=[(Captioner.load(teacher), tiny.Reader()) for teacher in teachers])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    run(folder, "training.epochs=1")
    return folder


def word_by_word(captioner, image_ids, captions):
    """p(k|y_<t,a) by steps of the decoder, with the expected context."""
    captioner.eval()
    decoder, a = captioner.decoder, captioner.annotations(tiny.Reader().read(image_ids))
    view, state, words, found = decoder.view(a), decoder.initial_state(a), torch.full((len(a),), -1), []
    for t in range(captions.shape[1]):
        embedded = decoder.embed(words)
        state, z, *_ = decoder.step(view, State(*state), decoder.gates_word(embedded))
        found.append(decoder.logits(embedded, state.h, z).softmax(1))
        words = captions[:, t]
    return torch.stack(found, 1)


class TestTeachers:
    def test_their_probabilities_are_the_mean(self, teacher, tmp_path):
        """Of a soft one that counts twice and a hard one, whose recipe would have it sample."""
        hard = run(tmp_path / "hard", "decoder.attention=hard", "decoding.look=sample")
        soft = Captioner.load(teacher)
        image_ids, captions = ["train-0", "train-7"], torch.tensor([[3, 5, 4, 0], [6, 3, 7, 0]])
        reader = tiny.Reader()
        teachers = Teachers([(soft, reader), (hard, reader), (soft, reader)], soft.vocabulary)
        q = teachers.probabilities(image_ids, captions)
        with torch.no_grad(), hard.looking("expected"):
            mean = (2 * word_by_word(soft, image_ids, captions) + word_by_word(hard, image_ids, captions)) / 3
        torch.testing.assert_close(q, mean)
        assert not q.requires_grad
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(teachers.probabilities(image_ids, captions).sum(2), torch.ones(2, 4))
        torch.testing.assert_close(q.sum(2), torch.ones(2, 4))
        state = torch.get_rng_state()
        teachers.probabilities(image_ids, captions)
        assert torch.equal(
            torch.get_rng_state(), state
        )  # a teacher draws nothing: the student's random numbers are its own

    def test_another_vocabulary(self, teacher, tmp_path):
        with pytest.raises(SatlibError, match=r"teacher 1, tiny, has another vocabulary"):
            run(tmp_path / "run", "data.vocabulary_size=8", teachers=[teacher])


class TestLoss:
    def test_by_hand(self):
        """One caption of two words out of three."""
        q = torch.tensor([[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]])
        p = torch.tensor([[[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]])
        by_hand = -(0.5 * p[0, 0, 0].log() + 0.25 * p[0, 0, 1].log() + 0.25 * p[0, 0, 2].log() + p[0, 1, 0].log())
        torch.testing.assert_close(distillation_loss(p.log() + 3, q), by_hand.view(1))

    def test_logits_in_bf16_are_reckoned_in_float32(self):
        logits, q = (8 * torch.randn(2, 30, 50)).bfloat16(), torch.randn(2, 30, 50).softmax(2)
        expected = -(q.double() * logits.double().log_softmax(2)).sum((1, 2))
        torch.testing.assert_close(distillation_loss(logits, q).double(), expected, rtol=1e-5, atol=0)

    def test_sure_teachers_are_the_true_captions(self):
        logits, captions = torch.randn(3, 4, 7), torch.randint(7, (3, 4))
        sure = torch.nn.functional.one_hot(captions, 7).float()
        torch.testing.assert_close(distillation_loss(logits, sure), negative_log_likelihood(logits, captions))

    def test_nothing_pulls_at_one_who_says_what_they_say(self):
        logits = torch.randn(3, 4, 7, requires_grad=True)
        (gradient,) = torch.autograd.grad(distillation_loss(logits, logits.detach().softmax(2)).sum(), logits)
        assert gradient.abs().max() < 1e-6


class TestTraining:
    @pytest.mark.parametrize("attention", ["soft", "hard"])
    def test_the_loss_is_shared_out(self, teacher, tmp_path, attention):
        """At a distillation weight of w, the gradient is (1 - w) times that without teachers and w times that of their loss alone."""
        found = {}
        for w, teachers in (("alone", []), (0.0, [teacher]), (0.25, [teacher]), (0.75, [teacher])):
            session = tiny.session(
                tmp_path / f"{w}",
                f"decoder.attention={attention}",
                f"objective.distillation={w if teachers else 0.5}",
                "objective.doubly_stochastic=0.0",
                "hard.samples=2",
                teachers=[(Captioner.load(each), tiny.Reader()) for each in teachers],
            )
            batch = session.batches.epoch(0)[0]
            torch.manual_seed(0)
            found[w] = session._caption_loss(batch, tiny.Reader().read(batch.image_ids)).loss
        torch.testing.assert_close(found[0.0], found["alone"])
        torch.testing.assert_close(found[0.25], (2 * found[0.0] + found[0.75]) / 3)
        assert not torch.isclose(found[0.0], found[0.75])

    @pytest.mark.slow
    def test_a_student_learns_what_no_caption_says(self, tmp_path):
        """Three captions teach little; what a teacher that has learnt its captions makes of them, more."""
        alone, distilled, teacher = (tmp_path / name for name in ("alone", "distilled", "teacher"))
        run(teacher, "training.epochs=12")
        run(alone, "training.epochs=12", "training.batch_size=64")
        run(distilled, "training.epochs=12", "training.batch_size=64", "objective.distillation=0.9", teachers=[teacher])
        assert tiny.log(distilled)[-1]["dev_nll"] < tiny.log(alone)[-1]["dev_nll"]

    def test_resumed_by_the_same_teachers_only(self, teacher, tmp_path):
        run(tmp_path / "resumed", "training.epochs=1", teachers=[teacher])
        for others in ([], [teacher, teacher]):
            with pytest.raises(SatlibError, match="was begun with other teachers"):
                run(tmp_path / "resumed", teachers=others)

    def test_not_with_rewards(self, teacher, tmp_path):
        with pytest.raises(SatlibError, match="distillation needs the words of true captions"):
            run(tmp_path / "run", "objective.maximise=reward", teachers=[teacher])
        assert not (tmp_path / "run").exists()
