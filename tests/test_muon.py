"""Muon against torch's own, against the singular value decomposition, and for kernels against matrices."""

import pytest
import torch
from torch import nn

from satlib.training.muon import DECAY, Muon, orthogonal


def trained(weight, gradients, lr=0.1):
    optimiser = Muon([{"params": [weight], "lr": lr, "orthogonal": True}])
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimiser.step()
    return weight.detach()


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_an_update_has_the_gradients_directions_and_singular_values_near_1(shape):
    torch.manual_seed(1)
    u, s, vt = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    s = torch.linspace(0.05, 3, len(s))  # the smallest is a hundredth of the norm
    directions = u.T @ orthogonal(u @ torch.diag(s) @ vt) @ vt.T
    values = directions.diagonal()
    assert (values > 0.65).all()
    assert (values < 1.2).all()
    assert (directions - torch.diag(values)).abs().max() < 1e-4


@pytest.mark.parametrize("shape", [(24, 10), (10, 24), (16, 16)])
def test_it_is_torchs_muon(shape):
    """torch iterates in bfloat16, with 8 bits, takes 0.2 times the root of the longer side, and decays by the rate before that."""
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch.optim.Muon came with torch 2.9")
    torch.manual_seed(2)
    start, gradients = torch.randn(shape), torch.randn(4, *shape)
    theirs = nn.Parameter(start.clone())
    decay = DECAY * 0.2 * max(shape) ** 0.5
    optimiser = torch.optim.Muon([theirs], 0.5, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        theirs.grad = gradient.clone()
        optimiser.step()
    ours = trained(nn.Parameter(start.clone()), gradients)
    assert (ours - theirs).abs().max() < 0.02 * (ours - start).abs().max()


def test_kernels_are_the_matrix_of_all_that_an_output_sees_and_keep_their_layout():
    torch.manual_seed(3)
    kernels, gradients = torch.randn(8, 3, 2, 2), torch.randn(3, 8, 3, 2, 2)
    layout = torch.channels_last
    changed = trained(
        nn.Parameter(kernels.clone().to(memory_format=layout)),
        [g.to(memory_format=layout) for g in gradients],
    )
    assert changed.is_contiguous(memory_format=layout)
    expected = trained(nn.Parameter(kernels.flatten(1).clone()), gradients.flatten(2))
    torch.testing.assert_close(changed.flatten(1), expected, rtol=1e-5, atol=1e-6)


def test_other_groups_and_weights_without_a_gradient():
    torch.manual_seed(4)
    weights, gradient = [nn.Parameter(torch.ones(3, 2)) for _ in range(3)], torch.randn(3, 2)
    optimiser = Muon(
        [
            {"params": weights[:2], "lr": 0.1, "orthogonal": True},
            {"params": weights[2:], "lr": 0.1, "orthogonal": False},
        ]
    )
    adam = nn.Parameter(torch.ones(3, 2))
    plain = torch.optim.Adam([adam], 0.1)
    for _ in range(2):
        weights[0].grad, weights[2].grad, adam.grad = (
            gradient.clone(),
            gradient.clone(),
            gradient.clone(),
        )
        optimiser.step()
        plain.step()
    assert torch.equal(weights[2], adam)
    assert torch.equal(weights[1], torch.ones(3, 2))
    assert not torch.equal(weights[0], weights[2])
