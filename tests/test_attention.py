"""The energy against a loop over places; phi and the softmax against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from satlib.errors import SatlibError
from satlib.model import attention

# All different, so that swapped axes cannot go unnoticed.
B, L, WIDTH = 3, 5, 6


def dot(u, v):
    return sum(x * y for x, y in zip(u, v, strict=True))


def by_loop(energy, a_i, h):
    """f_att(a_i, h) for one place and one image, in plain Python."""
    W_a = energy.annotation.weight.tolist()
    b = energy.annotation.bias.tolist()
    W_h = energy.state.weight.tolist()
    v = energy.energy.weight[0].tolist()

    units = []
    for k in range(WIDTH):
        total = dot(W_a[k], a_i) + b[k] + dot(W_h[k], h)
        units.append(math.tanh(total))
    return dot(v, units)


@pytest.mark.parametrize(
    ("D", "n"),
    [
        (4, 4),
        (3, 5),
    ],
)
def test_energy_equals_a_loop_over_places(D, n):
    torch.manual_seed(0)
    energy = attention.AdditiveEnergy(D, n, WIDTH).double()
    a = torch.randn(B, L, D).double()
    h = torch.randn(B, n).double()

    expected = torch.empty(B, L).double()
    for b in range(B):
        for i in range(L):
            a_i = a[b, i].tolist()
            expected[b, i] = by_loop(energy, a_i, h[b].tolist())
    assert_close(energy(energy.annotation(a), h), expected)


def test_a_second_layer_on_the_keys_as_in_the_official_coco_script():
    """Against capgen.py, in NumPy: another linear layer on W_a a + b, and then a tanh."""
    torch.manual_seed(0)
    soft = attention.create("soft", 4, 5, WIDTH, layers=2)
    a = torch.randn(B, L, 4)
    first, second, _ = soft.energy.annotation
    Wc_att, b_att, W_att_1, b_att_1 = (
        weight.detach().numpy().T
        for weight in (first.weight, first.bias, second.weight, second.bias)
    )

    pctx = a.numpy() @ Wc_att + b_att
    pctx = np.tanh(pctx @ W_att_1 + b_att_1)
    assert_close(soft.keys(a).detach(), torch.from_numpy(pctx))

    with pytest.raises(SatlibError, match='attention_layers is 2, but "none" has no energies'):
        attention.create("none", 4, 5, WIDTH, layers=2)


def test_gradients_by_finite_differences():
    torch.manual_seed(1)
    soft = attention.create("soft", 3, 5, WIDTH).double()
    a = torch.randn(B, L, 3).double().requires_grad_()
    h = torch.randn(B, 5).double().requires_grad_()

    def context_and_weights(a, h):
        return soft(a, soft.keys(a), h)[:2]

    assert torch.autograd.gradcheck(context_and_weights, (a, h))


def test_weights_and_context_by_hand():
    """Energies ln 1, ln 2, ln 5 weigh 1/8, 2/8, 5/8."""
    soft = attention.create("soft", 1, 1, 1)
    energies = torch.tensor([1.0, 2.0, 5.0]).log()
    a = energies.view(1, 3, 1)
    # The vectors are their own energies, so that softmax and sum can be done by hand.
    soft.energy.forward = lambda keys, h: a.squeeze(2)

    z, alpha, _ = soft(a, soft.keys(a), torch.ones(1, 1))
    assert_close(alpha, torch.tensor([[0.125, 0.25, 0.625]]))
    # The first place adds nothing: ln 1 is 0.
    expected = 0.25 * math.log(2) + 0.625 * math.log(5)
    assert_close(z, torch.tensor([[expected]]))


@given(st.integers(1, 4), st.integers(1, 9), st.floats(0.1, 30))
@settings(max_examples=40)
def test_weights_are_a_distribution_and_follow_the_places(batch, places, scale):
    """Permuting the places permutes the weights and leaves the context vector alone."""
    torch.manual_seed(places)
    soft = attention.create("soft", 3, 5, WIDTH)
    a = scale * torch.randn(batch, places, 3)
    h = torch.randn(batch, 5)
    z, alpha, _ = soft(a, soft.keys(a), h)
    assert_close(alpha.sum(1), torch.ones(batch))

    order = torch.randperm(places)
    permuted = a[:, order]
    z_permuted, alpha_permuted, _ = soft(permuted, soft.keys(permuted), h)
    assert_close(alpha_permuted, alpha[:, order], atol=1e-5, rtol=1e-4)
    # The context is a sum of vectors of this scale, and so is its rounding error.
    assert_close(z_permuted, z, atol=1e-4 * scale, rtol=1e-4)


def test_without_attention_every_place_weighs_the_same():
    none = attention.create("none", 3, 5, WIDTH)
    a = torch.randn(B, L, 3)
    z, alpha, _ = none(a, none.keys(a), torch.randn(B, 5))
    assert_close(z, a.mean(1))
    assert_close(alpha, torch.full((B, L), 1 / L))
    assert not list(none.parameters())
