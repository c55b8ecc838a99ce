"""`encoder.scale`: the size of annotation vectors, measured on training images."""

import pytest
import tiny
import torch

from satlib import cli
from satlib.data import folder, scenes
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import scaling


class TestScale:
    @pytest.fixture
    def encoder(self):
        return encoders.create("tiny")

    class Constant:
        """Vectors of one value, and half of them zero: a root mean square of value / sqrt 2."""

        def __init__(self, value):
            self.value = value

        def read(self, image_ids):
            a = torch.full((len(image_ids), 4, 6), self.value)
            a[:, :2] = 0
            return a

    def test_by_hand(self, encoder):
        names = [str(i) for i in range(100)]
        size = scaling.root_mean_square(encoder, self.Constant(8.0), names)
        assert size == pytest.approx(8 / 2**0.5)
        assert scaling.scale_of(size) == 0.18
        measured = scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(8.0), names)
        assert measured.encoder.scale == 0.18

    def test_pixels_go_through_the_encoder(self, encoder):
        class Pixels:
            def read(self, image_ids):
                return torch.zeros(len(image_ids), 3, 224, 224)

        with torch.inference_mode():
            expected = encoder(torch.zeros(1, 3, 224, 224)).square().mean().sqrt().item()
        assert scaling.root_mean_square(encoder, Pixels(), ["a", "b"]) == pytest.approx(expected)

    def test_a_number_is_left_alone(self, encoder):
        chosen = tiny.the_recipe("encoder.scale=0.5")
        assert scaling.with_scale(chosen, encoder, None, []) is chosen

    def test_vectors_of_nothing(self, encoder):
        with pytest.raises(SatlibError, match=r"root mean square of 0\.0; check the encoder"):
            scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(0.0), ["a"])

    def test_a_stream(self, encoder):
        with pytest.raises(SatlibError, match="cannot be measured on a stream"):
            scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(1.0), [])

    def test_a_run_has_the_number_and_goes_on_with_it(self, encoder, tmp_path):
        for epochs in (1, 2):
            captioner = tiny.train(tmp_path, "encoder.scale=0", f"training.epochs={epochs}")
        sizes = tiny.Reader().read([one.image_id for one in tiny.data().split("train")])
        assert captioner.recipe.encoder.scale == scaling.scale_of(sizes.double().square().mean().sqrt().item())

    def test_a_captioner_needs_the_number(self, encoder):
        with pytest.raises(SatlibError, match="is measured when training begins"):
            Captioner(tiny.the_recipe("encoder.scale=0"), Vocabulary(["a"]), encoder)


def test_satlib_features_prints_the_scale(tmp_path, capsys):
    folder.save(scenes.load(train=6, dev=2, test=2), tmp_path / "drawn")
    call = ["features", "own-folder", "--data", str(tmp_path), "--device", "cpu"]
    call += ["--set", f"data.name={tmp_path / 'drawn'}", "--set", "encoder.name=efficientnet-lite0"]
    assert cli.main(call) == 0
    said = capsys.readouterr().out
    assert "root mean square " in said
    assert ": encoder.scale = " in said
