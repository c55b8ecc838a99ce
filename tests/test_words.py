"""Word detectors: what they detect, their loss, the maps that they teach, and that training with them resumes."""

import math
from types import SimpleNamespace

import pytest
import tiny
import torch
from runs import differences

from satlib.beyond.boxes import box_loss
from satlib.beyond.words import WordDetectors, content_words, detection_loss, detectors
from satlib.data.batches import Batch, pairs
from satlib.data.caption_set import Example
from satlib.data.text import END, PAD, Vocabulary
from satlib.errors import Interrupted, SatlibError
from satlib.files.weights import read_safetensors
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import loop
from satlib.training.checkpoint import CHECKPOINT

ON = "objective.words=1.0"
TUNED = (ON, "encoder.train=true", "encoder.pretrained=false", "training.batches=images", "training.average=0.9")
VOCABULARY = Vocabulary(["red", "star", "the", "dog"])  # ids 2 to 5


def made(weight=1.0, places=3):
    """Detectors of "red" and "star" in two images of four captions, with weights that are not 0."""
    captions = {"one": ("The red star", "The star"), "two": ("the red", "dog the dog"), "three": ("the", "the zebra")}
    examples = [Example(name, "train", references) for name, references in captions.items()]
    torch.manual_seed(0)
    detectors = WordDetectors(pairs(examples, VOCABULARY, 40), VOCABULARY, (places, 5), weight)
    torch.nn.init.normal_(detectors.matrix)
    return detectors


class TestDetectionLoss:
    def test_by_hand(self):
        """Two places with the probabilities 1/2 and 3/4 of one word, 1/5 and 1/2 of the other: 7/8 and 3/5 for the image."""
        scores = torch.logit(torch.tensor([[[0.5, 0.2], [0.75, 0.5]]]))
        for labels, expected in (
            ([True, True], -math.log(7 / 8) - math.log(3 / 5)),
            ([True, False], -math.log(7 / 8) - math.log(2 / 5)),
            ([False, False], -math.log(1 / 8) - math.log(2 / 5)),
        ):
            loss = detection_loss(scores, torch.tensor([labels]))
            torch.testing.assert_close(loss, torch.tensor([expected], dtype=torch.float32))

    def test_against_binary_cross_entropy(self):
        torch.manual_seed(0)
        scores, labels = torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True), torch.rand(3, 4) < 0.5
        p = 1 - (1 - scores.sigmoid()).prod(1)
        expected = torch.nn.functional.binary_cross_entropy(p, labels.double(), reduction="none").sum(1)
        loss = detection_loss(scores, labels)
        torch.testing.assert_close(loss, expected)
        gradients = (torch.autograd.grad(value.sum(), scores)[0] for value in (loss, expected))
        torch.testing.assert_close(*gradients)
        assert torch.autograd.gradcheck(lambda scores: detection_loss(scores, labels), scores)

    @pytest.mark.parametrize("score", [-200.0, -30.0, 30.0, 200.0])
    @pytest.mark.parametrize("label", [True, False])
    def test_extreme_scores_have_finite_gradients(self, score, label):
        scores = torch.full((1, 4, 1), score, requires_grad=True)
        loss = detection_loss(scores, torch.tensor([[label]])).sum()
        (gradient,) = torch.autograd.grad(loss, scores)
        assert loss.isfinite()
        assert gradient.isfinite().all()


