"""The Transformer against torch's own, its steps against teacher forcing, and a run of it."""

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
CONFIG = {
    "kind": "transformer",
    "hidden": 8,
    "layers": 2,
    "heads": 2,
    "dropout": 0.0,
}


def decoder(seed=0, dim=D, **changes):
    """Decided: the maps are not even, and the words not equally likely."""
    torch.manual_seed(seed)
    config = DecoderConfig(**CONFIG | changes)
    model = TransformerDecoder(config, dim, K).double().eval()
    with torch.no_grad():
        for parameter in model.layers.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
        model.embedding.weight.mul_(2.0)
    return model


def images(dim=D, count=B):
    return torch.randn(count, L, dim, dtype=torch.float64)


def torchs_weights(layer):
    """The weights of one of our layers, under the names of torch's."""
    weights = {
        "self_attn.in_proj_weight": layer.words.weight,
        "self_attn.in_proj_bias": layer.words.bias,
    }
    # torch has one matrix for queries, keys and values; here queries are of words, keys and values
    # of places.
    for kind in ("weight", "bias"):
        own = [getattr(layer.query, kind), getattr(layer.places, kind)]
        weights[f"multihead_attn.in_proj_{kind}"] = torch.cat(own)

    parts = {
        "self_attn.out_proj": layer.words_out,
        "multihead_attn.out_proj": layer.places_out,
        "linear1": layer.feed_forward[0],
        "linear2": layer.feed_forward[2],
    }
    for i, norm in enumerate(layer.norms, 1):
        parts[f"norm{i}"] = norm
    for name, part in parts.items():
        for kind, value in part.state_dict().items():
            weights[f"{name}.{kind}"] = value
    return weights


def torchs(model):
    """torch.nn.TransformerDecoder with the same weights; and each layer's maps, as they come."""
    d = model.config.hidden
    heads = model.config.heads
    layer = nn.TransformerDecoderLayer(d, heads, 4 * d, 0.0, batch_first=True, norm_first=True)
    twin = nn.TransformerDecoder(layer, model.config.layers, nn.LayerNorm(d)).double()
    twin.norm.load_state_dict(model.norm.state_dict())
    maps = []
    for mine, theirs in zip(model.layers, twin.layers, strict=True):
        theirs.load_state_dict(torchs_weights(mine))

        # torch's layer asks for no maps.
        def watched(*inputs, attention=theirs.multihead_attn.forward, **options):
            options |= {"need_weights": True, "average_attn_weights": False}
            read, alpha = attention(*inputs, **options)
            maps.append(alpha)
            return read, None

        theirs.multihead_attn.forward = watched
    return twin, maps


def sinusoids(count, size):
    """The positions of `count` words (count, size), as in Vaswani et al. (2017)."""
    rows = []
    for t in range(count):
        row = []
        for i in range(0, size, 2):
            angle = t / 10_000 ** (i / size)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"layers": 1, "heads": 4},
        {"layers": 3, "heads": 1},
    ],
)
def test_it_is_that_of_torch(changes):
    model = decoder(**changes)
    a = images()
    captions = torch.randint(0, K, (B, C))
    twin, maps = torchs(model)
    output = model(a, captions)

    # Before the first word the embedding is zero; others are scaled by the root of the state size.
    embedding = model.embedding.weight
    before = torch.zeros(B, 1, 8).double()
    embedded = math.sqrt(8) * embedding[captions[:, :-1]]
    previous = torch.cat([before, embedded], 1)  # (B, C, 8)
    future = torch.ones(C, C, dtype=torch.bool).triu(1)
    h = twin(previous + sinusoids(C, 8), a, tgt_mask=future)
    # The words' embeddings are the output's weights, too.
    torch.testing.assert_close(output.logits, h @ embedding.T, **EXACT)

    # (B, layers, heads, C, L) -> (B, C, layers, heads, L)
    all_maps = torch.stack(maps, 1).permute(0, 3, 1, 2, 4)
    words = nn.functional.pad(captions[:, :-1], (1, 0), value=-1)
    annotations = model.project(a)
    state = model.initial_state(a)
    _, found, _ = model.read(annotations, state, words)
    torch.testing.assert_close(found, all_maps, **EXACT)

    # A word's map is the mean of its layers' and heads'.
    torch.testing.assert_close(output.alphas, all_maps.mean((2, 3)), **EXACT)
    ones = torch.ones(B, C).double()
    torch.testing.assert_close(output.alphas.sum(2), ones, **EXACT)
    # It draws no places and has no gate.
    assert output.places is None
    assert (output.betas == 1).all()
    assert output.betas.shape == (B, C)


