"""Exercises of notebook 04: the decoder, equation by equation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

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

# The paper's letters: places, the sizes of a, h, the hidden layer of the energies, and Ey.
L, D, n, k, m = 5, 4, 3, 6, 4
Both = tuple[Tensor, Tensor]


@exercise("4.1", "A score for each place", 2, 8, "equation 4")
def energies(a: Tensor, h: Tensor, W_a: Tensor, W_h: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """Equation 4: v times the tanh of W_a a + W_h h + b at each place."""
    from_places = a @ W_a.T  # (B, L, k)
    from_state = (h @ W_h.T + b).unsqueeze(1)  # (B, 1, k)
    return torch.tanh(from_places + from_state) @ v


def _energies_case(B: int, L: int) -> tuple[Tensor, ...]:
    """B images of L places."""
    a = numbers(B, L, D)
    h = numbers(B, n, seed=1)
    W_a = numbers(k, D, seed=2)
    W_h = numbers(k, n, seed=3)
    b = numbers(k, seed=4)
    v = numbers(k, seed=5)
    return a, h, W_a, W_h, b, v


def _state_of_another_image(a: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    W_a, W_h, b, v = weights
    from_state = (h @ W_h.T + b).unsqueeze(0)  # (1, B, k)
    return torch.tanh(a @ W_a.T + from_state) @ v


def _two_tanhs(a: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    W_a, W_h, b, v = weights
    from_state = torch.tanh(h @ W_h.T + b).unsqueeze(1)
    return (torch.tanh(a @ W_a.T) + from_state) @ v


def _bias_after_the_tanh(a: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    W_a, W_h, b, v = weights
    return energies(a, h, W_a, W_h, torch.zeros_like(b), v) + b @ v


energies.says = "the values and gradients of equation 4"
energies.observe = with_gradients("a", "h", "W_a", "W_h", "b", "v")
# As many images as places, or one: a wrong axis raises no error. So in 4.2 and 4.3.
energies.cases = lambda: [_energies_case(L, L), _energies_case(1, 2)]
energies.mistakes = {
    "the state of image i meets place i of all images: "
    "give it an axis of size 1": _state_of_another_image,
    "two tanhs: add W_a a and W_h h first, then one tanh of the sum": _two_tanhs,
    "two tanhs, and b in the first: one tanh is of the sum of all three": (
        lambda a, h, W_a, W_h, b, v: (
            (torch.tanh(a @ W_a.T + b) + torch.tanh(h @ W_h.T)[:, None]) @ v
        )
    ),
    "b is added after the tanh: it belongs inside": _bias_after_the_tanh,
    "b is added twice: to one of the two terms is enough": (
        lambda a, h, W_a, W_h, b, v: energies(a, h, W_a, W_h, 2 * b, v)
    ),
}


@exercise("4.2", "Energies become weights", 1, 4, "equation 5")
def weights(e: Tensor) -> Tensor:
    """Equation 5: the softmax over the places."""
    return torch.softmax(e, 1)


def _over_the_batch(e: Tensor) -> Tensor:
    return torch.softmax(e, 0)


weights.says = "values, sums over the places, energies of 128, and gradients"
weights.cases = lambda: [
    (numbers(D, D),),
    # The exponential of 128 is infinite in float32.
    (torch.tensor([[128.0, 129.0], [-500.0, 2.0]]),),
]
weights.observe = with_gradients("e")
weights.mistakes = {
    "softmax over the batch axis: an image's weights must sum to 1": _over_the_batch,
    "energies by their sum: take the exp of each first": lambda e: e / e.sum(1, keepdim=True),
}


@exercise("4.3", "Weights become one vector", 1, 5, "equations 5, 6 and 13")
def attend(e: Tensor, a: Tensor) -> Both:
    """Equations 5, 6 and 13: z, the sum over the places of weight times vector, and the weights."""
    alpha = weights(e)
    z = torch.einsum("bl,bld->bd", alpha, a)
    return z, alpha


def _attend_cases() -> list[Both]:
    """The energies of 4.2, and vectors of as many numbers as there are places and images."""
    cases = []
    for (e,) in weights.cases():
        B, L = e.shape
        cases.append((e, numbers(B, L, B, seed=1)))
    # One image alone, whose axis a squeeze would take away.
    cases.append((numbers(1, 4), numbers(1, 4, 4, seed=1)))
    return cases


def _best_place_alone(e: Tensor, a: Tensor) -> Both:
    image = torch.arange(len(a))
    return a[image, e.argmax(1)], weights(e)


def _weighted_dimensions(e: Tensor, a: Tensor) -> Both:
    return (weights(e) * a).sum(1), weights(e)


def _summed_over_dimensions(e: Tensor, a: Tensor) -> Both:
    alpha = weights(e)
    return (alpha.unsqueeze(2) * a).sum(2), alpha


attend.says = "z, the weights, energies of 128, and the gradients at energies and vectors"
attend.cases = _attend_cases
attend.parts = ("z", "alpha")
attend.observe = with_gradients("e", "a", parts=attend.parts)
attend.mistakes = {
    "this reads the best place alone: z is the weighted mean of all": _best_place_alone,
    "a weight meets a dimension, not its place: give alpha a third axis": _weighted_dimensions,
    "each image's weights meet the vectors of all images: only those of their own": (
        lambda e, a: (weights(e) @ a, weights(e))
    ),
    "z is summed over the numbers of a vector: sum over the places": _summed_over_dimensions,
}


@exercise("4.4", "The state moves on", 3, 12, "equations 1 to 3")
def lstm_step(
    Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, W: Tensor, U: Tensor, Z: Tensor, b: Tensor
) -> Both:
    """The new c = f c + i g, and h = o tanh(new c):
    rows of i, f, g, o; sigmoids, but tanh for g.
    """
    rows = Ey @ W.T + h @ U.T + z @ Z.T + b  # (B, 4 n)
    i, f, g, o = rows.chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h, c


def _lstm_case(B: int, n: int) -> tuple[Tensor, ...]:
    """B states of n numbers."""
    Ey = numbers(B, m)
    h = numbers(B, n, seed=1)
    c = numbers(B, n, seed=2)
    z = numbers(B, D, seed=3)
    rows = 4 * n  # n for each gate
    W = numbers(rows, m, seed=4)
    U = numbers(rows, n, seed=5)
    Z = numbers(rows, D, seed=6)
    b = numbers(rows, seed=7)
    return Ey, h, c, z, W, U, Z, b


def _papers_order(Ey: Tensor, h: Tensor, c: Tensor, z: Tensor, *weights: Tensor) -> Both:
    W, U, Z, b = weights
    rows = Ey @ W.T + h @ U.T + z @ Z.T + b
    i, f, o, g = rows.chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _four_parts_of(batch: Tensor) -> Both:
    _, _, _, _ = batch.chunk(4)  # fails: no batch has four parts
    return batch, batch


lstm_step.says = "h and c, for batches of two and of one, and gradients"
lstm_step.cases = lambda: [_lstm_case(2, 3), _lstm_case(1, 5)]
lstm_step.parts = ("h", "c")
lstm_step.observe = with_gradients(
    *("Ey", "h", "c", "z"), *("W", "U", "Z", "b"), parts=lstm_step.parts
)
lstm_step.mistakes = {
    "this is the paper's order of rows: here g comes before o": _papers_order,
    "the batch is cut into parts: i, f, g, o lie side by side, along axis 1": (
        lambda Ey, h, c, z, W, U, Z, b: _four_parts_of(Ey)
    ),
}


def _model(seed: int) -> Any:
    """satlib's decoder, whose layers also have the names that the notebook gives them."""
    torch.manual_seed(seed)
    config = DecoderConfig(embedding=m, hidden=6, attention_hidden=4, dropout=0.0)
    x: Any = Decoder(config, 6, 7)

    # Equation 4.
    x.W_a = x.attention.energy.annotation
    x.W_h = x.attention.energy.state
    x.v = x.attention.energy.energy

    # The gate of section 4.2.1, the words' vectors, and equations 1 to 3.
    x.f_beta = x.gate
    x.E = x.embedding
    x.W = x.gates_word
    x.U = x.gates_state
    x.Z = x.gates_context

    # Equation 7.
    x.L_h = x.output_state
    x.L_z = x.output_context
    x.L_o = x.output

    # h, c, and zeros for the word before the first.
    x.start = lambda a: (*x.initial_state(a), a.new_zeros(len(a), m))
    return x


