"""`encoder.scale`: the size of annotation vectors, measured on training images, and where it reaches."""

import pytest
import tiny
import torch
from runs import without_clock

from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training.starting import root_mean_square, with_scale


class Constant:
    """Vectors of one value, and half of them zero: a root mean square of value / sqrt 2."""

    def read(self, image_ids):
        a = torch.full((len(image_ids), 4, 6), 8.0)
        a[:, :2] = 0
        return a


class Scaled(tiny.Reader):
    """Vectors that are scaled beforehand."""

    def read(self, image_ids):
        return 0.25 * super().read(image_ids)


def test_by_hand():
    encoder, names = encoders.create("tiny"), [str(i) for i in range(100)]
    assert root_mean_square(encoder, Constant(), names) == pytest.approx(8 / 2**0.5)
    assert with_scale(tiny.the_recipe("encoder.scale=0"), encoder, Constant(), names).encoder.scale == 0.18
    chosen = tiny.the_recipe("encoder.scale=0.5")
    assert with_scale(chosen, encoder, None, []) is chosen


def test_a_run_measures_it_and_goes_on_with_it(tmp_path):
    for epochs in (1, 2):
        captioner = tiny.train(tmp_path, "encoder.scale=0", f"training.epochs={epochs}")
    sizes = tiny.Reader().read([one.image_id for one in tiny.data().split("train")])
    assert captioner.recipe.encoder.scale == float(f"{1 / sizes.double().square().mean().sqrt().item():.2g}")
    with pytest.raises(SatlibError, match="is measured when training begins"):
        Captioner(tiny.the_recipe("encoder.scale=0"), Vocabulary(["a"]), encoders.create("tiny"))


def test_it_reaches_the_training_and_every_figure_of_dev(tmp_path):
    """Scaled by the recipe, or beforehand: the same bits."""
    runs = []
    for scale, reader in (("0.25", tiny.Reader()), ("1", Scaled())):
        captioner = tiny.train(tmp_path / scale, "training.epochs=2", f"encoder.scale={scale}", reader=reader)
        weights = [value.tolist() for value in captioner.state_dict().values()]
        runs.append((without_clock(tiny.log(tmp_path / scale)), weights))
    assert runs[0] == runs[1]
