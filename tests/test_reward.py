"""Training on rewards.

CIDEr-D against pycocoevalcap's, the gradient against the sum over every caption, and runs.
"""

import itertools
import math

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from pycocoevalcap.cider.cider_scorer import CiderScorer

from satlib.beyond import rewards
from satlib.beyond.rewards import advantages, log_policy, reward_loss
from satlib.data.datasets import Example
from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.evaluation import evaluate
from satlib.model import attention, search
from satlib.model.decoder import Decoder, select
from satlib.model.search import Rollout, rollout
from satlib.recipe import DecoderConfig, RewardConfig
from satlib.training.training_data import training_data

WORDS = ("dog", "cat", "runs", "sits", "a")
WEIGHTED = RewardConfig(cider=0.5, bleu1=2.0, bleu4=3.0)
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join)
references = st.lists(sentences, min_size=1, max_size=4)


def consensus(captions, config=WEIGHTED):
    """Of images 0, 1, ... with the given references, and the vocabulary."""
    examples = []
    for i, lines in enumerate(captions):
        examples.append(Example(str(i), "train", tuple(lines)))
    vocabulary = Vocabulary.from_captions(list(itertools.chain(*captions)))
    return rewards.Consensus(examples, vocabulary, config), vocabulary


class TestConsensus:
    @given(st.lists(references, min_size=2, max_size=5), st.data())
    @settings(max_examples=60)
    def test_cider_is_that_of_pycocoevalcap(self, captions, data):
        judge, vocabulary = consensus(captions)

        def marked(line):
            return [*vocabulary.encode(line), END]

        def text(line):
            return " ".join(map(str, marked(line)))

        # A lone end mark has no two words, where pycocoevalcap counts lengths: none is empty.
        spoken = [data.draw(references)[0] for _ in captions]
        scorer = CiderScorer()
        for line, lines in zip(spoken, captions, strict=True):
            references_of_image = [text(reference) for reference in lines]
            scorer += text(line), references_of_image
        _, expected = scorer.compute_score()

        found = []
        for i, line in enumerate(spoken):
            found.append(judge._cider.score(str(i), marked(line)))
        assert found == pytest.approx(list(expected), abs=1e-9)

    def test_the_weighted_sum(self):
        judge, vocabulary = consensus([["a dog runs"], ["a cat sits", "one cat"]])
        caption = [*vocabulary.encode("a cat runs"), END]
        first = [*vocabulary.encode("a cat sits"), END]
        second = [*vocabulary.encode("one cat"), END]

        cider = judge._cider.score("1", caption)
        assert cider > 0
        # Three of the four words are in the first reference: "a", "cat" and the end mark.
        bleu1 = 3 / 4
        # NLTK's second method adds 1 to the counts for n > 1.
        smoothing = SmoothingFunction().method2
        bleu4 = sentence_bleu([first, second], caption, smoothing_function=smoothing)
        expected = 0.5 * cider + 2 * bleu1 + 3 * bleu4
        assert judge("1", caption) == pytest.approx(expected)


def test_the_greedy_baseline_is_of_greedy_captions():
    """Whatever the temperature of the samples."""
    decoder = tiny.decided().decoder
    a = tiny.Reader().read(["dev-0", "dev-1", "dev-2"])
    drawn = []

    def zeros(rollout):
        drawn.append(rollout)
        return torch.zeros(len(rollout.words))

    config = RewardConfig(samples=2, temperature=5.0, baseline="greedy")
    reward_loss(decoder, a, zeros, config, max_length=12)

    # The samples are rewarded first, then the baseline.
    _, best = drawn
    words = []
    for row, length in zip(best.words.tolist(), best.lengths.tolist(), strict=True):
        words.append(row[: length - 1])
    greedy = search.beam_search(decoder, a, 1, 12)
    assert words == [hypothesis.words for (hypothesis,) in greedy]


def test_advantages_by_hand():
    """Two images, three captions each."""
    r = torch.tensor([[1.0, 0.0, 5.0], [2.0, 2.0, 2.0]])
    greedy = torch.tensor([3.0, 1.0])

    # The mean of the two others: of 0 and 5, of 1 and 5, of 1 and 0.
    left_out = advantages(r, "leave-one-out")
    assert left_out.tolist() == [[1 - 2.5, 0 - 3, 5 - 0.5], [0, 0, 0]]

    beyond_greedy = advantages(r, "greedy", greedy)
    assert beyond_greedy.tolist() == [[-2, -3, 2], [1, 1, 1]]

    # The mean of the first image is 2; of the second all are equal.
    spread = math.sqrt((1 + 4 + 9) / 2)
    by_hand = torch.tensor([[-1, -2, 3], [0, 0, 0]]) / spread
    torch.testing.assert_close(advantages(r, "group"), by_hand)