def _look(answer: Answer, parts: Sequence[str], *inputs: Tensor) -> Any:
    """The parts of a result and their gradients at the inputs a, h, c and Ey, or at the first."""
    names = ("a", "h", "c", "Ey")[: len(inputs)]
    got = with_gradients(*names, parts=parts)(answer, *inputs)
    # The engine would speak of a dict: it cannot call the reference with a case of sizes.
    if not isinstance(got, dict) and got is not ...:
        raise Failed(f"expected {', '.join(parts)} and nothing else, each a tensor")
    return got


@exercise("4.5", "One word", 2, 10, "equations 1 to 7")
def one_word(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor) -> Any:
    """Equations 1 to 7: attend with the old h, gate z by beta, step;
    then L_o of Ey + L_h h + L_z z, with the new h.
    """
    z, alpha = _attended(x, a, h)
    beta = x.f_beta(h).sigmoid()
    z = beta * z
    h, c = _stepped(x, Ey, h, c, z)
    logits = x.L_o(Ey + x.L_h(h) + x.L_z(z))
    return logits, alpha, h, c


def _attended(x: Any, a: Tensor, h: Tensor) -> Both:
    """Equations 4 to 6 with a model's weights."""
    b = x.W_a.bias
    v = x.v.weight[0]
    e = energies(a, h, x.W_a.weight, x.W_h.weight, b, v)
    return attend(e, a)


