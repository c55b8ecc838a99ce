"""Exercises of notebook 05: the doubly stochastic penalty, and what soft attention approximates."""

from functools import partial

import torch
from torch import Tensor

from satcourse.exercises.task import distribution, exercise, numbers, sums_to_one, with_gradients
from satcourse.lessons import marginal as course
from satlib.model import objective as losses

B, C, L, K = 2, 3, 5, 4


@exercise("5.1", "A goal out of reach", difficulty=2, minutes=5, equation="equation 14")
def least_penalty(C: int, L: int) -> float:
    """The penalty of C words whose weights, C in all, lie evenly on L places."""
    return losses.doubly_stochastic_penalty(torch.full((1, 1, L), C / L, dtype=torch.float64)).item()


least_penalty.says = "fewer words than places, as many, and more"
least_penalty.cases = lambda: [(14, 49), (49, 49), (70, 49), (12, 196), (1, 4)]
least_penalty.mistakes = {
    "0 is possible only if there are as many words as places: the weights of C words sum to C": lambda C, L: 0.0,
    "C places with 1 and the others with 0 cost more than an even share": lambda C, L: float(max(0, L - C)),
}


@exercise("5.2", "The penalty", difficulty=1, minutes=4, equation="equation 14")
def penalty(alphas: Tensor) -> Tensor:
    """satlib's doubly stochastic penalty."""
    return losses.doubly_stochastic_penalty(alphas)


penalty.says = "one number for each caption, and gradients"
penalty.observe = with_gradients("alphas")
penalty.cases = lambda: [(distribution(B, C, L),), (distribution(4, 4, 4, seed=2, sharp=3),)]
penalty.mistakes = {
    "each weight is squared by itself: sum over the words first": lambda alphas: (1 - alphas).square().sum((1, 2)),
    "summed over the places: that is 1 at every word": lambda alphas: (1 - alphas.sum(2)).square().sum(1),
}


@exercise("5.3", "Somebody else's lambda", difficulty=2, minutes=5, equation="equation 14")
def equivalent_lambda(weight: float, C: int, L: int) -> float:
    """The lambda of equation 14 for the weight of a program that takes means over the words and over the places."""
    return weight * C / L


equivalent_lambda.says = "three programs; multiply their whole loss by C, and equation 14 appears"
equivalent_lambda.cases = lambda: [(1.0, 12, 196), (0.5, 10, 49), (2.0, 7, 5)]
equivalent_lambda.mistakes = {
    "the wrong way round: this is their weight for a lambda of equation 14": lambda w, C, L: w * L / C,
    "only the mean over the places is undone: their cross-entropy is divided too": lambda w, C, L: w / L,
}


@exercise("5.4", "What soft attention minimises", difficulty=1, minutes=4, equation="equation 14")
def objective(log_p: Tensor, alphas: Tensor, weight: float) -> Tensor:
    """L_d from the words' log-probabilities (B, C), by satlib's penalty."""
    return (-log_p.sum(1) + weight * losses.doubly_stochastic_penalty(alphas)).mean()


objective.says = "three values of lambda, the mean over the batch, and gradients"
objective.observe = with_gradients("log_p", "alphas")
objective.cases = lambda: [(-numbers(B, C, seed=1).abs(), distribution(B, C, L), weight) for weight in (1.0, 0.3, 0.0)]
objective.mistakes = {
    "the sign of log p: it is -log p that is made small": lambda log_p, *x: objective(-log_p, *x),
    "the mean over the words: log p(y|a) is their sum": lambda log_p, *x: objective(log_p / log_p.shape[1], *x),
    "the penalty is divided by the places: equation 14 sums over them": (
        lambda log_p, alphas, weight: objective(log_p, alphas, weight / alphas.shape[2])
    ),
    "the penalty is detached: it would be in every log, and train nothing": (
        lambda log_p, alphas, weight: objective(log_p, alphas.detach() + 0 * alphas, weight)
    ),
}


def _places() -> list[tuple[Tensor, Tensor]]:
    return [
        (distribution(B, L), numbers(B, L, K, seed=1)),
        (distribution(3, 3, seed=2, sharp=2.0), numbers(3, 3, 3, seed=3, scale=2.0)),
    ]


@exercise("5.5", "What would be exact", difficulty=2, minutes=6, equation="section 4.2")
def marginal(alpha: Tensor, n: Tensor) -> Tensor:
    """satlib's sum over places: alpha (B, L), pre-activations n (B, L, K) -> (B, K)."""
    return course.EveryPlace(alpha, n, n).marginal