def test_what_each_baseline_biases():
    """The mean over all draws of N = 3 from a policy of three captions.

    It is compared with the gradient of the expected reward.
    """
    # The best caption is rare.
    r = torch.tensor([0.0, 1.0, 10.0]).double()
    logits = torch.tensor([1.0, 0.0, -2.0]).double().requires_grad_()
    N = 3
    p = logits.softmax(0)
    (exact,) = torch.autograd.grad(p @ r, logits, retain_graph=True)

    draws = torch.tensor(list(itertools.product(range(3), repeat=N)))  # (27, N)
    chance = p.detach()[draws].prod(1, keepdim=True)

    def mean(advantage):
        """The mean estimate, if advantages (27, N) are these."""
        estimate = chance * advantage * p.log()[draws] / N
        (gradient,) = torch.autograd.grad(estimate.sum(), logits, retain_graph=True)
        return gradient

    drawn = r[draws]
    torch.testing.assert_close(mean(advantages(drawn, "leave-one-out")), exact)
    best = r[p.argmax()].expand(3**N)
    torch.testing.assert_close(mean(advantages(drawn, "greedy", best)), exact)

    # The group's mean contains the caption itself: the gradient is shorter.
    group = advantages(drawn, "group")
    undivided = mean(group * drawn.std(1, keepdim=True))
    torch.testing.assert_close(undivided, exact * (N - 1) / N)
    # Its division changes the direction, too.
    assert torch.cosine_similarity(mean(group), exact, 0) < 0.9


def test_places_drawn_after_the_end_do_not_count():
    """They would only add noise, of mean zero: no test of the estimate's mean sees them."""
    words = torch.tensor([[3, END, END], [3, 4, END]])
    alphas = torch.tensor([0.2, 0.8]).expand(2, 3, 2)
    log_p = torch.tensor([[-1.0, -2.0, 0.0], [-3.0, -4.0, -5.0]])
    places = torch.tensor([[1, 0, 1], [0, 0, 1]])
    rolled = Rollout(words, log_p, log_p, alphas, log_p, places)

    # The first caption ends with its second word: its third place is not counted.
    first = -3 + math.log(0.8 * 0.2)
    second = -12 + math.log(0.2 * 0.2 * 0.8)
    assert log_policy(rolled).tolist() == pytest.approx([first, second])

    # An image that takes the expectation has drawn no place.
    places = torch.tensor([[-1, -1, -1], [0, 0, 1]])
    expected = rolled._replace(places=places)
    assert log_policy(expected).tolist() == pytest.approx([-3, second])


# So small that every caption and every path of places can be enumerated.
K, L, D, LONGEST = 4, 2, 3, 2
SPEAKABLE = [i for i in range(K) if i not in (END, UNKNOWN)]


def model(kind):
    torch.manual_seed(2)
    config = DecoderConfig(
        embedding=3,
        hidden=3,
        attention=kind,
        attention_hidden=2,
        dropout=0.0,
    )
    decoder = Decoder(config, D, K).double().eval()
    with torch.no_grad():
        decoder.output.weight.mul_(3)
    if kind == "hard":
        decoder.attention.look = "sample"
    a = torch.randn(1, L, D).double()
    return decoder, a


def worth(words):
    """An arbitrary reward of a caption's words."""
    weighted = sum((place + 2) * word for place, word in enumerate(words))
    return math.sin(1 + weighted) + len(words)


def probability(decoder, a, words, places, temperature):
    """The probability () of sampling these words, and these places if there are any."""
    annotations = decoder.project(a)
    state = decoder.initial_state(a)
    p = 1.0
    previous = -1
    for t, word in enumerate((*words, END)):
        if places is not None:
            decoder.attention.draw = lambda alpha, place=places[t]: torch.tensor([place])
        embedded = decoder.embed(torch.tensor([previous]))
        state, z, alpha, _, _ = decoder.step(annotations, state, decoder.gates_word(embedded))
        if places is not None:
            p = p * alpha[0, places[t]]

        # After the longest caption nothing is drawn: it ends.
        if t < LONGEST:
            logits = decoder.logits(embedded, state.h, z)[0]
            share = (logits / temperature).softmax(0)
            allowed = share.clone()
            allowed[UNKNOWN] = 0
            p = p * (share[word] / allowed.sum())
        previous = word
    return p