def _stepped(x: Any, Ey: Tensor, h: Tensor, c: Tensor, z: Tensor) -> Both:
    """Equations 1 to 3 with a model's weights."""
    matrices = x.W.weight, x.U.weight, x.Z.weight
    return lstm_step(Ey, h, c, z, *matrices, x.W.bias)


def _gate_missing(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor) -> Any:
    z, alpha = _attended(x, a, h)
    h, c = _stepped(x, Ey, h, c, z)
    logits = x.L_o(Ey + x.L_h(h) + x.L_z(z))
    return logits, alpha, h, c


def _look_at_one_word(answer: Answer, B: int, parts: Sequence[str] = ()) -> Any:
    a = numbers(B, L, 6)
    h = numbers(B, 6, seed=1)
    c = numbers(B, 6, seed=2)
    Ey = numbers(B, m, seed=3)
    return _look(partial(answer, _model(B)), parts or one_word.parts, a, h, c, Ey)


one_word.says = "logits, map, h, c, and gradients"
one_word.cases = lambda: [(2,), (1,)]
one_word.parts = ("logits", "alpha", "h", "c")
one_word.observe = _look_at_one_word
one_word.given = "a batch of {}".format
one_word.mistakes = {
    "the gate is missing: multiply the context by beta": _gate_missing,
    "the logits are of h alone: the word before and z have a say, too": (
        lambda x, *inputs: (x.L_o(x.L_h(one_word(x, *inputs)[2])), *one_word(x, *inputs)[1:])
    ),
}


@exercise("4.6", "A whole caption", 2, 8, "section 3.1.2")
def unroll(x: Any, a: Tensor, captions: Tensor) -> Both:
    """Logits and maps for each true word, given the true words before it: from start(a),
    handing h, c and Ey on.
    """
    h, c, Ey = x.start(a)
    all_logits = []
    all_alphas = []
    for y in captions.T:  # y: (B,), the true word
        logits, alpha, h, c = one_word(x, a, h, c, Ey)
        all_logits.append(logits)
        all_alphas.append(alpha)
        Ey = x.E(y)
    return torch.stack(all_logits, 1), torch.stack(all_alphas, 1)


