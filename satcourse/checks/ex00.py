"""The exercise of notebook 00: labels on trial."""

from torch import Tensor

from satcourse.checks.task import distribution, exercise


@exercise("0.1", "Labels on trial", difficulty=2, minutes=8)
def evidence(here: Tensor, elsewhere: Tensor) -> Tensor:
    """Where the likeliest word is likelier than at 95 % of the places elsewhere: here (L, K), elsewhere (N, K) -> (L,)."""
    p, word = here.max(1)
    return p > elsewhere[:, word].quantile(0.95, dim=0)


def _usual(here: Tensor, elsewhere: Tensor) -> Tensor:
    p, word = here.max(1)
    return p > elsewhere.mean(0)[word]


def _case(seed: int) -> tuple[Tensor, Tensor]:
    """Places at which word 0, an "and", is likely on any picture, and word 4 on this one alone."""
    here, elsewhere = (
        distribution(40, 5, seed=seed, sharp=0.7),
        distribution(201, 5, seed=seed + 1, sharp=1.2),
    )
    here[:20, 0] += 1.2
    here[30:, 4] += 2.0
    elsewhere[:, 0] += 1.2
    return here / here.sum(1, keepdim=True), elsewhere / elsewhere.sum(1, keepdim=True)


evidence.says = "words that are likely on any picture are struck out, and those that are likely here alone are kept"
evidence.cases = lambda: [_case(18), _case(2)]
evidence.mistakes = {
    'an "and" that is likelier than usual lives: at how many places elsewhere is it as likely?': _usual,
    "a word is compared with other words: take its own column of elsewhere": lambda here, elsewhere: (
        here.max(1)[0] > elsewhere.max(1)[0].quantile(0.95)
    ),
    "only the label, the likeliest word here, is on trial": lambda here, elsewhere: (
        here > elsewhere.quantile(0.95, dim=0)
    ).any(1),
    "0.95 is a share of the places, not a probability to beat": lambda here, elsewhere: (
        here.max(1)[0] > 0.95
    ),
}
evidence.advise = lambda expected, got: (
    f"of the labels, {(got & ~expected).sum()} live wrongly, and {(expected & ~got).sum()} die wrongly: take the 95 % quantile of each word's column"
)
