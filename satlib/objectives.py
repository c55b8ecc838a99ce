"""What training minimises (section 4.2.1, equation 14), exactly in the paper's scale: sums over words and places."""

from torch import Tensor
from torch.nn import functional


def negative_log_likelihood(logits: Tensor, captions: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """-log p(y|a): logits (B, C, K), captions (B, C) -> (B,), summed over the words, the end mark included.

    With label smoothing a share of each target is spread evenly over the vocabulary (Szegedy et al., 2016).
    """
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), captions.flatten(), reduction="none", label_smoothing=label_smoothing
    )
    return losses.view(captions.shape).sum(1)


def doubly_stochastic_penalty(alphas: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2: alphas (B, C, L) -> (B,). Every place should get its share of attention over a caption."""
    return (1 - alphas.float().sum(1)).square().sum(1)