def test_step_by_step_with_a_cache_is_teacher_forcing():
    """One word at a time: with the cache, and without one, reading all words before it again."""
    model = decoder()
    a = images()
    captions = torch.randint(0, K, (B, C))
    output = model(a, captions)

    annotations = model.project(a)
    state = model.initial_state(a)
    begin = torch.full((B, 1), -1)
    previous = begin[:, 0]
    for t in range(C):
        logits, state, alpha, beta, place = model.predict(annotations, state, previous)
        # (B, layers, keys and values of two heads, words so far, dimensions of a head)
        assert state.past.shape == (B, 2, 4, t + 1, 4)
        assert (beta == 1).all()
        assert place is None

        words = torch.cat([begin, captions[:, :t]], 1)
        h, maps, _ = model.read(annotations, model.initial_state(a), words)
        last_logits = model.logits(h[:, -1])
        last_map = maps[:, -1].mean((1, 2))
        torch.testing.assert_close(logits, last_logits, **EXACT)
        torch.testing.assert_close(alpha, last_map, **EXACT)

        torch.testing.assert_close(logits, output.logits[:, t], **EXACT)
        torch.testing.assert_close(alpha, output.alphas[:, t], **EXACT)
        previous = captions[:, t]


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_and_maps_are_those_of_the_words(beam):
    """Caches follow their hypotheses: fed back, the words have the same probability and maps."""
    model = decoder()
    a = 2 * images(count=6)
    found = search.beam_search(model, a, beam, 6)

    captions = set()
    for image, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            captions.add(tuple(hypothesis.words))
            words = torch.tensor([[*hypothesis.words, END]])
            output = model(a[image : image + 1], words)
            log_p = output.logits.log_softmax(2)
            of_words = log_p.gather(2, words.unsqueeze(2)).sum()
            assert hypothesis.log_probability == pytest.approx(of_words.item(), abs=1e-10)
            torch.testing.assert_close(hypothesis.alphas, output.alphas[0])
            assert hypothesis.betas.tolist() == [1.0] * len(words[0])
    # One caption for all images could not mix up their caches.
    assert len(captions) > 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    captioner = tiny.train(folder, *TINY, "training.epochs=12", "decoder.heads=2")
    return captioner, folder


class TestRuns:
    """Training, and what comes after it."""

    def test_it_learns_and_its_file_captions(self, run):
        trained, folder = run
        log = tiny.log(folder)
        assert log[-1]["dev_nll"] < 0.5 * log[0]["dev_nll"]

        loaded = Captioner.load(folder)
        assert isinstance(loaded.decoder, TransformerDecoder)
        a = tiny.Reader().read(["test-0", "test-1"])
        captions = [loaded.read(found[0]) for found in loaded.hypotheses(a)]
        expected = [trained.read(found[0]) for found in trained.hypotheses(a)]
        for ours, theirs in zip(captions, expected, strict=True):
            assert ours.words == theirs.words

        # The first image is of something red, the second of something blue.
        red, blue = captions
        assert "red" in red.words
        assert "blue" in blue.words
        # A map of two by two places for each word and for the end.
        assert red.alphas.shape == (len(red.words) + 1, 2, 2)
