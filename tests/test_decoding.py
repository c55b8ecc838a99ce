"""Sampling and beam search against exhaustive enumeration on a tiny vocabulary."""

import itertools
import math
from collections import Counter

import pytest
import tiny
import torch
from torch.testing import assert_close

from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.model.decoder import Decoder
from satlib.model.search import beam_search, content_words, rollout
from satlib.recipe import DecoderConfig

L, D, K = 3, 4, 5
WORDS = [2, 3, 4]  # beside the end mark and the unknown word
ONCE = torch.tensor([word in (3, 4) for word in range(K)])  # word 2 may be repeated


def stutters(words):
    return any(words.count(word) > 1 for word in (3, 4))


def decoder(seed, sharpness=4.0):
    """A decoder with random weights, and the annotation vectors of four images."""
    torch.manual_seed(seed)
    config = DecoderConfig(embedding=6, hidden=6, attention_hidden=5, dropout=0.0)
    model = Decoder(config, D, K).double().eval()
    # As initialised, all words are about equally likely, and every search finds much the same.
    with torch.no_grad():
        model.output.weight.mul_(sharpness)
    return model, 2 * torch.randn(4, L, D).double()


def sample(model, a, max_length, temperature=1.0, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        return rollout(model, model.project(a), model.initial_state(a), max_length, temperature)


def log_p(model, a, words):
    """log p(y|a) of a whole caption by teacher forcing: an independent path through the model."""
    captions = torch.tensor([[*words, END]])  # (1, C)
    log_p = model(a, captions).logits.log_softmax(2)
    return log_p.gather(2, captions.unsqueeze(2)).sum().item()


def every_caption(model, a, max_length):
    """All captions of up to max_length words, the empty one too, with log p, best first."""
    captions = []
    for length in range(max_length + 1):
        for words in itertools.product(WORDS, repeat=length):
            captions.append((log_p(model, a, words), list(words)))
    return sorted(captions, reverse=True)


@pytest.mark.parametrize("once", [None, ONCE])
@pytest.mark.parametrize(
    ("seed", "max_length"),
    [
        (0, 1),
        (1, 2),
        (0, 3),
        (2, 3),
    ],
)
def test_a_full_beam_is_exhaustive_search(seed, max_length, once):
    model, a = decoder(seed)
    # So wide that no candidate is ever dropped.
    beam = K**max_length
    found = beam_search(model, a, beam, max_length, once=once)

    for image in range(len(a)):
        expected = every_caption(model, a[image : image + 1], max_length)
        if once is not None:
            expected = [(p, words) for p, words in expected if not stutters(words)]
        assert [h.words for h in found[image]] == [words for _, words in expected]
        log_ps = [h.log_probability for h in found[image]]
        assert_close(log_ps, [p for p, _ in expected])


@pytest.mark.parametrize("beam", [1, 4])
def test_log_probability_and_maps_are_those_of_the_words(beam):
    """Parents are kept right: the words, fed back, give the same probability, maps and gates."""
    model, a = decoder(5, sharpness=2.0)
    for image, hypotheses in enumerate(beam_search(model, a, beam, 6)):
        own = a[image : image + 1]
        for h in hypotheses:
            # The end mark is no word, and the unknown word is never said.
            assert END not in h.words
            assert UNKNOWN not in h.words
            assert len(h.words) <= 6
            assert all(type(word) is int for word in h.words)

            output = model(own, torch.tensor([[*h.words, END]]))
            assert math.isclose(h.log_probability, log_p(model, own, h.words), abs_tol=1e-6)
            assert_close(h.alphas, output.alphas[0])
            assert_close(h.betas, output.betas[0])


def test_beam_one_is_greedy():
    for seed in range(10):
        model, a = decoder(seed)
        # Temperature 0 takes the likeliest word.
        rows = sample(model, a, 5, temperature=0).words.tolist()
        greedy = [row[: [*row, END].index(END)] for row in rows]
        assert [h[0].words for h in beam_search(model, a, 1, 5)] == greedy


def test_sampling_follows_the_distribution():
    """Frequencies of 20,000 samples against enumerated probabilities, four standard errors."""
    model, a = decoder(1, sharpness=1.0)
    n = 20_000
    same_image = a[:1].expand(n, -1, -1)
    drawn = sample(model, same_image, max_length=2, seed=1)
    counts = Counter()
    for row in drawn.words.tolist():
        counts[tuple(row[: row.index(END)])] += 1

    # UNKNOWN is left out at each step, and at the last step only the end may follow: so the
    # probabilities are normalised anew at each step.
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
        standard_error = math.sqrt(p * (1 - p) / n)
        assert abs(counts[words] / n - p) <= 4 * standard_error + 1e-12


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_a_rollout_by_hand(temperature):
    """log_p at temperature 1, log_policy at that of the draw and among the words that may follow;
    the maps; 0 after the end.
    """
    model, a = decoder(22, sharpness=2.0)
    a = a.repeat_interleave(5, 0)
    torch.manual_seed(2)
    made = rollout(model, model.project(a), model.initial_state(a), 4, temperature)
    # Soft attention draws no places.
    assert made.places is None

    lengths = []
    for row in made.words.tolist():
        lengths.append(row.index(END) + 1 if END in row else len(row))
    assert made.lengths.tolist() == lengths
    # Four words and the end; and the case is worth something only if lengths differ.
    assert made.words.shape[1] == max(lengths) <= 5
    assert min(lengths) < max(lengths)

    for row, length in enumerate(lengths):
        assert (made.words[row, length:] == END).all()
        assert (made.log_p[row, length:] == 0).all()
        assert (made.log_policy[row, length:] == 0).all()

        one = slice(row, row + 1)
        output = model(a[one], made.words[one, :length])
        assert_close(made.alphas[row, :length], output.alphas[0])
        assert_close(made.betas[row, :length], output.betas[0])

        for t in range(length):
            word = made.words[row, t]
            log_p = output.logits[0, t].log_softmax(0)
            expected = log_p[word].item()
            assert made.log_p[row, t].item() == pytest.approx(expected)

            may_follow = [END] if t == 4 else [END, *WORDS]
            # The draw at temperature 0 has no distribution; its policy is that at 1.
            policy = (log_p[may_follow] / (temperature or 1.0)).log_softmax(0)
            log_policy = policy[may_follow.index(word)].item()
            assert made.log_policy[row, t].item() == pytest.approx(log_policy, abs=1e-12)
            if temperature == 0:
                likeliest = int(log_p[may_follow].argmax())
                assert word == may_follow[likeliest]


def plain_beam_search(model, a, beam, max_length, normalisation, once):
    """By its definition, for one image, hypothesis by hypothesis, to the longest length."""
    living = [(0.0, [])]
    ended = []
    for t in range(max_length + 1):
        may_follow = [END] if t == max_length else [END, *WORDS]
        candidates = []
        for total, words in living:
            output = model(a, torch.tensor([[*words, END]]))
            log_p = output.logits[0, -1].log_softmax(0).tolist()
            for word in may_follow:
                longer = [*words, word]
                if once is None or not stutters(longer):
                    candidates.append((total + log_p[word], longer))
        candidates.sort(reverse=True)

        # Only among the best may a caption end; what lives on is filled up to the beam.
        for total, words in candidates[:beam]:
            if words[-1] == END:
                ended.append((total / (t + 1) ** normalisation, words[:-1]))
        going_on = [(total, words) for total, words in candidates if words[-1] != END]
        living = going_on[:beam]
    return sorted(ended, reverse=True)[:beam]


@pytest.mark.parametrize("once", [None, ONCE])
@pytest.mark.parametrize(
    ("beam", "normalisation"),
    [
        (1, 0.7),
        (2, 0.0),
        (2, 1.0),
        (3, 0.7),
    ],
)
def test_a_narrow_beam_is_the_plain_one(beam, normalisation, once):
    for seed in (0, 7, 9):
        model, a = decoder(seed, sharpness=2.0)
        with torch.no_grad():
            # Short captions end beside long ones that overtake them.
            model.output.bias[END] += 1

        for image, found in enumerate(beam_search(model, a, beam, 4, normalisation, once)):
            own = a[image : image + 1]
            expected = plain_beam_search(model, own, beam, 4, normalisation, once)
            assert [h.words for h in found] == [words for _, words in expected]
            scores = [h.log_probability / (len(h.words) + 1) ** normalisation for h in found]
            assert scores == pytest.approx([score for score, _ in expected])


def repeated_words(no_repeat, beam):
    """The words that a captioner says twice in a caption, over ten pictures of ten greys."""
    greys = torch.arange(0, 250, 25, dtype=torch.uint8)
    pictures = greys.view(-1, 1, 1, 1).expand(-1, 3, 224, 224)
    model = tiny.decided(changes=[f"decoding.no_repeat={no_repeat}"])
    repeated = set()
    for best, *_ in model.hypotheses(pictures, beam):
        words = model.read(best).words
        repeated |= {word for word in words if words.count(word) > 1}
    return repeated


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_that_stutters_stops_by_its_recipe(beam):
    assert {"blue", "the"} <= repeated_words("false", beam)
    # Words without content may still be repeated.
    assert {"the"} <= repeated_words("true", beam) <= {"a", "the", "on"}


def test_words_that_may_be_repeated():
    vocabulary = Vocabulary(["the", "dog", "with", "球", "red", "ein"])
    once = content_words(vocabulary).tolist()
    # The first two words of a vocabulary are the end mark and the unknown word.
    found = [vocabulary.words[i] for i in range(2, 8) if once[i]]
    assert found == ["dog", "red", "ein"]
    assert not once[END]
    # Which words are content is known for English alone.
    assert not content_words(Vocabulary(["ein", "hund", "in"])).any()
