"""The bench measures like with like: the baseline decoder is ours in values and gradients, and words are counted right."""

import argparse
import functools
import json

import pytest
import torch

from benchmarks.bench import growth, parts, report
from benchmarks.bench.__main__ import main
from benchmarks.bench.baseline import Baseline
from benchmarks.bench.step import Contestant, Sizes, must_do
from satlib.data import counts
from satlib.model.decoder import Decoder
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.recipe import DecoderConfig

SMALL = Sizes(D=12, B=6, L=9, n=8, K=20)
CPU = torch.device("cpu")


def test_the_baseline_decoder_is_the_same_mathematics():
    """Sorted captions of mixed lengths: logits and maps of each as satlib gives them for that caption alone."""
    decoder = Decoder(DecoderConfig(embedding=8, hidden=8, attention_hidden=8), 12, 20).double().eval()
    baseline = Baseline(decoder).eval()
    a, lengths = torch.randn(4, 9, 12).double(), torch.tensor([6, 5, 5, 2])
    captions = torch.randint(0, 20, (4, 6))
    logits, alphas = baseline(a, captions, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = decoder(a[row : row + 1], captions[row : row + 1, :length])
        torch.testing.assert_close(logits[row : row + 1, :length], alone.logits)
        torch.testing.assert_close(alphas[row : row + 1, :length], alone.alphas)
        assert not alphas[row, length:].any()


def test_the_baseline_decoder_learns_the_same():
    """On captions of one length both losses are the same but for their scale, and so are the gradients."""
    decoder = Decoder(DecoderConfig(embedding=8, hidden=8, attention_hidden=8), 12, 20).double().eval()
    baseline = Baseline(decoder).eval()
    a, captions = torch.randn(4, 9, 12).double(), torch.randint(0, 20, (4, 5))
    baseline.loss(a, captions, torch.full((4,), 5)).backward()
    output = decoder(a, captions)
    loss = negative_log_likelihood(output.logits, captions).mean() / 5 + doubly_stochastic_penalty(output.alphas).mean()
    loss.backward()
    torch.testing.assert_close(baseline.annotation.weight.grad, decoder.attention.energy.annotation.weight.grad)
    torch.testing.assert_close(baseline.output.weight.grad, decoder.output.weight.grad)
    torch.testing.assert_close(baseline.embedding.weight.grad, decoder.embedding.weight.grad)


def test_lengths_are_those_of_flickr8k():
    found = Sizes().lengths(3000)
    seen = counts.read()["train"].lengths
    true = sum(length * number for length, number in seen.items()) / seen.total() + 1  # the end mark
    assert sum(found) / len(found) == pytest.approx(true, rel=2e-3)
    assert Sizes(C=7).lengths(2) == [7, 7]


@pytest.mark.parametrize("name", ["baseline", "plain", "fast"])
def test_a_turn_counts_its_words(name):
    contestant = Contestant(name, SMALL, CPU)
    took = contestant.turn(torch.rand(6, 9, 12), 0.5)
    lengths = SMALL.lengths(6) if name == "baseline" else [length for length in SMALL.lengths(3) for _ in range(6)]
    assert took.words == sum(lengths)
    assert took.seconds > 0


def test_contestants_learn_alike():
    """The same weights, the same batch: one step ends in the same weights by each way through the caption."""
    a, captions = torch.rand(6, 9, 12), torch.randint(0, 20, (6, 5))
    ends = []
    for name in ("plain", "checkpointed", "fast"):
        contestant = Contestant(name, SMALL, CPU)
        contestant.model.eval()
        contestant.step(a, captions, torch.full((6,), 5))
        ends.append(torch.cat([weight.detach().flatten() for weight in contestant.model.parameters()]))
    for end in ends[1:]:
        torch.testing.assert_close(end, ends[0], rtol=0, atol=2e-5)


def test_work_is_counted_by_hand():
    """A decoder of one place, one dimension, one unit, one word, one caption: every product is 1 by 1."""
    once = must_do(Sizes(D=1, B=1, L=1, n=1, K=1), 1, 1).operations
    # Without a gradient for the input: keys and two initial layers. Looking: z and energies. With: two second initial layers,
    # gates by the word 4, h's product 4 + 1 + 1, z's 4, output by h 1, by z 1, vocabulary 1.
    assert once == 2 * 2 * 3 + 2 * 2 * 2 + 3 * 2 * 2 + 3 * 2 * (4 + 6 + 4 + 1 + 1 + 1)


def options(tmp_path, **changes):
    given = {
        "contestants": "baseline,plain,fast",
        "precisions": "float32,bf16",
        "device": "cpu",
        "places": 9,
        "dims": [12],
        "batches": [6],
        "rounds": 1,
        "images": 4,
        "encoders": "efficientnet-lite0",
        "out": tmp_path / "bench.json",
    }
    return argparse.Namespace(**{**given, **changes})


def test_every_part_ends_in_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growth, "GROWTH", {"L": (4, 9), "C": (2, 4)})
    monkeypatch.setattr(report, "Sizes", functools.partial(Sizes, n=8, K=20))
    names = ["step", "growth", "epoch"]
    report.Bench(options(tmp_path)).run(names)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert list(found) == ["machine", *names]
    results = found["step"][0]["results"]
    assert list(results) == [f"{name} {p}" for p in ("float32", "bf16") for name in ("baseline", "plain", "fast")]
    assert results["baseline float32"]["ratio"]["median"] == 1
    assert {"products_share", "traffic_share"} <= results["fast float32"].keys()
    assert found["growth"]["seconds"]["L"]["values"] == [4, 9]
    assert found["epoch"][0]["words"] == sum(Sizes().lengths(20))
    assert (tmp_path / "bench.png").stat().st_size > 1000
    assert "fast float32" in capsys.readouterr().out


def test_a_store_with_a_hole(tmp_path):
    store = parts.make_store(tmp_path, 5, dim=8, real=2)
    read = store.read(["0", "4"])
    assert read.shape == (2, 196, 8)
    assert read[0].any()
    assert not read[1].any()


def test_mistakes_are_named(tmp_path, capsys):
    assert main(["speed"]) == 2
    assert "no part 'speed'; choose among step" in capsys.readouterr().err
    assert main(["step", "--contestants", "magic", "--out", str(tmp_path / "b.json")]) == 2
    assert "no 'magic'; choose among baseline" in capsys.readouterr().err
