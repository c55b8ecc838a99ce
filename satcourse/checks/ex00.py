"""The exercise of notebook 00: labels on trial."""

import torch
from torch import Tensor

from satcourse.checks.task import distribution, exercise


@exercise("0.1", "Labels on trial", difficulty=2, minutes=8)
def evidence(here: Tensor, elsewhere: Tensor) -> Tensor:
    """Where the likeliest word is likelier than at 95 % of the places elsewhere:
    here (L, K), elsewhere (N, K) -> (L,).
    """
    p, word = here.max(1)  # (L,): the labels
    return p > elsewhere[:, word].quantile(0.95, dim=0)


def _case(seed: int) -> tuple[Tensor, Tensor]:
    """Places at which word 0, an "and", is likely on any picture, and word 4 on this one alone."""
    here = distribution(40, 5, seed=seed, sharp=0.7)
    elsewhere = distribution(201, 5, seed=seed + 1, sharp=1.2)
    # At half the places the "and" is the label, at a quarter the word of this picture.
    here[:20, 0] += 1.2
    here[30:, 4] += 2.0
    elsewhere[:, 0] += 1.2
    here = here / here.sum(1, keepdim=True)
    elsewhere = elsewhere / elsewhere.sum(1, keepdim=True)
    return here, elsewhere


def _counts(expected: Tensor, got: Tensor) -> str:
    """What the check says of labels that are wrong in a way of their own."""
    wrongly_alive = (got & ~expected).sum()
    wrongly_dead = (expected & ~got).sum()
    return (
        f"labels that live wrongly: {wrongly_alive}, that die wrongly: {wrongly_dead}; "
        "take the 95 % quantile of each word's column"
    )


evidence.says = (
    "words that are likely on any picture are struck out, "
    "and those that are likely here alone are kept"
)
# Seeds with which every mistake below gives another result.
evidence.cases = lambda: [
    _case(18),
    _case(2),
    # As likely as everywhere else, and not likelier.
    (torch.tensor([[0.6, 0.4]]), torch.tensor([[0.6, 0.4]] * 20)),
]
evidence.mistakes = {
    "the label is the likeliest word of each place: along axis 1 of here": (
        lambda here, elsewhere: here.amax(0) > elsewhere[:, here.argmax(0)].quantile(0.95, dim=0)
    ),
    'an "and" that is likelier than usual lives: at how many places elsewhere is it as likely?': (
        lambda here, elsewhere: here.amax(1) > elsewhere.mean(0)[here.argmax(1)]
    ),
    "a word is compared with other words: take its own column of elsewhere": (
        lambda here, elsewhere: here.amax(1) > elsewhere.amax(1).quantile(0.95)
    ),
    "only the label, the likeliest word here, is on trial": (
        lambda here, elsewhere: (here > elsewhere.quantile(0.95, dim=0)).any(1)
    ),
    "the 95 % are of the places elsewhere: this takes a quantile over words": (
        lambda here, elsewhere: here.amax(1) > elsewhere[:, here.argmax(1)].quantile(0.95, dim=1)
    ),
    "as likely as the quantile is not likelier: > in place of >=": (
        lambda here, elsewhere: here.amax(1) >= elsewhere[:, here.argmax(1)].quantile(0.95, dim=0)
    ),
    "more than the largest elsewhere: likelier than at 95 % of the places is enough": (
        lambda here, elsewhere: here.amax(1) > elsewhere[:, here.argmax(1)].amax(0)
    ),
    "0.95 is a share of the places, not a probability to beat": (
        lambda here, elsewhere: here.amax(1) > 0.95
    ),
}
evidence.advise = _counts
