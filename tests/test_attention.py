"""Each energy against a loop over places; phi and the softmax against their definitions."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satlib.errors import SatlibError
from satlib.model import attention

B, L, D, N, WIDTH = 3, 5, 4, 4, 6


def by_loop(name, energy, a_i, h):
    """f_att(a_i, h) for one place and one image, in plain Python."""
    dot = lambda u, v: sum(x * y for x, y in zip(u, v, strict=True))  # noqa: E731
    a_i, h = a_i.tolist(), h.tolist()
    if name == "dot":
        return dot(a_i, h)
    if name == "general":
        W = energy.bilinear.weight.T.tolist()  # (D, n): e = a^T W h
        return dot(a_i, [dot(row, h) for row in W])
    if name == "concat":
        units = [math.tanh(dot(row, a_i + h)) for row in energy.joint.weight.tolist()]
    else:
        W_a, b, W_h = energy.annotation.weight.tolist(), energy.annotation.bias.tolist(), energy.state.weight.tolist()
        units = [math.tanh(dot(W_a[k], a_i) + b[k] + dot(W_h[k], h)) for k in range(WIDTH)]
    return dot(energy.energy.weight[0].tolist(), units)


@pytest.mark.parametrize("name", attention.ENERGIES)
def test_energy_equals_a_loop_over_places(name):
    torch.manual_seed(0)
    energy = attention.ENERGIES[name](D, N, WIDTH).double()
    a, h = torch.randn(B, L, D).double(), torch.randn(B, N).double()
    e = energy(energy.keys(a), h)
    expected = [[by_loop(name, energy, a[b, i], h[b]) for i in range(L)] for b in range(B)]
    torch.testing.assert_close(e, torch.tensor(expected).double())


@pytest.mark.parametrize("name", attention.ENERGIES)
def test_gradients_by_finite_differences(name):
    torch.manual_seed(1)
    soft = attention.create("soft", name, D, N, WIDTH).double()
    a, h = torch.randn(B, L, D).double().requires_grad_(), torch.randn(B, N).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, h: soft(a, soft.keys(a), h)[:2], (a, h))


def test_weights_and_context_by_hand():
    """Energies ln 1, ln 2, ln 5 weigh 1/8, 2/8, 5/8."""
    soft = attention.create("soft", "dot", 1, 1, 1)
    a = torch.tensor([1.0, 2.0, 5.0]).log().view(1, 3, 1)
    z, alpha, _ = soft(a, soft.keys(a), torch.ones(1, 1))
    torch.testing.assert_close(alpha, torch.tensor([[0.125, 0.25, 0.625]]))
    torch.testing.assert_close(z, torch.tensor([[0.25 * math.log(2) + 0.625 * math.log(5)]]))


@given(st.integers(1, 4), st.integers(1, 9), st.sampled_from(list(attention.ENERGIES)), st.floats(0.1, 30))
@settings(max_examples=40)
def test_weights_are_a_distribution_and_follow_the_places(batch, places, name, scale):
    """Permuting the places permutes the weights and leaves the context vector alone."""
    torch.manual_seed(places)
    soft = attention.create("soft", name, D, N, WIDTH)
    a, h = scale * torch.randn(batch, places, D), torch.randn(batch, N)
    z, alpha, _ = soft(a, soft.keys(a), h)
    torch.testing.assert_close(alpha.sum(1), torch.ones(batch))
    order = torch.randperm(places)
    z_permuted, alpha_permuted, _ = soft(a[:, order], soft.keys(a[:, order]), h)
    torch.testing.assert_close(alpha_permuted, alpha[:, order], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(z_permuted, z, atol=1e-4 * scale, rtol=1e-4)


def test_without_attention_every_place_weighs_the_same():
    none = attention.create("none", "additive", D, N, WIDTH)
    a = torch.randn(B, L, D)
    z, alpha, _ = none(a, none.keys(a), torch.randn(B, N))
    torch.testing.assert_close(z, a.mean(1))
    torch.testing.assert_close(alpha, torch.full((B, L), 1 / L))
    assert not list(none.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("soft", "cosine", D, N, WIDTH), "no energy is called 'cosine'; choose among additive"),
        (("harder", "dot", D, N, WIDTH), "no attention is called 'harder'"),
        (("soft", "dot", 5, 4, WIDTH), "set decoder.hidden = 5"),
        (
            ("soft", "additive", D, N, WIDTH, "relu"),
            "no normaliser is called 'relu'; choose among softmax, sparsemax, entmax",
        ),
    ],
)
def test_unknown_names_and_widths_that_do_not_fit(arguments, message):
    with pytest.raises(SatlibError, match=message):
        attention.create(*arguments)


SIZES = {  # W_a, W_h and v of each energy for D = 3 and n = 5, the states' own size
    "additive": {"annotation.weight": (6, 3), "annotation.bias": (6,), "state.weight": (6, 5), "energy.weight": (1, 6)},
    "concat": {"joint.weight": (6, 8), "energy.weight": (1, 6)},
    "general": {"bilinear.weight": (5, 3)},
}


@pytest.mark.parametrize("name", SIZES)
def test_states_of_another_size_than_annotation_vectors(name):
    """No weight more than the energy's formula has, and the formula's value."""
    energy = attention.ENERGIES[name](3, 5, WIDTH).double()
    assert {each: tuple(weight.shape) for each, weight in energy.named_parameters()} == SIZES[name]
    a, h = torch.randn(B, L, 3).double(), torch.randn(B, 5).double()
    expected = [[by_loop(name, energy, a[b, i], h[b]) for i in range(L)] for b in range(B)]
    torch.testing.assert_close(energy(energy.keys(a), h), torch.tensor(expected).double())


@pytest.mark.parametrize("dim", [1, D])
def test_the_keys_without_attention_are_one_place(dim):
    none, a = attention.create("none", "additive", dim, N, WIDTH), torch.randn(B, L, dim)
    assert none.keys(a).shape == (B, 1, dim)
    torch.testing.assert_close(none(a, none.keys(a), torch.randn(B, N)).z, a.mean(1))


def nearest(e):
    """The nearest point of the simplex to e (L,), by trying every set of places that may have weight."""
    best, least = None, math.inf
    for kept in itertools.product((False, True), repeat=len(e)):
        inside = torch.tensor(kept)
        if inside.any():
            alpha = torch.where(inside, e - (e[inside].sum() - 1) / inside.sum(), torch.zeros_like(e))
            distance = (alpha - e).square().sum().item()
            if alpha.min() >= 0 and distance < least:
                best, least = alpha, distance
    return best


def entmax15(e):
    """1.5-entmax of e (L,): the tau at which the weights max(e_i / 2 - tau, 0)^2 sum to 1, by bisection."""
    half = e / 2
    low, high = half.max() - 1, half.max()  # at low, one weight alone is 1; at high, all are 0
    for _ in range(60):
        tau = (low + high) / 2
        low, high = (tau, high) if (half - tau).clamp(min=0).square().sum() > 1 else (low, tau)
    return (half - low).clamp(min=0).square()


SPARSE = pytest.mark.parametrize("normaliser", ["sparsemax", "entmax"])


class TestSparseNormalisers:
    @pytest.mark.parametrize(("normaliser", "truth"), [("sparsemax", nearest), ("entmax", entmax15)])
    @given(st.integers(1, 7), st.integers(0, 10_000), st.floats(0.01, 20))
    @settings(max_examples=60)
    def test_weights(self, normaliser, truth, size, seed, scale):
        e = scale * torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(attention.NORMALISERS[normaliser](e), truth(e))

    def test_entmax_by_hand(self):
        """Energies 1 and 0: (1/2 - tau)^2 + tau^2 = 1 at tau = (1 - sqrt(7)) / 4. A difference of 2 leaves one place."""
        tau = (1 - math.sqrt(7)) / 4
        for shift in (0.0, 100.0):
            weights = attention.entmax15(torch.tensor([1.0, 0.0]) + shift)
            torch.testing.assert_close(weights, torch.tensor([(0.5 - tau) ** 2, tau**2]))
        assert attention.entmax15(torch.tensor([[2.0, 0.0]])).tolist() == [[1.0, 0.0]]

    def test_sparsemax_by_hand(self):
        """Energies 1, .5 and -1: tau = (1 + .5 - 1) / 2; a constant added to all changes nothing."""
        e = torch.tensor([[1.0, 0.5, -1.0]])
        for shift in (0.0, 100.0):
            torch.testing.assert_close(attention.sparsemax(e + shift), torch.tensor([[0.75, 0.25, 0.0]]))
        assert attention.sparsemax(torch.tensor([[3.0, 0.0]])).tolist() == [[1.0, 0.0]]
        assert attention.sparsemax(torch.zeros(1, 4)).tolist() == [[0.25] * 4]

    @SPARSE
    def test_gradients_by_finite_differences(self, normaliser):
        torch.manual_seed(0)
        soft = attention.create("soft", "additive", D, N, WIDTH, normaliser).double()
        a, h = torch.randn(B, L, D).double().requires_grad_(), torch.randn(B, N).double().requires_grad_()
        alpha = soft(a, soft.keys(a), h).alpha
        assert torch.autograd.gradcheck(lambda a, h: soft(a, soft.keys(a), h)[:2], (a, h))
        torch.testing.assert_close(alpha.sum(1), torch.ones(B).double())

    @SPARSE
    def test_in_half_precision_the_weights_sum_to_one(self, normaliser):
        """They are those of float32, rounded."""
        e = 5 * torch.randn(8, 81, generator=torch.Generator().manual_seed(1))
        alpha = attention.NORMALISERS[normaliser](e.bfloat16())
        assert torch.equal(alpha, attention.NORMALISERS[normaliser](e.bfloat16().float()).bfloat16())
        assert alpha.dtype == torch.bfloat16
        assert (alpha.float().sum(1) - 1).abs().max() < 0.02
        assert (alpha == 0).float().mean() > 0.5
