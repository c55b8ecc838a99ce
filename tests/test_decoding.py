"""Sampling and beam search against exhaustive enumeration on a tiny vocabulary."""

import itertools
import math
from collections import Counter

import pytest
import tiny
import torch

from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.model.decoder import Decoder
from satlib.model.search import beam_search, content_words, rollout
from satlib.recipe import DecoderConfig

L, D, K = 3, 4, 5
WORDS = [i for i in range(K) if i not in (END, UNKNOWN)]
ONCE = torch.tensor([word in (3, 4) for word in range(K)])  # word 2 may be repeated


def stutters(words):
    return any(words.count(word) > 1 for word in (3, 4))


def decoder(seed, sharpness=4.0):
    torch.manual_seed(seed)
    model = (
        Decoder(DecoderConfig(embedding=6, hidden=6, attention_hidden=5, dropout=0.0), D, K)
        .double()
        .eval()
    )
    with torch.no_grad():
        model.output.weight.mul_(sharpness)
    return model, 2 * torch.randn(4, L, D).double()


def sample(model, a, max_length, temperature=1.0, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        return rollout(model, model.project(a), model.initial_state(a), max_length, temperature)


def log_p(model, a, words):
    """log p(y|a) of a whole caption by teacher forcing: an independent path through the model."""
    captions = torch.tensor([[*words, END]])
    return model(a, captions).logits.log_softmax(2).gather(2, captions.unsqueeze(2)).sum().item()


def every_caption(model, a, max_length):
    """All captions of up to max_length words with their log-probability, best first. The empty one counts."""
    captions = [
        words
        for length in range(max_length + 1)
        for words in itertools.product(WORDS, repeat=length)
    ]
    return sorted(((log_p(model, a, words), list(words)) for words in captions), reverse=True)


@pytest.mark.parametrize("once", [None, ONCE])
@pytest.mark.parametrize(("seed", "max_length"), [(0, 1), (1, 2), (0, 3), (2, 3)])
def test_a_full_beam_is_exhaustive_search(seed, max_length, once):
    model, a = decoder(seed)
    beam = K**max_length  # no candidate is ever dropped
    found = beam_search(model, a, beam, max_length, once=once)
    for image in range(len(a)):
        captions = every_caption(model, a[image : image + 1], max_length)
        expected = [caption for caption in captions if once is None or not stutters(caption[1])]
        assert [h.words for h in found[image]] == [words for _, words in expected]
        torch.testing.assert_close(
            [h.log_probability for h in found[image]], [p for p, _ in expected]
        )


@pytest.mark.parametrize("beam", [1, 4])
def test_log_probability_and_maps_are_those_of_the_words(beam):
    """Parents are kept right: feeding the words back gives the same probability, maps and gates."""
    model, a = decoder(5, sharpness=2.0)
    for image, hypotheses in enumerate(beam_search(model, a, beam, 6)):
        for h in hypotheses:
            assert END not in h.words
            assert UNKNOWN not in h.words
            assert len(h.words) <= 6
            assert {type(word) for word in h.words} <= {int}
            output = model(a[image : image + 1], torch.tensor([[*h.words, END]]))
            assert math.isclose(
                h.log_probability, log_p(model, a[image : image + 1], h.words), abs_tol=1e-6
            )
            torch.testing.assert_close(h.alphas, output.alphas[0])
            torch.testing.assert_close(h.betas, output.betas[0])


def test_beam_one_is_greedy():
    for seed in range(10):
        model, a = decoder(seed)
        rows = sample(model, a, 5, temperature=0).words.tolist()
        assert [h[0].words for h in beam_search(model, a, 1, 5)] == [
            row[: [*row, END].index(END)] for row in rows
        ]


def test_sampling_follows_the_distribution():
    """Frequencies of 20,000 samples against enumerated probabilities, four standard errors."""
    model, a = decoder(1, sharpness=1.0)
    n = 20_000
    drawn = sample(model, a[:1].expand(n, -1, -1), max_length=2, seed=1)
    counts = Counter(tuple(row[: row.index(END)]) for row in drawn.words.tolist())
    # UNKNOWN is left out at each step, and at the last step only the end may follow: renormalise step by step.
    annotations = model.project(a[:1])

    def enumerate_from(state, previous, t, p, words):
        if t == 2:
            yield words, p
            return
        E_y = model.embed(torch.tensor([previous]))
        step = model.step(annotations, state, model.gates_word(E_y))
        q = model.logits(E_y, step.state.h, step.z)[0].softmax(0)
        q[UNKNOWN] = 0
        q = (q / q.sum()).tolist()
        yield words, p * q[END]
        for word in WORDS:
            yield from enumerate_from(step.state, word, t + 1, p * q[word], (*words, word))

    with torch.no_grad():
        expected = list(enumerate_from(model.initial_state(a[:1]), -1, 0, 1.0, ()))
    assert math.isclose(sum(p for _, p in expected), 1.0, abs_tol=1e-9)
    for words, p in expected:
        assert abs(counts[words] / n - p) <= 4 * math.sqrt(p * (1 - p) / n) + 1e-12


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_a_rollout_by_hand(temperature):
    """log_p at temperature 1, log_policy at that of the draw and among the words that may follow; the maps; 0 after the end."""
    model, a = decoder(22, sharpness=2.0)
    a = a.repeat_interleave(5, 0)
    torch.manual_seed(2)
    made = rollout(model, model.project(a), model.initial_state(a), 4, temperature)
    assert made.places is None
    lengths = [row.index(END) + 1 if END in row else len(row) for row in made.words.tolist()]
    assert made.lengths.tolist() == lengths
    assert made.words.shape[1] == max(lengths) <= 5  # four words and the end
    assert min(lengths) < max(lengths)
    for row, length in enumerate(lengths):
        output = model(a[row : row + 1], made.words[row : row + 1, :length])
        assert (made.words[row, length:] == END).all()
        assert (made.log_p[row, length:] == 0).all()
        assert (made.log_policy[row, length:] == 0).all()
        torch.testing.assert_close(made.alphas[row, :length], output.alphas[0])
        torch.testing.assert_close(made.betas[row, :length], output.betas[0])
        for t in range(length):
            word, log_p = made.words[row, t], output.logits[0, t].log_softmax(0)
            may_follow = [END] if t == 4 else [END, *WORDS]
            share = (log_p[may_follow] / (temperature or 1.0)).softmax(0)
            assert made.log_p[row, t].item() == pytest.approx(log_p[word].item())
            assert made.log_policy[row, t].item() == pytest.approx(
                share[may_follow.index(word)].log().item(), abs=1e-12
            )
            if temperature == 0:
                assert word == may_follow[int(log_p[may_follow].argmax())]


def plain_beam_search(model, a, beam, max_length, normalisation, once):
    """By its definition, for one image, hypothesis by hypothesis, to the longest length."""
    living, ended = [([], 0.0)], []
    for t in range(max_length + 1):
        candidates = []
        for words, total in living:
            output = model(a, torch.tensor([[*words, END]]))
            log_p = output.logits[0, -1].log_softmax(0).tolist()
            candidates += [
                (total + log_p[word], [*words, word])
                for word in ([END] if t == max_length else [END, *WORDS])
                if once is None or not stutters([*words, word])
            ]
        candidates.sort(reverse=True)
        ended += [
            (total / (t + 1) ** normalisation, words[:-1])
            for total, words in candidates[:beam]
            if words[-1] == END
        ]
        living = [(words, total) for total, words in candidates if words[-1] != END][:beam]
    return sorted(ended, reverse=True)[:beam]


@pytest.mark.parametrize("once", [None, ONCE])
@pytest.mark.parametrize(("beam", "normalisation"), [(1, 0.7), (2, 0.0), (2, 1.0), (3, 0.7)])
def test_a_narrow_beam_is_the_plain_one(beam, normalisation, once):
    for seed in (0, 7, 9):
        model, a = decoder(seed, sharpness=2.0)
        with torch.no_grad():
            model.output.bias[END] += 1  # short captions end beside long ones that overtake them
        for image, found in enumerate(beam_search(model, a, beam, 4, normalisation, once)):
            expected = plain_beam_search(model, a[image : image + 1], beam, 4, normalisation, once)
            assert [h.words for h in found] == [words for _, words in expected]
            scores = [h.log_probability / (len(h.words) + 1) ** normalisation for h in found]
            assert scores == pytest.approx([score for score, _ in expected])


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_stutters_stops_by_its_recipe(beam):
    pictures, repeated = (
        torch.arange(0, 250, 25, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 224, 224),
        {},
    )
    for wish in ("false", "true"):
        model = tiny.decided(changes=[f"decoding.no_repeat={wish}"])
        captions = [model.read(best).words for best, *_ in model.hypotheses(pictures, beam)]
        repeated[wish] = {word for words in captions for word in words if words.count(word) > 1}
    assert {"blue", "the"} <= repeated["false"]
    assert {"the"} <= repeated["true"] <= {"a", "the", "on"}


def test_words_that_may_be_repeated():
    vocabulary = Vocabulary(["the", "dog", "with", "球", "red", "ein"])
    once = content_words(vocabulary).tolist()
    assert [vocabulary.words[i] for i in range(2, 8) if once[i]] == ["dog", "red", "ein"]
    assert not once[END]
    assert not content_words(Vocabulary(["ein", "hund", "in"])).any()