marginal.says = "the sum over places, probabilities that sum to 1"
marginal.cases = _places
marginal.advise = sums_to_one(1, "the probabilities", "the words")
marginal.mistakes = {
    "the mean is taken before the softmax": lambda alpha, n: (alpha[:, :, None] * n).sum(1).softmax(1),
    "the places count alike: weigh each distribution by its alpha": lambda alpha, n: torch.softmax(n, 2).mean(1),
}


def _by_products(alpha: Tensor, n: Tensor) -> Tensor:
    """The NWGM as it is defined, in the inputs' precision."""
    product = (torch.softmax(n, 2) ** alpha.unsqueeze(2)).prod(1)
    return product / product.sum(1, keepdim=True)


@exercise("5.6", "A geometric mean in one line", difficulty=3, minutes=8, equation="section 4.2")
def nwgm(alpha: Tensor, n: Tensor) -> Tensor:
    """satlib's NWGM, from pre-activations: alpha (B, L), n (B, L, K) -> (B, K)."""
    return course.nwgm(torch.log_softmax(n, 2), alpha)


nwgm.says = "the product of all places' distributions, also where a place all but rules a word out"
# The last: three places that each rule out all but one word, beyond what float32 can say.
nwgm.cases = lambda: [*_places(), (torch.tensor([[0.4, 0.35, 0.25]]), 300 * torch.eye(3).unsqueeze(0))]
nwgm.advise = sums_to_one(1, "the probabilities", "the words")
nwgm.mistakes = {
    "probabilities of 1e-130 are 0 in float32, and 0/0 is no number: do without them": _by_products,
    "this is the arithmetic mean of the distributions: products of powers are wanted": marginal,
    "a floor under the probabilities moves the answer where one is smaller: do without them": (
        lambda alpha, n: course.nwgm((torch.softmax(n, 2) + 1e-8).log(), alpha)
    ),
}


@exercise("5.7", "On trial: the price of coverage", difficulty=2, minutes=8, equation="equation 14")
def lasting(nll: Tensor, *, seeds: bool = True, share: float = 0.9) -> bool:
    """Whether a cost lasts: nll (2, S, E) without and with the penalty, of S seeds after each of E epochs."""
    without, penalised = nll
    gap = (penalised - without).mean(0)
    apart = penalised[:, -1].min() > without[:, -1].max() if seeds else gap[-1] > 0
    return bool(apart and gap[-1] >= share * gap[len(gap) // 2])


def _runs(later: float, *gaps: float) -> tuple[Tensor]:
    """Three runs without and three with it, by the gaps of their means; the seeds differ by 0.01, `later` at the end."""
    seeds = torch.tensor([[-1.0, -1, 2], [-2, 1, 1]]).unsqueeze(2) * torch.linspace(0.01, later, len(gaps))
    return (0.6 + seeds + torch.tensor([[0.0] * len(gaps), gaps]).unsqueeze(1),)


lasting.says = "a cost that lasts or grows is found; delay, chance and gain are not"
lasting.observe = lambda answer, nll: "a cost that lasts" if answer(nll) else "none"
lasting.given = lambda nll: (
    f"gaps of {[round(x, 2) for x in (nll[1] - nll[0]).mean(0).tolist()]}; "
    f"at the end at best {nll[1, :, -1].min():.2f} with the penalty, at worst {nll[0, :, -1].max():.2f} without"
)
lasting.cases = lambda: [
    _runs(*run)
    for run in (
        (0.01, 0.8, 0.5, 0.3, 0.2, 0.1, 0.06),  # a delay
        (0.01, 0.8, 0.5, 0.3, 0.2, 0.19, 0.17),  # most of one is over
        (0.01, 0.4, 0.3, 0.3, 0.2, 0.3, 0.25, 0.2),  # lasts
        (0.01, 0.0, 0.1, 0.2, 0.3),  # grows
        (0.04, 0.2, 0.2, 0.2, 0.19),  # lasts, though the seeds drift apart
        (0.06, 0.2, 0.2, 0.2, 0.2),  # chance
        (0.01, -0.2, -0.2, -0.2),
    )
]
lasting.mistakes = {
    "a delay lives: a gap that still shrinks may close; compare it with half-time": partial(lasting, share=-9),
    "chance lives: in one of the cases seeds overlap, whatever the means say": partial(lasting, seeds=False),
}