class TestWhatIsDetected:
    def test_content_words(self):
        """Of four images: "the" is a function word, "dog" is in all of them, and "star" in more of them than "red"."""
        labels = [{2, 3, 4, 5}, {3, 4, 5}, {4, 5}, {5}]
        assert content_words(labels, VOCABULARY) == {3: 0.5, 2: 0.25}

    def test_a_word_of_three_images_in_five_is_not_too_common(self):
        assert content_words([{3}, {3}, {3}, set(), set()], VOCABULARY) == {3: 0.6}
        assert content_words([{3}, {3}, set()], VOCABULARY) == {}

    def test_the_commonest_are_chosen(self, monkeypatch):
        monkeypatch.setattr("satlib.beyond.words.WORDS", 1)
        assert content_words([{2, 3}, {3}, {5}, {4}], VOCABULARY) == {3: 0.5}

    def test_the_captions_that_are_trained_on(self):
        """Two images, and of their captions the one that is not too long: "There is a red circle", "There is a blue square"."""
        recipe, captions = tiny.the_recipe(ON, "data.train_images=2", "data.max_length=5"), tiny.data()
        captioner = Captioner(recipe, captions.vocabulary(100, 1), encoders.create("tiny"))
        assert sorted(detectors(captions, recipe, captioner).words) == ["blue", "circle", "red", "square"]

    def test_labels(self):
        """A word counts once for each image, whichever of its captions it is in; an unknown word is none."""
        detectors = made()
        assert detectors.words == ["star", "dog"]  # two of three images are red: more than COMMON
        assert detectors.labels(["two", "one", "three"]).tolist() == [[False, True], [True, False], [False, False]]

    def test_at_first_each_image_has_a_word_as_often_as_images_do(self):
        detectors = made(places=7)
        torch.nn.init.zeros_(detectors.matrix)
        absent = (1 - detectors.scores(torch.randn(2, 7, 5)).sigmoid()).prod(1)
        torch.testing.assert_close(1 - absent, torch.full((2, 2), 1 / 3), rtol=1e-4, atol=1e-5)

    def test_the_bias_is_added_in_float32(self):
        """Of rare words it is large: rounded to bf16, -8.03 is -8.0."""
        found, a = made(), torch.randn(2, 3, 5)
        torch.nn.init.constant_(found.bias, -8.03)
        with torch.autocast("cpu", torch.bfloat16):
            scores = found.scores(a)
        products = a.bfloat16() @ found.matrix.bfloat16().T
        torch.testing.assert_close(scores, products.float() - 8.03, rtol=0, atol=1e-6)

    def test_nothing_to_detect(self):
        examples = [Example("one", "train", ("the star",))]
        with pytest.raises(
            SatlibError, match=r"objective\.words finds nothing to detect: .* 1 training images; set it to 0"
        ):
            WordDetectors(pairs(examples, VOCABULARY, 40), VOCABULARY, (3, 5))


class TestMaps:
    # "red star", "the dog dog" of image one, and "star dog" of image two
    CAPTIONS = torch.tensor([[2, 3, END, PAD], [4, 5, 5, END], [3, 5, END, PAD]])
    BATCH = Batch(["one", "two"], CAPTIONS, torch.tensor([0, 0, 1]))

    def test_covers(self):
        """sigmoid(s) over its maximum, of the word's detector in the caption's image; 0 for other words, end mark and padding."""
        p = torch.tensor([[[0.1, 0.5], [0.4, 0.25], [0.2, 0.5]], [[0.6, 0.9], [0.6, 0.3], [0.3, 0.1]]])
        covers = made().covers(p.logit(), self.BATCH)
        none = [0.0, 0.0, 0.0]
        expected = [
            [none, [0.25, 1.0, 0.5], none, none],
            [none, [1.0, 0.5, 1.0], [1.0, 0.5, 1.0], none],
            [[1.0, 1.0, 0.5], [1.0, 1 / 3, 1 / 9], none, none],
        ]
        torch.testing.assert_close(covers, torch.tensor(expected))

    def test_a_batch_of_captions_has_an_image_for_each(self):
        detectors, scores = made(), torch.randn(2, 3, 2)
        together = detectors.covers(scores, self.BATCH)
        alone = detectors.covers(scores[[0, 0, 1]], Batch(["one", "one", "two"], self.CAPTIONS))
        assert torch.equal(together, alone)

    def test_no_score_is_too_low(self):
        covers = made().covers(torch.full((2, 3, 2), -300.0), self.BATCH)
        assert covers[0, 1].tolist() == [1.0, 1.0, 1.0]

    @pytest.mark.parametrize("samples", [1, 2])
    def test_the_term(self, samples):
        """The weight times the mean over captions of both losses; maps and detectors do not teach each other by gradients."""
        detectors, a = made(weight=0.7), torch.randn(2, 3, 5, requires_grad=True)
        alphas = torch.rand(3 * samples, 4, 3, requires_grad=True)
        covers = detectors.covers(detectors.scores(a), self.BATCH).repeat_interleave(samples, 0)
        found = detection_loss(detectors.scores(a), detectors.labels(["one", "two"]))
        loss, means = detectors.term(self.BATCH, a, None)(torch.tensor(2.0), SimpleNamespace(alphas=alphas))
        outside = box_loss(alphas, covers)
        detection = (2 * found[0] + found[1]) / 3
        torch.testing.assert_close(loss, 2.0 + 0.7 * (detection + outside.mean()))
        torch.testing.assert_close(means, {"detection": detection, "taught": outside.mean()})
        for value, of in ((detection, a), (outside.mean(), alphas)):
            gradients = (torch.autograd.grad(one, of, retain_graph=True)[0] for one in (loss, 0.7 * value))
            torch.testing.assert_close(*gradients)


