"""Muon (Jordan et al., 2024): momentum whose matrices are made orthogonal, so that each direction is learnt at the same speed.

A gradient's matrix has a few large singular values, the common and easy directions, and many small ones. Muon sets all of them
to about 1 by a Newton-Schulz iteration. `torch.optim.Muon` does so too, but for weights with two dimensions alone and in
bfloat16, which is twenty times slower than float32 on a processor without instructions for it.
"""

import torch
from torch import Tensor

DECAY = 0.1  # of the weights, which otherwise grow with every step
MOMENTUM = 0.95
STEPS = 5
# Jordan's quintic a x + b x^3 + c x^5: in five steps it brings every singular value between 0.01 and 1 to between 0.68 and 1.14.
A, B, C = 3.4445, -4.7750, 2.0315


class Muon(torch.optim.Adam):
    """Muon for the groups with `orthogonal`, where each output's kernels are a row (outputs, inputs x h x w); Adam for the others.

    An orthogonal update is scaled to a root mean square of 1, about the size of Adam's, so that one learning rate serves both.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Change all weights, and forget their gradients."""
        for group in self.param_groups:
            for weight in group["params"] if group["orthogonal"] else ():
                if weight.grad is None:
                    continue
                state = self.state[
                    weight
                ]  # by Adam's names, which it asks for when a run is resumed
                if not state:
                    state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(weight)}
                state["step"] += 1
                momentum = state["exp_avg"].lerp_(weight.grad, 1 - MOMENTUM)
                update = orthogonal(
                    weight.grad.lerp(momentum, MOMENTUM).flatten(1)
                )  # Nesterov's momentum
                rate = group["lr"] * max(update.shape) ** 0.5
                weight.mul_(1 - DECAY * rate).sub_(update.view(weight.shape), alpha=rate)
                weight.grad = None  # Adam passes over it
        super().step(closure)


def orthogonal(matrix: Tensor) -> Tensor:
    """U V^T of a matrix U S V^T (r, c), nearly: its singular values are between 0.68 and 1.14."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)  # no singular value above 1
    for _ in range(STEPS):
        square = x @ x.T
        x = A * x + (B * square + C * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x
