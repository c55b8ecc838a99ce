"""Muon (Jordan et al., 2024): momentum whose matrices are made orthogonal.

A gradient's matrix has a few large singular values, the common and easy directions, and many small
ones. Muon sets them to about 1 by a Newton-Schulz iteration, all but those below 0.005 of the norm,
so that each direction is learnt at the same speed. `torch.optim.Muon` does so too, but only for
weights with two dimensions and in bfloat16, which is twenty times slower than float32 on a
processor without instructions for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

DECAY = 0.1  # of the weights, which otherwise grow with every step
MOMENTUM = 0.95
# a, b and c of four quintics a x + b x^3 + c x^5, one after the other, chosen as in the Polar
# Express (Amsel et al., 2025, arXiv:2505.16932): each is the odd quintic that brings what the ones
# before it have left of the interval 0.005 to 1 as close to 1 as such a quintic can. In the end
# every singular value from that interval is between 0.91 and 1.09, and smaller ones are up to 226
# times as large as they were.
QUINTICS = (
    (8.298703, -24.430498, 18.090304),
    (3.915221, -2.921130, 0.559223),
    (3.174605, -2.380433, 0.497826),
    (2.189463, -1.567221, 0.407888),
)


class Muon(torch.optim.Adam):
    """Muon for the groups with `orthogonal`, Adam for the others.

    A convolution's weight is flattened to a row per output: (outputs, inputs x h x w). An
    orthogonal update is scaled to a root mean square of 1, about the size of Adam's, so that one
    learning rate serves both.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Change all weights; the matrices' gradients are gone afterwards."""
        for group in self.param_groups:
            if not group["orthogonal"]:
                continue
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                self._step_of_matrix(weight, weight.grad, group["lr"])
                # Without a gradient, Adam passes over it.
                weight.grad = None
        super().step(closure)

    def _step_of_matrix(self, weight: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """Change one weight by its orthogonal update, and shrink it a little."""
        # The names are Adam's, which asks for "step" when a run is resumed.
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight)
        state["step"] += 1
        momentum = state["exp_avg"].lerp_(gradient, 1 - MOMENTUM)

        # Nesterov's momentum: a step ahead of the mean.
        ahead = gradient.lerp(momentum, MOMENTUM)
        update = orthogonal(ahead.flatten(1))
        # The root mean square of an orthogonal matrix is 1 over the root of its longer side.
        rate = learning_rate * max(update.shape) ** 0.5
        # At this rate, too: decay and update keep their proportion in matrices of any size.
        weight.mul_(1 - DECAY * rate)
        weight.sub_(update.view(weight.shape), alpha=rate)


def orthogonal(matrix: Tensor) -> Tensor:
    """U V^T of a matrix U S V^T (r, c), nearly: singular values are 0.91 to 1.09.

    Those below 0.005 of the norm become smaller ones.
    """
    # A tall matrix is transposed, because x x^T is as large as the number of rows.
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    # No singular value above 1.
    x = x / (x.norm() + 1e-7)
    x = _factor(x @ x.T, QUINTICS) @ x
    return x.T if tall else x


def _factor(square: Tensor, quintics: Sequence[tuple[float, float, float]]) -> Tensor:
    """F (r, r), a polynomial of x x^T: F x is what the quintics make of x (r, c).

    square: S = x x^T (r, r). A quintic's own factor is F = a + b S + c S^2. Because F is symmetric,
    the next S, (F x)(F x)^T = F S F, is found without the next x, which is often many times wider.
    """
    (a, b, c), *others = quintics
    factor = torch.addmm(square, square, square, beta=b, alpha=c)
    factor.diagonal().add_(a)
    if not others:
        return factor
    following = factor @ square @ factor  # (F x)(F x)^T
    return _factor(following, others) @ factor
