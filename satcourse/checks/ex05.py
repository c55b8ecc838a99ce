"""Exercises of notebook 05: the doubly stochastic penalty, and what soft attention approximates."""

from functools import partial
from typing import Any

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
from satlib.model.attention import entropy as entropy_of
from satlib.model.attention import movement as movement_of
from satlib.model.decoder import Annotations, Decoder, State
from satlib.model.objective import doubly_stochastic_penalty
from satlib.recipe import DecoderConfig

B, C, L, K = 2, 3, 5, 4
Both = tuple[Tensor, Tensor]


@exercise("5.1", "A goal out of reach", 2, 5, "equation 14")
def least_penalty(C: int, L: int) -> float:
    """The smallest possible penalty of a caption of C words and L places."""
    even = torch.full((1, 1, L), C / L, dtype=torch.float64)
    return doubly_stochastic_penalty(even).item()


def _only_too_few_words(C: int, L: int) -> float:
    return max(0, L - C) ** 2 / L


def _advice_on_the_least(expected: float, got: float) -> str:
    if got > expected:
        return "expected less: share out evenly what C words give, so that each place gets C / L"
    return "expected more: C words give C in all, so that no maps cost so little"


least_penalty.says = "fewer words than places, as many, and more"
least_penalty.cases = lambda: [
    (14, 49),
    (49, 49),
    (70, 49),
    (12, 196),
    (1, 4),
]
least_penalty.advise = _advice_on_the_least
least_penalty.mistakes = {
    "0 is possible only if there are as many words as places: "
    "the weights of C words sum to C": lambda C, L: 0.0,
    "more words than places cost something, too": _only_too_few_words,
}


@exercise("5.2", "The penalty", 1, 4, "equation 14")
def penalty(alphas: Tensor) -> Tensor:
    """The sum over the places of (1 - all that the words gave them)^2:
    alphas (B, C, L) -> (B,).
    """
    return doubly_stochastic_penalty(alphas)


def _squared_by_itself(alphas: Tensor) -> Tensor:
    return (1 - alphas).square().sum((1, 2))


def _summed_over_places(alphas: Tensor) -> Tensor:
    return (1 - alphas.sum(2)).square().sum(1)


def _beyond_the_least(alphas: Tensor) -> Tensor:
    _, C, L = alphas.shape
    return penalty(alphas) - least_penalty(C, L)


penalty.says = "one number a caption, and gradients"
penalty.observe = with_gradients("alphas")
penalty.cases = lambda: [
    (distribution(B, C, L),),
    # All axes of one size: a sum over a wrong one has the right shape.
    (distribution(4, 4, 4, seed=2, sharp=3),),
]
penalty.mistakes = {
    "each weight is squared by itself: sum over the words first": _squared_by_itself,
    "summed over the places: that is 1 at every word": _summed_over_places,
    "the square is missing: an absolute value has another gradient": (
        lambda alphas: (1 - alphas.sum(1)).abs().sum(1)
    ),
    "the weights are squared: square 1 less their sum": (
        lambda alphas: (1 - alphas.square().sum(1)).sum(1)
    ),
    "an even share for 1: equation 14 asks for 1": _beyond_the_least,
    "the mean over the places: equation 14 sums over them": (
        lambda alphas: penalty(alphas) / alphas.shape[2]
    ),
}


