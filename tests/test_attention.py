"""Each energy against a loop over places; phi and the softmax against their definitions."""

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


def test_a_dot_product_needs_equal_widths():
    with pytest.raises(SatlibError, match=r"set decoder\.hidden = 5"):
        attention.create("soft", "dot", 5, 4, WIDTH)


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
