"""Exercises of notebook 04: the decoder, equation by equation."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from satcourse.exercises.kinds import explain
from satcourse.exercises.task import Exploration, Task, distribution, numbers, sums_to_one
from satcourse.exercises.training_steps import (
    fed,
    means,
    moved,
    rollouts,
    stepped,
    teacher_forced,
    three_steps,
    train,
    trained,
    training_step,
    twice,
    unrolled,
    with_adam,
    with_gradient,
    with_graph,
    with_pointer,
    without_log,
)
from satlib.model.attention import AdditiveEnergy, SoftAttention
from satlib.model.decoder import Decoder, DecoderConfig, State

B, L, D, n, k, m, K = 2, 5, 4, 3, 6, 4, 7


def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """satlib's additive energy with these weights."""
    made = AdditiveEnergy(a.shape[2], h.shape[1], len(v))
    weights = {"annotation.weight": W_a, "annotation.bias": b, "state.weight": W_h, "energy.weight": v[None]}
    made.load_state_dict(weights)
    return made(made.keys(a), h).detach()


def _energies(
    a: Tensor,
    h: Tensor,
    W_a: Tensor,
    W_h: Tensor,
    b: Tensor,
    v: Tensor,
    squash: object = torch.tanh,
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
    made = Decoder(DecoderConfig(embedding=m, hidden=n, attention="none", gate=False, dropout=0.0), D, K).eval()
    made.load_state_dict({**made.state_dict(), **{name.replace("__", "."): weight for name, weight in weights.items()}})
    return made.requires_grad_(False)


def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of satlib's decoder with these weights."""
    dims = (Ey.shape[1], h.shape[1], z.shape[1], 2)
    made = _decoder(dims, gates_word__weight=W, gates_word__bias=b, gates_state__weight=U, gates_context__weight=Z)
    state = made.step(made.view(z.unsqueeze(1)), State(h, c), made.gates_word(Ey)).state
    return state.h, state.c


def _lstm(rows: int, n: int) -> tuple[Tensor, ...]:
    inputs = numbers(rows, m, seed=1), numbers(rows, n, seed=2), numbers(rows, n, seed=3), numbers(rows, D, seed=4)
    weights = numbers(4 * n, m, seed=5), numbers(4 * n, n, seed=6), numbers(4 * n, D, seed=7), numbers(4 * n, seed=8)
    return *inputs, *weights


def _step(order: str = "ifgo", memory: str = "f * c + i * g", state: str = "o * torch.tanh(c)", uses: str = "WUZb"):  # noqa: ANN202
    """An LSTM step with gates in another order, or with another equation 2 or 3."""

    def step(
        Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
    ) -> tuple[Tensor, Tensor]:
        parts = {"W": Ey @ W.T, "U": h @ U.T, "Z": z @ Z.T, "b": b.expand(len(h), -1)}
        gates = dict(zip(order, sum(parts[name] for name in uses).chunk(4, 1), strict=True))
        names = {name: torch.sigmoid(value) for name, value in gates.items()} | {"torch": torch, "raw": gates}
        if "sigmoid" not in memory:
            names["g"] = torch.tanh(gates["g"])
        c = eval(memory.replace("sigmoid", ""), names | {"c": c})
        return eval(state, names | {"c": c, "h": h}), c

    return step


def _interleaved(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    W, U, Z, b = (torch.cat([each[i::4] for i in range(4)]) for each in (W, U, Z, b))
    return _step()(Ey, h, c, z, W, U, Z, b)


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
            "there is a sigmoid where equation 4 has its tanh": lambda *x: _energies(*x, squash=torch.sigmoid),
            "these are weights: energies come before the softmax": lambda *x: torch.softmax(_energies(*x), 1),
            "each image got the state of another one: h[i] belongs to a[i]": lambda a, h, *x: _energies(
                a, h.flip(0), *x
            ),
            "there is a ReLU where equation 4 has its tanh": lambda *x: _energies(*x, squash=torch.relu),
            "the bias b is added after the tanh: it belongs inside": lambda a, h, W_a, W_h, b, v: (
                _energies(a, h, W_a, W_h, b * 0, v) + b @ v
            ),
            "there is a second tanh, around the energies: only the hidden units have one": lambda *x: torch.tanh(
                _energies(*x)
            ),
            "all images got the state of the first: h[i] belongs to a[i]": lambda a, h, *x: _energies(
                a, h[:1].expand_as(h), *x
            ),
            "places and state have a tanh each: add them first, then one tanh": lambda a, h, W_a, W_h, b, v: (
                ((a @ W_a.T).tanh() + (h @ W_h.T).tanh()[:, None] + b) @ v
            ),
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
            "a sigmoid judges each place alone; the weights of an image must share 1 among its places": torch.sigmoid,
            "these are logarithms of the weights": lambda e: torch.log_softmax(e, 1),
            "exp is there, and the division by the sum over the places is missing": torch.exp,
            "the sign of the energies is turned: the best place gets the least weight": lambda e: torch.softmax(-e, 1),
            "exp still overflows: what to take off is each row's largest energy, not its smallest or its mean": lambda e: (
                _naive(e - e.amin(1, keepdim=True))
            ),
            "the largest energy of the whole batch is taken off: an image far below it has only zeros left; take each row's own": lambda e: (
                _naive(e - e.max())
            ),
            "the energies are clipped: their differences are lost where they are large": lambda e: torch.softmax(
                e.clamp(-50, 50), 1
            ),
            "these are powers of 2: equation 5 has exp, powers of e": lambda e: torch.softmax(e * math.log(2), 1),
            "the energies are divided by the root of their number: equation 5 takes them as they are": lambda e: (
                torch.softmax(e / e.shape[1] ** 0.5, 1)
            ),
            "the exponential is missing: energies are divided by their sum": lambda e: e / e.sum(1, keepdim=True),
            "exp is divided by the sum over the whole batch: each image has a sum of its own": lambda e: (
                (e - e.amax(1, keepdim=True)).exp() / (e - e.amax(1, keepdim=True)).exp().sum()
            ),
            "the division by the sum over the places is missing": lambda e: (e - e.amax(1, keepdim=True)).exp(),
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
            "this is the vector of the place with the largest weight: that is hard attention": lambda alpha, a: a[
                torch.arange(len(a)), alpha.argmax(1)
            ],
            "divided by the number of places: the weights sum to 1 already": lambda alpha, a: (
                alpha.unsqueeze(2) * a
            ).mean(1),
            "the weights are there, and the sum over the places is missing": lambda alpha, a: alpha.unsqueeze(2) * a,
            "summed over the dimensions D: sum over the places": lambda alpha, a: (alpha.unsqueeze(2) * a).sum(2),
            "the vectors of all images are mixed: image b has its own places": lambda alpha, a: torch.einsum(
                "bl,cld->bd", alpha, a
            ),
            "this is the plain sum of the places: the weights have no part in it": lambda alpha, a: a.sum(1),
            "a second softmax: alpha are weights already": lambda alpha, a: context(alpha.softmax(1), a),
            "the largest number over the places is taken: take their sum": lambda alpha, a: (
                alpha.unsqueeze(2) * a
            ).amax(1),
            "a was reshaped to swap its axes: that mixes its numbers; use a transpose": lambda alpha, a: (
                a.reshape(len(a), -1, a.shape[1]) * alpha.unsqueeze(1)
            ).sum(2),
            "divided by the sum of all weights: those of an image sum to 1 already": lambda alpha, a: (
                context(alpha, a) / alpha.sum()
            ),
            "summed over the images too: each image has a context of its own": lambda alpha, a: context(alpha, a).sum(
                0
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
            "this is 1 - beta: the gate shuts where it should open": lambda z, h, w, b: (
                torch.sigmoid(-(h @ w + b))[:, None] * z
            ),
            "the bias b is missing": lambda z, h, w, b: torch.sigmoid(h @ w)[:, None] * z,
            "the gate is added to z: it multiplies": lambda z, h, w, b: torch.sigmoid(h @ w + b)[:, None] + z,
            "beta is there, and z is missing": lambda z, h, w, b: torch.sigmoid(h @ w + b),
            "beta of one image meets a dimension of all: give it an axis of 1 first": lambda z, h, w, b: (
                torch.sigmoid(h @ w + b) * z if len(z) == z.shape[1] else torch.sigmoid(h @ w + b)[:, None] * z
            ),
            "there is a tanh where the gate has its sigmoid": lambda z, h, w, b: torch.tanh(h @ w + b)[:, None] * z,
            "beta is there, one for each dimension, and z is missing": lambda z, h, w, b: torch.sigmoid(h @ w + b)[
                :, None
            ].expand_as(z),
            "the bias b is added after the sigmoid: it belongs inside": lambda z, h, w, b: (
                (torch.sigmoid(h @ w) + b)[:, None] * z
            ),
            "z is inside the sigmoid: the sigmoid makes beta, which then multiplies z": lambda z, h, w, b: (
                torch.sigmoid((h @ w + b)[:, None] * z)
            ),
            "there is a softmax over the images: each image has a gate of its own, a sigmoid": lambda z, h, w, b: (
                torch.softmax(h @ w + b, 0)[:, None] * z
            ),
            "one gate for the whole batch: each image has its own": lambda z, h, w, b: (
                torch.sigmoid((h @ w + b).mean()) * z
            ),
            "z is added once more, as it is: the gate replaces it": lambda z, h, w, b: z + gated(z, h, w, b),
            "w . h is a sum, and here a mean is taken": lambda z, h, w, b: gated(z, h, w / len(w), b),
            "the gate is rounded to 0 or 1: beta may be anything between": lambda z, h, w, b: (
                torch.sigmoid(h @ w + b).round()[:, None] * z
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
            "the gates are in another order: W, U, Z and b hold i, f, g, o, from the top": _step("ifog"),
            "forget and input gate are exchanged: f keeps c_{t-1}, i lets g in": _step("figo"),
            "the candidate g has a sigmoid: equation 1 gives it a tanh": _step(memory="f * c + i * gsigmoid"),
            "h is o times c: equation 3 has o * tanh(c)": _step(state="o * c"),
            "the old memory is added as it is: f decides how much of it stays": _step(memory="c + i * g"),
            "h was made from the old memory: equation 3 takes the new c": lambda Ey, h, c, *x: (
                (_step()(Ey, h, c, *x)[0] / torch.tanh(_step()(Ey, h, c, *x)[1])) * torch.tanh(c),
                _step()(Ey, h, c, *x)[1],
            ),
            "the context z is not in it: this LSTM does not see the image": _step(uses="WUb"),
            "the bias b is missing": _step(uses="WUZ"),
            "the state h is not in it: an LSTM remembers what it said": _step(uses="WZb"),
            "the word before, E y, is not in it": _step(uses="UZb"),
            "h and c are in the wrong order: give back (h, c)": lambda *x: _step()(*x)[::-1],
            "1 - f lets the candidate in: this LSTM has an input gate i of its own": _step(
                memory="f * c + (1 - f) * g"
            ),
            "1 is added to the forget gate: that is a way to start a bias, and no part of equation 1": lambda *x: (
                _step()(*x[:-1], x[-1] + torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(x[1].shape[1]))
            ),
            "the candidate g has no tanh": _step(memory="f * c + i * raw['g']"),
            "rows of the gates are taken in turn: those of i stand together, then those of f, g and o": _interleaved,
        },
        says="h and c against satlib's decoder, for batches of two and of one",
        others=(_step(), _lstm_cell, lambda *x: _step()(*(each.double() for each in x))),
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
            "only the first place is read: take the mean of all": lambda a, *x: _mlp(a[:, 0], *x),
            "the MLP is applied to each place and then averaged: the mean comes first": lambda a, *x: _mlp(a, *x).mean(
                1
            ),
            "the ReLU of the hidden layer is missing": lambda a, W, b, V, d: torch.tanh(
                (a.mean(1) @ W.T + b) @ V.T + d
            ),
            "the tanh at the end is missing": lambda a, W, b, V, d: torch.relu(a.mean(1) @ W.T + b) @ V.T + d,
            "tanh and ReLU have changed places": lambda a, W, b, V, d: torch.relu(
                torch.tanh(a.mean(1) @ W.T + b) @ V.T + d
            ),
            "the mean goes over the images: take it over the places": lambda a, *x: _mlp(a.mean(0), *x),
            "the hidden layer has a tanh: it is a ReLU": lambda a, W, b, V, d: torch.tanh(
                torch.tanh(a.mean(1) @ W.T + b) @ V.T + d
            ),
            "the hidden layer is applied to each place and then averaged: the mean comes first": lambda a, W, b, V, d: (
                torch.tanh(torch.relu(a @ W.T + b).mean(1) @ V.T + d)
            ),
            "the bias b_1 is missing": lambda a, W, b, V, d: _mlp(a.mean(1), W, b * 0, V, d),
            "the bias b_2 is missing": lambda a, W, b, V, d: _mlp(a.mean(1), W, b, V, d * 0),
            "W_2 is the wrong way round: it is square, so nothing fails, but it must be transposed like W_1": lambda a, W, b, V, d: (
                _mlp(a.mean(1), W, b, V.T, d)
            ),
            "there is a sigmoid at the end: it is a tanh": lambda a, W, b, V, d: torch.sigmoid(
                torch.relu(a.mean(1) @ W.T + b) @ V.T + d
            ),
            "the largest number over the places is taken: take their mean": lambda a, *x: _mlp(a.amax(1), *x),
            "there is a ReLU at the second layer too: h_0 may be negative": lambda a, *x: _mlp(a.mean(1), *x).relu(),
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
            "each step is given the word that it is to predict: give it the word before": partial(
                unrolled, inputs="itself"
            ),
            "each step is given its own likeliest word: teacher forcing gives it the true one": partial(
                unrolled, inputs="own"
            ),
            "before the first word stands word 0, the end mark: there is no word yet, and E y is zero": partial(
                unrolled, first="end"
            ),
            "every word is predicted from the first state: hand the new state on": partial(
                unrolled, carry=lambda h, start: start
            ),
            "the words of the caption are never used: each step needs the word before it": partial(
                unrolled, inputs="fixed"
            ),
            "words come before captions here: stack along axis 1": lambda *x: teacher_forced(*x).transpose(0, 1),
            "these are probabilities: give the logits": lambda *x: torch.softmax(teacher_forced(*x), 2),
            "these are the likeliest words: give the logits of all words": lambda *x: teacher_forced(*x).argmax(2),
            "the logits of all words stand in one row: stack them, so that words have an axis of their own": lambda *x: (
                teacher_forced(*x).flatten(1)
            ),
            "only the last word's logits are given: keep those of each step": lambda *x: teacher_forced(*x)[:, -1],
            "a step too many: after the end mark nothing is to be predicted": lambda step, h, captions, E: (
                teacher_forced(step, h, torch.cat([captions, captions[:, :1]], 1), E)
            ),
            "a step is missing: the end mark is to be predicted as well": lambda step, h, captions, E: teacher_forced(
                step, h, captions[:, :-1], E
            ),
            "the first word is given and not predicted: begin with zeros, from which it is to be predicted": (
                lambda step, h, captions, E: fed(step, h, list(E[captions[:, :-1]].unbind(1)))
            ),
            "each step is given the next word, the one after that which it is to predict: give it the word before": partial(
                moved, by=-1
            ),
            "each step is given the word two places before: give it the one just before": partial(moved, by=2),
            "each step is given a mean of all words, by its own distribution: teacher forcing gives it the true word": partial(
                unrolled, inputs="mean"
            ),
            "some steps are given their own word, and some the true one: teacher forcing always gives the true one": partial(
                unrolled, inputs="turns"
            ),
            "all captions are given the words of the first: each has words of its own": partial(unrolled, inputs="top"),
            "the state is detached before each step: no gradient goes back to the words before": partial(
                unrolled, carry=lambda h, start: h.detach()
            ),
            "the state is detached between the steps: no gradient goes back to the words before": partial(
                unrolled, carry=lambda h, start: h if h is start else h.detach()
            ),
            "the embeddings are cut off from the graph: they would never be trained": lambda step, h, captions, E: (
                teacher_forced(step, h, captions, E.detach())
            ),
            "nothing is left to learn from: the logits are cut off from the graph": lambda *x: teacher_forced(
                *x
            ).detach(),
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
            "alpha was detached: the penalty of equation 14 could teach it nothing": lambda e, a: (
                attend(e, a)[0],
                attend(e, a)[1].detach(),
            ),
            "z was detached: the words could teach it nothing": lambda e, a: (
                attend(e, a)[0].detach(),
                attend(e, a)[1],
            ),
            "z and alpha are in the wrong order: give back (z, alpha)": lambda e, a: attend(e, a)[::-1],
            "the place with the largest weight has all of it: that is an argmax, which has no gradient": lambda e, a: (
                _blend(nn.functional.one_hot(e.argmax(1), e.shape[1]).to(e.dtype) + 0 * e, a)
            ),
            "alpha is 1 at the largest weight: soft attention keeps all places": lambda e, a: (
                attend(e, a)[0],
                nn.functional.one_hot(e.argmax(1), e.shape[1]).to(e.dtype) + 0 * e,
            ),
            "a was detached: a tuned encoder could learn nothing through z": lambda e, a: attend(e, a.detach()),
            "the weights have no part in z: this is the plain mean of the places": lambda e, a: (
                a.mean(1) + 0 * e.sum(),
                attend(e, a)[1],
            ),
            "the weights were detached before z was made: the words could not teach where to look": lambda e, a: (
                _blend(attend(e, a)[1].detach(), a)[0],
                attend(e, a)[1],
            ),
            "nothing has a graph: no gradient reaches e or a, and nothing would be learnt": lambda e, a: _blend(
                attend(e, a)[1].detach(), a.detach()
            ),
            "z is the vector of the place with the largest weight: that is hard attention": lambda e, a: (
                a[torch.arange(len(a)), e.argmax(1)],
                attend(e, a)[1],
            ),
            "z was made with the energies: it takes their softmax, the weights": lambda e, a: (
                _blend(e, a)[0],
                attend(e, a)[1],
            ),
            "z was made with a softmax of the weights: one softmax is enough": lambda e, a: (
                _blend(attend(e, a)[1].softmax(1), a)[0],
                attend(e, a)[1],
            ),
            "z is divided by the number of places: the weights sum to 1 already": lambda e, a: (
                attend(e, a)[0] / a.shape[1],
                attend(e, a)[1],
            ),
            "the energies are given back: the weights are wanted": lambda e, a: (attend(e, a)[0], 1 * e),
            "logarithms are given back: the weights are wanted": lambda e, a: (
                attend(e, a)[0],
                torch.log_softmax(e, 1),
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
            "the losses fall, but the learning rate has been changed, and was not the bug": partial(
                trained, zero="before", rate=0.01
            ),
            "the losses are the last one forty times: keep each step's own": lambda *x: [train(*x)[-1]] * 40,
            "the losses are the means up to each step: keep each step's own": lambda *x: means(train(*x)),
            "only the last loss is given: keep all forty": lambda *x: train(*x)[-1],
            "each loss is computed after its step: it is to be that of before": lambda *x: trained(*x, steps=41)[1:],
            "the losses hold their graphs: keep numbers, by loss.item()": lambda *x: [
                torch.tensor(loss, requires_grad=True) for loss in train(*x)
            ],
            "the gradients are emptied at every second step only": partial(trained, zero="seldom"),
            "each step has a new optimiser, and Adam forgets its means: make it once, before the loop": partial(
                trained, anew=True
            ),
            "the optimiser is no Adam any more: it was not the bug": partial(trained, optimisers=torch.optim.SGD),
            "a softmax comes before the cross-entropy, which takes logits: the order of the calls was the bug": partial(
                trained, outputs=lambda logits: torch.softmax(logits, 1)
            ),
            "the gradients are clipped: their size was not the bug": partial(trained, largest=0.1),
            "the number of steps has been changed: it was not the bug": lambda *x: [0.0] * 200,
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
            "the targets are shifted once more: the model already puts each word after those before it": partial(
                stepped, targets=lambda captions: captions[:, 1:]
            ),
            "the sum over the words: take the mean, so that a long batch takes no longer step": partial(
                stepped, reduction="sum"
            ),
            "the loss is computed after the step: return that of before": lambda model, optimiser, a, captions: (
                training_step(model, optimiser, a, captions),
                nn.functional.cross_entropy(model(a, captions)[0].flatten(0, 1), captions.flatten()).item(),
            )[1],
            "the sum over each caption's words: take the mean over all words": lambda model, optimiser, a, captions: (
                stepped(model, optimiser, a, captions, scale=captions.shape[1])
            ),
            "the step is right, but the loss that is given is the sum: return the mean": lambda *x: (
                training_step(*x) * x[3].numel()
            ),
            "the step is right, but what is given is exp of the loss, the perplexity: return the loss": partial(
                stepped, says=math.exp
            ),
            "the loss is given with its graph: return a number, by loss.item()": with_graph,
            "a softmax comes before the cross-entropy: it takes the logits themselves": partial(
                stepped, outputs=lambda logits: torch.softmax(logits, 2)
            ),
            "the logits stand as if they were logarithms of probabilities: a log-softmax is missing": without_log,
            "the sign is turned: this makes the captions less probable": partial(stepped, scale=-1),
            "the loss is divided by ln 2, which counts in bits: cross-entropy has the natural logarithm": partial(
                stepped, scale=1 / math.log(2)
            ),
            "logits and words do not belong together, for reshape exchanges no axes: transpose, or flatten both": partial(
                stepped, outputs=lambda x: x.reshape(len(x), x.shape[2], x.shape[1]).transpose(1, 2)
            ),
            "the captions are flattened by columns and the logits by rows: flatten both alike": partial(
                stepped, targets=lambda captions: captions.T.reshape(captions.shape)
            ),
            "the end mark is left out of the loss: all words count": partial(stepped, part=slice(None, -1)),
            "the first word is left out of the loss: all words count": partial(stepped, part=slice(1, None)),
            "only the last word counts here: take the mean over all": partial(stepped, part=slice(-1, None)),
            "word 0 is not counted (ignore_index): all words count": partial(stepped, ignore_index=0),
            "the labels are smoothed: plain cross-entropy is asked": partial(stepped, label_smoothing=0.1),
            "the penalty of equation 14 is added: here it is the cross-entropy alone": partial(
                stepped, more=lambda maps: (1 - maps.sum(1)).square().sum(1).mean()
            ),
            "two steps in one call: make one": twice,
            "the step is another optimiser's: use the one given": with_adam,
            "the gradients are clipped: make a plain step": partial(stepped, largest=0.01),
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
    found = {"z": given[0].detach(), "alpha": given[1].detach()}
    for name, each in zip(("z", "alpha"), given, strict=True):
        gradients = (None, None)
        if each.requires_grad:
            total = (each * torch.arange(1.0, each.shape[-1] + 1)).sum()
            gradients = torch.autograd.grad(total, (e, a), retain_graph=True, allow_unused=True)
        for leaf, value, gradient in zip(("e", "a"), (e, a), gradients, strict=True):
            found[f"the gradient of {leaf} through {name}"] = torch.zeros_like(value) if gradient is None else gradient
    return found
