"""Exercises of notebook 04: the decoder, equation by equation; tests/test_soft_attention.py holds it against satlib's."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from satcourse.exercises.calls import Failed
from satcourse.exercises.task import Answer, distribution, exercise, generator, numbers, sums_to_one, with_gradients
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig

B, L, D, n, k, m = 2, 5, 4, 3, 6, 4


def _inputs(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(numbers(*shape, seed=seed) for seed, shape in enumerate(shapes))


@exercise("4.1", "A score for each place", difficulty=2, minutes=8, equation="equation 4")
def energies(
    a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor, *, act: Answer = torch.tanh, axis: int = 1
) -> Tensor:
    """Equation 4, with a perceptron of one hidden layer."""
    return act(a @ W_a.T + (h @ W_h.T + b).unsqueeze(axis)) @ v


energies.says = "the values of equation 4, and the gradients at all that goes in"
energies.observe = with_gradients("a", "h", "W_a", "W_h", "b", "v")
# As many images as places, or one: a wrong axis raises no error. So in 4.2 to 4.4.
energies.cases = lambda: [
    _inputs((rows, places, D), (rows, n), (k, D), (k, n), (k,), (k,)) for rows, places in ((L, L), (1, 2))
]
energies.mistakes = {
    "the state of image i meets place i of all images: give it an axis of size 1": partial(energies, axis=0),
    "the tanh is missing: the state moves all energies alike, and the weights not at all": partial(
        energies, act=torch.clone
    ),
    "these are weights: energies come before the softmax": lambda *x: torch.softmax(energies(*x), 1),
    "this is the sum over a place's k hidden units: v weighs them": lambda *x: energies(*x[:-1], 0 * x[-1] + 1),
    "the state was detached: no gradient tells it what to ask": lambda a, h, *x: energies(a, h.detach() + 0 * h, *x),
}


@exercise("4.2", "Energies become weights", difficulty=1, minutes=4, equation="equation 5")
def weights(e: Tensor) -> Tensor:
    """Equation 5."""
    return torch.softmax(e, 1)


weights.says = "values, sums over the places, energies of 128, and gradients"
weights.cases = lambda: [(numbers(D, D),), (torch.tensor([[128.0, 129.0], [-500.0, 2.0]]),)]
weights.observe = with_gradients("e")
weights.advise = sums_to_one(1, over="the places (is a keepdim=True missing?)")
weights.mistakes = {
    "softmax over the batch axis: an image's weights must sum to 1": lambda e: torch.softmax(e, 0),
    "exp of a large energy overflows: take the largest off": lambda e: e.exp() / e.exp().sum(1, keepdim=True),
    "image j's maximum is taken off place j: keepdim=True": lambda e: (x := (e - e.max(1)[0]).exp()) / x.sum(1, True),
    "one maximum for the whole batch leaves an image 0 / 0; take the largest of each row": (
        lambda e: (x := (e - e.max()).exp()) / x.sum(1, keepdim=True)
    ),
}


def _blend(alpha: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("bl,bld->bd", alpha, a), alpha


@exercise("4.3", "Weights become one vector", difficulty=1, minutes=5, equation="equations 5, 6 and 13")
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 5, 6 and 13: context vectors and weights."""
    return _blend(weights(e), a)


attend.says = "z, the weights, energies of 128, and the gradients at energies and vectors"
attend.cases = lambda: [(e, numbers(*e.shape, len(e), seed=1)) for (e,) in weights.cases()]
attend.parts = ("z", "alpha")
attend.observe = with_gradients("e", "a", parts=attend.parts)
attend.mistakes = {
    "the energies were detached: no gradient tells where to look": lambda e, a: _blend(weights(e.detach()) + 0 * e, a),
    "this reads the best place alone: z is the weighted mean of all": lambda e, a: (
        a[torch.arange(len(a)), e.argmax(1)],
        weights(e),
    ),
    "a weight meets a dimension, not its place: give alpha a third axis": lambda e, a: (
        (weights(e) * a).sum(1),
        weights(e),
    ),
    "z is the plain mean: multiply each vector by its weight, then sum": lambda e, a: (a.mean(1), weights(e)),
    "z and alpha are in the wrong order: give back (z, alpha)": lambda e, a: attend(e, a)[::-1],
    "the energies are the weights here: put them through the softmax": lambda e, a: _blend(e, a),
}


