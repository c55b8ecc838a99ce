"""The decoder's step against torch.nn.LSTMCell, its sequence against its steps, its output against equation 7."""

import pytest
import torch
from torch import nn

from satlib.model.decoder import Decoder, State
from satlib.recipe import DecoderConfig

B, L, D, K, C = 3, 6, 5, 11, 4


def decoder(**changes):
    torch.manual_seed(0)
    config = DecoderConfig(**{"embedding": 7, "hidden": 8, "attention_hidden": 9, **changes})
    return Decoder(config, D, K).double().eval()


def lstm_cell(model):
    """The same LSTM with the weights of word and context merged: its input is [E y; z]."""
    n = model.config.hidden
    cell = nn.LSTMCell(model.config.embedding + D, n).double()
    cell.load_state_dict(
        {
            "weight_ih": torch.cat([model.gates_word.weight, model.gates_context.weight], 1),
            "weight_hh": model.gates_state.weight,
            "bias_ih": model.gates_word.bias,
            "bias_hh": torch.zeros(4 * n),
        }
    )
    return cell


@pytest.mark.parametrize("attention", ["soft", "none"])
@pytest.mark.parametrize("gate", [True, False])
def test_step_equals_lstm_cell_with_merged_weights(attention, gate):
    model = decoder(attention=attention, gate=gate)
    a, word = torch.randn(B, L, D).double(), torch.tensor([3, -1, 5])
    state = State(torch.randn(B, 8).double(), torch.randn(B, 8).double())
    annotations, embedded = model.project(a), model.embed(word)
    step = model.step(annotations, state, model.gates_word(embedded))
    z, alpha, _ = model.attention(a, annotations.keys, state.h)
    beta = (
        torch.sigmoid(state.h @ model.gate.weight[0] + model.gate.bias)
        if gate
        else torch.ones(B).double()
    )
    h, c = lstm_cell(model)(torch.cat([embedded, beta.unsqueeze(1) * z], 1), state)
    torch.testing.assert_close(step.state.h, h)
    torch.testing.assert_close(step.state.c, c)
    torch.testing.assert_close(step.beta, beta)
    torch.testing.assert_close(step.alpha, alpha)
    torch.testing.assert_close(step.z, beta.unsqueeze(1) * z)


def test_first_word_sees_a_zero_embedding():
    model = decoder()
    zeros = torch.zeros(1, 7).double()  # the end mark, 0, has an embedding like any word
    assert torch.equal(
        model.embed(torch.tensor([-1, 0, 1])), torch.cat([zeros, model.embedding.weight[:2]])
    )


@pytest.mark.parametrize("output_tanh", [True, False])
def test_sequence_equals_steps_one_by_one(output_tanh):
    """Teacher forcing in one call gives what feeding the true words step by step gives, with equation 7 written out."""
    model = decoder(output_tanh=output_tanh)
    a, captions = torch.randn(B, L, D).double(), torch.randint(0, K, (B, C))
    output = model(a, captions)
    state, annotations = model.initial_state(a), model.project(a)
    for t in range(C):
        torch.testing.assert_close(output.states[:, t], state.h)
        previous = torch.full((B,), -1) if t == 0 else captions[:, t - 1]
        E_y = model.embed(previous)
        state, z, alpha, beta, _ = model.step(annotations, state, model.gates_word(E_y))
        deep = (
            E_y
            + state.h @ model.output_state.weight.T
            + model.output_state.bias
            + z @ model.output_context.weight.T
        )
        deep = torch.tanh(deep) if output_tanh else deep
        torch.testing.assert_close(
            output.logits[:, t], deep @ model.output.weight.T + model.output.bias
        )
        torch.testing.assert_close(output.alphas[:, t], alpha)
        torch.testing.assert_close(output.betas[:, t], beta)
    assert output.logits.shape == (B, C, K)
    assert output.alphas.shape == (B, C, L)


def test_the_future_is_not_seen():
    """Changing a word changes no logits up to and including its own."""
    model, a = decoder(), torch.randn(1, L, D).double()
    one, other = torch.tensor([[2, 3, 4, 0]]), torch.tensor([[2, 3, 5, 0]])
    difference = (model(a, one).logits - model(a, other).logits).abs().amax((0, 2))
    assert difference[:3].max() == 0
    assert difference[3] > 0


def test_initial_state_reads_the_mean_annotation_vector():
    model, a = decoder(), torch.randn(B, L, D).double()
    shuffled = a[:, torch.randperm(L)]
    first, second = model.initial_state(a), model.initial_state(shuffled)
    torch.testing.assert_close(first, second)
    hidden = torch.relu(a.mean(1) @ model.initial_h[0].weight.T + model.initial_h[0].bias)
    torch.testing.assert_close(
        first.h, torch.tanh(hidden @ model.initial_h[3].weight.T + model.initial_h[3].bias)
    )
    assert not torch.allclose(first.h, first.c)


def test_every_weight_learns():
    model = decoder().train()
    model(torch.randn(B, L, D).double(), torch.randint(1, K, (B, C))).logits.log_softmax(2)[
        ..., 0
    ].sum().backward()
    silent = [
        name
        for name, weight in model.named_parameters()
        if weight.grad is None or not weight.grad.abs().sum() > 0
    ]
    assert not silent


def test_the_initial_mlp_drops_between_its_layers_and_logits_twice():
    """In training, with a share of 1 in 2: what is kept is doubled. Before the last layer, and on h_t alone."""
    model = decoder(dropout=0.5).train()
    first, *_, last, _ = model.initial_h
    seen = []
    last.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    a = torch.randn(400, L, D).double()
    model.initial_state(a)
    kept = torch.relu(first(a.mean(1)))
    assert ((seen[0] == 0) | torch.isclose(seen[0], 2 * kept)).all()
    share = (seen[0][kept > 0] == 0).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)
    embedded, h, z = (
        torch.randn(4, 7).double(),
        torch.ones(4, 8).double(),
        torch.randn(4, D).double(),
    )
    torch.manual_seed(3)
    found = model.logits(embedded, h, z)
    torch.manual_seed(3)
    drop = torch.nn.functional.dropout
    deep = embedded + model.output_state(drop(h, 0.5)) + z @ model.output_context.weight.T
    torch.testing.assert_close(found, drop(deep, 0.5) @ model.output.weight.T + model.output.bias)


def test_in_bf16_the_vectors_of_a_frozen_encoder_are_rounded_once():
    """A copy of them in bf16 for each word would be most of a training step's memory; those of an encoder that trains need one."""

    def run(trained):
        model, kept = decoder().float(), []
        a = torch.randn(B, L, D) + torch.zeros((), requires_grad=trained)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda each: kept.append(each) or each, lambda each: each
        )
        with hooks, torch.autocast("cpu", torch.bfloat16):
            logits = model(a, torch.randint(K, (B, C))).logits
        logits.float().logsumexp(2).sum().backward()
        copies = {
            each.data_ptr()
            for each in kept
            if each.dtype == torch.bfloat16 and each.numel() == a.numel()
        }
        return len(copies), logits.detach(), [each.grad for each in model.parameters()]

    (copies, *frozen), (of_trained, *trained) = run(False), run(True)
    assert (copies, of_trained) == (2, C + 1)  # one is the keys' own
    torch.testing.assert_close(frozen, trained, rtol=0, atol=0)
