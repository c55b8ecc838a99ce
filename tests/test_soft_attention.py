"""What the course says of soft attention: what a map depends on, what moves it, what the expectation of equation 13 is of."""

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
    made = Decoder(DecoderConfig(embedding=6, hidden=7, attention_hidden=5), D, K).double().eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight)
    return made


@pytest.mark.parametrize("changed", range(C))
def test_a_word_moves_the_maps_from_the_second_after_it(changed):
    """alpha_t depends on h_{t-1}, which has read y_1 to y_{t-2}: y_{t-1} enters at t, with z_t."""
    model, a = decoder(), torch.randn(B, L, D).double()
    captions = torch.randint(0, K - 1, (B, C))
    other = captions.clone()
    other[:, changed] += 1
    moved = (model(a, captions).alphas - model(a, other).alphas).abs().amax((0, 2))
    assert (moved[: changed + 2] == 0).all()
    assert (moved[changed + 2 :] > 1e-6).all()


def test_each_place_is_asked_alone():
    """An energy depends on its own place's vector only; the softmax brings the places together."""
    torch.manual_seed(1)
    energy = attention.AdditiveEnergy(D, D, 3).double()
    a, h = torch.randn(1, L, D).double(), torch.randn(1, D).double()
    changed = a.clone()
    changed[0, 2] += 1
    difference = (energy(energy.annotation(a), h) - energy(energy.annotation(changed), h)).abs()[
        0
    ] > 0
    assert difference.tolist() == [i == 2 for i in range(L)]


def test_gradient_pulls_the_context_towards_a_place():
    """dz / de_k = alpha_k (a_k - z)."""
    torch.manual_seed(2)
    soft = attention.create("soft", D, D, 1).double()
    a, h = torch.randn(1, L, D).double(), torch.randn(1, D).double()

    def context(e):
        soft.energy.forward = lambda keys, h: e
        return soft(a, soft.keys(a), h).z[0]

    e = torch.randn(1, L).double()
    alpha, z = torch.softmax(e, 1)[0], context(e)
    jacobian = torch.autograd.functional.jacobian(context, e)[:, 0]  # (D, L)
    torch.testing.assert_close(jacobian, (alpha.unsqueeze(1) * (a[0] - z)).T)


def test_the_context_is_the_expectation_over_sampled_places():
    """Equation 13 against 40,000 draws of hard attention: within 5 standard errors, in every dimension."""
    torch.manual_seed(3)
    energy = attention.AdditiveEnergy(D, 7, 5)
    soft = attention.SoftAttention(energy).double()
    hard = attention.HardAttention(energy).eval()
    hard.look = "sample"
    a, h = torch.randn(1, L, D).double(), torch.randn(1, 7).double()
    many = a.expand(40_000, -1, -1)
    drawn = hard(many, hard.keys(a).expand(40_000, -1, -1), h.expand(40_000, -1)).z
    error = (drawn.mean(0) - soft(a, soft.keys(a), h).z[0]).abs()
    assert (error < 5 * drawn.std(0) / 200).all()
    assert drawn.std(0).min() > 0.1


def from_the_notebook(*names):
    """Functions and classes as notebook 04 defines them, in its order."""
    source = Path(__file__).resolve().parent.parent / "notebooks" / "04_soft_attention.py"
    body = ast.parse(source.read_text(encoding="utf-8")).body
    found = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names
    ]
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
SATLIBS = {
    "init_h.0": "initial_h.0", "init_h.2": "initial_h.3", "init_c.0": "initial_c.0", "init_c.2": "initial_c.3",
    "W_a": "attention.energy.annotation", "W_h": "attention.energy.state", "v": "attention.energy.energy",
    "f_beta": "gate", "E": "embedding", "W": "gates_word", "U": "gates_state", "Z": "gates_context",
    "L_h": "output_state", "L_z": "output_context", "L_o": "output",
}  # fmt: skip


@pytest.mark.parametrize("sizes", [(6, 7, 5), (3, 4, 8)], ids=str)
@pytest.mark.parametrize("parts", ["the notebook's", "the exercises' references"])
def test_the_notebooks_decoder_is_satlibs(sizes, parts):
    """Weights of any size, logits, maps and gradients: the class on the page and the package compute the same."""
    names = from_the_notebook(*PARTS)
    if "references" in parts:
        names |= {task.name: task.reference for task in chapter(4).values() if task.name in PARTS}
    m, n, width = sizes
    torch.manual_seed(3)
    ours = names["SoftAttentionDecoder"](D, K, m, n, width).double()
    for weight in ours.parameters():
        nn.init.normal_(weight, std=0.7)
    config = DecoderConfig(embedding=m, hidden=n, attention_hidden=width, dropout=0.0)
    theirs = Decoder(config, D, K).double()
    of_ours = {tuple(name.rsplit(".", 1)): weight for name, weight in ours.state_dict().items()}
    theirs.load_state_dict(
        {f"{SATLIBS[part]}.{kind}": weight for (part, kind), weight in of_ours.items()}
    )  # strict
    a, captions = torch.randn(B, L, D).double(), torch.randint(0, K, (B, C))
    logits, alphas = ours(a, captions)
    output = theirs(a, captions)
    torch.testing.assert_close(logits, output.logits)
    torch.testing.assert_close(alphas, output.alphas)
    logits.logsumexp(2).sum().backward()
    output.logits.logsumexp(2).sum().backward()
    torch.testing.assert_close(ours.W_a.weight.grad, theirs.attention.energy.annotation.weight.grad)
