"""Exercises of notebook 04: the decoder, equation by equation; tests/test_soft_attention.py holds it against satlib's."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.exercises.task import Answer, exercise, gradients, numbers, sums_to_one
from satcourse.exercises.training_steps import three_steps, with_pointer

B, L, D, n, k, m = 2, 5, 4, 3, 6, 4


def _energy_weights() -> tuple[Tensor, ...]:
    return numbers(k, D, seed=2), numbers(k, n, seed=3), numbers(k, seed=4), numbers(k, seed=5)


@exercise("4.1", "A score for each place", difficulty=2, minutes=8, equation="equation 4")
def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Equation 4, with a perceptron of one hidden layer."""
    return torch.tanh(a @ W_a.T + (h @ W_h.T).unsqueeze(1) + b) @ v


energies.says = "the values of equation 4 on images of 5 and of 2 places"
energies.cases = lambda: [
    (numbers(rows, places, D), numbers(rows, n, seed=1), *_energy_weights()) for rows, places in ((B, L), (3, 2))
]
energies.mistakes = {
    "the tanh is missing: without it the state moves all energies alike and the weights not at all": (
        lambda a, h, W_a, W_h, b, v: (a @ W_a.T + (h @ W_h.T).unsqueeze(1) + b) @ v
    ),
    "these are weights: energies come before the softmax": lambda *x: torch.softmax(energies(*x), 1),
}


@exercise("4.2", "Energies become weights", difficulty=1, minutes=4, equation="equation 5")
def weights(e: Tensor) -> Tensor:
    """Equation 5."""
    return torch.softmax(e, 1)


weights.says = "values, sums over the places, and energies of 1000"
weights.cases = lambda: [(numbers(B, L),), (torch.tensor([[1000.0, 1001.0], [-500.0, 2.0]]),)]
weights.advise = sums_to_one(1)
weights.mistakes = {
    "softmax over the batch axis: an image's weights must sum to 1": lambda e: torch.softmax(e, 0),
    "exp of a large energy overflows: take the largest off": lambda e: e.exp() / e.exp().sum(1, keepdim=True),
}