def _read_before_it_is_scored(x: Any, a: Tensor, captions: Tensor) -> Both:
    h, c, _ = x.start(a)
    all_logits = []
    all_alphas = []
    for y in captions.T:
        logits, alpha, h, c = one_word(x, a, h, c, x.E(y))
        all_logits.append(logits)
        all_alphas.append(alpha)
    return torch.stack(all_logits, 1), torch.stack(all_alphas, 1)


def _own_words(x: Any, a: Tensor, captions: Tensor) -> Both:
    h, c, Ey = x.start(a)
    all_logits = []
    all_alphas = []
    for _ in captions.T:
        logits, alpha, h, c = one_word(x, a, h, c, Ey)
        all_logits.append(logits)
        all_alphas.append(alpha)
        Ey = x.E(logits.argmax(1))
    return torch.stack(all_logits, 1), torch.stack(all_alphas, 1)


def _look_at_captions(answer: Answer, B: int, C: int) -> Any:
    a = numbers(B, L, 6)
    captions = torch.arange(B * C).view(B, C) % 7
    return _look(lambda a: answer(_model(B), a, captions), unroll.parts, a)


unroll.says = "logits, maps and gradients, of five words and of one"
# At first as many captions as words: a loop over the wrong axis raises no error.
unroll.cases = lambda: [(4, 4), (3, 5), (1, 1)]
unroll.parts = ("logits", "alphas")
unroll.observe = _look_at_captions
unroll.given = "{} captions of length {}".format
unroll.mistakes = {
    "word t is read before it is scored: embed it after the step": _read_before_it_is_scored,
    "it reads its own words: teacher forcing reads the true ones": _own_words,
    "the loop is over captions: over their words, captions.T": lambda x, a, captions: unroll(
        x, a, captions.T
    ),
}


@exercise("4.7", "One training step", 2, 8, "section 4.3")
def training_step(model: nn.Module, optimiser: Optimizer, a: Tensor, captions: Tensor) -> float:
    """One step: the mean cross-entropy of a batch's words, a step of the optimiser;
    the loss before it.
    """
    logits, _ = model(a, captions)
    loss = cross_entropy(logits.mT, captions)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


def _three_steps(answer: Answer, seed: int) -> Any:
    """The losses of three steps, and how far the weights have moved then."""
    model = _model(seed)
    # The notebook's model returns logits and maps, and satlib's further things.
    model.register_forward_hook(lambda module, inputs, output: (output.logits, output.alphas))
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    optimiser = SGD(model.parameters(), lr=0.5)
    a = numbers(4, L, 6, seed=seed)
    # As many words in a caption as in the vocabulary: a wrong axis raises no error.
    captions = torch.randint(0, 7, (4, 7), generator=generator(seed + 1))

    # Three, since the gradients of the step before are only there from the second on.
    losses = without_graph([answer(model, optimiser, a, captions) for _ in range(3)])
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    found = {f"the loss of step {number}": loss for number, loss in enumerate(losses, 1)}
    found["the weights"] = after - before
    return found


def _never_emptied(model: nn.Module, optimiser: Optimizer, a: Tensor, captions: Tensor) -> float:
    logits, _ = model(a, captions)
    loss = cross_entropy(logits.mT, captions)
    loss.backward()
    optimiser.step()
    return loss.item()


def _emptied_before_the_step(
    model: nn.Module, optimiser: Optimizer, a: Tensor, captions: Tensor
) -> float:
    logits, _ = model(a, captions)
    loss = cross_entropy(logits.mT, captions)
    loss.backward()
    optimiser.zero_grad()
    optimiser.step()
    return loss.item()


def _step_down(loss_of: Answer) -> Answer:
    """A training step down another loss: loss_of(logits, captions)."""

    def answer(model: nn.Module, optimiser: Optimizer, a: Tensor, captions: Tensor) -> float:
        logits, _ = model(a, captions)
        loss = loss_of(logits, captions)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return answer