@exercise("5.3", "Only the penalty", 2, 10, "equation 14")
def go_downhill(e: Tensor, steps: int = 250) -> Tensor:
    """The softmax over the places of energies e (C, L)
    after so many steps of Adam (rate 0.05) down the penalty.
    """
    e = e.clone().requires_grad_()
    optimiser = torch.optim.Adam([e], 0.05)
    for _ in range(steps):
        loss = penalty(torch.softmax(e, 1)[None]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return torch.softmax(e, 1).detach()


def _gradients_left(e: Tensor, steps: int = 250) -> Tensor:
    e = e.clone().requires_grad_()
    optimiser = torch.optim.Adam([e], 0.05)
    for _ in range(steps):
        penalty(torch.softmax(e, 1)[None]).sum().backward()
        optimiser.step()
    return torch.softmax(e, 1).detach()


def _one_gradient(e: Tensor, steps: int = 250) -> Tensor:
    e = e.clone().requires_grad_()
    optimiser = torch.optim.Adam([e], 0.05)
    penalty(torch.softmax(e, 1)[None]).sum().backward()
    # The gradient of the first step is used again and again.
    for _ in range(steps):
        optimiser.step()
    return torch.softmax(e, 1).detach()


def _with_another_adam(e: Tensor, steps: int, rate: float, per: int) -> Tensor:
    """`go_downhill` at another rate, or with a new Adam after so many steps."""
    e = e.clone().requires_grad_()
    optimiser = torch.optim.Adam([e], rate)
    for step in range(steps):
        if step % per == 0:
            optimiser = torch.optim.Adam([e], rate)
        optimiser.zero_grad()
        penalty(torch.softmax(e, 1)[None]).sum().backward()
        optimiser.step()
    return torch.softmax(e, 1).detach()


def _map_without_graph(answer: Answer, *inputs: Any) -> Any:
    # In a list: of a single tensor `without_graph` says nothing.
    (alphas,) = without_graph([answer(*inputs)])
    return alphas


go_downhill.says = "the maps after 30 steps"
go_downhill.cases = lambda: [
    (numbers(C, L, scale=3.0), 30),
    (numbers(C, L, scale=0.3), 30),
]
go_downhill.observe = _map_without_graph
# Adam's steps are nearly all of one length, and rounding decides where a gradient is nearly 0.
go_downhill.tolerance = 1e-2
go_downhill.mistakes = {
    "gradients of steps before are still there: empty them": _gradients_left,
    "softmax and penalty stand before the loop: anew at each step": _one_gradient,
    "nothing has moved: the softmax is over the places, axis 1, and each round ends with a step": (
        lambda e, steps: torch.softmax(e, 1)
    ),
    "Adam's own rate, 0.001: it is 0.05 here": partial(_with_another_adam, rate=0.001, per=999),
    "a new Adam at each step: it keeps means from step to step": partial(
        _with_another_adam, rate=0.05, per=1
    ),
    "the maps from before the last step: softmax after the loop, too": (
        lambda e, steps: go_downhill(e, steps - 1)
    ),
}


@exercise("5.4", "Somebody else's lambda", 2, 5, "equation 14")
def equivalent_lambda(weight: float, C: int, L: int) -> float:
    """The lambda of equation 14 that trains the same model as a program with means over C words
    and L places.
    """
    return weight * C / L


def _wrong_way_round(weight: float, C: int, L: int) -> float:
    return weight * L / C


equivalent_lambda.says = "three programs; multiply their whole loss by C, and equation 14 appears"
equivalent_lambda.cases = lambda: [
    (1.0, 12, 196),
    (0.5, 10, 49),
    (2.0, 7, 5),
]
equivalent_lambda.mistakes = {
    "the wrong way round: by their program": _wrong_way_round,
    "their means are over C words and over L places": lambda weight, C, L: weight,
    "times the places: a mean over places is divided by them": lambda weight, C, L: weight * L,
}


@exercise("5.5", "What the maps do", 2, 8)
def describe(alphas: Tensor) -> Tensor:
    """Percent of places with a mean weight below 0.5 / L; the maps' mean entropy;
    mean over pairs of half the sum of |difference|.
    """
    shares = alphas.mean(1)  # (B, L)
    L = shares.shape[1]
    ignored = 100 * (shares < 0.5 / L).float().mean(1)
    entropy = entropy_of(alphas).mean(1)
    movement = movement_of(alphas).mean(1)
    return torch.stack([ignored, entropy, movement], 1)


def _by_column(answer: Answer, alphas: Tensor) -> Any:
    """The columns of a result by their names, so that a message says which one is wrong."""
    result = answer(alphas)
    if getattr(result, "shape", None) != (len(alphas), 3):
        return result
    ignored, entropy, movement = result.T
    return {"ignored": ignored, "entropy": entropy, "movement": movement}


def _with_column(column: int, wrong: Answer) -> Answer:
    """The right numbers, but for one column."""

    def answer(alphas: Tensor) -> Tensor:
        result = describe(alphas)
        result[:, column] = wrong(alphas)
        return result

    return answer


def _below_a_half(alphas: Tensor) -> Tensor:
    return 100 * (alphas.sum(1) < 0.5).float().mean(1)


def _ignored_by_words(alphas: Tensor) -> Tensor:
    return 100 * (alphas < 0.5 / alphas.shape[2]).float().mean((1, 2))


describe.says = "places ignored, entropy and movement, also where a weight is 0"
describe.cases = lambda: [
    (distribution(B, C, L, sharp=2),),
    # Maps on one place each: 0 log 0 is 0.
    (torch.eye(4)[[0, 0, 1, 3, 3]].unsqueeze(0),),
]
describe.observe = _by_column
describe.mistakes = {
    "a place's sum against 0.5: its *mean* weight against 0.5 / L": _with_column(0, _below_a_half),
    "counted word by word: take a place's mean over the words first": _with_column(
        0, _ignored_by_words
    ),
    "the sum of the words' entropies: their mean is asked": _with_column(
        1, lambda alphas: alphas.shape[1] * entropy_of(alphas).mean(1)
    ),
    "the entropy of the mean map: the mean of the maps' entropies is asked": _with_column(
        1, lambda alphas: entropy_of(alphas.mean(1))
    ),
    "differences of neighbouring places: of one word's map and the next one's": _with_column(
        2, lambda alphas: alphas.diff().abs().sum(2).mean(1) / 2
    ),
}


every_place = exercise("5.6", "Every place in turn", 3, 10, "section 4.2")(course.every_place)


def _look_with_a_decoder(answer: Answer, B: int) -> object:
    """A learner's result for a small decoder and B images, in float64."""
    torch.manual_seed(B)
    # Without dropout, which would give the learner's function other numbers.
    config = DecoderConfig(embedding=K, hidden=6, attention_hidden=3, dropout=0.0)
    decoder = Decoder(config, 7, K).double()
    a = numbers(B, L, 7).double()
    Ey = numbers(B, K).double()
    state = decoder.initial_state(a)
    return answer(decoder, decoder.project(a), state, Ey)


def _another_images_state(
    decoder: Decoder, annotations: Annotations, state: State, Ey: Tensor
) -> Both:
    alpha, _ = every_place(decoder, annotations, state, Ey)
    # As B L images with a single place each.
    a, keys = (part.flatten(0, 1).unsqueeze(1) for part in (annotations.a, annotations.keys))
    repeated = State(*(part.repeat(L, 1) for part in state))
    Ey = Ey.repeat(L, 1)
    step = decoder.step(Annotations(a, keys), repeated, decoder.gates_word(Ey))
    n = decoder.logits(Ey, step.state.h, step.z)
    return alpha, n.view(-1, L, K)


def _place_by_place(choose: Answer, hands_on: bool = False) -> Answer:
    """Logits of the h and z that `choose` takes from a soft step, the state before, a step at one
    place, and its vector; each place's new state may be handed on.
    """

    def answer(decoder: Decoder, annotations: Annotations, state: State, Ey: Tensor) -> Both:
        alpha, _ = every_place(decoder, annotations, state, Ey)
        word = decoder.gates_word(Ey)
        soft = decoder.step(annotations, state, word)
        n = []
        for place in range(L):
            a = annotations.a[:, [place]]
            keys = annotations.keys[:, [place]]
            step = decoder.step(Annotations(a, keys), state, word)
            h, z = choose(soft, state, step, a.squeeze(1))
            n.append(decoder.logits(Ey, h, z))
            state = step.state if hands_on else state
        return alpha, torch.stack(n, 1)

    return answer


def _open_gate(decoder: Decoder, annotations: Annotations, state: State, Ey: Tensor) -> Both:
    # The sigmoid of 1,000 is 1, and a gate of 1 is none.
    decoder.get_parameter("gate.bias").data += 1e3
    return every_place(decoder, annotations, state, Ey)


every_place.says = "weights and logits"
every_place.cases = lambda: [(2,), (1,)]
every_place.observe = _look_with_a_decoder
every_place.parts = ("alpha", "n")
every_place.given = "a batch of {}".format
every_place.mistakes = {
    "an image meets another one's state: repeat_interleave keeps them together, repeat does not": _another_images_state,
    "the logits have the new h, after that look": _place_by_place(
        lambda soft, state, step, a: (state.h, step.z)
    ),
    "the logits have z, the vector times beta, not the vector itself": _place_by_place(
        lambda soft, state, step, a: (step.state.h, a)
    ),
    "this looks at all places at once: of each image one place alone": _place_by_place(
        lambda soft, state, step, a: (soft.state.h, soft.z)
    ),
    "h comes from a look at all places: h, too, of that place alone": _place_by_place(
        lambda soft, state, step, a: (soft.state.h, step.z)
    ),
    "the state walks from place to place: each begins from `state`": _place_by_place(
        lambda soft, state, step, a: (step.state.h, step.z), hands_on=True
    ),
    "the gate is missing: of one place, z is beta times its vector": _open_gate,
}


nwgm = exercise("5.7", "A geometric mean", 3, 10, "section 4.2")(course.nwgm)


def _logits_for_logarithms(alpha: Tensor, n: Tensor) -> Both:
    mean, _ = course.nwgm(alpha, n)
    weighted = (alpha.unsqueeze(2) * n).sum(1)
    return mean, weighted.logsumexp(1)


def _marginal(alpha: Tensor, n: Tensor) -> Both:
    _, log_Z = course.nwgm(alpha, n)
    marginal = torch.einsum("bl,blk->bk", alpha, torch.softmax(n, 2))
    return marginal, log_Z


nwgm.says = (
    "the product of all places' distributions and ln Z, also where a place all but rules a word out"
)
nwgm.cases = lambda: [
    (distribution(B, L), numbers(B, L, K, seed=1)),
    (distribution(3, 3, seed=2, sharp=2.0), numbers(3, 3, 3, seed=3, scale=2.0)),
    # Three places that each rule out all but one word, beyond what float32 can say.
    (torch.tensor([[0.4, 0.35, 0.25]]), 300 * torch.eye(3).unsqueeze(0)),
]
nwgm.parts = ("NWGM", "ln Z")
nwgm.mistakes = {
    "ln Z needs probabilities: log_softmax of n first": _logits_for_logarithms,
    "a mean of probabilities is the marginal: multiply them": _marginal,
}


@exercise("5.8", "On trial: the price of coverage", 2, 8, "equation 14")
def price(nll: Tensor, t: float) -> Tensor:
    """Lower end, mean and upper end (3, E) of the differences within the seeds."""
    differences = nll[1] - nll[0]  # (S, E)
    error = differences.std(0) / len(differences) ** 0.5
    return _around(differences.mean(0), t * error)


def _around(mean: Tensor, half: Tensor) -> Tensor:
    return torch.stack([mean - half, mean, mean + half])


def _of_two_groups(nll: Tensor, t: float) -> Tensor:
    error = (nll.var(1).sum(0) / nll.shape[1]).sqrt()
    return _around((nll[1] - nll[0]).mean(0), t * error)


def _of_a_single_seed(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    return _around(differences.mean(0), t * differences.std(0))


def _without_the_root(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    return _around(differences.mean(0), t * differences.std(0) / len(differences))


def _root_of_the_epochs(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    error = differences.std(0) / differences.shape[1] ** 0.5
    return _around(differences.mean(0), t * error)


def _divided_by_all_seeds(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    error = differences.std(0, correction=0) / len(differences) ** 0.5
    return _around(differences.mean(0), t * error)


def _from_least_to_most(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    return torch.stack([differences.amin(0), differences.mean(0), differences.amax(0)])


def _of_all_epochs(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    return _around(differences.mean(1), t * differences.std(1) / differences.shape[1] ** 0.5)


def _one_error(nll: Tensor, t: float) -> Tensor:
    differences = nll[1] - nll[0]
    return _around(differences.mean(0), t * differences.std() / len(differences) ** 0.5)


def _seeds(S: int, E: int, seed: int, cost: float = 0.0) -> Tensor:
    """Runs (2, S, E) whose seeds differ more than the penalty costs."""
    shared = numbers(1, S, E, seed=seed)
    own = numbers(2, S, E, seed=seed + 1, scale=0.3)
    return shared + own + torch.tensor([0.0, cost]).view(2, 1, 1)


price.says = "the mean of the differences within seeds, and both ends of its interval"
price.cases = lambda: [
    (_seeds(6, 4, seed=0, cost=0.2), 2.57),
    (_seeds(3, 2, seed=2), 4.3),
    (_seeds(4, 3, seed=4, cost=-0.5), 1.0),
]
price.mistakes = {
    "this is the interval of two unrelated groups: subtract within each seed first": _of_two_groups,
    "this is the spread of a single seed; a mean of S is surer by the root of S": _of_a_single_seed,
    "divide by the root of S, not by S": _without_the_root,
    "divide by the root of the number of seeds, not of epochs": _root_of_the_epochs,
    "divide by S - 1 in the standard deviation: std does so by itself": _divided_by_all_seeds,
    "least and most of the seeds are no interval of their mean": _from_least_to_most,
    "go over the seeds, axis 0 of the differences, and keep the epochs": _of_all_epochs,
    "a cost is what the penalty adds: with it less without": lambda nll, t: price(nll.flip(0), t),
    "one error for all epochs: each has its own, over its seeds": _one_error,
    "t plays no part in it": lambda nll, t: price(nll, 1.0),
    "half of t: the interval goes t errors to each side": lambda nll, t: price(nll, t / 2),
    "the order is lower end, mean, upper end": lambda nll, t: price(nll, t)[[1, 0, 2]],
}