class TestTraining:
    def test_detectors_find_the_place_that_no_label_names(self):
        """Each image of a word has the word's vector at one of nine places, and noise at the others."""
        torch.manual_seed(0)
        vectors, labels, where = torch.randn(2, 16), torch.rand(200, 2) < 0.3, torch.randint(9, (200, 2))
        a = torch.randn(200, 9, 16)
        for image, word in labels.nonzero().tolist():
            a[image, where[image, word]] += vectors[word]
        detectors = made(places=9)
        detectors.matrix = torch.nn.Parameter(torch.zeros(2, 16))
        optimiser = torch.optim.Adam(detectors.parameters(), 0.1)
        for _ in range(100):
            optimiser.zero_grad()
            detection_loss(detectors.scores(a), labels).mean().backward()
            optimiser.step()
        found = detectors.scores(a).argmax(1) == where
        assert found[labels].float().mean() > 0.9

    def test_detectors_learn_together_with_an_encoder(self, tmp_path):
        tiny.train(tmp_path, *TUNED, "training.epochs=12", "training.learning_rate=0.03", "decoder.dropout=0.0")
        first, *_, last = tiny.log(tmp_path)
        assert last["train_detection"] < 0.9 * first["train_detection"]

    @pytest.mark.parametrize(
        "changes",
        [
            (ON,),
            (ON, "training.batches=images", "training.drop_places=0.25", "training.precision=bf16"),
            (ON, "decoder.attention=hard", "hard.samples=2", "hard.baseline=learned"),
            TUNED,
        ],
    )
    def test_stopped_and_resumed_is_the_run_that_was_not(self, changes, tmp_path):
        """In the middle of an epoch."""
        tiny.train(tmp_path / "straight", *changes)
        session, update = loop.Trainer, loop.Trainer.update

        def stop_at_the_fourth(self, *arguments):
            update(self, *arguments)
            if self.progress.epoch == 1 and self.progress.batch == 1:
                self.save_checkpoint()
                raise Interrupted("here")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "update", stop_at_the_fourth)
            with pytest.raises(Interrupted):
                tiny.train(tmp_path / "run", *changes)
        tiny.train(tmp_path / "run", *changes)
        assert differences(tmp_path / "run", tmp_path / "straight") == []
        tensors = read_safetensors(tmp_path / "run" / CHECKPOINT)[1]
        assert tensors["detectors.matrix"].any()
        assert not any("detectors" in name for name in read_safetensors(tmp_path / "run" / loop.MODEL)[1])

    def test_a_frozen_encoder_and_the_first_step(self, tmp_path):
        """No random number is drawn for the detectors, so the captioner begins with the same weights as without them."""
        with_them, without = (
            tiny.session(tmp_path / str(len(changes)), *changes).captioner.decoder.state_dict()
            for changes in ((ON,), ())
        )
        assert all(torch.equal(value, without[name]) for name, value in with_them.items())

    @pytest.mark.parametrize("change", ["decoder.attention=none", "objective.maximise=reward"])
    def test_what_has_no_maps_of_true_captions(self, tmp_path, change):
        with pytest.raises(SatlibError, match=r"objective\.words needs attention \(soft or hard\), the likelihood"):
            tiny.train(tmp_path / "run", ON, change)
