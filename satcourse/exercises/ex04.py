"""Exercises of notebook 04: the decoder, equation by equation."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from satcourse.exercises.task import Exploration, Task, distribution, explain, numbers, sums_to_one
from satcourse.exercises.training_steps import (
    fed,
    inputs,
    own_words,
    rollouts,
    stepped,
    teacher_forced,
    three_steps,
    train,
    trained,
    training_step,
    with_gradient,
    with_graph,
    with_pointer,
)
from satlib.model.attention import AdditiveEnergy, SoftAttention
from satlib.model.decoder import Decoder, State
from satlib.recipe import DecoderConfig

B, L, D, n, k, m, K = 2, 5, 4, 3, 6, 4, 7


def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """satlib's additive energy with these weights."""
    module = AdditiveEnergy(a.shape[2], h.shape[1], len(v))
    weights = {"annotation.weight": W_a, "annotation.bias": b, "state.weight": W_h, "energy.weight": v[None]}
    module.load_state_dict(weights)
    return module(module.keys(a), h).detach()


def _energies(
    a: Tensor,
    h: Tensor,
    W_a: Tensor,
    W_h: Tensor,
    b: Tensor,
    v: Tensor,
    squash: Callable[[Tensor], Tensor] = torch.tanh,
) -> Tensor:
    return squash(a @ W_a.T + (h @ W_h.T)[:, None] + b) @ v


