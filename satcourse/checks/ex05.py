"""Exercises of notebook 05: the doubly stochastic penalty, and what soft attention approximates."""

from functools import partial

import torch
from torch import Tensor

from satcourse.checks.task import (
    Answer,
    distribution,
    exercise,
    numbers,
    with_gradients,
    without_graph,
)
from satcourse.lessons import marginal as course
from satlib.model import attention
from satlib.model import objective as losses
from satlib.model.decoder import Annotations, Decoder, State
from satlib.recipe import DecoderConfig

B, C, L, K = 2, 3, 5, 4


@exercise("5.1", "A goal out of reach", 2, 5, "equation 14")
def least_penalty(C: int, L: int) -> float:
    """The penalty of C words whose weights, C in all, lie evenly on L places."""
    return losses.doubly_stochastic_penalty(
        torch.full((1, 1, L), C / L, dtype=torch.float64)
    ).item()


least_penalty.says = "fewer words than places, as many, and more"
least_penalty.cases = lambda: [(14, 49), (49, 49), (70, 49), (12, 196), (1, 4)]
least_penalty.mistakes = {
    "0 is possible only if there are as many words as places: the weights of C words sum to C": lambda C, L: (
        0.0
    ),
    "more words than places cost something, too": lambda C, L: max(0, L - C) ** 2 / L,
}


@exercise("5.2", "The penalty", 1, 4, "equation 14")
def penalty(alphas: Tensor) -> Tensor:
    """The sum over the places of (1 - all that the words gave them)^2: alphas (B, C, L) -> (B,)."""
    return losses.doubly_stochastic_penalty(alphas)


penalty.says = "one number a caption, and gradients"
penalty.observe = with_gradients("alphas")
penalty.cases = lambda: [(distribution(B, C, L),), (distribution(4, 4, 4, seed=2, sharp=3),)]
penalty.mistakes = {
    "each weight is squared by itself: sum over the words first": lambda alphas: (
        (1 - alphas).square().sum((1, 2))
    ),
    "summed over the places: that is 1 at every word": lambda alphas: (
        (1 - alphas.sum(2)).square().sum(1)
    ),
    "an even share for 1: equation 14 asks for 1": lambda alphas: (
        penalty(alphas) - least_penalty(*alphas.shape[1:])
    ),
}


@exercise("5.3", "Only the penalty", 2, 10, "equation 14")
def go_downhill(e: Tensor, steps: int = 250, empty: bool = True, once: bool = False) -> Tensor:
    """The softmax over the places of energies e (C, L) after so many steps of Adam (rate 0.05) down the penalty."""
    e = e.clone().requires_grad_()
    optimiser = torch.optim.Adam([e], 0.05)
    for step in range(steps):
        if not (once and step):
            penalty(torch.softmax(e, 1)[None]).sum().backward()
        optimiser.step()
        if empty:
            optimiser.zero_grad()
    return torch.softmax(e, 1).detach()


go_downhill.says = "the maps after 30 steps"
go_downhill.cases = lambda: [(numbers(C, L, scale=scale), 30) for scale in (3.0, 0.3)]
go_downhill.observe = lambda answer, *inputs: without_graph([answer(*inputs)])[0]
go_downhill.tolerance = 1e-2
go_downhill.mistakes = {
    "gradients of steps before are still there: empty them": partial(go_downhill, empty=False),
    "softmax and penalty stand before the loop: anew at each step": partial(
        go_downhill, empty=False, once=True
    ),
}


@exercise("5.4", "Somebody else's lambda", 2, 5, "equation 14")
def equivalent_lambda(weight: float, C: int, L: int) -> float:
    """The lambda with which equation 14 is C times the loss of a program with means over C words and L places."""
    return weight * C / L


equivalent_lambda.says = "three programs; multiply their whole loss by C, and equation 14 appears"
equivalent_lambda.cases = lambda: [(1.0, 12, 196), (0.5, 10, 49), (2.0, 7, 5)]
equivalent_lambda.mistakes = {
    "the wrong way round: by their program": lambda w, C, L: w * L / C,
    "their means are over C words and over L places": lambda weight, C, L: weight,
}


@exercise("5.5", "What the maps do", 2, 8)
def describe(alphas: Tensor) -> Tensor:
    """Percent of places with a mean weight below 0.5 / L; the maps' mean entropy; mean over pairs of half the sum of |difference|."""
    share = alphas.mean(1)
    ignored = 100 * (share < 0.5 / share.shape[1]).float().mean(1)
    return torch.stack(
        [ignored, attention.entropy(alphas).mean(1), attention.movement(alphas).mean(1)], 1
    )


describe.says = "places ignored, entropy and movement, also where a weight is 0"
describe.cases = lambda: [
    (distribution(B, C, L, sharp=2),),
    (torch.eye(4)[[0, 0, 1, 3, 3]].unsqueeze(0),),
]
describe.observe = lambda answer, alphas: (
    dict(zip(("ignored", "entropy", "movement"), result.T, strict=True))
    if getattr(result := answer(alphas), "shape", 0) == (len(alphas), 3)
    else result
)


