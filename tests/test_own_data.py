"""One's own data: training from another's model, evaluating it there, and a telephone's photos."""

import json
from pathlib import Path

import pytest
import tiny
import torch
from PIL import Image

from satlib import cli, recipe
from satlib.data import datasets, images, scenes
from satlib.data.features import Pixels
from satlib.errors import SatlibError
from satlib.model import installed
from satlib.model.captioner import Captioner
from satlib.training import loop, starting

MODEL = Path("scenes-soft")
# The parameters with a row for each word.
BY_WORD = (
    "embedding.weight",
    "output.weight",
    "output.bias",
)
SMALL = (
    "training.epochs=1",
    "training.batch_size=4",
    # The weights stay as they began.
    "training.learning_rate=0",
    "training.average=0",
    "data.min_count=1",
)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder of five scenes with captions of their own, in which some words are new."""
    folder = tmp_path_factory.mktemp("own") / "mine"
    drawn = scenes.load(3, 1, 1)
    examples = []
    for example in drawn.examples:
        captions = [f"{text} marvellous contraption" for text in example.references]
        examples.append(datasets.Example(example.image_id, example.split, tuple(captions)))
    tiny.save(datasets.CaptionSet("mine", tuple(examples), drawn.draw), folder)
    return folder


def train(own, run, start):
    loaded = recipe.load("own-folder", [f"data.name={own}", *SMALL])
    fitted = starting.fitted(loaded, MODEL)
    data = datasets.load(str(own))
    return loop.train(fitted, data, Pixels(data), run, start=start, progress=False)


class TestStarting:
    @pytest.fixture(scope="class")
    @classmethod
    def begun(cls, own, tmp_path_factory):
        """A model trained for an epoch at a learning rate of 0, and the one it began with."""
        run = tmp_path_factory.mktemp("begun") / "run"
        return train(own, run, MODEL), Captioner.load(MODEL)

    def test_shared_words_keep_their_weights_and_new_words_start_fresh(self, begun):
        ours, theirs = begun
        mine = dict(ours.decoder.named_parameters())
        others = dict(theirs.decoder.named_parameters())
        shared = [word for word in ours.vocabulary.words if word in theirs.vocabulary]
        # Also those that the five captions lack.
        assert len(shared) == len(theirs.vocabulary)

        for name, weights in mine.items():
            if name not in BY_WORD:
                assert weights.equal(others[name]), name
                continue
            for word in shared:
                own_row = weights[ours.vocabulary.number(word)]
                row = others[name][theirs.vocabulary.number(word)]
                assert own_row.equal(row)

        for word in ("marvellous", "contraption"):
            assert word not in theirs.vocabulary
            row = mine["embedding.weight"][ours.vocabulary.number(word)]
            # A fresh decoder's embeddings are between -0.1 and 0.1.
            assert 0 < row.abs().max() <= 0.1

    def test_a_trained_encoder_stays_as_it_is_and_its_vectors_are_computed_once(self, begun, own):
        ours, theirs = begun
        assert ours.recipe.encoder.name == ours.encoder.name == "model:scenes-soft"
        assert not ours.recipe.encoder.train

        reader = Pixels(datasets.load(str(own)))
        pixels = reader.read(["train-000000.png", "train-000001.png"])
        assert ours.annotations(pixels).equal(theirs.annotations(pixels))

    def test_the_file_holds_that_encoder(self, begun, tmp_path, monkeypatch):
        ours, _ = begun
        file = tmp_path / "ours.safetensors"
        ours.save(file)
        # The other model is gone.
        monkeypatch.setattr(installed, "_files", dict)
        again = Captioner.load(file)
        assert again.recipe == ours.recipe
        assert again.encoder.name == "model:scenes-soft"
        assert again.encoder.weights_hash == ours.encoder.weights_hash

        # The next model can begin with its frozen encoder in turn.
        frozen = starting.fitted(recipe.load("own-folder"), file).encoder
        assert frozen.name == f"model:{file}"
        assert not frozen.train

        # Options that are set are left alone.
        changes = ["encoder.train=true", "decoder.hidden=64"]
        learning = starting.fitted(recipe.load("own-folder", changes), file, changes)
        assert learning.encoder.name == "small"
        assert learning.encoder.train
        assert learning.decoder.hidden == 64

    def test_a_trained_model_does_not_know_the_vectors_of_an_encoder_before_its_training(
        self, own, tmp_path
    ):
        other = Captioner.load(MODEL)
        file = tmp_path / "other.safetensors"
        with torch.no_grad():
            next(other.encoder.parameters()).mul_(2)
        other.save(file)

        # The recipe names the encoder of the model as it was.
        message = "was trained on other annotation vectors than those of model:scenes-soft"
        with pytest.raises(SatlibError, match=message):
            train(own, tmp_path / "run", file)


def test_a_word_takes_its_own_row_from_a_model_in_whose_vocabulary_it_has_another_number(tmp_path):
    """A model that knows less than half of the words leaves the captions' vocabulary as it is."""
    theirs = tiny.decided(words=("zebra", "star", "green", "a"))
    theirs.save(tmp_path / "theirs.safetensors")
    session = tiny.session(tmp_path / "run", start=tmp_path / "theirs.safetensors")
    ours = session.state.captioner
    assert "zebra" not in ours.vocabulary

    for word in ("a", "green", "star"):
        mine = ours.vocabulary.number(word)
        other = theirs.vocabulary.number(word)
        # Otherwise rows copied by their number would be right, too.
        assert mine != other
        for name in BY_WORD:
            row = theirs.decoder.get_parameter(name)[other]
            assert ours.decoder.get_parameter(name)[mine].equal(row), (word, name)


def test_another_language_has_its_own_words_alone():
    example = datasets.Example("1", "train", ("ein roter kreis",))
    german = datasets.CaptionSet("german", (example,))
    vocabulary = starting.vocabulary(german, recipe.DataConfig(), MODEL)
    assert vocabulary.to_json() == ["ein", "kreis", "roter"]


def test_another_data_set_is_evaluated(own, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["evaluate", "scenes-soft", "--data-set", str(own)]
    command += ["--split", "train", "--json", "--quiet"]
    assert cli.main(command) == 0

    result = json.loads(capsys.readouterr().out)
    assert result["file"] == "runs/scenes-soft/mine/evaluation-train.json"
    assert result["data"] == "mine"
    assert result["images"] == 3
    evaluation = json.loads((tmp_path / result["file"]).read_text())
    assert set(evaluation["captions"]) == {f"train-{n:06}.png" for n in range(3)}


def test_a_photograph_of_a_telephone(tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="needs pillow-heif")
    file = tmp_path / "a.heic"
    red = (200, 30, 60)
    photo = Image.new("RGB", (64, 48), red)
    heif.from_pillow(photo).save(file, quality=95)

    opened = images.open_photo(file)
    assert opened.size == (64, 48)
    # The format is lossy: 4 of 256 steps.
    for found, right in zip(opened.getpixel((30, 20)), red, strict=True):
        assert abs(found - right) <= 4
