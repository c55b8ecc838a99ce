"""examples/one_file.py against satlib: with the same weights the same numbers, and the same captions."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from satlib.model import encoders, search
from satlib.model import objective as losses
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig

PATH = Path(__file__).parent.parent / "examples" / "one_file.py"
B, L, D, K, C, M, N, WIDTH = 5, 6, 7, 11, 4, 8, 9, 10


@pytest.fixture
def one_file():
    """The file as a module of its own, so that a test may change its settings."""
    spec = importlib.util.spec_from_file_location("one_file", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def decoders(one_file, kind, spread=1.0):
    """Its decoder and satlib's, with the same weights."""
    ours = one_file.Decoder(kind, D, K, M, N, WIDTH, dropout=0.0)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=spread)
    config = DecoderConfig(
        embedding=M, hidden=N, attention=kind, attention_hidden=WIDTH, dropout=0.0
    )
    satlibs = Decoder(config, D, K)
    names = {name: name.replace("attention.", "attention.energy.", 1) for name in ours.state_dict()}
    satlibs.load_state_dict({names[name]: value for name, value in ours.state_dict().items()})
    return ours, satlibs


def batch():
    return torch.randn(B, L, D), torch.randint(2, K, (B, C))


def same(x, y):
    torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


def same_gradients(ours, satlibs):
    for (name, x), y in zip(ours.named_parameters(), satlibs.parameters(), strict=True):
        assert x.grad.abs().sum() > 0, name
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.usefixtures("_float64")
class TestEncoder:
    def test_annotation_vectors_equal_those_of_small(self, one_file):
        ours, small = one_file.Encoder(), encoders.create("small", pretrained=False)
        small.mean.fill_(127.5)
        small.std.fill_(127.5)
        for tensor in small.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 0.4)
        ours.load_state_dict(dict(zip(ours.state_dict(), small.state_dict().values(), strict=True)))
        pixels = torch.randint(0, 256, (2, 3, 224, 224)).double()
        with torch.inference_mode():
            same(ours.eval()(pixels), small.eval()(pixels))


@pytest.mark.usefixtures("_float64")
class TestDecoder:
    @pytest.mark.parametrize("kind", ["soft", "hard"])
    def test_logits_and_weights_equal_satlibs(self, one_file, kind):
        ours, satlibs = decoders(one_file, kind)
        a, captions = batch()
        logits, alphas, places = ours.eval()(a, captions)
        output = satlibs.eval()(a, captions)
        same(logits, output.logits)
        same(alphas, output.alphas)
        assert (places == -1).all()
        assert alphas.std() > 0.05


@pytest.mark.usefixtures("_float64")
class TestLoss:
    def test_equation_14(self, one_file):
        ours, satlibs = decoders(one_file, "soft")
        a, captions = batch()
        one_file.doubly_stochastic = 0.7
        logits, alphas, _ = ours(a, captions)
        loss = one_file.soft_loss(logits, alphas, captions)
        output = satlibs(a, captions)
        penalty = losses.doubly_stochastic_penalty(output.alphas)
        expected = (losses.negative_log_likelihood(output.logits, captions) + 0.7 * penalty).mean()
        same(loss, expected)
        loss.backward()
        expected.backward()
        same_gradients(ours, satlibs)

    def test_the_bound_and_its_gradient(self, one_file):
        ours, satlibs = decoders(one_file, "hard")
        a, captions = batch()
        one_file.lambda_r, one_file.lambda_e = 0.6, 0.3
        bound = losses.VariationalBound(losses.HardConfig(lambda_r=0.6, lambda_e=0.3), N)
        b = 0.0
        for seed in range(3):  # the baseline moves from batch to batch
            torch.manual_seed(seed)
            logits, alphas, places = ours(a, captions)
            before, (loss, b) = b, one_file.hard_loss(logits, alphas, places, captions, b)
            torch.manual_seed(seed)
            estimate = bound(
                satlibs(a, captions, losses.coins(bound.config, B, a.device)), captions
            )
            assert (places >= 0).any()
            same(loss, estimate.loss)
            assert b != before
            # One average of whole captions, where satlib's is per word: all have one length here.
            assert b == pytest.approx(captions.shape[1] * bound.average.item(), rel=1e-10)
            ours.zero_grad()
            satlibs.zero_grad()
            loss.backward()
            estimate.loss.backward()
            same_gradients(ours, satlibs)


@pytest.mark.usefixtures("_float64")
class TestCaptions:
    @pytest.mark.parametrize("longest", [3, 12])
    @pytest.mark.parametrize("beam", [1, 2, 4])
    def test_beam_search_finds_what_satlibs_finds(self, one_file, beam, longest):
        ours, satlibs = (each.eval() for each in decoders(one_file, "soft", spread=0.9))
        one_file.longest = longest
        for decoder in (ours, satlibs):
            decoder.output.bias.data[one_file.END] += 4  # else few of such captions end early
        a = torch.randn(100, L, D)
        lengths = set()
        for vectors, hypotheses in zip(
            a, search.beam_search(satlibs, a, beam, longest), strict=True
        ):
            words, maps = one_file.beam_search(ours, vectors, beam)
            assert words == hypotheses[0].words
            same(maps, hypotheses[0].alphas)
            lengths.add(len(words))
        assert len(lengths) > 1


class TestTheWholeFile:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["soft", "hard"])
    def test_training_lowers_the_loss_and_draws_the_picture(self, run, kind, tmp_path, capsys):
        run(
            attention=kind,
            scenes=100,
            steps=120,
            batch_size=4,
            hidden=64,
            beam=2,
            picture="maps.png",
        )
        output = capsys.readouterr().out
        first, last = (float(nats) for nats in re.findall(r"([\d.]+) nats per word", output))
        assert last < first < 3  # means over the first and over the last 100 batches
        assert "beam 2: BLEU-4" in output
        assert Image.open(tmp_path / "maps.png").height == 560  # four rows


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the file in an empty folder with settings as on the command line."""
    monkeypatch.chdir(tmp_path)

    def with_settings(**settings):
        monkeypatch.setattr(
            sys, "argv", [str(PATH), *(f"--{name}={value}" for name, value in settings.items())]
        )
        runpy.run_path(str(PATH), run_name="__main__")

    return with_settings
