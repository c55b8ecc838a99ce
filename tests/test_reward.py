"""Training on rewards: CIDEr-D against pycocoevalcap's, the gradient against the sum over every caption, runs."""

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

WORDS = ("dog", "cat", "runs", "sits", "a")
WEIGHTED = RewardConfig(cider=0.5, bleu1=2.0, bleu4=3.0)
references = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join), min_size=1, max_size=4
)


def consensus(captions, config=WEIGHTED):
    """Of images 0, 1, ... with the given references, and the vocabulary."""
    examples = [Example(str(i), "train", tuple(lines)) for i, lines in enumerate(captions)]
    vocabulary = Vocabulary.from_captions([line for lines in captions for line in lines])
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

        spoken = [data.draw(references)[0] for _ in captions]
        scorer = CiderScorer()
        for line, lines in zip(spoken, captions, strict=True):
            scorer += text(line), list(map(text, lines))
        found = [judge._cider.score(str(i), marked(line)) for i, line in enumerate(spoken)]
        # A lone end mark has no two words, where pycocoevalcap counts lengths: no caption here is empty.
        assert found == pytest.approx(list(scorer.compute_score()[1]), abs=1e-9)

    def test_the_weighted_sum(self):
        judge, vocabulary = consensus([["a dog runs"], ["a cat sits", "one cat"]])
        ids, *lines = (
            [*vocabulary.encode(line), END] for line in ("a cat runs", "a cat sits", "one cat")
        )
        bleu4 = sentence_bleu(lines, ids, smoothing_function=SmoothingFunction().method2)
        assert judge("1", ids) == pytest.approx(
            0.5 * judge._cider.score("1", ids) + 2 * 3 / 4 + 3 * bleu4
        )
        assert judge._cider.score("1", ids) > 0


def test_the_greedy_baseline_is_of_greedy_captions():
    """Whatever the temperature of the samples."""
    decoder, a, drawn = tiny.decided().decoder, tiny.Reader().read(["dev-0", "dev-1", "dev-2"]), []

    def zeros(rollout):
        drawn.append(rollout)
        return torch.zeros(len(rollout.words))

    reward_loss(
        decoder,
        a,
        zeros,
        RewardConfig(samples=2, temperature=5.0, baseline="greedy"),
        max_length=12,
    )
    _, best = drawn
    words = [
        row[: length - 1].tolist()
        for row, length in zip(best.words, best.lengths.tolist(), strict=True)
    ]
    assert words == [hypothesis.words for (hypothesis,) in search.beam_search(decoder, a, 1, 12)]


def test_advantages_by_hand():
    """Two images, three captions each."""
    r, greedy = torch.tensor([[1.0, 0.0, 5.0], [2.0, 2.0, 2.0]]), torch.tensor([3.0, 1.0])
    assert advantages(r, "leave-one-out").tolist() == [[1 - 2.5, 0 - 3, 5 - 0.5], [0, 0, 0]]
    assert advantages(r, "greedy", greedy).tolist() == [[-2, -3, 2], [1, 1, 1]]
    spread = math.sqrt((1 + 4 + 9) / 2)
    torch.testing.assert_close(
        advantages(r, "group"), torch.tensor([[-1 / spread, -2 / spread, 3 / spread], [0, 0, 0]])
    )


def test_what_each_baseline_biases():
    """The mean over all draws of N = 3 from a policy of three captions, against the gradient of the expected reward."""
    r, N = torch.tensor([0.0, 1.0, 10.0]).double(), 3  # the best is rare
    logits = torch.tensor([1.0, 0.0, -2.0]).double().requires_grad_()
    p = logits.softmax(0)
    (exact,) = torch.autograd.grad(p @ r, logits, retain_graph=True)

    def mean(advantage):
        draws = torch.tensor(list(itertools.product(range(3), repeat=N)))
        better, chance = advantage(r[draws]), p.detach()[draws].prod(1, keepdim=True)
        return torch.autograd.grad(
            (chance * better * p.log()[draws] / N).sum(), logits, retain_graph=True
        )[0]

    torch.testing.assert_close(mean(lambda r: advantages(r, "leave-one-out")), exact)
    best = r[p.argmax()].expand(3**N)
    torch.testing.assert_close(mean(lambda r: advantages(r, "greedy", best)), exact)
    undivided = mean(lambda r: advantages(r, "group") * r.std(1, keepdim=True))
    torch.testing.assert_close(undivided, exact * (N - 1) / N)
    assert (
        torch.cosine_similarity(mean(lambda r: advantages(r, "group")), exact, 0) < 0.9
    )  # another direction


def test_places_drawn_after_the_end_do_not_count():
    """They would only add noise, of mean zero: no test of the estimate's mean sees them."""
    words = torch.tensor([[3, END, END], [3, 4, END]])
    alphas = torch.tensor([0.2, 0.8]).expand(2, 3, 2)
    log_p = torch.tensor([[-1.0, -2.0, 0.0], [-3.0, -4.0, -5.0]])
    rolled = Rollout(words, log_p, log_p, alphas, log_p, torch.tensor([[1, 0, 1], [0, 0, 1]]))
    expected = [-3 + math.log(0.8 * 0.2), -12 + math.log(0.2 * 0.2 * 0.8)]
    assert log_policy(rolled).tolist() == pytest.approx(expected)
    took_the_expectation = rolled._replace(places=torch.tensor([[-1, -1, -1], [0, 0, 1]]))
    assert log_policy(took_the_expectation).tolist() == pytest.approx([-3, expected[1]])


