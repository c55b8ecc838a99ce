"""Bounds on log p(y|a) and estimators of their gradients: every outcome of a small case against sums written out, and finite differences."""

import itertools
import math

import pytest
import torch
from bounds import without_replacement
from msgspec.structs import replace
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from satcourse.lessons import bounds, posterior
from satcourse.lessons.estimators import every_path, jacobian, path_gradients, paths_of, run_every_path, tiny
from satlib.model.decoder import Decoder
from satlib.model.objective import negative_log_likelihood


def case(seed=0):
    """Three places, two words: nine paths."""
    decoder, a, caption = tiny(seed)
    return decoder, a[:, :3], caption[:, :2]


def drawn_by_attention(decoder, a, caption):
    paths = every_path(decoder, a, caption)
    return bounds.from_attention(paths, path_gradients(paths, list(decoder.parameters())))


def sum_over_ordered(log_q, log_w, K):
    """L_K: the definition, over ordered K-tuples one by one."""
    q, w = log_q.exp(), log_w.exp()
    total = 0.0
    for tuple_ in itertools.product(range(len(q)), repeat=K):
        total = total + math.prod(q[s] for s in tuple_) * (sum(w[s] for s in tuple_) / K).log()
    return total


def differences(value, weights, every=1, step=1e-5):
    """The gradient of value() by central differences, over flat weights or only every n-th of them."""
    start, slopes = parameters_to_vector(weights).detach(), []
    for k in range(0, len(start), every):
        ends = []
        for sign in (1, -1):
            moved = start.clone()
            moved[k] += sign * step
            vector_to_parameters(moved, weights)
            with torch.no_grad():
                ends.append(value())
        slopes.append((ends[0] - ends[1]) / (2 * step))
    vector_to_parameters(start, weights)
    return torch.stack(slopes)


def by_paper(decoder, a, caption):
    return every_path(decoder, a, caption).bound


def test_the_bound_is_its_definition_and_rises_with_its_samples():
    for seed in range(3):
        paths = every_path(*case(seed))
        gaps = []
        for K in (1, 2, 3):
            drawn = bounds.Drawn(paths.log_p_path, paths.log_p_caption, None, None)
            found = bounds.bound(drawn, K)
            torch.testing.assert_close(found, sum_over_ordered(paths.log_p_path, paths.log_p_caption, K))
            gaps.append((paths.log_likelihood - found).item())
        torch.testing.assert_close(bounds.bound(drawn, 1), paths.bound)
        assert gaps[0] > gaps[1] > gaps[2] > 0


def test_the_exact_posterior_leaves_no_gap_and_its_gradient_is_that_of_the_likelihood():
    decoder, a, caption = case()
    weights = list(decoder.parameters())
    paths = every_path(decoder, a, caption)
    log_q = bounds.posterior(paths).detach()
    assert log_q.exp().sum().item() == pytest.approx(1, abs=1e-12)
    exact = bounds.from_proposal(paths, path_gradients(paths, weights), log_q)
    for K in (1, 2, 3):
        assert abs(bounds.bound(exact, K) - paths.log_likelihood).item() < 1e-10
    slopes = differences(lambda: every_path(decoder, a, caption).log_likelihood, weights)
    for K in (1, 2):
        for estimates in (bounds.score_function(exact, K, 0.0), bounds.multi_sample(exact, K, vimco=K > 1)):
            torch.testing.assert_close(estimates.mean, slopes, rtol=1e-5, atol=1e-6)


