"""Bounds on log p(y|a) and estimators of their gradients: every outcome of a small case against sums written out and autograd."""

import itertools
import math

import torch

from satcourse.lessons import bounds
from satcourse.lessons.estimators import every_path, jacobian, path_gradients, tiny


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
    tuples = itertools.product(range(len(q)), repeat=K)
    return sum(math.prod(q[s] for s in each) * (sum(w[s] for s in each) / K).log() for each in tuples)


def gradient(value, weights):
    return jacobian(value.unsqueeze(0), list(weights))[0]


def test_the_bound_is_its_definition_and_rises_with_its_samples():
    paths = every_path(*case())
    drawn = bounds.Drawn(paths.log_p_path, paths.log_p_caption, None, None)
    values = [bounds.bound(drawn, K) for K in (1, 2, 3)]
    torch.testing.assert_close(values[0], paths.bound)
    for K, value in enumerate(values, 1):
        torch.testing.assert_close(value, sum_over_ordered(paths.log_p_path, paths.log_p_caption, K))
    assert values[0] < values[1] < values[2] < paths.log_likelihood


def test_estimators_are_unbiased_and_leave_one_out_has_less_noise():
    """Exactly so: the mean over all that can be drawn is the gradient of the sum over all paths, or over ordered tuples."""
    decoder, a, caption = case()
    paths, drawn = every_path(decoder, a, caption), drawn_by_attention(decoder, a, caption)
    exact = gradient(paths.bound, decoder.parameters())
    estimates = {baseline: bounds.score_function(drawn, 2, baseline) for baseline in (0.0, -3.0, "leave-one-out")}
    for estimate in estimates.values():
        torch.testing.assert_close(estimate.mean, exact)
    assert estimates["leave-one-out"].variance < estimates[0.0].variance
    of_two = sum_over_ordered(paths.log_p_path, paths.log_p_caption, 2)
    torch.testing.assert_close(bounds.vimco(drawn, 2).mean, gradient(of_two, decoder.parameters()))


def test_vimco_by_hand():
    """w = 1, 2, 4 of three paths, each drawn once: b of the third is log 1/3 (1 + 2 + sqrt 2), and so on."""
    log_w = torch.tensor([1.0, 2.0, 4.0]).double().log()
    log_q = torch.full((3,), 1 / 3).double().log()
    drawn = bounds.Drawn(log_q, log_w, torch.eye(3).double(), torch.zeros(3, 3).double())
    rows, _ = bounds.independent(log_q, 3)
    signal = bounds.vimco(drawn, 3).gradient[rows.tolist().index([0, 1, 2])]
    expected = [math.log(7 / (6 + math.sqrt(8))), math.log(7 / (5 + 2)), math.log(7 / (3 + math.sqrt(2)))]
    torch.testing.assert_close(signal, torch.tensor(expected).double())


def test_the_mix_ascends_the_mean_of_two_objectives_and_the_gumbel_softmax_another():
    decoder, a, caption = case()
    weights, drawn = list(decoder.parameters()), drawn_by_attention(decoder, a, caption)
    soft = gradient(bounds.soft_log_p(decoder, a, caption), weights)
    exact = gradient(every_path(decoder, a, caption).bound, weights)
    torch.testing.assert_close(bounds.mixed(bounds.score_function(drawn, 1, 0.0), soft).mean, (soft + exact) / 2)
    torch.manual_seed(0)
    gumbel = bounds.gumbel(decoder, a, caption, draws=2000)
    standard_error = (gumbel.gradient.var(0) / 2000).sum().sqrt()
    assert (gumbel.mean - exact).norm() > 4 * standard_error
    assert gumbel.variance < bounds.score_function(drawn, 1, 0.0).variance