def _looks(answer: Answer, rows: int) -> object:
    torch.manual_seed(rows)
    decoder = Decoder(
        DecoderConfig(embedding=K, hidden=6, attention_hidden=3, dropout=0.0), 7, K
    ).double()
    a = numbers(rows, L, 7).double()
    return answer(decoder, decoder.project(a), decoder.initial_state(a), numbers(rows, K).double())


def _looked(
    x: Decoder, all: Annotations, state: State, Ey: Tensor, slip: str = ""
) -> tuple[Tensor, Tensor]:
    one = Annotations(all.a.flatten(0, 1)[:, None], all.keys.flatten(0, 1)[:, None])
    Ey, *h_c = (
        p.repeat(L, 1) if slip == "repeat" else p.repeat_interleave(L, 0) for p in (Ey, *state)
    )
    alpha = x.attention(*all[:2], state.h).alpha
    if slip == "open":
        x.get_parameter("gate.bias").data += 1e3
    step = x.step(one, State(*h_c), x.gates_word(Ey))
    return alpha, x.logits(Ey, h_c[0] if slip == "old" else step.state.h, step.z).view(-1, L, K)


every_place = exercise("5.6", "Every place in turn", 3, 10, "section 4.2")(course.every_place)
every_place.says = "weights and logits"
every_place.cases = lambda: [(2,), (1,)]
every_place.observe = _looks
every_place.parts = ("alpha", "n")
every_place.given = "a batch of {}".format
every_place.mistakes = {
    "another image's state: repeat_interleave in place of repeat": partial(_looked, slip="repeat"),
    "the logits have the new h, after that look": partial(_looked, slip="old"),
    "the gate is missing: of one place, z is beta times its vector": partial(_looked, slip="open"),
}


nwgm = exercise("5.7", "A geometric mean", 3, 10, "section 4.2")(course.nwgm)
nwgm.says = (
    "the product of all places' distributions and ln Z, also where a place all but rules a word out"
)
# The last: three places that each rule out all but one word, beyond what float32 can say.
nwgm.cases = lambda: [
    (distribution(B, L), numbers(B, L, K, seed=1)),
    (distribution(3, 3, seed=2, sharp=2.0), numbers(3, 3, 3, seed=3, scale=2.0)),
    (torch.tensor([[0.4, 0.35, 0.25]]), 300 * torch.eye(3).unsqueeze(0)),
]
nwgm.parts = ("NWGM", "ln Z")
nwgm.mistakes = {
    "ln Z needs probabilities: log_softmax of n first": lambda alpha, n: (
        course.nwgm(alpha, n)[0],
        (alpha.unsqueeze(2) * n).sum(1).logsumexp(1),
    ),
    "a mean of probabilities is the marginal: multiply them": lambda alpha, n: (
        torch.einsum("bl,blk->bk", alpha, torch.softmax(n, 2)),
        course.nwgm(alpha, n)[1],
    ),
}


@exercise("5.8", "On trial: the price of coverage", 2, 8, "equation 14")
def lasting(nll: Tensor, seeds: bool = True, share: float = 0.9, early: int = 0) -> bool:
    """Whether at the end no seed with the penalty is as good as one without, and the gap of the means is 0.9 of that at E // 2 or more."""
    without, penalised = nll
    gap = (penalised - without).mean(0)
    apart = penalised[:, -1].min() > without[:, -1].max() if seeds else gap[-1] > 0
    return bool(apart and gap[-1] >= share * gap[(len(gap) - early) // 2])


def _runs(later: float, *gaps: float) -> tuple[Tensor]:
    """Three runs without and three with it, by the gaps of their means; seeds differ by 0.01, then `later`."""
    seeds = torch.tensor([[-1.0, -1, 2], [-2, 1, 1]]).unsqueeze(2) * torch.linspace(
        0.01, later, len(gaps)
    )
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
        (0.01, 0.8, 0.5, 0.3, 0.2, 0.19, 0.17),
        (0.01, 0.4, 0.3, 0.3, 0.2, 0.3, 0.25, 0.2),  # lasts
        (0.01, 0.0, 0.1, 0.2, 0.3),  # grows
        (0.01, 0.0, -0.1, -0.3, 0.2),
        (0.01, 0.3, 0.2, 0.2, 0.185),
        (0.01, 0.1, 0.1, 0.1, 0.2, 0.2, 0.15),
        (0.04, 0.2, 0.2, 0.2, 0.19),  # lasts
        (0.06, 0.2, 0.2, 0.2, 0.2),  # chance
        (0.01, -0.2, -0.2, -0.2),
    )
]
lasting.mistakes = {
    "a gap that still shrinks may close: compare it with that at E // 2": partial(lasting, share=0),
    "too early where E is even: E // 2": partial(lasting, early=1),
    "in one of the cases seeds overlap, whatever the means say": partial(lasting, seeds=False),
}