class TestUnbiased:
    """Exactly so: the mean over all that can be drawn is the bound's gradient, by finite differences of sums over ordered tuples."""

    @pytest.mark.parametrize("seed", range(2))
    def test_of_the_papers_bound(self, seed):
        decoder, a, caption = case(seed)
        slopes = differences(lambda: by_paper(decoder, a, caption), list(decoder.parameters()))
        drawn = drawn_by_attention(decoder, a, caption)
        spread = {}
        for name, estimates in {
            "none": bounds.score_function(drawn, 2, 0.0),
            "constant": bounds.score_function(drawn, 2, -3.0),
            "leave-one-out": bounds.score_function(drawn, 2, "leave-one-out"),
            "leave-one-out, 3": bounds.score_function(drawn, 3, "leave-one-out"),
            "different": without_replacement(drawn, 2),
            "different, 3": without_replacement(drawn, 3),
        }.items():
            assert estimates.probability.sum().item() == pytest.approx(1, abs=1e-12)
            torch.testing.assert_close(estimates.mean, slopes, rtol=1e-5, atol=1e-6, msg=name)
            spread[name] = estimates.variance.item()
        assert spread["leave-one-out"] < spread["none"]
        assert spread["different"] < spread["leave-one-out"]
        assert spread["different, 3"] < spread["leave-one-out, 3"]

    @pytest.mark.parametrize(("K", "every"), [(2, 9), (3, 36)])
    def test_of_the_bound_by_several_samples(self, K, every):
        decoder, a, caption = case()

        def bound():
            paths = every_path(decoder, a, caption)
            return sum_over_ordered(paths.log_p_path, paths.log_p_caption, K)

        weights = list(decoder.parameters())
        expected = jacobian(bound().unsqueeze(0), weights)[0]
        torch.testing.assert_close(expected[::every], differences(bound, weights, every=every), rtol=1e-5, atol=1e-6)
        drawn = drawn_by_attention(decoder, a, caption)
        plain, vimco = (bounds.multi_sample(drawn, K, vimco=each) for each in (False, True))
        torch.testing.assert_close(plain.mean, expected)
        torch.testing.assert_close(vimco.mean, expected)
        assert vimco.variance < 0.5 * plain.variance

    def test_of_a_learned_posteriors_own_weights(self):
        decoder, a, caption = case()
        output = run_every_path(decoder, a, caption)
        paths = paths_of(output, caption)
        joint = (paths.log_p_path + paths.log_p_caption).detach()
        q = posterior.fit(decoder, [(a, caption)], width=3, steps=3)
        weights = list(q.parameters())

        def bound(K):
            log_q = q(decoder, output, a, caption)
            return sum_over_ordered(log_q, joint - log_q, K)

        log_q = q(decoder, output, a, caption)
        score = jacobian(log_q, weights)
        drawn = bounds.Drawn(log_q, joint - log_q, score, -score)
        for K, estimates in (
            (1, bounds.score_function(drawn, 2, "leave-one-out")),
            (1, without_replacement(drawn, 3)),
            (2, bounds.multi_sample(drawn, 2, vimco=True)),
        ):
            slopes = differences(lambda K=K: bound(K), weights)
            assert slopes.norm() > 1e-3
            torch.testing.assert_close(estimates.mean, slopes, rtol=1e-5, atol=1e-6)


def test_vimco_by_hand():
    """w = 1, 2, 4 of three paths, each drawn once: b of the third is log 1/3 (1 + 2 + sqrt 2), and so on."""
    log_w = torch.tensor([1.0, 2.0, 4.0]).double().log()
    drawn = bounds.Drawn(
        torch.full((3,), 1 / 3).double().log(), log_w, torch.eye(3).double(), torch.zeros(3, 3).double()
    )
    rows, _ = bounds.independent(drawn.log_q, 3)
    found = bounds.multi_sample(drawn, 3, vimco=True).gradient[rows.tolist().index([0, 1, 2])]
    expected = [math.log(7 / (6 + math.sqrt(8))), math.log(7 / (5 + 2)), math.log(7 / (3 + math.sqrt(2)))]
    torch.testing.assert_close(found, torch.tensor(expected).double())


def test_sets_have_the_probability_of_all_their_orders():
    """0.5, 0.3 and 0.2: 0.5 0.3/0.5 + 0.3 0.5/0.7 for the first two."""
    drawn = bounds.Drawn(
        *(torch.tensor(each).double() for each in ([0.5, 0.3, 0.2], [0.0] * 3, [[0.0]] * 3, [[0.0]] * 3))
    )
    drawn = drawn._replace(log_q=drawn.log_q.log())
    found = without_replacement(drawn, 2).probability
    expected = [0.3 + 0.15 / 0.7, 0.2 + 0.1 / 0.8, 0.06 / 0.7 + 0.06 / 0.8]
    torch.testing.assert_close(found, torch.tensor(expected).double())


