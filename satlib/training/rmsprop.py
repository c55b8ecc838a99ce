"""RMSProp (section 4.3) as in the official code and in Graves (2013), equations 38 to 45.

Graves: arXiv:1308.0850. A gradient is divided by the root of its variance. `torch.optim.RMSprop`
with `centered` adds eps after the root, Graves and the official code under it. With eps = 1e-4 that
decides: their divisor is never below 0.01, torch's falls to 0.0001, and small gradients make steps
that are up to a hundred times as long.
"""

import torch
from torch import Tensor

DECAY = 0.95  # of both means
MOMENTUM = 0.9
EPS = 1e-4


class RMSProp(torch.optim.Optimizer):
    """RMSProp with a subtracted mean and momentum."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[bad-override]
        """Change all weights that have a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step_of_weight(weight, weight.grad, group["lr"])

    def _step_of_weight(self, weight: Tensor, gradient: Tensor, learning_rate: float) -> None:
        state = self.state[weight]
        if not state:
            for name in ("square", "mean", "change"):
                state[name] = torch.zeros_like(weight)

        # Graves's n, g and Delta.
        square = state["square"].mul_(DECAY).addcmul_(gradient, gradient, value=1 - DECAY)
        mean = state["mean"].lerp_(gradient, 1 - DECAY)
        divisor = (square - mean.square() + EPS).sqrt()
        change = state["change"].mul_(MOMENTUM)
        # The learning rate is inside: a new one does not rescale the steps that momentum keeps.
        weight.add_(change.addcdiv_(gradient, divisor, value=-learning_rate))
