"""The loss of a batch of captions: equation 14 or hard attention's bound, and a list of further terms.

A term is an object with a method `term(batch, a, places)`. It is called before the decoder runs and gives a function that
puts the term into the loss once there is an output; `distillation` mixes, `boxes` and `words` add. The training loop knows none by name.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from satlib.data.batches import Batch
from satlib.data.text import PAD
from satlib.model.attention import entropy, movement
from satlib.model.decoder import Output
from satlib.model.objective import VariationalBound, coins, doubly_stochastic_penalty, negative_log_likelihood

# The loss so far () and the decoder's output -> the loss with the term, and means to log by name.
BatchTerm = Callable[[Tensor, Output], tuple[Tensor, dict[str, Tensor]]]


class Term(Protocol):
    """A term of the loss."""

    def term(self, batch: Batch, a: Tensor, places: Tensor | None) -> BatchTerm:
        """The term for a batch whose images have the annotation vectors a (I, L, D), of these `places`; None if of all."""


class BatchLoss(NamedTuple):
    """The loss () of a batch, the means to log by name, and the numbers of captions and words behind them."""

    loss: Tensor
    means: dict[str, Tensor]
    captions: int
    words: int


def caption_loss(
    decoder: Callable[..., Output],
    a: Tensor,
    captions: Tensor,
    doubly_stochastic: float = 1.0,
    label_smoothing: float = 0.0,
    bound: VariationalBound | None = None,
    done: float = 1.0,
    terms: Sequence[BatchTerm] = (),
) -> BatchLoss:
    """Equation 14; with hard attention the bound of section 4.1 takes the place of log p(y|a).

    Args:
        decoder: gives an `Output` from annotation vectors, captions and (with a bound) the images that take the expectation.
        a: annotation vectors (B, L, D).
        captions: ids (B, C), the end mark last, `PAD` after it.
        doubly_stochastic: lambda.
        label_smoothing: of the words' losses; a bound has its own.
        bound: the estimator of hard attention's bound, with N samples of each caption.
        done: share of the training that is done, for an annealed coin.
        terms: applied one after the other, before the penalty.
    """
    if bound is None:
        output = decoder(a, captions)
        loss = negative_log_likelihood(output.logits, captions, label_smoothing).mean()
        means = {"nll": loss}
    else:
        expected = coins(bound.config, len(a), a.device, done)
        a, captions, expected = (rows.repeat_interleave(bound.config.samples, 0) for rows in (a, captions, expected))
        output = decoder(a, captions, expected)
        estimate = bound(output, captions)
        loss, means = estimate.loss, {"nll": estimate.nll.mean()}
        if estimate.advantage.numel():  # over the captions with a sample, about half of them
            means |= {"reward": (estimate.advantage + estimate.baseline).mean(), "baseline": estimate.baseline.mean()}
    for term in terms:
        loss, more = term(loss, output)
        means |= more
    within = captions != PAD
    words = int(within.sum())
    penalty = doubly_stochastic_penalty(output.alphas, within).mean()
    means |= {"penalty": penalty, "entropy": (entropy(output.alphas) * within).sum() / words}
    if words > len(captions):
        means |= {"movement": (movement(output.alphas) * within[:, 1:]).sum() / (words - len(captions))}
    return BatchLoss(loss + doubly_stochastic * penalty, means, len(captions), words)