def exact_expectation(decoder, a, temperature):
    """The sum of p r over captions and, with hard attention that draws, over places.

    By enumeration, with autograd.
    """
    hard = isinstance(decoder.attention, attention.HardAttention)
    draws = hard and decoder.attention.look == "sample"
    total = 0.0
    mass = 0.0
    for length in range(LONGEST + 1):
        paths = [None]
        if draws:
            # A place for each word and for the end mark.
            paths = list(itertools.product(range(L), repeat=length + 1))
        for words in itertools.product(SPEAKABLE, repeat=length):
            for places in paths:
                p = probability(decoder, a, words, places, temperature)
                total = total + p * worth(words)
                mass = mass + p
    if draws:
        del decoder.attention.draw
    # Otherwise a caption is missing.
    assert float(torch.as_tensor(mass).detach()) == pytest.approx(1)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "temperature"),
    [
        ("soft", 1.0),
        ("soft", 0.5),
        ("hard", 1.0),
        ("hard", 0.5),
        ("expectation", 1.0),
    ],
)
def test_the_estimate_is_the_gradient_of_the_expected_reward(kind, temperature):
    """ "expectation": hard attention all of whose rows take the expectation instead of drawing."""
    expectation = kind == "expectation"
    decoder, a = model("hard" if expectation else kind)
    expected = torch.tensor([True]) if expectation else None
    weights = [parameter for parameter in decoder.parameters() if parameter.requires_grad]

    def gradient(value):
        gradients = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        return torch.cat([g.flatten() for g in gradients])

    if expectation:
        decoder.attention.look = "expected"
    exact = gradient(exact_expectation(decoder, a, temperature))
    if expectation:
        decoder.attention.look = "sample"

    # The one image, 3,000 times: a thousand groups of three samples.
    many = torch.zeros(3000, dtype=torch.long)
    samples = 3
    estimates = []
    for _ in range(60):
        annotations = select(decoder.project(a, expected), many)
        state = select(decoder.initial_state(a), many)
        sampled = rollout(decoder, annotations, state, LONGEST, temperature)

        values = []
        for words, length in zip(sampled.words.tolist(), sampled.lengths.tolist(), strict=True):
            values.append(worth(words[: length - 1]))
        by_group = torch.tensor(values).double().unflatten(0, (-1, samples))
        advantage = advantages(by_group, "leave-one-out").flatten()
        estimate = (advantage * log_policy(sampled)).mean()
        estimates.append(gradient(estimate))

    # Every weight's gradient within 4.5 standard errors, and the whole vector within a tenth.
    together = torch.stack(estimates)
    mean = together.mean(0)
    error = together.std(0) / math.sqrt(len(together))
    assert ((mean - exact).abs() <= 4.5 * error + 1e-12).all()
    assert (mean - exact).norm() < 0.1 * exact.norm()


REWARDED = ("objective.maximise=reward", "reward.bleu4=1.0")


def begin(folder, *changes):
    """A run that captions a little."""
    tiny.train(folder, "training.epochs=2", *changes)
    return folder


class TestTraining:
    def test_references_count_that_are_not_trained_on(self):
        """The second of the first image, "There is a red circle", has a BLEU of 1."""
        data = tiny.data()
        vocabulary = data.vocabulary(100, 1)
        chosen = tiny.the_recipe(*REWARDED, "reward.cider=0", "data.captions=1")
        reward = training_data(data, chosen, vocabulary, tiny.GRID, None).reward
        second = vocabulary.encode(data.examples[0].references[1])
        assert reward("train-0", [*second, END]) == pytest.approx(1)

    def test_the_epoch_is_chosen_by_the_reward_of_greedy_captions(self, tmp_path):
        start = begin(tmp_path / "start")
        captioner = tiny.train(tmp_path / "run", *REWARDED, "training.select=reward", start=start)

        log = tiny.log(tmp_path / "run")
        best = max(log, key=lambda record: record["dev_reward"])
        kept = [record for record in log if record["kept"]]
        assert kept[-1] == best

        # The model that was kept is that of this epoch.
        dev = tiny.data().split("dev")
        vocabulary = captioner.vocabulary
        judge = rewards.Consensus(dev, vocabulary, captioner.recipe.reward)
        reader = tiny.Reader()
        captions = evaluate.generate(captioner, reader, dev, beam=1, progress=False)
        values = []
        for image_id, caption in captions.items():
            ids = [*vocabulary.encode(caption.text), END]
            values.append(judge(image_id, ids))
        assert best["dev_reward"] == pytest.approx(sum(values) / len(dev))

    @pytest.mark.slow
    def test_images_of_hard_attention_take_the_expectation_as_often_as_told(
        self, tmp_path, monkeypatch
    ):
        """By a coin for each image, not for each caption."""
        hard = ("decoder.attention=hard", "hard.expectation=0.3")
        seen = []

        def watched(decoder, *arguments):
            sampled = rollout(decoder, *arguments)
            expected = sampled.places < 0
            seen.append(expected.unflatten(0, (-1, 5)))  # (B, 5, C)
            return sampled

        start = begin(tmp_path / "start", *hard)
        monkeypatch.setattr(rewards, "rollout", watched)
        tiny.train(tmp_path / "run", *REWARDED, *hard, "training.epochs=12", start=start)

        # The five captions of an image, and all their words, are alike.
        for expected in seen:
            assert torch.equal(expected, expected[:, :1, :1].expand_as(expected))
        share = torch.cat([expected[:, 0, 0] for expected in seen]).float()
        assert len(share) == 12 * 20
        assert share.mean().item() == pytest.approx(0.3, abs=0.1)