K, L, D, LONGEST = 4, 2, 3, 2
SPEAKABLE = [i for i in range(K) if i not in (END, UNKNOWN)]


def model(kind):
    torch.manual_seed(2)
    config = DecoderConfig(embedding=3, hidden=3, attention=kind, attention_hidden=2, dropout=0.0)
    decoder = Decoder(config, D, K).double().eval()
    with torch.no_grad():
        decoder.output.weight.mul_(3)
    if kind == "hard":
        decoder.attention.look = "sample"
    return decoder, torch.randn(1, L, D).double()


def worth(words):
    """An arbitrary reward of a caption's words."""
    return math.sin(1 + sum((place + 2) * word for place, word in enumerate(words))) + len(words)


def exact_expectation(decoder, a, temperature):
    """sum over captions, and with hard attention that draws over places, of p r: by enumeration, with autograd."""
    hard = (
        isinstance(decoder.attention, attention.HardAttention)
        and decoder.attention.look == "sample"
    )
    annotations, total, mass = decoder.project(a), 0.0, 0.0
    captions = [
        words
        for length in range(LONGEST + 1)
        for words in itertools.product(SPEAKABLE, repeat=length)
    ]
    for words in captions:
        steps = len(words) + 1
        for places in itertools.product(range(L), repeat=steps) if hard else [None]:
            state, p = decoder.initial_state(a), 1.0
            for t, word in enumerate((*words, END)):
                embedded = decoder.embed(torch.tensor([words[t - 1] if t else -1]))
                if hard:
                    decoder.attention.draw = lambda alpha, place=places[t]: torch.tensor([place])
                state, z, alpha, _, _ = decoder.step(
                    annotations, state, decoder.gates_word(embedded)
                )
                if hard:
                    p = p * alpha[0, places[t]]
                share = (decoder.logits(embedded, state.h, z)[0] / temperature).softmax(0)
                allowed = share.clone()
                allowed[UNKNOWN] = 0
                p = p * (share[word] / allowed.sum() if t < LONGEST else 1.0)
            total, mass = total + p * worth(words), mass + p
    if hard:
        del decoder.attention.draw
    assert float(torch.as_tensor(mass).detach()) == pytest.approx(1)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "temperature"),
    [("soft", 1.0), ("soft", 0.5), ("hard", 1.0), ("hard", 0.5), ("expectation", 1.0)],
)
def test_the_estimate_is_the_gradient_of_the_expected_reward(kind, temperature):
    """With the expectation: hard attention that would draw, all of whose rows take the expectation instead."""
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
    many, samples, estimates = torch.zeros(3000, dtype=torch.long), 3, []
    for _ in range(60):
        annotations, state = (
            select(decoder.project(a, expected), many),
            select(decoder.initial_state(a), many),
        )
        judge = rollout(decoder, annotations, state, LONGEST, temperature)
        captions = zip(judge.words.tolist(), judge.lengths.tolist(), strict=True)
        rewards = torch.tensor([worth(words[: length - 1]) for words, length in captions]).double()
        better = advantages(rewards.unflatten(0, (-1, samples)), "leave-one-out").flatten()
        estimates.append(gradient((better * log_policy(judge)).mean()))
    together = torch.stack(estimates)
    error = together.std(0) / math.sqrt(len(together))
    assert ((together.mean(0) - exact).abs() <= 4.5 * error + 1e-12).all()
    assert (together.mean(0) - exact).norm() < 0.1 * exact.norm()


REWARDED = ("objective.maximise=reward", "reward.bleu4=1.0")


def begin(folder, *changes):
    """A run that captions a little."""
    tiny.train(folder, "training.epochs=2", *changes)
    return folder


class TestTraining:
    def test_the_epoch_is_chosen_by_the_reward_of_greedy_captions(self, tmp_path):
        start = begin(tmp_path / "start")
        captioner = tiny.train(tmp_path / "run", *REWARDED, "training.select=reward", start=start)
        log = tiny.log(tmp_path / "run")
        best = max(log, key=lambda record: record["dev_reward"])
        assert [record for record in log if record["kept"]][-1] == best
        dev, vocabulary = tiny.data().split("dev"), captioner.vocabulary
        agree = rewards.Consensus(dev, vocabulary, captioner.recipe.reward)
        captions = evaluate.generate(captioner, tiny.Reader(), dev, beam=1, progress=False)
        values = [
            agree(image_id, [*vocabulary.encode(found.text), END])
            for image_id, found in captions.items()
        ]
        assert best["dev_reward"] == pytest.approx(sum(values) / len(dev))

    @pytest.mark.slow
    def test_images_of_hard_attention_take_the_expectation_as_often_as_told(
        self, tmp_path, monkeypatch
    ):
        """By a coin for each image, not for each caption."""
        hard, seen = ("decoder.attention=hard", "hard.expectation=0.3"), []

        def watched(decoder, *arguments):
            judge = rollout(decoder, *arguments)
            seen.append((judge.places < 0).unflatten(0, (-1, 5)))
            return judge

        start = begin(tmp_path / "start", *hard)
        monkeypatch.setattr(rewards, "rollout", watched)
        tiny.train(tmp_path / "run", *REWARDED, *hard, "training.epochs=12", start=start)
        assert all(torch.equal(each, each[:, :1, :1].expand_as(each)) for each in seen)
        share = torch.cat([each[:, 0, 0] for each in seen]).float()
        assert len(share) == 12 * 20
        assert share.mean().item() == pytest.approx(0.3, abs=0.1)
