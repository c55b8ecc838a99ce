"""Hard attention: the bound and its estimators against the sum over every path, the terms by hand, runs that go on."""

import estimates
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satcourse.lessons import estimators
from satlib.evaluation import evaluate
from satlib.model import attention
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Captioner
from satlib.model.decoder import Output
from satlib.model.objective import HardConfig, VariationalBound, coins

UNBIASED = [name for name, (_, claims) in estimates.estimators().items() if claims]


class TestBound:
    @given(st.integers(0, 10_000))
    @settings(max_examples=25)
    def test_never_above_the_log_likelihood(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        paths = estimators.every_path(decoder, a, caption)
        assert paths.log_p_path.exp().sum().item() == pytest.approx(1, abs=1e-9)
        assert paths.bound.item() <= paths.log_likelihood.item() + 1e-9

    @given(st.integers(0, 10_000))
    @settings(max_examples=10)
    def test_equal_when_alpha_is_one_hot(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        with torch.no_grad():
            decoder.attention.energy.energy.weight.mul_(1e6)
        paths = estimators.every_path(decoder, a, caption)
        assert paths.bound.item() == pytest.approx(paths.log_likelihood.item(), abs=1e-6)

    @given(st.integers(0, 10_000))
    @settings(max_examples=10)
    def test_equal_when_the_likelihood_ignores_the_places(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        with torch.no_grad():
            decoder.gates_context.weight.zero_()
            decoder.output_context.weight.zero_()
        paths = estimators.every_path(decoder, a, caption)
        assert paths.bound.item() == pytest.approx(paths.log_likelihood.item(), abs=1e-9)


def walk(decoder, a, caption, path):
    """Log p(s_t) and log p(y_t) along one path, step by step with the place put in by hand."""
    annotations, state, word = decoder.project(a), decoder.initial_state(a), torch.tensor([-1])
    log_p_place, log_p_word = [], []
    for t, place in enumerate(path):
        alpha = torch.softmax(decoder.attention.energy(annotations.keys, state.h), 1)
        decoder.attention.draw = lambda _, place=place: torch.tensor([place])
        embedded = decoder.embed(word)
        step = decoder.step(annotations, state, decoder.gates_word(embedded))
        state, word = step.state, caption[:, t]
        log_p_place.append(alpha[0, place].log())
        log_p_word.append(decoder.logits(embedded, state.h, step.z).log_softmax(1)[0, word.item()])
    del decoder.attention.draw
    return torch.stack(log_p_place), torch.stack(log_p_word)


class TestPaths:
    def test_every_path_is_there_once_and_equals_a_walk(self):
        decoder, a, caption = estimators.tiny()
        paths = estimators.every_path(decoder, a, caption)
        assert len({tuple(path) for path in paths.places.tolist()}) == estimators.PLACES**estimators.WORDS
        for row in (0, 13, 38, 63):
            log_p_place, log_p_word = walk(decoder, a, caption, paths.places[row].tolist())
            torch.testing.assert_close(paths.log_p_place[row], log_p_place)
            torch.testing.assert_close(paths.log_p_word[row], log_p_word)

    @pytest.mark.parametrize("seed", range(3))
    def test_gradients_are_those_of_each_path(self, seed):
        decoder, a, caption = estimators.tiny(seed)
        weights = list(decoder.parameters())
        paths = estimators.every_path(decoder, a, caption)
        gradients = estimators.path_gradients(paths, weights)
        for row in (5, 40):
            log_p_place, log_p_word = walk(decoder, a, caption, paths.places[row].tolist())
            for value, found in (
                (log_p_word.sum(), gradients.likelihood[row]),
                *zip(log_p_place, gradients.score[row], strict=True),
            ):
                expected = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
                torch.testing.assert_close(found, estimates.flat(expected, weights))

    @pytest.mark.parametrize("seed", range(3))
    def test_weighed_and_added_up_they_are_the_gradient_of_the_bound(self, seed):
        """Equation 11; with any baseline; and with the rewards to come in place of the sentence's."""
        decoder, a, caption = estimators.tiny(seed)
        weights = list(decoder.parameters())
        paths = estimators.every_path(decoder, a, caption)
        likelihood, score = estimators.path_gradients(paths, weights)
        bound = torch.cat([g.flatten() for g in torch.autograd.grad(paths.bound, weights)])
        p, log_p_word = paths.log_p_path.exp().detach(), paths.log_p_word.detach()
        sentence = log_p_word.sum(1, keepdim=True)
        to_come = log_p_word.flip(1).cumsum(1).flip(1)
        for rewards in (sentence, sentence + 7, to_come, to_come - torch.tensor([1.0, 2.0, 3.0])):
            torch.testing.assert_close(p @ (likelihood + (rewards.unsqueeze(2) * score).sum(1)), bound)


@pytest.fixture(scope="module")
def measured():
    return {name: estimates.measure(name, *options, draws=120) for name, options in estimates.estimators().items()}


@pytest.mark.slow
class TestEstimators:
    @pytest.mark.parametrize("name", UNBIASED)
    def test_mean_is_the_exact_gradient_of_the_bound(self, measured, name):
        """Every weight's mean within 4 standard errors; and near enough for that to mean something."""
        assert measured[name].worst < 4
        assert measured[name].bias < 0.15

    def test_every_baseline_has_less_noise_than_none(self, measured):
        for name in UNBIASED:
            none = f"{name.split(', ')[0]}, baseline none"
            if name != none:
                assert measured[name].noise < 0.5 * measured[none].noise

    @pytest.mark.parametrize("name", ["expectation for half of the images", "Gumbel-softmax, temperature 1"])
    def test_what_claims_no_unbiasedness_is_seen_to_be_biased(self, measured, name):
        assert not measured[name].claims
        assert measured[name].worst > 8


def output(log_p=((-1.0, -2.0, -4.0), (-3.0, -1.0, -1.0)), places=((0, 1, 1), (1, 0, 0)), alpha=0.25):
    """Two captions of three words out of two, with given log p(y_t) of word 0; two places, the first weighing `alpha`."""
    p = torch.tensor(log_p).exp()
    logits = torch.stack([p, 1 - p], 2).log()
    alphas = torch.tensor([alpha, 1 - alpha]).expand(2, 3, 2).clone().requires_grad_()
    return Output(logits, alphas, torch.ones(2, 3), torch.tensor(places), torch.zeros(2, 3, 4)), torch.zeros(
        2, 3
    ).long()


class TestTerms:
    """By hand: log p(y|s~,a) is -7 and -5; log alpha is ln 1/4 at place 0 and ln 3/4 at place 1."""

    def loss(self, config, average=None, **changes):
        out, captions = output(**changes)
        bound = VariationalBound(config, hidden=4, longest=3)
        if average is not None:
            bound.average.copy_(torch.tensor(average))
        return bound(out, captions), out, bound

    def test_sentence_reward_against_the_moving_average(self):
        estimate, _, bound = self.loss(HardConfig(lambda_r=2.0, lambda_e=0.5), average=[-4.0])
        quarter, rest = torch.tensor([0.25, 0.75]).log()
        score = ((-7 + 4) * (quarter + 2 * rest) + (-5 + 4) * (rest + 2 * quarter)) / 2
        spread = 3 * -(0.25 * quarter + 0.75 * rest)
        torch.testing.assert_close(estimate.loss, 6 - 2.0 * score - 0.5 * spread)
        assert estimate.nll.tolist() == pytest.approx([7, 5])
        assert bound.average.tolist() == pytest.approx([0.9 * -4 + 0.1 * -6])  # updated after it was used

    def test_reward_to_come(self):
        estimate, *_ = self.loss(HardConfig(reward="to-come", baseline="none"))
        assert estimate.advantage.tolist() == pytest.approx([-7, -6, -4, -5, -2, -1])

    def test_reward_to_come_has_an_average_for_each_number_of_words(self):
        estimate, _, bound = self.loss(HardConfig(reward="to-come"), average=[0.0, -1.0, -3.0, -5.0])
        assert estimate.baseline.tolist() == pytest.approx([-5, -3, -1] * 2)
        assert bound.average.tolist() == pytest.approx([0, -0.9 - 0.25, -2.7 - 0.4, -4.5 - 0.6])

    def test_leave_one_out(self):
        estimate, *_ = self.loss(HardConfig(baseline="leave-one-out", samples=2))
        assert estimate.baseline.tolist() == pytest.approx([-5] * 3 + [-7] * 3)

    def test_a_caption_with_the_expectation_has_no_score(self):
        estimate, out, _ = self.loss(HardConfig(lambda_e=0, baseline="none"), places=((0, 1, 1), (-1, -1, -1)))
        estimate.loss.backward()
        assert estimate.advantage.tolist() == pytest.approx([-7] * 3)
        assert out.alphas.grad[0].abs().sum() > 0
        assert out.alphas.grad[1].abs().sum() == 0

    def test_entropy_and_movement_by_hand(self):
        alphas = torch.tensor([[[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]])
        torch.testing.assert_close(entropy(alphas), torch.tensor([[0.5, 0, 0]]).mul(2) * torch.tensor(2.0).log())
        assert movement(alphas).tolist() == [[0.5, 1.0]]


class TestLooking:
    def hard(self):
        torch.manual_seed(0)
        made = attention.create("hard", 3, 4, 5)
        a, h = torch.randn(6, 5, 3), torch.randn(6, 4)
        return made, a, h

    def test_samples_follow_alpha(self):
        made, a, h = self.hard()
        a, h = a[:1].expand(20_000, -1, -1), h[:1].expand(20_000, -1)
        z, alpha, place = made(a, made.keys(a), h)
        assert torch.equal(z, a[0][place])
        p, counts = alpha[0].detach(), torch.bincount(place, minlength=5) / 20_000
        assert ((counts - p).abs() <= 4 * (p * (1 - p) / 20_000).sqrt()).all()

    def test_rows_with_the_expectation(self):
        made, a, h = self.hard()
        soft = attention.SoftAttention(made.energy)(a, made.keys(a), h)
        expected = torch.tensor([True, False] * 3)
        z, alpha, place = made(a, made.keys(a), h, expected)
        torch.testing.assert_close(z[expected], soft.z[expected])
        torch.testing.assert_close(alpha, soft.alpha)
        assert (place[expected] == -1).all()
        torch.testing.assert_close(z[~expected], a[torch.arange(6), place][~expected])

    def test_gumbel_gradient_is_that_of_the_relaxed_sample(self):
        made, a, h = self.hard()
        made = estimators.GumbelAttention(made.energy, 0.5)
        torch.manual_seed(1)
        (straight,) = torch.autograd.grad(made(a, made.keys(a), h).z.square().sum(), made.energy.state.weight)
        torch.manual_seed(1)
        noise = -torch.empty(6, 5).exponential_().log()
        place = (made.energy(made.keys(a), h) + noise).argmax(1)
        relaxed = torch.softmax((made.energy(made.keys(a), h) + noise) / 0.5, 1).unsqueeze(1) @ a
        # d |z|^2 at the sampled z, through the relaxed one.
        (expected,) = torch.autograd.grad(
            (2 * a[torch.arange(6), place] * relaxed.squeeze(1)).sum(), made.energy.state.weight
        )
        torch.testing.assert_close(straight, expected)

    def test_outside_of_training(self):
        made, a, h = self.hard()
        made.eval()
        soft = attention.SoftAttention(made.energy)(a, made.keys(a), h)
        torch.testing.assert_close(made(a, made.keys(a), h).z, soft.z)
        made.look = "probable"
        z, _, place = made(a, made.keys(a), h)
        assert torch.equal(place, soft.alpha.argmax(1))
        assert torch.equal(z, a[torch.arange(6), place])
        made.look = "sample"
        assert {tuple(made(a, made.keys(a), h).place.tolist()) for _ in range(20)} != {tuple(place.tolist())}

    def test_coins_are_per_image(self):
        cpu = torch.device("cpu")
        assert coins(HardConfig(samples=3), 2000, cpu).float().mean().item() == pytest.approx(0.5, abs=0.05)
        annealed = HardConfig(expectation=0.2, anneal=0.5)
        for done, probability in ((0.0, 1.0), (0.25, 0.6), (0.5, 0.2), (0.9, 0.2)):
            tossed = coins(annealed, 4000, cpu, done)
            assert tossed.float().mean().item() == pytest.approx(probability, abs=0.04)


class TestTraining:
    def test_begins_with_the_weights_of_a_soft_model(self, tmp_path):
        soft = tiny.train(tmp_path / "soft")
        still = ("training.learning_rate=0", "training.epochs=1")
        hard = tiny.train(tmp_path / "hard", "decoder.attention=hard", *still, start=tmp_path / "soft")
        for one, other in zip(soft.state_dict().values(), hard.state_dict().values(), strict=True):
            assert torch.equal(one, other)

    @pytest.mark.slow
    def test_evaluated_by_each_look(self, tmp_path):
        tiny.train(tmp_path, "decoder.attention=hard", "training.epochs=1")
        captioner = Captioner.load(tmp_path)
        found = {
            look: evaluate.evaluate(captioner, tiny.data(), tiny.Reader(), "dev", look=look, progress=False)
            for look in ("expected", "probable", "sample")
        }
        assert [evaluated["recipe"]["decoding"]["look"] for evaluated in found.values()] == list(found)
        assert captioner.decoder.attention.look == "expected"  # as it was


def test_the_penalty_is_off_unless_asked_for():
    hard = "decoder.attention=hard"
    for changes, weight in (((hard,), 0), ((hard, "objective.doubly_stochastic=0.5"), 0.5), ((), 1)):
        assert tiny.the_recipe(*changes).objective.doubly_stochastic == weight