def test_all_paths_without_replacement_are_the_exact_gradient():
    """Two places and two words: of the four paths all four are drawn, and nothing is left to chance."""
    decoder, a, caption = case()
    a = a[:, :2]
    exact = jacobian(by_paper(decoder, a, caption).unsqueeze(0), list(decoder.parameters()))[0]
    found = without_replacement(drawn_by_attention(decoder, a, caption), 4)
    assert len(found.probability) == 1
    torch.testing.assert_close(found.gradient[0], exact)


class TestLearnedPosterior:
    def test_fresh_it_is_the_attention_and_fitted_it_is_nearly_the_posterior(self):
        decoder, *_ = tiny()
        cases = [case(seed)[1:] for seed in range(3)]
        gaps = {}
        for steps in (0, 150):
            q = posterior.fit(decoder, cases, steps=steps)
            gaps[steps] = []
            for a, caption in cases:
                output = run_every_path(decoder, a, caption)
                paths, log_q = paths_of(output, caption), q(decoder, output, a, caption)
                assert log_q.exp().sum().item() == pytest.approx(1, abs=1e-12)
                kl = (log_q.exp() * (log_q - bounds.posterior(paths))).sum()
                drawn = bounds.Drawn(log_q, paths.log_p_path + paths.log_p_caption - log_q, None, None)
                torch.testing.assert_close(paths.log_likelihood - bounds.bound(drawn, 1), kl)
                gaps[steps].append(kl.item())
                if steps == 0:
                    torch.testing.assert_close(log_q, paths.log_p_path)
        assert sum(gaps[150]) < 0.1 * sum(gaps[0])

    def test_it_sees_the_word_and_no_later_one(self):
        decoder, a, caption = case()
        q = posterior.fit(decoder, [(a, caption)], steps=20)
        output = run_every_path(decoder, a, caption)
        first = {}
        for word in range(2):
            for position in range(2):
                other = caption.clone()
                other[0, position] = word
                first[position, word] = q(decoder, output, a, other).detach().exp().view(3, 3).sum(1)
        assert not torch.allclose(first[0, 0], first[0, 1], atol=1e-6)
        torch.testing.assert_close(first[1, 0], first[1, 1])


class TestBiased:
    def test_soft_attention_is_that_of_a_decoder_with_soft_attention(self):
        decoder, a, caption = case()
        soft = Decoder(replace(decoder.config, attention="soft"), 3, 5).double()
        soft.load_state_dict(decoder.state_dict())
        found = bounds.soft_log_p(decoder, a, caption)
        torch.testing.assert_close(found, -negative_log_likelihood(soft(a, caption).logits, caption)[0])

    def test_the_mix_ascends_the_mean_of_two_objectives(self):
        decoder, a, caption = case()
        weights = list(decoder.parameters())
        soft = jacobian(bounds.soft_log_p(decoder, a, caption).unsqueeze(0), weights)[0]
        exact = jacobian(by_paper(decoder, a, caption).unsqueeze(0), weights)[0]
        mixed = bounds.mixed(bounds.score_function(drawn_by_attention(decoder, a, caption), 1, 0.0), soft)
        torch.testing.assert_close(mixed.mean, (soft + exact) / 2)
        assert (mixed.mean - exact).norm() > 0.02 * exact.norm()

    def test_the_gumbel_softmax_is_off_by_more_than_chance(self):
        decoder, a, caption = case()
        exact = jacobian(by_paper(decoder, a, caption).unsqueeze(0), list(decoder.parameters()))[0]
        torch.manual_seed(0)
        found = bounds.gumbel(decoder, a, caption, 1.0, 1000)
        assert found.probability.sum().item() == pytest.approx(1)
        assert (found.mean - exact).norm() > 5 * (found.variance / 1000).sqrt()
        assert type(decoder.attention).__name__ == "HardAttention"