@exercise("4.4", "How much of the context to use", difficulty=1, minutes=4, equation="section 4.2.1")
def gated(z: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The scalar gate of section 4.2.1 on a context vector."""
    return torch.sigmoid(h @ w + b).unsqueeze(1) * z


gated.says = "one beta for each image, between 0 and 1, on all of its dimensions, and gradients"
gated.observe = with_gradients("z", "h", "w", "b")
gated.cases = lambda: [
    (numbers(rows, D), numbers(rows, n, seed=1), numbers(n, seed=2), torch.tensor(0.7)) for rows in (D, 1)
]
gated.mistakes = {
    "the sigmoid is missing: beta must lie between 0 and 1": lambda z, h, w, b: (h @ w + b)[:, None] * z,
    "beta of one image meets a dimension of all: give it an axis of size 1": lambda z, h, w, b: (
        (h @ w + b).sigmoid() * z
    ),
    "this is beta alone: multiply the context by it": lambda z, h, w, b: torch.sigmoid(h @ w + b),
}


@exercise("4.5", "The state moves on", difficulty=3, minutes=12, equation="equations 1 to 3")
def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor, **slip: Any
) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3: the new h and c. A slip: another `order`; a `late` h, of the memory before."""
    rows = dict(zip(slip.get("order", "ifgo"), (Ey @ W.T + h @ U.T + z @ Z.T + b).chunk(4, 1), strict=True))
    i, f, o = (torch.sigmoid(rows[gate]) for gate in "ifo")
    before, c = c, f * c + i * torch.tanh(rows["g"])
    return o * torch.tanh(before if "late" in slip else c), c


lstm_step.says = "h and c, for batches of two and of one, and gradients"
lstm_step.cases = lambda: [
    _inputs((rows, m), (rows, n), (rows, n), (rows, D), (4 * n, m), (4 * n, n), (4 * n, D), (4 * n,))
    for rows, n in ((2, 3), (1, 5))
]
lstm_step.parts = ("h", "c")
lstm_step.observe = with_gradients("Ey", "h", "c", "z", "W", "U", "Z", "b", parts=lstm_step.parts)
lstm_step.mistakes = {
    "another order of gates: W, U, Z and b hold i, f, g, o, from the top": partial(lstm_step, order="ifog"),
    "h and c are in the wrong order: give back (h, c)": lambda *x: lstm_step(*x)[::-1],
    "h comes from the old memory: equation 3 has the new c": partial(lstm_step, late=1),
}


def _three_steps(answer: Answer, seed: int) -> Any:
    """The losses of three calls of a learner's step, with plain gradient descent, and how far the weights have moved."""
    torch.manual_seed(seed)
    model = Decoder(DecoderConfig(embedding=m, hidden=6, attention_hidden=4, dropout=0.0), 6, 7)
    model.register_forward_hook(lambda module, inputs, output: (output.logits, output.alphas))
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    a, captions = numbers(4, L, 6, seed=seed), torch.randint(0, 7, (4, 7), generator=generator(seed + 1))
    losses = [answer(model, optimiser, a, captions) for _ in range(3)]
    if any(isinstance(loss, Tensor) and loss.requires_grad for loss in losses):
        raise Failed("a loss holds its graph: keep a number, by loss.item()")
    moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    return {**{f"the loss of step {number}": loss for number, loss in enumerate(losses, 1)}, "the weights": moved}


@exercise("4.6", "One training step", difficulty=2, minutes=8, equation="section 4.3")
def training_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, a: Tensor, captions: Tensor, **slip: Any
) -> float:
    """One step: the mean cross-entropy of a batch's words, its gradients, a step of the optimiser; the loss before it.

    A slip: gradients emptied (`zero`) "between" the backward pass and the step, or "never"; another `loss`.
    """
    logits, _ = model(a, captions)
    loss = slip.get("loss", lambda x, y: cross_entropy(x.mT, y))(logits, captions)
    if "zero" not in slip:
        optimiser.zero_grad()
    loss.backward()
    if slip.get("zero") == "between":
        optimiser.zero_grad()
    optimiser.step()
    return loss.item()


training_step.says = "the losses of three steps, and where the weights are then"
training_step.cases = lambda: [(0,), (3,)]
training_step.observe = _three_steps
training_step.tolerance = 1e-3
training_step.given = "a small model of seed {}".format
training_step.mistakes = {
    "the gradients of the call before are still there: empty them": partial(training_step, zero="never"),
    "the weights stay: empty the gradients, go back, then step": partial(training_step, zero="between"),
    "cross_entropy does its own softmax: give it the logits": partial(
        training_step, loss=lambda x, y: cross_entropy(x.softmax(2).mT, y)
    ),
    "the sum over the words: take their mean": partial(
        training_step, loss=lambda x, y: cross_entropy(x.mT, y, reduction="sum")
    ),
    "axis 1 is not the vocabulary: flatten captions and words into one axis": partial(
        training_step, loss=cross_entropy
    ),
    "shift nothing: the logits at t are those of word t already": partial(
        training_step, loss=lambda x, y: cross_entropy(x[:, :-1].mT, y[:, 1:])
    ),
}


@exercise("4.7", "On trial: the hull", difficulty=3, minutes=8, equation="equation 13")
def outside(a: Tensor, k: int, *, steps: int = 300) -> bool:
    """Whether a plane separates vector k of a (L, D) from all others: Rosenblatt's perceptron looks for its normal."""
    apart = nn.functional.normalize(a[k] - torch.cat([a[:k], a[k + 1 :]]))
    w = apart.mean(0)
    for _ in range(steps):
        worst = apart[(apart @ w).argmin()]
        if worst @ w > 1e-6:
            return True
        w = w + worst
    return False


def _hull_cases() -> list[tuple[Tensor, int]]:
    flat = torch.tensor([[-1.0, -0.7], [1.1, -0.9], [1.5, 0.5], [0.1, 1.3], [-1.3, 0.6], [0.2, 0.1], [1.3, -0.8]])
    blend, twice = numbers(30, 20, seed=3), numbers(6, 12, seed=5)
    blend[7] = distribution(1, 29, seed=4, sharp=2) @ blend[torch.arange(30) != 7]
    twice[2] = twice[4]
    slow = numbers(20, 3, seed=5), 10
    return [(flat, 5), (flat, 2), (flat[:6], 1), (flat, 6), slow, (blend, 7), (blend, 6), (twice, 2)]


outside.says = "corners are outside; blends in 2 and in 20 dimensions and a vector met twice are not"
outside.cases = _hull_cases
outside.observe = lambda answer, a, k: "outside" if answer(a, k) else "a blend of the others"
outside.mistakes = {
    "the first guesses fail, but another direction separates, after some hundred steps": partial(outside, steps=50),
}