def _blend(alpha: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return (alpha.unsqueeze(2) * a).sum(1), alpha


def _with_gradients(answer: Answer, e: Tensor, a: Tensor) -> Any:
    """What `attend` gives, and the gradients of a sum over each, at the energies and at the annotation vectors."""
    output = answer(e.requires_grad_(), a.requires_grad_())
    if not isinstance(output, (tuple, list)) or len(output) != 2 or not all(isinstance(x, Tensor) for x in output):
        return output
    result = {"z": output[0].detach(), "alpha": output[1].detach()}
    for name, values in zip(("z", "alpha"), output, strict=True):
        total = (values * torch.arange(1.0, values.shape[-1] + 1)).sum()
        result |= gradients(total, {f"e through {name}": e, f"a through {name}": a})
    return result


@exercise("4.3", "Weights become one vector", difficulty=1, minutes=5, equation="equations 5, 6 and 13")
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 5, 6 and 13: context vectors and weights."""
    return _blend(weights(e), a)


attend.says = "z, the weights, energies of 1000, and the gradients that reach the energies through both"
attend.cases = lambda: [
    (numbers(B, L), numbers(B, L, D, seed=1)),
    (torch.tensor([[1000.0, 1001.0], [-500.0, 2.0]]), numbers(2, 2, D, seed=4)),
]
attend.observe = _with_gradients
attend.mistakes = {
    "softmax over the batch axis: an image's weights must sum to 1": lambda e, a: _blend(torch.softmax(e, 0), a),
    "no gradient reaches the energies: something was detached, and nothing would learn where to look": lambda e, a: (
        _blend(torch.softmax(e.detach(), 1) + 0 * e, a)
    ),
}


@exercise("4.4", "How much of the context to use", difficulty=1, minutes=4, equation="section 4.2.1")
def gated(z: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The scalar gate of section 4.2.1 on a context vector."""
    return torch.sigmoid(h @ w + b).unsqueeze(1) * z


gated.says = "one beta for each image, between 0 and 1, on all of its dimensions"
gated.cases = lambda: [
    (numbers(rows, D), numbers(rows, n, seed=1), numbers(n, seed=2), torch.tensor(0.7)) for rows in (B, D)
]
gated.mistakes = {
    "the sigmoid is missing: beta must lie between 0 and 1": lambda z, h, w, b: (h @ w + b)[:, None] * z,
}


def _lstm(rows: int, n: int) -> tuple[Tensor, ...]:
    inputs = numbers(rows, m, seed=1), numbers(rows, n, seed=2), numbers(rows, n, seed=3), numbers(rows, D, seed=4)
    weights = numbers(4 * n, m, seed=5), numbers(4 * n, n, seed=6), numbers(4 * n, D, seed=7), numbers(4 * n, seed=8)
    return *inputs, *weights


@exercise("4.5", "The state moves on", difficulty=3, minutes=12, equation="equations 1 to 3")
def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor, *, order: str = "ifgo"
) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3: the new h and c."""
    rows = dict(zip(order, (Ey @ W.T + h @ U.T + z @ Z.T + b).chunk(4, 1), strict=True))
    i, f, o = (torch.sigmoid(rows[gate]) for gate in "ifo")
    c = f * c + i * torch.tanh(rows["g"])
    return o * torch.tanh(c), c


lstm_step.says = "h and c, for batches of two and of one"
lstm_step.cases = lambda: [_lstm(2, 3), _lstm(1, 5)]
lstm_step.parts = ("h", "c")
lstm_step.mistakes = {
    "the gates are in another order: W, U, Z and b hold i, f, g, o, from the top": partial(lstm_step, order="ifog"),
    "h and c are in the wrong order: give back (h, c)": lambda *x: lstm_step(*x)[::-1],
}


@exercise("4.6", "One training step", difficulty=2, minutes=8, equation="section 4.3")
def training_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, a: Tensor, captions: Tensor, *, zero: str = "before"
) -> float:
    """One step: the mean cross-entropy of a batch's words, its gradients, a step of the optimiser; the loss before it.

    The gradients are emptied "before" the backward pass; or, wrongly, "between" it and the step, or "never".
    """
    logits, _ = model(a, captions)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), captions.flatten())
    if zero == "before":
        optimiser.zero_grad()
    loss.backward()
    if zero == "between":
        optimiser.zero_grad()
    optimiser.step()
    return loss.item()


training_step.says = "three steps of plain gradient descent: the losses, and where the weights are after them"
training_step.cases = lambda: [(0,), (3,)]
training_step.observe = three_steps
training_step.tolerance = 1e-3
training_step.mistakes = {
    "the gradients of the call before are still there: empty them": partial(training_step, zero="never"),
    "the weights stay as they are: empty the gradients, then go backwards": partial(training_step, zero="between"),
}


@exercise("4.7", "A training run that learns nothing", difficulty=2, minutes=5, equation="section 4.3", kind="bug")
def train(model: nn.Module, a: Tensor, h: Tensor, answers: Tensor, *, zero: str = "before") -> list[float]:
    """The losses of forty steps of Adam, each before its step; `zero` as in `training_step`."""
    optimiser, losses = torch.optim.Adam(model.parameters(), 0.02), []
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(a, h), answers)
        if zero == "before":
            optimiser.zero_grad()
        loss.backward()
        if zero == "between":
            optimiser.zero_grad()
        optimiser.step()
        losses.append(loss.item())
    return losses


train.start = partial(train, zero="between")
train.says = "forty losses of two networks, from about ln 4 to well below .5"
train.cases = lambda: [(0,), (5,)]
train.observe = with_pointer
train.tolerance = 1e-2
train.mistakes = {
    "the gradients are never emptied: each step adds to those of all steps before it": partial(train, zero="never"),
}
