"""The bench measures like with like: the baseline decoder is satlib's in values and gradients, and words are counted right."""

import ast
import json
import re
from pathlib import Path

import bench
import pytest
import torch
from bench import Baseline, Contestant, Sizes

from satlib.data import counts
from satlib.model.decoder import Decoder
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.recipe import DecoderConfig

SMALL = Sizes(D=12, B=6, L=9, n=8, K=20)
CPU = torch.device("cpu")
FOLDER = Path(bench.__file__).parent


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
    lengths = Sizes().lengths(3000)
    known = counts.read()["train"].lengths
    true = sum(length * number for length, number in known.items()) / known.total() + 1  # the end mark
    assert sum(lengths) / len(lengths) == pytest.approx(true, rel=2e-3)


@pytest.mark.parametrize("name", ["baseline", "satlib"])
def test_a_turn_counts_its_words(name):
    turn = Contestant(name, SMALL, CPU).turn(torch.rand(6, 9, 12), 0.5)
    lengths = SMALL.lengths(6) if name == "baseline" else [length for length in SMALL.lengths(3) for _ in range(6)]
    assert turn.words == sum(lengths)
    assert turn.seconds > 0


def test_the_step_ends_in_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "Sizes", lambda D, B, L: Sizes(D, B, L, n=8, K=20))
    small = ["--dims", "12", "--batches", "6", "--places", "9", "--rounds", "1", "--device", "cpu"]
    bench.main(["step", *small, "--precisions", "float32,bf16", "--out", str(tmp_path / "bench.json")])
    (row,) = json.loads((tmp_path / "bench.json").read_text())["step"]
    assert list(row["results"]) == [f"{name} {p}" for p in ("float32", "bf16") for name in ("baseline", "satlib")]
    assert row["results"]["baseline float32"]["ratio"]["median"] == 1
    assert "satlib bf16" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(FOLDER.glob("gpu/*/*.json")), ids=lambda path: path.stem)
def test_the_page_shows_what_is_recorded(path):
    page, recorded = (FOLDER / "README.md").read_text(encoding="utf-8"), json.loads(path.read_text())
    rates = recorded.get("extraction", {}) | recorded.get("beam", {})
    rows = [
        f"| {name} | {rate['median']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f}) |"
        for name, rate in rates.items()
    ]
    assert [row for row in [bench.table(recorded.get("step", [])), *rows] if row not in page] == []


def test_mistakes_are_named(capsys):
    with pytest.raises(SystemExit):
        bench.main(["speed"])
    assert "no part 'speed'; choose among step" in capsys.readouterr().err


def test_the_steps_that_notebook_08_shows_are_those_of_the_files():
    """The notebook runs where the folder benchmarks is not, so that it has the numbers and not the files."""
    source = (FOLDER.parent / "notebooks" / "08_training_for_real.py").read_text(encoding="utf-8")
    shown = ast.literal_eval(re.search(r"^H200 = (\{.*?^\})", source, re.M | re.S)[1])
    measured = {}
    for file in ("step.json", "large.json"):
        for each in json.loads((FOLDER / "gpu" / "nvidia-h200" / file).read_text(encoding="utf-8"))["step"]:
            for name, result in each["results"].items():
                if name.startswith("satlib ") and each["sizes"]["D"] == 512:
                    words, peak = result["words_per_second"]["median"], result["peak_bytes"] / 1e9
                    measured.setdefault(name.removeprefix("satlib "), {})[each["sizes"]["B"]] = (
                        round(words),
                        round(peak, 1),
                    )
    assert shown == measured
