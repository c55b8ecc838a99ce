"""Weights averaged over two models."""

import pytest
import tiny
import torch

from satlib.beyond.averaging import average_weights
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.model import encoders
from satlib.model.captioner import Captioner


def captioner(seed, *changes, words=("a", "red", "star")):
    torch.manual_seed(seed)
    chosen = tiny.the_recipe(*changes)
    return Captioner(chosen, Vocabulary(list(words)), encoders.create("tiny", chosen.encoder.pretrained)).eval()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_weights_lie_between(share):
    a, b = captioner(1), captioner(2, "decoding.beam=4")
    before = [value.clone() for each in (a, b) for value in each.state_dict().values()]
    averaged = average_weights(a, b, share)
    theirs, ours = a.decoder.state_dict(), b.decoder.state_dict()
    for name, value in averaged.decoder.state_dict().items():
        torch.testing.assert_close(value, (1 - share) * theirs[name] + share * ours[name], msg=name)
    assert averaged.recipe == b.recipe
    for value, old in zip((v for each in (a, b) for v in each.state_dict().values()), before, strict=True):
        assert torch.equal(value, old)


def test_an_encoder_that_learns_is_averaged_too(tmp_path):
    """And the averaged model outlives its file; the count of BatchNorm's batches, no weight, is the second's."""
    learns = ("encoder.train=true", "encoder.pretrained=false")
    a, b = captioner(1, *learns), captioner(2, *learns)
    for each, by in ((a, 1.0), (b, 3.0)):
        for parameter in each.encoder.parameters():
            torch.nn.init.constant_(parameter, by)
    b.encoder.body[2].num_batches_tracked.fill_(7)
    averaged = average_weights(a, b, 0.75)
    averaged.save(tmp_path / "model.safetensors")
    loaded = Captioner.load(tmp_path)
    for parameter in loaded.encoder.parameters():
        torch.testing.assert_close(parameter, torch.full_like(parameter, 2.5))
    assert loaded.encoder.body[2].num_batches_tracked == 7


def test_a_share_beyond_1():
    with pytest.raises(SatlibError, match=r"is 1\.5; give a number from 0 to 1"):
        average_weights(captioner(1), captioner(2), 1.5)


@pytest.mark.parametrize(
    "other",
    [
        lambda: captioner(2, words=("a", "blue", "star")),
        lambda: captioner(2, "decoder.hidden=8"),
        lambda: captioner(2, "encoder.scale=0.5"),
    ],
)
def test_models_that_do_not_belong_together(other):
    with pytest.raises(SatlibError, match="tiny and tiny differ in vocabulary, encoder or sizes"):
        average_weights(captioner(1), other(), 0.5)
