"""The bench compares like with like: the baseline decoder computes what satlib's does, in values and gradients."""

import bench
import torch

from satlib.model.decoder import Decoder
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.recipe import DecoderConfig


def decoders():
    decoder = (
        Decoder(DecoderConfig(embedding=8, hidden=8, attention_hidden=8), 12, 20).double().eval()
    )
    return decoder, bench.Baseline(decoder).eval()


def test_the_baseline_gives_the_same_logits_maps_and_gradients():
    """Sorted captions of mixed lengths, against satlib's decoder on each caption alone."""
    decoder, baseline = decoders()
    a, captions, lengths = (
        torch.randn(4, 9, 12).double(),
        torch.randint(0, 20, (4, 6)),
        [6, 5, 5, 2],
    )
    logits, alphas = baseline(a, captions, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        alone = decoder(a[row : row + 1], captions[row : row + 1, :length])
        torch.testing.assert_close(logits[row : row + 1, :length], alone.logits)
        torch.testing.assert_close(alphas[row : row + 1, :length], alone.alphas)
    baseline.loss(a, captions, torch.full((4,), 6)).backward()
    output = decoder(a, captions)
    loss = (
        negative_log_likelihood(output.logits, captions).mean() / 6
        + doubly_stochastic_penalty(output.alphas).mean()
    )
    loss.backward()
    torch.testing.assert_close(
        baseline.annotation.weight.grad, decoder.attention.energy.annotation.weight.grad
    )
    torch.testing.assert_close(baseline.output.weight.grad, decoder.output.weight.grad)
    torch.testing.assert_close(baseline.embedding.weight.grad, decoder.embedding.weight.grad)