def _shifted_loss(logits: Tensor, captions: Tensor) -> Tensor:
    return cross_entropy(logits[:, :-1].mT, captions[:, 1:])


def _loss_of_probabilities(logits: Tensor, captions: Tensor) -> Tensor:
    return cross_entropy(logits.softmax(2).mT, captions)


def _without_word_0(logits: Tensor, captions: Tensor) -> Tensor:
    return cross_entropy(logits.mT, captions, ignore_index=0)


def _loss_after_the_step(
    model: nn.Module, optimiser: Optimizer, a: Tensor, captions: Tensor
) -> float:
    training_step(model, optimiser, a, captions)
    logits, _ = model(a, captions)
    return cross_entropy(logits.mT, captions).item()


training_step.says = "the losses of three steps, and where the weights are then"
training_step.cases = lambda: [(0,), (3,)]
training_step.observe = _three_steps
# Ways of adding up a loss differ in rounding, and each step makes the difference larger.
training_step.tolerance = 1e-3
training_step.given = "a small model of seed {}".format
training_step.mistakes = {
    "the gradients of the call before are still there: empty them": _never_emptied,
    "the weights stay: empty the gradients, go back, then step": _emptied_before_the_step,
    "shifted: logits t are of word t": _step_down(_shifted_loss),
    "cross_entropy does its own softmax: give it the logits": _step_down(_loss_of_probabilities),
    "axis 1 is not the vocabulary: flatten captions and words into one axis": _step_down(
        cross_entropy
    ),
    "word 0 is left out: END is a word to learn, so all words count": _step_down(_without_word_0),
    "this is the loss after the step: return the one before it": _loss_after_the_step,
    # Of 28 words: the gradient of the sum is 28 times as long, as with such a rate.
    "the gradient is that of the sum: take the mean over the words before `backward()`": (
        lambda model, _, *batch: training_step(model, SGD(model.parameters(), 28 * 0.5), *batch)
    ),
}


@exercise("4.8", "On trial: the light", 2, 8, "equation 13")
def forced_word(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor, alpha: Tensor) -> Tensor:
    """The logits of one_word for a picture that has z, the sum of alpha a, at each place."""
    z = torch.einsum("bl,bld->bd", alpha, a)
    everywhere = z.unsqueeze(1).expand_as(a)
    return one_word(x, everywhere, h, c, Ey)[0]


def _own_map(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor, alpha: Tensor) -> Tensor:
    return one_word(x, a, h, c, Ey)[0]


def _weighed_twice(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor, alpha: Tensor) -> Tensor:
    return one_word(x, alpha.unsqueeze(2) * a, h, c, Ey)[0]


def _ungated(x: Any, a: Tensor, h: Tensor, c: Tensor, Ey: Tensor, alpha: Tensor) -> Tensor:
    z = torch.einsum("bl,bld->bd", alpha, a)
    h, c = _stepped(x, Ey, h, c, z)
    return x.L_o(Ey + x.L_h(h) + x.L_z(z))


def _force_one_word(answer: Answer, B: int) -> Any:
    alpha = distribution(B, L, seed=4)
    return _look_at_one_word(lambda *x: answer(*x, alpha), B, forced_word.parts)


forced_word.says = "logits and gradients under a map that is not the decoder's own"
forced_word.cases = one_word.cases
forced_word.parts = ("logits",)
forced_word.observe = _force_one_word
forced_word.given = one_word.given
forced_word.mistakes = {
    "this is the decoder's own map: alpha plays no part": _own_map,
    "the mean of all places: alpha weighs them": (
        lambda x, a, h, c, Ey, alpha: forced_word(
            x, a, h, c, Ey, torch.full_like(alpha, 1 / alpha.shape[1])
        )
    ),
    "the decoder's map weighs alpha a again: put z at all places": _weighed_twice,
    "the gate is missing: leave it to one_word": _ungated,
}
