"""Soft attention against the sum over places.

Each place's pass against hard attention forced to look there, NWGM against its definition.
"""

import pytest
import torch
from msgspec.structs import replace

from satcourse.lessons import estimators, marginal
from satlib.model.decoder import Decoder, State
from satlib.recipe import DecoderConfig

B, L, D, K = 3, 5, 4, 7


@pytest.fixture
def case():
    """A decoder, annotation vectors, a state, and the embeddings of one word for each image."""
    torch.manual_seed(0)
    config = DecoderConfig(embedding=3, hidden=6, attention_hidden=5)
    decoder = Decoder(config, D, K).double().eval()
    for weight in decoder.parameters():
        torch.nn.init.normal_(weight)

    h = torch.randn(B, 6).double()
    c = torch.randn(B, 6).double()
    a = torch.randn(B, L, D).double()
    # The first image is before its first word, the others after words 2 and 5.
    embedded = decoder.embed(torch.tensor([-1, 2, 5]))
    return decoder, a, State(h, c), embedded


def test_each_place_equals_a_look_forced_there(case):
    """Hard attention with the same weights, its draw forced to place i, gives the i-th pass."""
    decoder, a, state, embedded = case
    annotations = decoder.project(a)
    alpha, n = marginal.every_place(decoder, annotations, state, embedded)

    hard = Decoder(replace(decoder.config, attention="hard"), D, K).double()
    hard.load_state_dict(decoder.state_dict())
    # Attention in training draws; the rest in evaluation has no dropout.
    hard.eval().attention.train()
    for i in range(L):
        hard.attention.draw = lambda alpha, i=i: torch.full((B,), i)
        step = hard.step(hard.project(a), state, hard.gates_word(embedded))
        logits = hard.logits(embedded, step.state.h, step.z)
        torch.testing.assert_close(n[:, i], logits)
        torch.testing.assert_close(alpha, step.alpha)


def test_marginal_is_the_sum_over_paths_of_one_word():
    """For one word the paths of `estimators.every_path` are the places."""
    decoder, a, caption = estimators.tiny(3)
    paths = estimators.every_path(decoder, a, caption[:, :1])

    decoder.eval()
    first = decoder.embed(torch.tensor([-1]))
    state = decoder.initial_state(a)
    alpha, n = marginal.every_place(decoder, decoder.project(a), state, first)

    # p(y) = sum_i alpha_i p(y | i)
    p = alpha[0] @ n[0].softmax(1)
    word = caption[0, 0]
    torch.testing.assert_close(p[word].log(), paths.log_likelihood)


def test_nwgm_by_hand():
    """(1/2, 1/2) and (1/5, 4/5), weighing 1/2 each: sqrt(1/10) to sqrt(4/10), which is 1 to 2."""
    alpha = torch.tensor([[0.5, 0.5]])
    p = torch.tensor([[[0.5, 0.5], [0.2, 0.8]]])
    found, _ = marginal.nwgm(alpha, p.log())
    expected = torch.tensor([[1 / 3, 2 / 3]])
    torch.testing.assert_close(found, expected)


def test_nwgm_is_the_softmax_of_the_expected_pre_activation(case):
    decoder, a, state, embedded = case
    annotations = decoder.project(a)
    alpha, n = marginal.every_place(decoder, annotations, state, embedded)

    # Section 4.2.1 of the paper: NWGM = softmax(E[n]).
    expected = torch.einsum("bl,blk->bk", alpha, n).softmax(1)
    found, _ = marginal.nwgm(alpha, n)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
