"""The decoder's step against torch.nn.LSTMCell, its sequence against its steps, its output against
equation 7.
"""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from satlib.model.decoder import Decoder, State
from satlib.recipe import DecoderConfig

# All sizes differ, so that swapped axes cannot go unnoticed.
B, L, D, K, C = 3, 6, 5, 11, 4
SIZES = {"embedding": 7, "hidden": 8, "attention_hidden": 9}


def decoder(**changes):
    torch.manual_seed(0)
    config = DecoderConfig(**{**SIZES, **changes})
    return Decoder(config, D, K).double().eval()


def lstm_cell(model):
    """The same LSTM with the weights of word and context merged: its input is [E y; z]."""
    n = model.config.hidden
    cell = nn.LSTMCell(model.config.embedding + D, n).double()
    merged = {
        "weight_ih": torch.cat([model.gates_word.weight, model.gates_context.weight], 1),
        "weight_hh": model.gates_state.weight,
        # torch's cell has two biases, which it adds.
        "bias_ih": model.gates_word.bias,
        "bias_hh": torch.zeros(4 * n),
    }
    cell.load_state_dict(merged)
    return cell


@pytest.mark.parametrize("attention", ["soft", "none"])
@pytest.mark.parametrize("gate", [True, False])
def test_step_equals_lstm_cell_with_merged_weights(attention, gate):
    model = decoder(attention=attention, gate=gate)
    a = torch.randn(B, L, D).double()
    # -1 stands for the word before the first.
    word = torch.tensor([3, -1, 5])
    h = torch.randn(B, 8).double()
    c = torch.randn(B, 8).double()
    state = State(h, c)
    annotations = model.project(a)
    E_y = model.embed(word)
    step = model.step(annotations, state, model.gates_word(E_y))

    z, alpha, _ = model.attention(a, annotations.keys, state.h)
    beta = torch.ones(B).double()
    if gate:
        # Section 4.2.1: beta = sigmoid(f_beta(h)).
        beta = torch.sigmoid(state.h @ model.gate.weight[0] + model.gate.bias)
    gated = beta.unsqueeze(1) * z
    h, c = lstm_cell(model)(torch.cat([E_y, gated], 1), state)

    assert_close(step.state.h, h)
    assert_close(step.state.c, c)
    assert_close(step.beta, beta)
    assert_close(step.alpha, alpha)
    assert_close(step.z, gated)


def test_first_word_sees_a_zero_embedding():
    model = decoder()
    embedded = model.embed(torch.tensor([-1, 0, 1]))
    zeros = torch.zeros(1, 7).double()
    # The end mark, 0, has an embedding like any word.
    words = model.embedding.weight[:2]
    assert torch.equal(embedded, torch.cat([zeros, words]))


@pytest.mark.parametrize("output_tanh", [True, False])
def test_sequence_equals_steps_one_by_one(output_tanh):
    """Teacher forcing in one call gives what feeding the true words step by step gives.

    Equation 7 is written out.
    """
    model = decoder(output_tanh=output_tanh)
    a = torch.randn(B, L, D).double()
    captions = torch.randint(0, K, (B, C))
    output = model(a, captions)
    assert output.logits.shape == (B, C, K)
    assert output.alphas.shape == (B, C, L)

    state = model.initial_state(a)
    annotations = model.project(a)
    previous = torch.full((B,), -1)
    for t in range(C):
        assert_close(output.states[:, t], state.h)
        E_y = model.embed(previous)
        state, z, alpha, beta, _ = model.step(annotations, state, model.gates_word(E_y))

        # L_o (E y + L_h h + L_z z)
        L_h_h = state.h @ model.output_state.weight.T + model.output_state.bias
        L_z_z = z @ model.output_context.weight.T
        deep = E_y + L_h_h + L_z_z
        if output_tanh:
            deep = torch.tanh(deep)
        logits = deep @ model.output.weight.T + model.output.bias

        assert_close(output.logits[:, t], logits)
        assert_close(output.alphas[:, t], alpha)
        assert_close(output.betas[:, t], beta)
        previous = captions[:, t]


