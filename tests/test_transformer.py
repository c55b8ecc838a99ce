"""The Transformer against torch's own, its steps against teacher forcing, and everything that a decoder is used for."""

import math

import pytest
import tiny
import torch
from torch import nn

from satlib.data.text import END
from satlib.model import search
from satlib.model.captioner import Captioner
from satlib.model.transformer import TransformerDecoder
from satlib.recipe import DecoderConfig

B, L, D, K, C = 3, 5, 8, 7, 4
EXACT = {"atol": 1e-10, "rtol": 0.0}
TINY = ("decoder.kind=transformer", "decoder.dropout=0.1")


def decoder(seed=0, dim=D, **changes):
    """Decided: the maps are not even, and the words not equally likely."""
    torch.manual_seed(seed)
    config = DecoderConfig(
        **{"kind": "transformer", "hidden": 8, "layers": 2, "heads": 2, "dropout": 0.0, **changes}
    )
    model = TransformerDecoder(config, dim, K).double().eval()
    with torch.no_grad():
        for parameter in model.layers.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
        model.embedding.weight.mul_(2.0)
    return model


def images(dim=D, count=B):
    return torch.randn(count, L, dim, dtype=torch.float64)


def torchs(model):
    """torch.nn.TransformerDecoder with the same weights; and the maps of each of its layers, as they come."""
    d, heads = model.config.hidden, model.config.heads
    layer = nn.TransformerDecoderLayer(d, heads, 4 * d, 0.0, batch_first=True, norm_first=True)
    twin, maps = nn.TransformerDecoder(layer, model.config.layers, nn.LayerNorm(d)).double(), []
    for mine, theirs in zip(model.layers, twin.layers, strict=True):
        places = (
            torch.cat([getattr(mine.query, name), getattr(mine.places, name)])
            for name in ("weight", "bias")
        )
        weights = dict(
            zip(
                ("multihead_attn.in_proj_weight", "multihead_attn.in_proj_bias"),
                places,
                strict=True,
            )
        )
        weights |= {
            "self_attn.in_proj_weight": mine.words.weight,
            "self_attn.in_proj_bias": mine.words.bias,
        }
        parts = {"self_attn.out_proj": mine.words_out, "multihead_attn.out_proj": mine.places_out}
        parts |= {"linear1": mine.feed_forward[0], "linear2": mine.feed_forward[2]}
        parts |= {f"norm{i}": norm for i, norm in enumerate(mine.norms, 1)}
        for name, part in parts.items():
            weights |= {f"{name}.{kind}": value for kind, value in part.state_dict().items()}
        theirs.load_state_dict(weights)

        def watched(*inputs, attention=theirs.multihead_attn.forward, **more):
            read, alpha = attention(
                *inputs, **more | {"need_weights": True, "average_attn_weights": False}
            )
            maps.append(alpha)
            return read, None

        theirs.multihead_attn.forward = watched
    twin.norm.load_state_dict(model.norm.state_dict())
    return twin, maps


@pytest.mark.parametrize("changes", [{}, {"layers": 1, "heads": 4}, {"layers": 3, "heads": 1}])
def test_it_is_that_of_torch(changes):
    model, a, captions = decoder(**changes), images(), torch.randint(0, K, (B, C))
    twin, maps = torchs(model)
    previous = torch.cat(
        [torch.zeros(B, 1, 8).double(), math.sqrt(8) * model.embedding.weight[captions[:, :-1]]], 1
    )
    angles = [[t / 10_000 ** (i / 8) for i in (0, 2, 4, 6)] for t in range(C)]
    sinusoids = torch.tensor(
        [[f(x) for x in row for f in (math.sin, math.cos)] for row in angles], dtype=torch.float64
    )
    future = torch.ones(C, C, dtype=torch.bool).triu(1)
    h = twin(previous + sinusoids, a, tgt_mask=future)
    output = model(a, captions)
    torch.testing.assert_close(output.logits, h @ model.embedding.weight.T, **EXACT)
    all_maps = torch.stack(maps, 1).permute(
        0, 3, 1, 2, 4
    )  # (B, layers, heads, C, L) -> (B, C, layers, heads, L)
    read = model.read(
        model.project(a),
        model.initial_state(a),
        nn.functional.pad(captions[:, :-1], (1, 0), value=-1),
    )
    torch.testing.assert_close(read[1], all_maps, **EXACT)
    torch.testing.assert_close(output.alphas, all_maps.mean((2, 3)), **EXACT)
    torch.testing.assert_close(output.alphas.sum(2), torch.ones(B, C).double(), **EXACT)
    assert output.places is None
    assert (output.betas == 1).all()
    assert output.betas.shape == (B, C)


def test_step_by_step_with_a_cache_is_teacher_forcing():
    """One word at a time, with the cache; the same with none, in which all words before are read again."""
    model, a, captions = decoder(), images(), torch.randint(0, K, (B, C))
    output, annotations, state = model(a, captions), model.project(a), model.initial_state(a)
    previous = torch.full((B,), -1)
    for t in range(C):
        logits, state, alpha, beta, place = model.predict(annotations, state, previous)
        assert state.past.shape == (B, 2, 4, t + 1, 4)
        h, maps, _ = model.read(
            annotations,
            model.initial_state(a),
            torch.cat([torch.full((B, 1), -1), captions[:, :t]], 1),
        )
        torch.testing.assert_close(logits, model.logits(h[:, -1]), **EXACT)
        torch.testing.assert_close(alpha, maps[:, -1].mean((1, 2)), **EXACT)
        torch.testing.assert_close(logits, output.logits[:, t], **EXACT)
        torch.testing.assert_close(alpha, output.alphas[:, t], **EXACT)
        assert (beta == 1).all()
        assert place is None
        previous = captions[:, t]


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_and_maps_are_those_of_the_words(beam):
    """Caches follow their hypotheses: fed back, the words have the same probability and maps."""
    model, a = decoder(), 2 * images(count=6)
    found = search.beam_search(model, a, beam, 6)
    assert len({tuple(each.words) for hypotheses in found for each in hypotheses}) > 2
    for image, hypotheses in enumerate(found):
        for each in hypotheses:
            words = torch.tensor([[*each.words, END]])
            output = model(a[image : image + 1], words)
            log_p = output.logits.log_softmax(2).gather(2, words.unsqueeze(2)).sum()
            assert each.log_probability == pytest.approx(log_p.item(), abs=1e-10)
            torch.testing.assert_close(each.alphas, output.alphas[0])
            assert each.betas.tolist() == [1.0] * len(words[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    return tiny.train(folder, *TINY, "training.epochs=12", "decoder.heads=2"), folder


class TestRuns:
    """Training, and what comes after it."""

    def test_it_learns_and_its_file_captions(self, run):
        trained, folder = run
        log = tiny.log(folder)
        assert log[-1]["dev_nll"] < 0.5 * log[0]["dev_nll"]
        a = tiny.Reader().read(["test-0", "test-1"])
        loaded = Captioner.load(folder)
        assert isinstance(loaded.decoder, TransformerDecoder)
        captions = [loaded.read(found[0]) for found in loaded.hypotheses(a)]
        assert [each.words for each in captions] == [
            trained.read(found[0]).words for found in trained.hypotheses(a)
        ]
        assert "red" in captions[0].words
        assert "blue" in captions[1].words
        assert captions[0].alphas.shape == (len(captions[0].words) + 1, 2, 2)
