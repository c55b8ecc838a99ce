"""Exercises of notebook 04: the decoder, equation by equation.

The references are the functions that the notebook builds; tests/test_soft_attention.py holds them against satlib's decoder.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from satcourse.exercises.task import Task, numbers, sums_to_one
from satcourse.exercises.training_steps import (
    stepped,
    three_steps,
    train,
    trained,
    training_step,
    with_graph,
    with_pointer,
)

B, L, D, n, k, m = 2, 5, 4, 3, 6, 4


def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Equation 4, with a perceptron of one hidden layer."""
    return torch.tanh(a @ W_a.T + (h @ W_h.T).unsqueeze(1) + b) @ v


def _linear(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return (a @ W_a.T + (h @ W_h.T).unsqueeze(1) + b) @ v


def _energies_loop(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    rows = [
        [v.dot(torch.tanh(W_a @ place + W_h @ state + b)) for place in image] for image, state in zip(a, h, strict=True)
    ]
    return torch.stack([torch.stack(row) for row in rows])


def _energy_weights() -> tuple[Tensor, ...]:
    return numbers(k, D, seed=2), numbers(k, n, seed=3), numbers(k, seed=4), numbers(k, seed=5)


def weights(e: Tensor) -> Tensor:
    """Equation 5."""
    return torch.softmax(e, 1)


def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 5, 6 and 13: context vectors and weights."""
    return _blend(weights(e), a)


def _blend(alpha: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return (alpha.unsqueeze(2) * a).sum(1), alpha


def gated(z: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The scalar gate of section 4.2.1 on a context vector."""
    return torch.sigmoid(h @ w + b).unsqueeze(1) * z


def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """Equations 1 to 3: the new h and c."""
    return _gates(Ey, h, c, z, W, U, Z, b)


def _lstm(rows: int, n: int) -> tuple[Tensor, ...]:
    inputs = numbers(rows, m, seed=1), numbers(rows, n, seed=2), numbers(rows, n, seed=3), numbers(rows, D, seed=4)
    weights = numbers(4 * n, m, seed=5), numbers(4 * n, n, seed=6), numbers(4 * n, D, seed=7), numbers(4 * n, seed=8)
    return *inputs, *weights


def _gates(
    Ey: Tensor,
    h: Tensor,
    c: Tensor,
    z: Tensor,
    W: Tensor,
    U: Tensor,
    Z: Tensor,
    b: Tensor,
    order: str = "ifgo",
    candidate: Callable[[Tensor], Tensor] = torch.tanh,
    squash: Callable[[Tensor], Tensor] = torch.tanh,
) -> tuple[Tensor, Tensor]:
    """An LSTM step, its gates in an `order`, with other functions in place of the tanh of the candidate and of the memory."""
    rows = dict(zip(order, (Ey @ W.T + h @ U.T + z @ Z.T + b).chunk(4, 1), strict=True))
    i, f, o = (torch.sigmoid(rows[gate]) for gate in "ifo")
    c = f * c + i * candidate(rows["g"])
    return o * squash(c), c


def _lstm_cell(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    cell = nn.LSTMCell(Ey.shape[1] + z.shape[1], h.shape[1]).requires_grad_(False)
    merged = {"weight_ih": torch.cat([W, Z], 1), "weight_hh": U, "bias_ih": b, "bias_hh": torch.zeros_like(b)}
    cell.load_state_dict(merged)
    return cell(torch.cat([Ey, z], 1), (h, c))


def _naive(e: Tensor) -> Tensor:
    return e.exp() / e.exp().sum(1, keepdim=True)


def _train_by_none(model: nn.Module, a: Tensor, h: Tensor, answers: Tensor) -> list[float]:
    optimiser, losses = torch.optim.Adam(model.parameters(), 0.02), []
    for _ in range(40):
        loss = -torch.log_softmax(model(a, h), 1)[torch.arange(len(answers)), answers].mean()
        loss.backward()
        optimiser.step()
        model.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def _step_by_log_softmax(model: nn.Module, optimiser: torch.optim.Optimizer, a: Tensor, captions: Tensor) -> Tensor:
    optimiser.zero_grad(set_to_none=False)
    log_p = torch.log_softmax(model(a, captions)[0], 2).gather(2, captions.unsqueeze(2))
    loss = -log_p.mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


TASKS = (
    Task(
        id="4.1",
        name="energies",
        title="A score for each place",
        difficulty=2,
        minutes=8,
        equation="equation 4",
        reference=energies,
        cases=lambda: [
            (numbers(B, L, D), numbers(B, n, seed=1), *_energy_weights()),
            (numbers(3, 2, D, seed=6), numbers(3, n, seed=7), *_energy_weights()),
        ],
        mistakes={
            "the tanh is missing: without it the state moves all energies alike and the weights not at all": _linear,
            "the state h is not in it: every word would look at the same places": lambda a, h, W_a, W_h, b, v: energies(
                a, h * 0, W_a, W_h, b, v
            ),
            "the bias b is missing": lambda a, h, W_a, W_h, b, v: energies(a, h, W_a, W_h, b * 0, v),
            "the tanh comes after v: it belongs around each hidden unit": lambda *x: torch.tanh(_linear(*x)),
            "these are weights: energies come before the softmax": lambda *x: torch.softmax(energies(*x), 1),
        },
        says="the values of equation 4 on images of 5 and of 2 places",
        others=(_energies_loop, lambda *x: energies(*(each.double() for each in x))),
    ),
    Task(
        id="4.2",
        name="weights",
        title="Energies become weights",
        difficulty=1,
        minutes=4,
        equation="equation 5",
        reference=weights,
        cases=lambda: [
            (numbers(B, L),),
            (numbers(4, 3, seed=1, scale=5),),
            (torch.tensor([[1000.0, 1001.0], [-500.0, 2.0]]),),
        ],
        mistakes={
            "softmax over the batch axis: the weights of one image must sum to 1 over its places": lambda e: (
                torch.softmax(e, 0)
            ),
            "softmax over the whole batch: each image needs weights of its own": lambda e: torch.softmax(
                e.flatten(), 0
            ).view(e.shape),
            "exp of a large energy overflows: take each row's largest energy off first": _naive,
            "these are logarithms of the weights": lambda e: torch.log_softmax(e, 1),
            "exp is there, and the division by the sum over the places is missing": torch.exp,
        },
        says="values, sums over the places, and energies of 1000",
        others=(
            lambda e: torch.nn.functional.softmax(e.double(), dim=-1),
            lambda e: torch.stack([(row - row.logsumexp(0)).exp() for row in e]),
            lambda e: _naive(e - e.max(1, keepdim=True).values),
        ),
        invariants=(sums_to_one(1),),
    ),
    Task(
        id="4.3",
        name="attend",
        title="Weights become one vector",
        difficulty=1,
        minutes=5,
        equation="equations 5, 6 and 13",
        reference=attend,
        cases=lambda: [
            (numbers(B, L), numbers(B, L, D, seed=1)),
            (numbers(5, 5, seed=2, scale=4), numbers(5, 5, 5, seed=3)),
            (torch.tensor([[1000.0, 1001.0], [-500.0, 2.0]]), numbers(2, 2, D, seed=4)),
        ],
        observe=lambda answer, e, a: _with_gradient(answer, e, a),
        mistakes={
            "softmax over the batch axis: the weights of one image must sum to 1 over its places": lambda e, a: _blend(
                torch.softmax(e, 0), a
            ),
            "no gradient reaches the energies: something was detached, and nothing would learn where to look": lambda e, a: (
                _blend(torch.softmax(e.detach(), 1) + 0 * e, a)
            ),
            "z and alpha are in the wrong order: give back (z, alpha)": lambda e, a: attend(e, a)[::-1],
            "z is divided by the number of places: the weights sum to 1 already": lambda e, a: (
                attend(e, a)[0] / a.shape[1],
                attend(e, a)[1],
            ),
            "exp of a large energy overflows: take each row's largest energy off first": lambda e, a: _blend(
                _naive(e), a
            ),
        },
        says="z, the weights, energies of 1000, and the gradients that reach the energies through both",
        others=(
            lambda e, a: (torch.einsum("bl,bld->bd", torch.softmax(e, -1), a), torch.softmax(e, -1)),
            lambda e, a: _blend(_naive(e - e.amax(1, keepdim=True)), a),
            lambda e, a: list(_blend(torch.softmax(e.double(), 1), a.double())),
        ),
    ),
    Task(
        id="4.4",
        name="gated",
        title="How much of the context to use",
        difficulty=1,
        minutes=4,
        equation="section 4.2.1",
        reference=gated,
        cases=lambda: [
            (numbers(B, D), numbers(B, n, seed=1), numbers(n, seed=2), torch.tensor(0.7)),
            (numbers(D, D, seed=3), numbers(D, n, seed=4), numbers(n, seed=5), torch.tensor(-2.0)),
        ],
        mistakes={
            "the sigmoid is missing: beta must lie between 0 and 1": lambda z, h, w, b: (h @ w + b)[:, None] * z,
            "the bias b is missing": lambda z, h, w, b: torch.sigmoid(h @ w)[:, None] * z,
            "the gate is added to z: it multiplies": lambda z, h, w, b: torch.sigmoid(h @ w + b)[:, None] + z,
            "beta is there, and z is missing": lambda z, h, w, b: torch.sigmoid(h @ w + b),
            "beta of one image meets a dimension of all: give it an axis of 1 first": lambda z, h, w, b: (
                torch.sigmoid(h @ w + b) * z if len(z) == z.shape[1] else torch.sigmoid(h @ w + b)[:, None] * z
            ),
        },
        says="one beta for each image, between 0 and 1, on all of its dimensions",
        others=(
            lambda z, h, w, b: torch.stack(
                [zi / (1 + torch.exp(-(hi.dot(w) + b))) for zi, hi in zip(z, h, strict=True)]
            ),
            lambda z, h, w, b: torch.einsum("b,bd->bd", (h.double() @ w.double() + b).sigmoid(), z.double()),
        ),
    ),
    Task(
        id="4.5",
        name="lstm_step",
        title="The state moves on",
        difficulty=3,
        minutes=12,
        equation="equations 1 to 3",
        reference=lstm_step,
        cases=lambda: [_lstm(2, 3), _lstm(1, 5)],
        mistakes={
            "the gates are in another order: W, U, Z and b hold i, f, g, o, from the top": partial(
                _gates, order="ifog"
            ),
            "forget and input gate are exchanged: f keeps c_{t-1}, i lets g in": partial(_gates, order="figo"),
            "the candidate g has a sigmoid: equation 1 gives it a tanh": partial(_gates, candidate=torch.sigmoid),
            "h is o times c: equation 3 has o * tanh(c)": partial(_gates, squash=lambda c: c),
            "h and c are in the wrong order: give back (h, c)": lambda *x: _gates(*x)[::-1],
        },
        says="h and c, for batches of two and of one",
        others=(_lstm_cell,),
        parts=("h", "c"),
    ),
    Task(
        id="4.6",
        name="training_step",
        title="One training step",
        difficulty=2,
        minutes=8,
        equation="section 4.3",
        reference=training_step,
        cases=lambda: [(0,), (3,)],
        observe=three_steps,
        mistakes={
            "the gradients of the call before are still there: empty them": partial(stepped, zero="never"),
            "the optimiser takes no step: the weights stay as they are": partial(stepped, step=False),
            "there are no gradients when the optimiser takes its step: go backwards after they are emptied, and before the step": (
                partial(stepped, zero="between")
            ),
            "the sum over the words: take the mean, so that a long batch takes no longer step": partial(
                stepped, reduction="sum"
            ),
            "the loss is given with its graph: return a number, by loss.item()": with_graph,
        },
        says="three steps of plain gradient descent: the losses, and where the weights are after them",
        others=(_step_by_log_softmax,),
        given=lambda seed: "satlib's decoder, four captions of three words, torch.optim.SGD",
        tolerance=1e-3,
    ),
    Task(
        id="4.7",
        name="train",
        kind="bug",
        title="A training run that learns nothing",
        difficulty=2,
        minutes=5,
        equation="section 4.3",
        reference=train,
        start=partial(trained, zero="between"),
        cases=lambda: [(0,), (5,)],
        observe=with_pointer,
        mistakes={
            "the gradients are never emptied: each step adds to those of all steps before it": partial(
                trained, zero="never"
            ),
            "the losses fall, but the learning rate has been changed: it was not the bug": partial(
                trained, zero="before", rate=0.1
            ),
            "only the last loss is given: keep all forty": lambda *x: train(*x)[-1],
            "the losses hold their graphs: keep numbers, by loss.item()": lambda *x: [
                torch.tensor(loss, requires_grad=True) for loss in train(*x)
            ],
            "the optimiser is no Adam any more: it was not the bug": partial(trained, optimisers=torch.optim.SGD),
        },
        says="forty losses of two networks, from about ln 4 to well below .5",
        others=(_train_by_none, lambda *x: tuple(train(*x))),
        given=lambda seed: "a network of attention over five places, 64 examples",
        tolerance=1e-2,
    ),
)


def _with_gradient(answer: object, e: Tensor, a: Tensor) -> object:
    """What `attend` gives, and the gradients of a sum over each, at the energies and at the annotation vectors."""
    e.requires_grad_()
    a.requires_grad_()
    given = answer(e, a)
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(isinstance(each, Tensor) for each in given):
        return given
    result = {"z": given[0].detach(), "alpha": given[1].detach()}
    for name, each in zip(("z", "alpha"), given, strict=True):
        gradients = (None, None)
        if each.requires_grad:
            total = (each * torch.arange(1.0, each.shape[-1] + 1)).sum()
            gradients = torch.autograd.grad(total, (e, a), retain_graph=True, allow_unused=True)
        for leaf, value, gradient in zip(("e", "a"), (e, a), gradients, strict=True):
            result[f"the gradient of {leaf} through {name}"] = torch.zeros_like(value) if gradient is None else gradient
    return result
