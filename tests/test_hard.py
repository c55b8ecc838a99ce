"""Hard attention: the bound and its estimators against the sum over every path, the terms by hand,
runs that go on.
"""

from typing import NamedTuple

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch.testing import assert_close

from satcourse.lessons import estimators
from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.model import attention
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Captioner
from satlib.model.decoder import Output
from satlib.model.objective import HardConfig, VariationalBound, coins


def flat(gradients, weights):
    """All in a row; None, of a weight that has no part in the result, is zeros."""
    parts = []
    for gradient, weight in zip(gradients, weights, strict=True):
        if gradient is None:
            gradient = torch.zeros_like(weight)
        parts.append(gradient.flatten())
    return torch.cat(parts)


class TestBound:
    @given(st.integers(0, 10_000))
    @settings(max_examples=25)
    def test_never_above_the_log_likelihood(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        paths = estimators.every_path(decoder, a, caption)
        total = paths.log_p_path.exp().sum().item()
        assert total == pytest.approx(1, abs=1e-9)
        assert paths.bound.item() <= paths.log_likelihood.item() + 1e-9

    @given(st.integers(0, 10_000))
    @settings(max_examples=10)
    def test_equal_when_alpha_is_one_hot(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        # Energies so far apart that softmax gives all to one place.
        with torch.no_grad():
            decoder.attention.energy.energy.weight.mul_(1e6)
        paths = estimators.every_path(decoder, a, caption)
        assert paths.bound.item() == pytest.approx(paths.log_likelihood.item(), abs=1e-6)


def walk(decoder, a, caption, path):
    """Log p(s_t) and log p(y_t) along one path, step by step with the place put in by hand."""
    annotations = decoder.project(a)
    state = decoder.initial_state(a)
    word = torch.tensor([-1])
    log_p_place = []
    log_p_word = []
    for t, place in enumerate(path):
        alpha = torch.softmax(decoder.attention.energy(annotations.keys, state.h), 1)
        log_p_place.append(alpha[0, place].log())

        decoder.attention.draw = lambda _, place=place: torch.tensor([place])
        E_y = decoder.embed(word)
        step = decoder.step(annotations, state, decoder.gates_word(E_y))
        state = step.state
        word = caption[:, t]
        log_p = decoder.logits(E_y, state.h, step.z).log_softmax(1)
        log_p_word.append(log_p[0, word.item()])

    # The class's own `draw` is there again.
    del decoder.attention.draw
    return torch.stack(log_p_place), torch.stack(log_p_word)


class TestPaths:
    def test_every_path_is_there_once_and_equals_a_walk(self):
        decoder, a, caption = estimators.tiny()
        paths = estimators.every_path(decoder, a, caption)
        different = {tuple(path) for path in paths.places.tolist()}
        assert len(different) == estimators.PLACES**estimators.WORDS

        # The first, the last and two between.
        for row in (0, 13, 38, 63):
            log_p_place, log_p_word = walk(decoder, a, caption, paths.places[row].tolist())
            assert_close(paths.log_p_place[row], log_p_place)
            assert_close(paths.log_p_word[row], log_p_word)

    @pytest.mark.parametrize("seed", range(3))
    def test_weighed_and_added_up_they_are_the_gradient_of_the_bound(self, seed):
        """Equation 11; with any baseline; and with the rewards to come in place of the
        sentence's.
        """
        decoder, a, caption = estimators.tiny(seed)
        weights = list(decoder.parameters())
        paths = estimators.every_path(decoder, a, caption)
        likelihood, score = estimators.path_gradients(paths, weights)
        bound = flat(torch.autograd.grad(paths.bound, weights), weights)

        p = paths.log_p_path.exp().detach()  # (paths,)
        log_p_word = paths.log_p_word.detach()  # (paths, C)
        sentence = log_p_word.sum(1, keepdim=True)
        to_come = log_p_word.flip(1).cumsum(1).flip(1)
        baselines = torch.tensor([1.0, 2.0, 3.0])
        for rewards in (sentence, sentence + 7, to_come, to_come - baselines):
            rewarded = (rewards.unsqueeze(2) * score).sum(1)
            assert_close(p @ (likelihood + rewarded), bound)


EXACT = HardConfig(expectation=0.0, lambda_e=0.0)
UNBIASED = {}
for reward in ("sentence", "to-come"):
    for baseline in ("none", "moving-average", "leave-one-out", "learned"):
        # Leaving one out needs others of the same image.
        samples = 4 if baseline == "leave-one-out" else 1
        config = replace(EXACT, reward=reward, baseline=baseline, samples=samples)
        UNBIASED[f"reward {reward}, baseline {baseline}"] = config
HALF = "expectation for half of the images"


class Estimate(NamedTuple):
    """An estimator against the exact gradient of L_s, over all weights of the decoder.

    worst: the largest distance of a weight's mean from the truth, in standard errors of that mean.
    bias: the length of the mean's error over the length of the truth.
    noise: the length of one caption's standard deviation over the same.
    """

    worst: float
    bias: float
    noise: float


def estimated(config, draws=120, rows=64):
    """An estimator drawn many times over `rows` captions, once its baseline has converged."""
    decoder, a, captions = estimators.tiny()
    weights = list(decoder.parameters())
    exact = -estimators.every_path(decoder, a, captions).bound
    truth = flat(torch.autograd.grad(exact, weights), weights)

    torch.manual_seed(0)
    bound = VariationalBound(config, decoder.config.hidden, longest=estimators.WORDS).double()
    images = rows // config.samples
    # The same image and caption in every row.
    a = a.expand(rows, *a.shape[1:])
    captions = captions.expand(rows, *captions.shape[1:])

    def draw():
        expected = coins(config, images, a.device).repeat_interleave(config.samples)
        output = decoder(a, captions, expected)
        return bound(output, captions).loss

    # A learned baseline needs steps of its own; a moving average moves by itself.
    learner = torch.optim.Adam(bound.parameters(), 0.05) if bound.learned else None
    for _ in range(80):
        loss = draw()
        if learner:
            learner.zero_grad()
            torch.autograd.backward(loss, inputs=list(bound.parameters()))
            learner.step()
    bound.eval()

    # The same samples for every estimator, as far as they draw alike.
    torch.manual_seed(1)
    gradients = []
    for _ in range(draws):
        gradient = torch.autograd.grad(draw(), weights, allow_unused=True)
        gradients.append(flat(gradient, weights))
    drawn = torch.stack(gradients)  # (draws, weights)

    error = drawn.mean(0) - truth
    deviation = drawn.std(0)
    standard_error = deviation / draws**0.5
    # Some weights have no part in any draw, and no error either.
    moving = standard_error > 1e-12 * truth.norm()
    worst = (error[moving] / standard_error[moving]).abs().max()
    bias = error.norm() / truth.norm()
    # The noise is of one caption, however many were averaged in a draw; for N samples, of one
    # caption with its N.
    noise = deviation.norm() * images**0.5 / truth.norm()
    return Estimate(worst.item(), bias.item(), noise.item())


@pytest.fixture(scope="module")
def measured():
    estimates = {name: estimated(config) for name, config in UNBIASED.items()}
    return estimates | {HALF: estimated(replace(EXACT, expectation=0.5))}


@pytest.mark.slow
class TestEstimators:
    @pytest.mark.parametrize("name", UNBIASED)
    def test_mean_is_the_exact_gradient_of_the_bound(self, measured, name):
        # Every weight's mean is within 4 standard errors.
        assert measured[name].worst < 4
        # With fewer draws everything would be within them.
        assert measured[name].bias < 0.15

    def test_every_baseline_has_less_noise_than_none(self, measured):
        for name, config in UNBIASED.items():
            if config.baseline != "none":
                without = measured[f"reward {config.reward}, baseline none"]
                assert measured[name].noise < 0.5 * without.noise

    def test_what_claims_no_unbiasedness_is_seen_to_be_biased(self, measured):
        # The expectation takes the soft context, whose gradient is that of another loss.
        assert measured[HALF].worst > 8


class TestTerms:
    """By hand: log p(y|s~,a) is -7 and -5; log alpha is ln 1/4 at place 0 and ln 3/4 at place 1."""

    def loss(self, config, average=None, places=((0, 1, 1), (1, 0, 0))):
        """Of two captions of three words, with given log p(y_t) of word 0 of two; two places, of
        which the first weighs 1/4.
        """
        log_p = (
            (-1.0, -2.0, -4.0),
            (-3.0, -1.0, -1.0),
        )
        p = torch.tensor(log_p).exp()
        logits = torch.stack([p, 1 - p], 2).log()
        alphas = torch.tensor([0.25, 0.75]).expand(2, 3, 2).clone()  # (captions, words, places)
        alphas.requires_grad_()
        betas = torch.ones(2, 3)
        states = torch.zeros(2, 3, 4)
        output = Output(logits, alphas, betas, torch.tensor(places), states)

        bound = VariationalBound(config, hidden=4, longest=3)
        if average is not None:
            bound.average.copy_(torch.tensor(average))
        return bound(output, torch.zeros(2, 3).long()), alphas, bound

    def test_sentence_reward_against_the_moving_average(self):
        config = HardConfig(lambda_r=2.0, lambda_e=0.5)
        estimate, _, bound = self.loss(config, average=[-4.0])

        quarter, rest = torch.tensor([0.25, 0.75]).log()
        # Reward less average, times log p of the places; the mean of two captions.
        first = (-7 + 4) * (quarter + 2 * rest)
        second = (-5 + 4) * (rest + 2 * quarter)
        score = (first + second) / 2
        # The entropy of three maps, the same in both captions.
        spread = 3 * -(0.25 * quarter + 0.75 * rest)
        assert_close(estimate.loss, 6 - 2.0 * score - 0.5 * spread)
        assert estimate.nll.tolist() == pytest.approx([7, 5])
        # Updated after it was used.
        assert bound.average.tolist() == pytest.approx([0.9 * -4 + 0.1 * -6])

    def test_reward_to_come(self):
        estimate, *_ = self.loss(HardConfig(reward="to-come", baseline="none"))
        # Of -1, -2, -4 and of -3, -1, -1, each with what follows it.
        assert estimate.advantage.tolist() == pytest.approx([-7, -6, -4, -5, -2, -1])

    def test_reward_to_come_has_an_average_for_each_number_of_words(self):
        config = HardConfig(reward="to-come")
        estimate, _, bound = self.loss(config, average=[0.0, -1.0, -3.0, -5.0])
        # Three words are left at the first word, then two, then one.
        assert estimate.baseline.tolist() == pytest.approx([-5, -3, -1] * 2)
        # A tenth of the means -2.5, -4 and -6 for one, two and three words left.
        moved = [0, -0.9 - 0.25, -2.7 - 0.4, -4.5 - 0.6]
        assert bound.average.tolist() == pytest.approx(moved)

    def test_leave_one_out(self):
        estimate, *_ = self.loss(HardConfig(baseline="leave-one-out", samples=2))
        # Of two samples, each has the other's reward as its baseline.
        assert estimate.baseline.tolist() == pytest.approx([-5] * 3 + [-7] * 3)

    def test_a_caption_with_the_expectation_has_no_score(self):
        config = HardConfig(lambda_e=0, baseline="none")
        # -1: no place was drawn.
        places = ((0, 1, 1), (-1, -1, -1))
        estimate, alphas, _ = self.loss(config, places=places)
        estimate.loss.backward()
        assert estimate.advantage.tolist() == pytest.approx([-7] * 3)
        assert alphas.grad[0].abs().sum() > 0
        assert alphas.grad[1].abs().sum() == 0

    def test_entropy_and_movement_by_hand(self):
        maps = [
            [0.5, 0.5],
            [1.0, 0.0],
            [0.0, 1.0],
        ]
        alphas = torch.tensor([maps])
        # A half each: ln 2.
        ln_2 = torch.tensor(2.0).log()
        assert_close(entropy(alphas), torch.tensor([[1.0, 0, 0]]) * ln_2)
        # Half of the weight moves, then all of it.
        assert movement(alphas).tolist() == [[0.5, 1.0]]


class TestLooking:
    def hard(self):
        torch.manual_seed(0)
        made = attention.create("hard", 3, 4, 5)
        a = torch.randn(6, 5, 3)
        h = torch.randn(6, 4)
        return made, a, h

    def test_samples_follow_alpha(self):
        made, a, h = self.hard()
        n = 20_000
        a = a[:1].expand(n, -1, -1)
        h = h[:1].expand(n, -1)
        z, alpha, place = made(a, made.keys(a), h)
        assert torch.equal(z, a[0][place])

        p = alpha[0].detach()
        shares = torch.bincount(place, minlength=5) / n
        standard_errors = (p * (1 - p) / n).sqrt()
        assert ((shares - p).abs() <= 4 * standard_errors).all()

    def test_rows_with_the_expectation(self):
        made, a, h = self.hard()
        soft = attention.SoftAttention(made.energy)(a, made.keys(a), h)
        expected = torch.tensor([True, False] * 3)
        z, alpha, place = made(a, made.keys(a), h, expected)

        assert_close(z[expected], soft.z[expected])
        assert_close(alpha, soft.alpha)
        assert (place[expected] == -1).all()
        drawn = a[torch.arange(6), place]
        assert_close(z[~expected], drawn[~expected])

    def test_outside_of_training(self):
        made, a, h = self.hard()
        made.eval()
        soft = attention.SoftAttention(made.energy)(a, made.keys(a), h)
        # Unless it is told otherwise, the expectation.
        assert_close(made(a, made.keys(a), h).z, soft.z)

        made.look = "probable"
        z, _, probable = made(a, made.keys(a), h)
        assert torch.equal(probable, soft.alpha.argmax(1))
        assert torch.equal(z, a[torch.arange(6), probable])

        made.look = "sample"
        drawn = set()
        for _ in range(20):
            _, _, places = made(a, made.keys(a), h)
            drawn.add(tuple(places.tolist()))
        assert drawn != {tuple(probable.tolist())}

    def test_after_an_error_the_look_is_what_it_was(self):
        captioner = tiny.decided("hard")
        with pytest.raises(ZeroDivisionError), captioner.looking("sample"):
            raise ZeroDivisionError
        assert captioner.decoder.attention.look == "expected"

    def test_coins_are_per_image(self):
        cpu = torch.device("cpu")
        tossed = coins(HardConfig(samples=3), 2000, cpu)
        assert tossed.float().mean().item() == pytest.approx(0.5, abs=0.05)

        # From 1 it falls on a line to 0.2, which it reaches in the middle of the training.
        annealed = HardConfig(expectation=0.2, anneal=0.5)
        for done, probability in (
            (0.0, 1.0),
            (0.25, 0.6),
            (0.5, 0.2),
            (0.9, 0.2),
        ):
            tossed = coins(annealed, 4000, cpu, done)
            assert tossed.float().mean().item() == pytest.approx(probability, abs=0.04)


class TestTraining:
    def test_begins_with_the_weights_of_a_soft_model(self, tmp_path):
        soft = tiny.train(tmp_path / "soft")
        # At a learning rate of 0 they stay what they were at the start.
        still = ("decoder.attention=hard", "training.learning_rate=0", "training.epochs=1")
        hard = tiny.train(tmp_path / "hard", *still, start=tmp_path / "soft")
        weights = hard.state_dict()
        for name, weight in soft.state_dict().items():
            assert torch.equal(weight, weights[name])

        with pytest.raises(SatlibError, match="another kind or size"):
            tiny.train(tmp_path / "wide", "decoder.hidden=20", start=tmp_path / "soft")

    @pytest.mark.slow
    def test_evaluated_by_each_look(self, tmp_path):
        tiny.train(tmp_path, "decoder.attention=hard", "training.epochs=1")
        captioner = Captioner.load(tmp_path)
        data = tiny.data()
        reader = tiny.Reader()
        for look in ("expected", "probable", "sample"):
            found = evaluate.evaluate(captioner, data, reader, "dev", look=look, progress=False)
            assert found["recipe"]["decoding"]["look"] == look
        # As it was.
        assert captioner.decoder.attention.look == "expected"


def test_the_penalty_is_off_unless_asked_for():
    """In hard attention; in soft attention it is on."""

    def penalty(*changes):
        return tiny.the_recipe(*changes).objective.doubly_stochastic

    hard = "decoder.attention=hard"
    assert penalty(hard) == 0
    assert penalty(hard, "objective.doubly_stochastic=0.5") == 0.5
    assert penalty() == 1