def test_the_future_is_not_seen():
    """Changing a word changes no logits up to and including its own."""
    model = decoder()
    a = torch.randn(1, L, D).double()
    one = model(a, torch.tensor([[2, 3, 4, 0]]))
    other = model(a, torch.tensor([[2, 3, 5, 0]]))

    # The third word differs; it is seen only when the fourth is predicted.
    difference = (one.logits - other.logits).abs().amax((0, 2))
    assert difference[:3].max() == 0
    assert difference[3] > 0


def test_initial_state_reads_the_mean_annotation_vector():
    model = decoder()
    a = torch.randn(B, L, D).double()
    state = model.initial_state(a)

    # The mean does not depend on the order of the places.
    shuffled = a[:, torch.randperm(L)]
    assert_close(state, model.initial_state(shuffled))

    first, *_, last, _ = model.initial_h
    hidden = torch.relu(a.mean(1) @ first.weight.T + first.bias)
    assert_close(state.h, torch.tanh(hidden @ last.weight.T + last.bias))
    # The memory has a network of its own.
    assert not torch.allclose(state.h, state.c)


def test_every_weight_learns():
    model = decoder().train()
    a = torch.randn(B, L, D).double()
    captions = torch.randint(1, K, (B, C))
    log_p = model(a, captions).logits.log_softmax(2)
    log_p[..., 0].sum().backward()

    silent = []
    for name, weight in model.named_parameters():
        if weight.grad is None or not weight.grad.abs().sum() > 0:
            silent.append(name)
    assert not silent


def test_the_initial_mlp_drops_between_its_layers_and_logits_twice():
    """In training, with a share of 1 in 2: what is kept is doubled. Before the last layer, and on
    h_t alone.
    """
    model = decoder(dropout=0.5).train()
    first, *_, last, _ = model.initial_h
    seen = []
    last.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    a = torch.randn(400, L, D).double()
    model.initial_state(a)

    kept = torch.relu(first(a.mean(1)))
    (dropped,) = seen
    assert ((dropped == 0) | torch.isclose(dropped, 2 * kept)).all()
    # Only where a unit was not 0 already does a 0 say that it was dropped.
    share = (dropped[kept > 0] == 0).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)

    E_y = torch.randn(4, 7).double()
    h = torch.ones(4, 8).double()
    z = torch.randn(4, D).double()
    torch.manual_seed(3)
    found = model.logits(E_y, h, z)

    # The same seed, so that the same units are dropped in the same order.
    torch.manual_seed(3)
    drop = torch.nn.functional.dropout
    L_h_h = model.output_state(drop(h, 0.5))
    L_z_z = z @ model.output_context.weight.T
    deep = drop(E_y + L_h_h + L_z_z, 0.5)
    logits = deep @ model.output.weight.T + model.output.bias
    assert_close(found, logits)


def in_bf16(trained):
    """Of a decoder in bf16: how many copies of a the graph keeps, the logits and the gradients.

    `trained`: a has a gradient, as that of an encoder that trains.
    """
    model = decoder().float()
    a = torch.randn(B, L, D) + torch.zeros((), requires_grad=trained)
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16):
        logits = model(a, torch.randint(K, (B, C))).logits
    logits.float().logsumexp(2).sum().backward()

    copies = set()
    for tensor in kept:
        as_large = tensor.numel() == a.numel()
        if as_large and tensor.dtype == torch.bfloat16:
            copies.add(tensor.data_ptr())
    gradients = [weight.grad for weight in model.parameters()]
    return len(copies), [logits.detach(), gradients]


def test_in_bf16_the_vectors_of_a_frozen_encoder_are_rounded_once():
    """A copy of them in bf16 for each word would be most of a training step's memory; those of an
    encoder that trains need one.
    """
    frozen_copies, frozen = in_bf16(trained=False)
    trained_copies, trained = in_bf16(trained=True)
    # The keys have a copy of their own; beside it is one for all words, or one for each.
    assert frozen_copies == 2
    assert trained_copies == C + 1
    assert_close(frozen, trained, rtol=0, atol=0)
