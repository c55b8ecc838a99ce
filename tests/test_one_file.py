"""examples/one_file.py against satlib: with the same weights, the same numbers and captions."""

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
B, L, D, K, C = 5, 6, 7, 11, 4
M, N, WIDTH = 8, 9, 10  # of an embedding, the state, and attention's hidden layer


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
        embedding=M,
        hidden=N,
        attention=kind,
        attention_hidden=WIDTH,
        dropout=0.0,
    )
    satlibs = Decoder(config, D, K)
    # All names are the same but those of attention, which satlib can exchange.
    weights = {}
    for name, value in ours.state_dict().items():
        weights[name.replace("attention.", "attention.energy.", 1)] = value
    satlibs.load_state_dict(weights)
    return ours, satlibs


def batch():
    """Annotation vectors, and captions without the two special words."""
    a = torch.randn(B, L, D)
    captions = torch.randint(2, K, (B, C))
    return a, captions


def same(x, y):
    torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


def same_gradients(ours, satlibs):
    for (name, x), y in zip(ours.named_parameters(), satlibs.parameters(), strict=True):
        # Two parameters that nothing uses would agree, too.
        assert x.grad.abs().sum() > 0, name
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.usefixtures("_float64")
class TestEncoder:
    def test_annotation_vectors_equal_those_of_small(self, one_file):
        ours = one_file.Encoder()
        small = encoders.create("small", pretrained=False)
        # The file brings pixels to between -1 and 1.
        small.mean.fill_(127.5)
        small.std.fill_(127.5)
        # Positive numbers serve as BatchNorm's variances, too.
        for tensor in small.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.1, 0.4)
        # The same layers in the same order, under other names.
        weights = zip(ours.state_dict(), small.state_dict().values(), strict=True)
        ours.load_state_dict(dict(weights))

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

        # In evaluation hard attention takes the expectation: it draws no place.
        assert (places == -1).all()
        # The maps are not even.
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
        nll = losses.negative_log_likelihood(output.logits, captions)
        penalty = losses.doubly_stochastic_penalty(output.alphas)
        expected = (nll + 0.7 * penalty).mean()
        same(loss, expected)

        loss.backward()
        expected.backward()
        same_gradients(ours, satlibs)

    def test_the_bound_and_its_gradient(self, one_file):
        ours, satlibs = decoders(one_file, "hard")
        a, captions = batch()
        one_file.lambda_r = 0.6
        one_file.lambda_e = 0.3
        config = losses.HardConfig(lambda_r=0.6, lambda_e=0.3)
        bound = losses.VariationalBound(config, N, C)

        # The baseline moves from batch to batch.
        b = 0.0
        for seed in range(3):
            # From the same random state both draw the same places.
            torch.manual_seed(seed)
            logits, alphas, places = ours(a, captions)
            before = b
            loss, b = one_file.hard_loss(logits, alphas, places, captions, b)
            torch.manual_seed(seed)
            expected = losses.coins(config, B, a.device)
            output = satlibs(a, captions, expected)
            estimate = bound(output, captions)

            assert (places >= 0).any()
            same(loss, estimate.loss)
            assert b != before
            # One average, where satlib's is in proportion to the length: here they have one.
            assert b == pytest.approx(bound.average.item(), rel=1e-10)

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
        ours, satlibs = decoders(one_file, "soft", spread=0.9)
        one_file.longest = longest
        for decoder in (ours, satlibs):
            decoder.eval()
            # Otherwise few captions of such a decoder end early.
            decoder.output.bias.data[one_file.END] += 4

        a = torch.randn(100, L, D)
        found = search.beam_search(satlibs, a, beam, longest)
        lengths = set()
        for vectors, (best, *_) in zip(a, found, strict=True):
            words, maps = one_file.beam_search(ours, vectors, beam)
            assert words == best.words
            same(maps, best.alphas)
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
        # Means over the first and over the last 100 batches.
        first, last = map(float, re.findall(r"([\d.]+) nats per word", output))
        assert last < first < 3
        assert "beam 2: BLEU-4" in output

        # Four rows of pictures.
        picture = Image.open(tmp_path / "maps.png")
        assert picture.height == 560


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run the file in an empty folder with settings as on the command line."""
    monkeypatch.chdir(tmp_path)

    def with_settings(**settings):
        options = [f"--{name}={value}" for name, value in settings.items()]
        monkeypatch.setattr(sys, "argv", [str(PATH), *options])
        runpy.run_path(str(PATH), run_name="__main__")

    return with_settings
