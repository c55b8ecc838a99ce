"""Exercises of notebook 04: the decoder, equation by equation."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from satcourse.checks.calls import Failed
from satcourse.checks.task import (
    Answer,
    distribution,
    exercise,
    generator,
    numbers,
    with_gradients,
    without_graph,
)
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig

B, L, D, n, k, m = 2, 5, 4, 3, 6, 4


def _inputs(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(numbers(*shape, seed=seed) for seed, shape in enumerate(shapes))


@exercise("4.1", "A score for each place", 2, 8, "equation 4")
def energies(
    a: Tensor,
    h: Tensor,
    W_a: Tensor,
    W_h: Tensor,
    b: Tensor,
    v: Tensor,
    *,
    act: Answer = torch.tanh,
    axis: int = 1,
) -> Tensor:
    """Equation 4: v times the tanh of W_a a + W_h h + b at each place."""
    return act(a @ W_a.T + (h @ W_h.T + b).unsqueeze(axis)) @ v


energies.says = "the values and gradients of equation 4"
energies.observe = with_gradients("a", "h", "W_a", "W_h", "b", "v")
# As many images as places, or one: a wrong axis raises no error. So in 4.2 and 4.3.
energies.cases = lambda: [
    _inputs((rows, places, D), (rows, n), (k, D), (k, n), (k,), (k,))
    for rows, places in ((L, L), (1, 2))
]
energies.mistakes = {
    "the state of image i meets place i of all images: give it an axis of size 1": partial(
        energies, axis=0
    ),
    "the tanh is missing: the state moves all energies alike, and the weights not at all": partial(
        energies, act=torch.clone
    ),
}


@exercise("4.2", "Energies become weights", 1, 4, "equation 5")
def weights(e: Tensor) -> Tensor:
    """Equation 5: the softmax over the places."""
    return torch.softmax(e, 1)


weights.says = "values, sums over the places, energies of 128, and gradients"
weights.cases = lambda: [(numbers(D, D),), (torch.tensor([[128.0, 129.0], [-500.0, 2.0]]),)]
weights.observe = with_gradients("e")
weights.mistakes = {
    "softmax over the batch axis: an image's weights must sum to 1": lambda e: torch.softmax(e, 0)
}


def _blend(alpha: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return torch.einsum("bl,bld->bd", alpha, a), alpha


@exercise("4.3", "Weights become one vector", 1, 5, "equations 5, 6 and 13")
def attend(e: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Equations 5, 6 and 13: z, the sum over the places of weight times vector, and the weights."""
    return _blend(weights(e), a)


attend.says = "z, the weights, energies of 128, and the gradients at energies and vectors"
attend.cases = lambda: [(e, numbers(*e.shape, len(e), seed=1)) for (e,) in weights.cases()]
attend.parts = ("z", "alpha")
attend.observe = with_gradients("e", "a", parts=attend.parts)
attend.mistakes = {
    "this reads the best place alone: z is the weighted mean of all": lambda e, a: (
        a[torch.arange(len(a)), e.argmax(1)],
        weights(e),
    ),
    "a weight meets a dimension, not its place: give alpha a third axis": lambda e, a: (
        (weights(e) * a).sum(1),
        weights(e),
    ),
}


@exercise("4.4", "The state moves on", 3, 12, "equations 1 to 3")
def lstm_step(
    Ey: Tensor,
    h: Tensor,
    c: Tensor,
    z: Tensor,
    W: Tensor,
    U: Tensor,
    Z: Tensor,
    b: Tensor,
    slip: str = "",
) -> tuple[Tensor, Tensor]:
    """The new c = f c + i g, and h = o tanh(new c): rows of i, f, g, o; sigmoids, but tanh for g."""
    i, f, g, o = (Ey @ W.T + h @ U.T + z @ Z.T + b).chunk(4, 1)
    if slip == "order":
        g, o = o, g
    new = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * (c if slip == "old" else new).tanh(), new


lstm_step.says = "h and c, for batches of two and of one, and gradients"
lstm_step.cases = lambda: [
    _inputs(
        (rows, m), (rows, n), (rows, n), (rows, D), (4 * n, m), (4 * n, n), (4 * n, D), (4 * n,)
    )
    for rows, n in ((2, 3), (1, 5))
]
lstm_step.parts = ("h", "c")
lstm_step.observe = with_gradients("Ey", "h", "c", "z", "W", "U", "Z", "b", parts=lstm_step.parts)
lstm_step.mistakes = {
    "this is the paper's order of rows: here g comes before o": partial(lstm_step, slip="order"),
    "equation 3 has the new c": partial(lstm_step, slip="old"),
}


def _model(seed: int) -> Any:
    """satlib's, by the notebook's names."""
    torch.manual_seed(seed)
    x: Any = Decoder(DecoderConfig(embedding=m, hidden=6, attention_hidden=4, dropout=0.0), 6, 7)
    e = x.attention.energy
    x.W_a, x.W_h, x.v, x.f_beta, x.E = e.annotation, e.state, e.energy, x.gate, x.embedding
    x.W, x.U, x.Z = x.gates_word, x.gates_state, x.gates_context
    x.L_h, x.L_z, x.L_o = x.output_state, x.output_context, x.output
    x.start = lambda a: (*x.initial_state(a), a.new_zeros(len(a), m))
    return x


def _look(answer: Answer, parts: tuple[str, ...], *inputs: Tensor) -> Any:
    got = with_gradients(*("a", "h", "c", "Ey")[: len(inputs)], parts=parts)(answer, *inputs)
    if not isinstance(got, dict) and got is not ...:
        raise Failed(f"expected {len(parts)} tensors: {', '.join(parts)}")
    return got


