"""What the course says of soft attention: what a map depends on, what moves it, equation 13."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from satcourse.checks.engine import chapter
from satlib.model import attention
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig

B, L, D, K, C = 2, 5, 4, 9, 6


def decoder():
    torch.manual_seed(0)
    config = DecoderConfig(embedding=6, hidden=7, attention_hidden=5)
    model = Decoder(config, D, K).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    return model


@pytest.mark.parametrize("changed", range(C))
def test_a_word_moves_the_maps_from_the_second_after_it(changed):
    """alpha_t depends on h_{t-1}, which has read y_1 to y_{t-2}: y_{t-1} enters at t, with z_t."""
    model = decoder()
    a = torch.randn(B, L, D).double()
    captions = torch.randint(0, K - 1, (B, C))
    other = captions.clone()
    other[:, changed] += 1

    before = model(a, captions).alphas
    after = model(a, other).alphas
    moved = (before - after).abs().amax((0, 2))  # (C,)
    assert (moved[: changed + 2] == 0).all()
    assert (moved[changed + 2 :] > 1e-6).all()


def test_each_place_is_asked_alone():
    """An energy depends on its own place's vector only; the softmax brings the places together."""
    torch.manual_seed(1)
    energy = attention.AdditiveEnergy(D, D, 3).double()
    a = torch.randn(1, L, D).double()
    h = torch.randn(1, D).double()
    other = a.clone()
    other[0, 2] += 1

    before = energy(energy.annotation(a), h)
    after = energy(energy.annotation(other), h)
    changed = before[0] != after[0]
    assert changed.tolist() == [False, False, True, False, False]


def test_gradient_pulls_the_context_towards_a_place():
    """dz / de_k = alpha_k (a_k - z)."""
    torch.manual_seed(2)
    soft = attention.create("soft", D, D, 1).double()
    a = torch.randn(1, L, D).double()
    h = torch.randn(1, D).double()

    def context(e):
        # The energies are given, whatever h is.
        soft.energy.forward = lambda keys, h: e
        return soft(a, soft.keys(a), h).z[0]

    e = torch.randn(1, L).double()
    jacobian = torch.autograd.functional.jacobian(context, e)[:, 0]  # (D, L)

    alpha = torch.softmax(e, 1)[0]
    z = context(e)
    by_hand = alpha.unsqueeze(1) * (a[0] - z)  # (L, D)
    torch.testing.assert_close(jacobian, by_hand.T)


def test_the_context_is_the_expectation_over_sampled_places():
    """Equation 13 against 40,000 draws of hard attention."""
    torch.manual_seed(3)
    energy = attention.AdditiveEnergy(D, 7, 5)
    soft = attention.SoftAttention(energy).double()
    hard = attention.HardAttention(energy).eval()
    hard.look = "sample"
    a = torch.randn(1, L, D).double()
    h = torch.randn(1, 7).double()
    expectation = soft(a, soft.keys(a), h).z[0]

    draws = 40_000
    keys = hard.keys(a).expand(draws, -1, -1)
    drawn = hard(a.expand(draws, -1, -1), keys, h.expand(draws, -1)).z

    # Within five standard errors in every dimension; 200 is the root of 40,000.
    spread = drawn.std(0)
    error = (drawn.mean(0) - expectation).abs()
    assert (error < 5 * spread / 200).all()
    # The draws differ.
    assert spread.min() > 0.1


def from_the_notebook(*names):
    """Functions and classes as notebook 04 defines them, in its order."""
    source = Path(__file__).resolve().parent.parent / "notebooks" / "04_soft_attention.py"
    found = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            found.append(node)
    assert [node.name for node in found] == list(names)

    namespace = {"torch": torch, "nn": nn, "Tensor": torch.Tensor}
    exec(compile(ast.Module(found, []), str(source), "exec"), namespace)
    return namespace


PARTS = (
    "mlp",
    "energies",
    "weights",
    "attend",
    "lstm_step",
    "SoftAttentionDecoder",
    "one_word",
    "unroll",
)
# The notebook's names, which are the paper's letters, and satlib's.
SATLIBS = {
    # satlib has dropout between the two layers.
    "init_h.0": "initial_h.0",
    "init_h.2": "initial_h.3",
    "init_c.0": "initial_c.0",
    "init_c.2": "initial_c.3",
    "W_a": "attention.energy.annotation",
    "W_h": "attention.energy.state",
    "v": "attention.energy.energy",
    "f_beta": "gate",
    "E": "embedding",
    "W": "gates_word",
    "U": "gates_state",
    "Z": "gates_context",
    "L_h": "output_state",
    "L_z": "output_context",
    "L_o": "output",
}


@pytest.mark.parametrize("sizes", [(6, 7, 5), (3, 4, 8)], ids=str)
@pytest.mark.parametrize("parts", ["the notebook's", "the exercises' references"])
def test_the_notebooks_decoder_is_satlibs(sizes, parts):
    """Weights of any size, logits, maps and gradients: the page and the package agree."""
    names = from_the_notebook(*PARTS)
    if "references" in parts:
        for task in chapter(4).values():
            if task.name in PARTS:
                names[task.name] = task.reference
    m, n, width = sizes
    torch.manual_seed(3)
    ours = names["SoftAttentionDecoder"](D, K, m, n, width).double()
    for weight in ours.parameters():
        nn.init.normal_(weight, std=0.7)

    config = DecoderConfig(
        embedding=m,
        hidden=n,
        attention_hidden=width,
        dropout=0.0,
    )
    theirs = Decoder(config, D, K).double()
    weights = {}
    for name, weight in ours.state_dict().items():
        part, kind = name.rsplit(".", 1)
        weights[f"{SATLIBS[part]}.{kind}"] = weight
    # It would refuse a weight too many or too few.
    theirs.load_state_dict(weights)

    a = torch.randn(B, L, D).double()
    captions = torch.randint(0, K, (B, C))
    logits, alphas = ours(a, captions)
    output = theirs(a, captions)
    torch.testing.assert_close(logits, output.logits)
    torch.testing.assert_close(alphas, output.alphas)

    # W_a's gradient has passed through the output, the LSTM and attention.
    logits.logsumexp(2).sum().backward()
    output.logits.logsumexp(2).sum().backward()
    gradient = theirs.attention.energy.annotation.weight.grad
    torch.testing.assert_close(ours.W_a.weight.grad, gradient)
