"""The bench compares like with like: the baseline decoder computes what satlib's does, in values and gradients."""

import json

import bench
import torch

from satlib.model.decoder import Decoder
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.recipe import DecoderConfig


def decoders():
    decoder = Decoder(DecoderConfig(embedding=8, hidden=8, attention_hidden=8), 12, 20).double().eval()
    return decoder, bench.Baseline(decoder).eval()


def test_the_baseline_gives_the_same_logits_and_maps():
    """Sorted captions of mixed lengths, against satlib's decoder on each caption alone."""
    decoder, baseline = decoders()
    a, lengths = torch.randn(4, 9, 12).double(), torch.tensor([6, 5, 5, 2])
    captions = torch.randint(0, 20, (4, 6))
    logits, alphas = baseline(a, captions, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = decoder(a[row : row + 1], captions[row : row + 1, :length])
        torch.testing.assert_close(logits[row : row + 1, :length], alone.logits)
        torch.testing.assert_close(alphas[row : row + 1, :length], alone.alphas)


def test_the_baseline_has_the_same_gradients():
    decoder, baseline = decoders()
    a, captions = torch.randn(4, 9, 12).double(), torch.randint(0, 20, (4, 5))
    baseline.loss(a, captions, torch.full((4,), 5)).backward()
    output = decoder(a, captions)
    loss = negative_log_likelihood(output.logits, captions).mean() / 5 + doubly_stochastic_penalty(output.alphas).mean()
    loss.backward()
    torch.testing.assert_close(baseline.annotation.weight.grad, decoder.attention.energy.annotation.weight.grad)
    torch.testing.assert_close(baseline.output.weight.grad, decoder.output.weight.grad)
    torch.testing.assert_close(baseline.embedding.weight.grad, decoder.embedding.weight.grad)


def test_each_contestant_gets_a_row(tmp_path):
    out = tmp_path / "bench.json"
    small = ["--dims", "12", "--batches", "4", "--places", "9", "--rounds", "1", "--device", "cpu"]
    bench.main(["step", *small, "--precisions", "float32,bf16", "--out", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert [row["name"] for row in rows] == ["baseline float32", "satlib float32", "baseline bf16", "satlib bf16"]
    assert rows[0]["ratio"]["median"] == 1
