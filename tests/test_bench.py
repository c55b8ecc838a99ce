"""The bench compares like with like: the baseline decoder computes what satlib's does, in values
and gradients.
"""

import bench
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from satlib.model.decoder import Decoder
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.recipe import DecoderConfig


def decoders():
    config = DecoderConfig(embedding=8, hidden=8, attention_hidden=8)
    decoder = Decoder(config, 12, 20).double().eval()
    return decoder, bench.Baseline(decoder).eval()


def test_the_baseline_gives_the_same_logits_maps_and_gradients():
    """Sorted captions of mixed lengths, against satlib's decoder on each caption alone."""
    decoder, baseline = decoders()
    a = torch.randn(4, 9, 12).double()
    captions = torch.randint(0, 20, (4, 6))
    # Falling, as the baseline needs them; two are equal.
    lengths = [6, 5, 5, 2]

    logits, alphas = baseline(a, captions, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        alone = decoder(a[one], captions[one, :length])
        assert_close(logits[one, :length], alone.logits)
        assert_close(alphas[one, :length], alone.alphas)

    # Whole captions, because satlib's losses of a batch are of one length.
    baseline.loss(a, captions, torch.full((4,), 6)).backward()
    output = decoder(a, captions)
    nll = negative_log_likelihood(output.logits, captions)
    # The baseline's loss is a mean over words, satlib's nll a sum over them.
    penalty = doubly_stochastic_penalty(output.alphas)
    loss = nll.mean() / 6 + penalty.mean()
    loss.backward()

    keys = decoder.attention.energy.annotation
    assert_close(baseline.annotation.weight.grad, keys.weight.grad)
    assert_close(baseline.output.weight.grad, decoder.output.weight.grad)
    assert_close(baseline.embedding.weight.grad, decoder.embedding.weight.grad)


def test_the_floor_has_the_matrix_products_of_satlibs_step():
    """As torch counts them, forward and backward."""
    sizes = bench.Sizes(D=12, B=3, L=9, n=8, K=20)
    a = torch.randn(sizes.B, sizes.L, sizes.D)
    captions = torch.randint(0, sizes.K, (sizes.B, 5))
    counts = []
    for kind in (bench.Satlib, bench.Floor):
        contestant = kind(sizes, torch.device("cpu"), "float32")
        with FlopCounterMode(display=False) as counter:
            contestant.step(a, captions, torch.full((sizes.B,), 5))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