def _energies_loop(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    rows = [
        [v.dot(torch.tanh(W_a @ place + W_h @ state + b)) for place in image] for image, state in zip(a, h, strict=True)
    ]
    return torch.stack([torch.stack(row) for row in rows])


def _energy_weights() -> tuple[Tensor, ...]:
    return numbers(k, D, seed=2), numbers(k, n, seed=3), numbers(k, seed=4), numbers(k, seed=5)


class _Given(nn.Module):
    """An energy that was computed somewhere else."""

    def __init__(self, e: Tensor) -> None:
        super().__init__()
        self.e = e

    def forward(self, keys: Tensor, h: Tensor) -> Tensor:
        return self.e


def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """satlib's soft attention, its energies given: context vectors and weights."""
    look = SoftAttention(_Given(e))(a, a, a[:, 0])
    return look.z, look.alpha


def weights(e: Tensor) -> Tensor:
    """The weights of satlib's soft attention."""
    return attend(e, e.new_zeros(*e.shape, 1))[1]


def context(alpha: Tensor, a: Tensor) -> Tensor:
    """satlib's context vectors, from weights: energies of which these are the softmax are their logarithms."""
    return attend(alpha.log(), a)[0]


def gated(z: Tensor, h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The scalar gate of satlib's decoder, on a context vector."""
    return torch.sigmoid(h @ w + b).unsqueeze(1) * z


def _decoder(dims: tuple[int, int, int, int], **weights: Tensor) -> Decoder:
    """A decoder without a gate that reads a mean, so that the mean of one place is the context that it gets: dims m, n, D, K."""
    m, n, D, K = dims
    module = Decoder(DecoderConfig(embedding=m, hidden=n, attention="none", gate=False, dropout=0.0), D, K).eval()
    module.load_state_dict(
        {**module.state_dict(), **{name.replace("__", "."): weight for name, weight in weights.items()}}
    )
    return module.requires_grad_(False)


def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of satlib's decoder with these weights."""
    dims = (Ey.shape[1], h.shape[1], z.shape[1], 2)
    module = _decoder(dims, gates_word__weight=W, gates_word__bias=b, gates_state__weight=U, gates_context__weight=Z)
    state = module.step(module.view(z.unsqueeze(1)), State(h, c), module.gates_word(Ey)).state
    return state.h, state.c


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


def initial_state(a: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """h_0 of satlib's decoder."""
    mlp = {
        "initial_h__0__weight": W_1,
        "initial_h__0__bias": b_1,
        "initial_h__3__weight": W_2,
        "initial_h__3__bias": b_2,
    }
    return _decoder((2, len(b_2), a.shape[2], 2), **mlp).initial_state(a).h


def _mlp(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return torch.tanh(torch.relu(x @ W_1.T + b_1) @ W_2.T + b_2)


def _naive(e: Tensor) -> Tensor:
    return e.exp() / e.exp().sum(1, keepdim=True)


def _recursive(step: object, h: Tensor, captions: Tensor, E: Tensor, Ey: Tensor) -> list[Tensor]:
    if not captions.shape[1]:
        return []
    logits, h = step(Ey, h)
    return [logits, *_recursive(step, h, captions[:, 1:], E, E[captions[:, 0]])]


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
        after="A score for each place: energies",
        reference=energies,
        cases=lambda: [
            (numbers(B, L, D), numbers(B, n, seed=1), *_energy_weights()),
            (numbers(3, 2, D, seed=6), numbers(3, n, seed=7), *_energy_weights()),
        ],
        mistakes={
            "the tanh is missing: without it the state moves all energies alike and the weights not at all": lambda *x: (
                _energies(*x, squash=lambda y: y)
            ),
            "the state h is not in it: every word would look at the same places": lambda a, h, W_a, W_h, b, v: (
                _energies(a, h * 0, W_a, W_h, b, v)
            ),
            "the bias b is missing": lambda a, h, W_a, W_h, b, v: _energies(a, h, W_a, W_h, b * 0, v),
            "the tanh comes after v: it belongs around each hidden unit": lambda *x: torch.tanh(
                _energies(*x, squash=lambda y: y)
            ),
            "these are weights: energies come before the softmax": lambda *x: torch.softmax(_energies(*x), 1),
        },
        says="values against satlib's additive energy, on images of 5 and of 2 places",
        others=(_energies, _energies_loop, lambda *x: _energies(*(each.double() for each in x))),
    ),
    Task(
        id="4.2",
        name="weights",
        title="Energies become weights",
        difficulty=1,
        minutes=4,
        equation="equation 5",
        after="Energies become weights: the softmax",
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
        name="context",
        title="Weights become one vector",
        difficulty=1,
        minutes=4,
        equation="equations 6 and 13",
        after="Weights become one vector: the context",
        reference=context,
        cases=lambda: [
            (distribution(B, L), numbers(B, L, D, seed=1)),
            (distribution(3, 2, seed=2, sharp=3.0), numbers(3, 2, 6, seed=3)),
        ],
        mistakes={
            "the weights have no part in it: this is the plain mean of the places": lambda alpha, a: a.mean(1),
            "divided by the number of places: the weights sum to 1 already": lambda alpha, a: (
                alpha.unsqueeze(2) * a
            ).mean(1),
            "the weights are there, and the sum over the places is missing": lambda alpha, a: alpha.unsqueeze(2) * a,
            "summed over the dimensions D: sum over the places": lambda alpha, a: (alpha.unsqueeze(2) * a).sum(2),
            "the vectors of all images are mixed: image b has its own places": lambda alpha, a: torch.einsum(
                "bl,cld->bd", alpha, a
            ),
        },
        says="values against satlib's soft attention, for two numbers of places",
        others=(
            lambda alpha, a: torch.einsum("bl,bld->bd", alpha, a),
            lambda alpha, a: torch.stack(
                [sum(w * row for w, row in zip(*each, strict=True)) for each in zip(alpha, a, strict=True)]
            ),
            lambda alpha, a: (alpha.double().unsqueeze(1) @ a.double()).squeeze(1),
        ),
    ),
    Task(
        id="4.4",
        name="gated",
        title="How much of the context to use",
        difficulty=1,
        minutes=4,
        equation="section 4.2.1",
        after="How much of the context to use: the gate",
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
        minutes=15,
        equation="equations 1 to 3",
        after="The state moves on: an LSTM",
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
        says="h and c against satlib's decoder, for batches of two and of one",
        others=(_gates, _lstm_cell, lambda *x: _gates(*(each.double() for each in x))),
        parts=("h", "c"),
    ),
    Task(
        id="4.6",
        name="initial_state",
        title="Before the first word",
        difficulty=2,
        minutes=4,
        equation="section 3.1.2",
        after="Before the first word: the initial state",
        reference=initial_state,
        cases=lambda: [
            (numbers(B, L, D), numbers(n, D, seed=1), numbers(n, seed=2), numbers(n, n, seed=3), numbers(n, seed=4)),
            (
                numbers(1, 3, 2, seed=5),
                numbers(n, 2, seed=6),
                numbers(n, seed=7),
                numbers(n, n, seed=8),
                numbers(n, seed=9),
            ),
        ],
        mistakes={
            "the sum of the places in place of their mean: a state must not grow with the number of places": lambda a, *x: (
                _mlp(a.sum(1), *x)
            ),
            "the MLP is applied to each place and then averaged: the mean comes first": lambda a, *x: _mlp(a, *x).mean(
                1
            ),
            "the ReLU of the hidden layer is missing": lambda a, W, b, V, d: torch.tanh(
                (a.mean(1) @ W.T + b) @ V.T + d
            ),
            "the tanh at the end is missing": lambda a, W, b, V, d: torch.relu(a.mean(1) @ W.T + b) @ V.T + d,
            "the mean goes over the images: take it over the places": lambda a, *x: _mlp(a.mean(0), *x),
        },
        says="values against satlib's decoder, for 5 and for 3 places",
        others=(
            lambda a, *x: _mlp(a.mean(1), *x),
            lambda a, W, b, V, d: torch.stack(
                [torch.tanh(V @ (W @ (sum(one) / len(one)) + b).clamp(min=0) + d) for one in a]
            ),
        ),
    ),
    Task(
        id="4.7",
        name="teacher_forced",
        title="A whole caption",
        difficulty=2,
        minutes=8,
        equation="section 3.1.2",
        after="The whole decoder, in one class",
        reference=teacher_forced,
        cases=rollouts,
        observe=with_gradient,
        mistakes={
            "each step is given the word that it is to predict: give it the word before": lambda step, h, captions, E: (
                fed(step, h, E[captions].unbind(1))
            ),
            "each step is given its own likeliest word: teacher forcing gives it the true one": own_words,
            "before the first word stands word 0, the end mark: there is no word yet, and E y is zero": lambda step, h, captions, E: (
                fed(step, h, [E[0].expand(len(captions), -1), *inputs(captions, E)[1:]])
            ),
            "every word is predicted from the first state: hand the new state on": lambda step, h, captions, E: (
                torch.stack([step(Ey, h)[0] for Ey in inputs(captions, E)], 1)
            ),
            "words come before captions here: stack along axis 1": lambda *x: teacher_forced(*x).transpose(0, 1),
        },
        says="captions of five and of four words, each word from the true ones before it",
        others=(
            lambda step, h, captions, E: torch.stack(
                _recursive(step, h, captions, E, torch.zeros_like(E[captions[:, 0]])), 1
            ),
        ),
        given=lambda *case: f"{len(case[2])} captions of {case[2].shape[1]} words",
    ),
    Task(
        id="4.8",
        name="attend",
        title="Soft attention as a module",
        difficulty=2,
        minutes=8,
        equation="equations 5, 6 and 13",
        after="The whole decoder, in one class",
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
        id="4.9",
        name="train",
        kind="bug",
        title="A training run that learns nothing",
        difficulty=2,
        minutes=5,
        equation="section 4.3",
        after="Training from captions alone",
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
    Task(
        id="4.10",
        name="training_step",
        title="One training step",
        difficulty=2,
        minutes=8,
        equation="section 4.3",
        after="Training from captions alone",
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
    explain(
        "4.11",
        "why_it_learns",
        right="c",
        wrong={
            "a": "that is true of random weights too: it says nothing about how they get better",
            "b": "the encoder's vectors say what is where, but not which of it the next word needs",
            "d": "the decoder of notebook 04 is trained without that penalty, and its maps still move to the objects",
        },
        title="Where does it learn to look?",
        difficulty=1,
        minutes=3,
        equation="section 4.2",
        after="Why it learns where to look",
        says="the loss has a gradient at each weight, and it is larger the more a place would help the right word",
    ),
)
EXPLORATIONS = (Exploration("Another score", 2, 10, "Other scores"),)


def _blend(alpha: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return (alpha.unsqueeze(2) * a).sum(1), alpha


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