@exercise("4.5", "One word", 2, 10, "equations 1 to 7")
def one_word(
    x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor, gate: bool = True, late: bool = False
) -> Any:
    """Equations 1 to 7: attend with the old h, gate z by beta, step; then L_o of Ey + L_h h + L_z z, with the new h."""
    z, alpha = attend(energies(a, h, x.W_a.weight, x.W_h.weight, x.W_a.bias, x.v.weight[0]), a)
    z = x.f_beta(h).sigmoid() * z if gate else z
    new, c = lstm_step(Ey, h, c, z, x.W.weight, x.U.weight, x.Z.weight, x.W.bias)
    return x.L_o(Ey + x.L_h(h if late else new) + x.L_z(z)), alpha, new, c


one_word.says = "logits, map, h, c, and gradients"
one_word.cases = lambda: [(2,), (1,)]
one_word.parts = ("logits", "alpha", "h", "c")
one_word.observe = lambda f, B: _look(
    partial(f, _model(B)), one_word.parts, *_inputs((B, L, 6), (B, 6), (B, 6), (B, m))
)
one_word.given = "a batch of {}".format
one_word.mistakes = {
    "the gate is missing: multiply the context by beta": partial(one_word, gate=False),
    "equation 7 has the new h": partial(one_word, late=True),
}


@exercise("4.6", "A whole caption", 2, 8, "section 3.1.2")
def unroll(x: Any, a: Tensor, captions: Tensor, read: str = "truth") -> tuple[Tensor, Tensor]:
    """Logits and maps for each true word, given the true words before it: from start(a), handing h and c on."""
    h, c, Ey = x.start(a)
    steps = []
    for y in captions.T:
        logits, alpha, h, c = one_word(x, a, h, c, x.E(y) if read == "early" else Ey)
        steps.append((logits, alpha))
        Ey = x.E(logits.argmax(1) if read == "own" else y)
    logits, alphas = zip(*steps, strict=True)
    return torch.stack(logits, 1), torch.stack(alphas, 1)


unroll.says = "logits, maps and gradients, of five words and of one"
unroll.cases = lambda: [(3, 5), (1, 1)]
unroll.parts = ("logits", "alphas")
unroll.observe = lambda f, B, C: _look(
    lambda a: f(_model(B), a, torch.arange(B * C).view(B, C) % 7), unroll.parts, numbers(B, L, 6)
)
unroll.given = "{} captions of length {}".format
unroll.mistakes = {
    "word t is read before it is scored: embed it after the step": partial(unroll, read="early"),
    "it reads its own words: teacher forcing reads the true ones": partial(unroll, read="own"),
}


def _three_steps(answer: Answer, seed: int) -> Any:
    model = _model(seed)
    model.register_forward_hook(lambda module, inputs, output: (output.logits, output.alphas))
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    a, captions = (
        numbers(4, L, 6, seed=seed),
        torch.randint(0, 7, (4, 7), generator=generator(seed + 1)),
    )
    losses = without_graph([answer(model, optimiser, a, captions) for _ in range(3)])
    moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
    return {
        **{f"the loss of step {number}": loss for number, loss in enumerate(losses, 1)},
        "the weights": moved,
    }


@exercise("4.7", "One training step", 2, 8, "section 4.3")
def training_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, a: Tensor, captions: Tensor, **slip: Any
) -> float:
    """One step: the mean cross-entropy of a batch's words, a step of the optimiser; the loss before it."""
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
    "the gradients of the call before are still there: empty them": partial(
        training_step, zero="never"
    ),
    "the weights stay: empty the gradients, go back, then step": partial(
        training_step, zero="between"
    ),
    "shifted: logits t are of word t": partial(
        training_step, loss=lambda x, y: cross_entropy(x[:, :-1].mT, y[:, 1:])
    ),
    "cross_entropy does its own softmax: give it the logits": partial(
        training_step, loss=lambda x, y: cross_entropy(x.softmax(2).mT, y)
    ),
    "axis 1 is not the vocabulary: flatten captions and words into one axis": partial(
        training_step, loss=cross_entropy
    ),
}


@exercise("4.8", "On trial: the hull", 3, 8, "equation 13")
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
    flat = torch.tensor(
        [[-1.0, -0.7], [1.1, -0.9], [1.5, 0.5], [0.1, 1.3], [-1.3, 0.6], [0.2, 0.1], [1.3, -0.8]]
    )
    blend, twice = numbers(30, 20, seed=3), numbers(9, 12, scale=9).round()
    blend[7] = distribution(1, 29, seed=4, sharp=2) @ blend[torch.arange(30) != 7]
    twice[2], twice[4], twice[1] = twice[6], (twice[3] + twice[5]) / 2, (twice[0] + twice[8]) / 2
    slow = numbers(30, 4, seed=56), 6
    cases = [(flat, 5), (flat, 2), (flat[:6], 1), (flat, 6), slow, (blend, 7), (blend, 6)]
    return cases + [(twice, k) for k in (2, 4, 1)]


outside.says = "corners are outside; blends and a vector met twice are not"
outside.cases = _hull_cases
outside.observe = lambda answer, a, k: "a plane" if answer(a, k) else "none"
outside.given = lambda a, k: f"vector {k} of {tuple(a.shape)}"
outside.mistakes = {
    "never a plane: is a_k among the others? Leave it out": lambda a, k: False,
    "a plane is there, but not reached: 300 steps, each by the worst place": partial(
        outside, steps=50
    ),
}
