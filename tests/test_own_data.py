"""One's own data: going on from a model of others, evaluating it there, and photographs of telephones."""

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
BY_WORD = (
    "embedding.weight",
    "output.weight",
    "output.bias",
)  # the parameters with a row for each word
SMALL = (
    "training.epochs=1", "training.batch_size=4", "training.learning_rate=0", "training.average=0", "data.min_count=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder of five scenes with captions of their own, in which some words are new."""
    place, drawn = tmp_path_factory.mktemp("own") / "mine", scenes.load(3, 1, 1)
    examples = [
        datasets.Example(
            e.image_id, e.split, tuple(f"{text} marvellous contraption" for text in e.references)
        )
        for e in drawn.examples
    ]
    tiny.save(datasets.CaptionSet("mine", tuple(examples), drawn.draw), place)
    return place


def train(own, run, start):
    chosen = starting.fitted(recipe.load("own-folder", [f"data.name={own}", *SMALL]), MODEL)
    data = datasets.load(str(own))
    return loop.train(chosen, data, Pixels(data), run, start=start, progress=False)


class TestStarting:
    @pytest.fixture(scope="class")
    @classmethod
    def begun(cls, own, tmp_path_factory):
        """A model of the scenes' words after an epoch on others at a learning rate of 0, and the model it began with."""
        return train(own, tmp_path_factory.mktemp("begun") / "run", MODEL), Captioner.load(MODEL)

    def test_shared_words_keep_their_weights_and_new_words_start_fresh(self, begun):
        ours, theirs = begun
        mine, others = (dict(each.decoder.named_parameters()) for each in begun)
        shared = [word for word in ours.vocabulary.words if word in theirs.vocabulary]
        assert len(shared) == len(theirs.vocabulary)  # those that the five captions lack, too
        for name in mine:
            if name not in BY_WORD:
                assert mine[name].equal(others[name]), name
                continue
            for word in shared:
                assert mine[name][ours.vocabulary.number(word)].equal(
                    others[name][theirs.vocabulary.number(word)]
                )
        for word in ("marvellous", "contraption"):
            assert word not in theirs.vocabulary
            row = mine["embedding.weight"][ours.vocabulary.number(word)]
            assert 0 < row.abs().max() <= 0.1  # as a fresh decoder has it

    def test_a_trained_encoder_stays_as_it_is_and_its_vectors_are_computed_once(self, begun, own):
        ours, theirs = begun
        assert ours.recipe.encoder.name == ours.encoder.name == "model:scenes-soft"
        assert not ours.recipe.encoder.train
        pixels = Pixels(datasets.load(str(own))).read(["train-000000.png", "train-000001.png"])
        assert ours.annotations(pixels).equal(theirs.annotations(pixels))

    def test_the_file_holds_that_encoder(self, begun, tmp_path, monkeypatch):
        ours, file = begun[0], tmp_path / "ours.safetensors"
        ours.save(file)
        monkeypatch.setattr(installed, "_files", dict)  # the other model is gone
        again = Captioner.load(file)
        assert again.recipe == ours.recipe
        assert again.encoder.name == "model:scenes-soft"
        assert again.encoder.weights_hash == ours.encoder.weights_hash
        frozen = starting.fitted(recipe.load("own-folder"), file).encoder
        assert (frozen.name, frozen.train) == (f"model:{file}", False)
        chosen = ["encoder.train=true", "decoder.hidden=64"]
        learning = starting.fitted(recipe.load("own-folder", chosen), file, chosen)
        assert (learning.encoder.name, learning.encoder.train) == ("small", True)
        assert learning.decoder.hidden == 64  # what is set is left alone

    def test_a_trained_model_does_not_know_the_vectors_of_an_encoder_before_its_training(
        self, own, tmp_path
    ):
        other = Captioner.load(MODEL)
        with torch.no_grad():
            next(other.encoder.parameters()).mul_(2)
        other.save(tmp_path / "other.safetensors")
        with pytest.raises(
            SatlibError,
            match="was trained on other annotation vectors than those of model:scenes-soft",
        ):
            train(own, tmp_path / "run", tmp_path / "other.safetensors")


def test_a_word_takes_its_own_row_from_a_model_in_whose_vocabulary_it_has_another_number(tmp_path):
    """A model that knows less than half of the words leaves the captions' vocabulary as it is."""
    theirs = tiny.decided(words=("zebra", "star", "green", "a"))
    theirs.save(tmp_path / "theirs.safetensors")
    session = tiny.session(tmp_path / "run", start=tmp_path / "theirs.safetensors")
    ours = session.state.captioner
    assert "zebra" not in ours.vocabulary

    numbers = []
    for word in ("a", "green", "star"):
        mine, other = ours.vocabulary.number(word), theirs.vocabulary.number(word)
        numbers.append((mine, other))
        for name in BY_WORD:
            row = theirs.decoder.get_parameter(name)[other]
            assert ours.decoder.get_parameter(name)[mine].equal(row), (word, name)
    assert all(mine != other for mine, other in numbers)


def test_another_language_has_its_own_words_alone():
    german = datasets.CaptionSet("german", (datasets.Example("1", "train", ("ein roter kreis",)),))
    assert starting.vocabulary(german, recipe.DataConfig(), MODEL).to_json() == [
        "ein",
        "kreis",
        "roter",
    ]


def test_another_data_set_is_evaluated(own, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        cli.main(
            [
                "evaluate",
                "scenes-soft",
                "--data-set",
                str(own),
                "--split",
                "train",
                "--json",
                "--quiet",
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["file"] == "runs/scenes-soft/mine/evaluation-train.json"
    assert (result["data"], result["images"]) == ("mine", 3)
    captions = json.loads((tmp_path / result["file"]).read_text())["captions"]
    assert set(captions) == {f"train-{n:06}.png" for n in range(3)}


def test_a_photograph_of_a_telephone(tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="needs pillow-heif")
    heif.from_pillow(Image.new("RGB", (64, 48), (200, 30, 60))).save(
        tmp_path / "a.heic", quality=95
    )
    opened = images.open_photo(tmp_path / "a.heic")
    assert opened.size == (64, 48)
    assert (
        max(
            abs(got - right)
            for got, right in zip(opened.getpixel((30, 20)), (200, 30, 60), strict=True)
        )
        <= 4
    )
