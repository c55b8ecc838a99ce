"""Muon against torch's own, against the singular value decomposition, and for kernels."""

import pytest
import torch
from torch import nn

from satlib.training import muon
from satlib.training.muon import DECAY, Muon, orthogonal


def trained(weight, gradients, lr=0.1):
    """The weight after an update for each gradient."""
    optimiser = Muon([{"params": [weight], "lr": lr, "orthogonal": True}])
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimiser.step()
    return weight.detach()


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_an_update_has_the_gradients_directions_and_singular_values_near_1(shape):
    torch.manual_seed(1)
    u, s, vt = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    # The smallest is less than a hundredth of the norm.
    s = torch.linspace(0.05, 3, len(s))
    update = orthogonal(u @ torch.diag(s) @ vt)

    # In the gradient's own directions the update is diagonal.
    directions = u.T @ update @ vt.T
    values = directions.diagonal()
    assert (values > 0.91).all()
    assert (values < 1.09).all()
    assert (directions - torch.diag(values)).abs().max() < 1e-4


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_with_jordans_quintic_it_is_torchs_muon(shape, monkeypatch):
    """torch multiplies x by each quintic's factor; satlib multiplies the factors first."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch.optim.Muon came with torch 2.9")
    monkeypatch.setattr(muon, "QUINTICS", 5 * [(3.4445, -4.7750, 2.0315)])
    torch.manual_seed(2)
    start = torch.randn(shape)
    gradients = torch.randn(4, *shape)

    theirs = nn.Parameter(start.clone())
    # torch multiplies an update by 0.2 times the root of the longer side, satlib by the root alone:
    # a rate of 0.5 there is 0.1 here. torch decays by the rate without that factor.
    decay = DECAY * 0.2 * max(shape) ** 0.5
    optimiser = torch.optim.Muon([theirs], 0.5, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = gradient.clone()
        optimiser.step()

    # torch iterates in bfloat16, which has 8 bits: 2 % of the way is rounding.
    ours = trained(nn.Parameter(start.clone()), gradients)
    way = (ours - start).abs().max()
    assert (ours - theirs).abs().max() < 0.02 * way


def test_kernels_are_the_matrix_of_all_that_an_output_sees_and_keep_their_layout():
    torch.manual_seed(3)
    kernels = torch.randn(8, 3, 2, 2)
    gradients = torch.randn(3, 8, 3, 2, 2)

    layout = torch.channels_last
    weight = nn.Parameter(kernels.clone().to(memory_format=layout))
    changed = trained(weight, [gradient.to(memory_format=layout) for gradient in gradients])
    assert changed.is_contiguous(memory_format=layout)

    # One row for each output channel: (8, 3 * 2 * 2).
    matrix = nn.Parameter(kernels.flatten(1).clone())
    expected = trained(matrix, gradients.flatten(2))
    torch.testing.assert_close(changed.flatten(1), expected, rtol=1e-5, atol=1e-6)


def test_other_groups_and_weights_without_a_gradient():
    torch.manual_seed(4)
    with_gradient, without_gradient, other = (nn.Parameter(torch.ones(3, 2)) for _ in range(3))
    gradient = torch.randn(3, 2)
    optimiser = Muon(
        [
            {"params": [with_gradient, without_gradient], "lr": 0.1, "orthogonal": True},
            {"params": [other], "lr": 0.1, "orthogonal": False},
        ]
    )
    # Groups without `orthogonal` are trained by Adam.
    by_adam = nn.Parameter(torch.ones(3, 2))
    adam = torch.optim.Adam([by_adam], 0.1)

    for _ in range(2):
        for weight in (with_gradient, other, by_adam):
            weight.grad = gradient.clone()
        optimiser.step()
        adam.step()

    assert torch.equal(other, by_adam)
    assert torch.equal(without_gradient, torch.ones(3, 2))
    assert not torch.equal(with_gradient, other)
