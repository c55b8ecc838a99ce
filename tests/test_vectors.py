"""Annotation vectors in memory: the encoder's, by image id, and a decoder that trains from them."""

import pytest
import tiny
import torch

from satcourse.lessons.vectors import Vectors
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import loop

DATA = tiny.data(train=9, dev=3)
IMAGE_IDS = [example.image_id for example in DATA.examples]


@pytest.fixture
def captioner():
    vocabulary = Vocabulary.from_captions(caption for example in DATA.split("train") for caption in example.references)
    chosen = tiny.the_recipe("encoder.train=true", "encoder.scale=2.0", "training.epochs=1")
    return Captioner(chosen, vocabulary, encoders.create("tiny")).eval()


@pytest.mark.parametrize("batch_size", [1, 5, 20])
def test_they_are_what_the_encoder_gives_in_the_order_asked_for(captioner, batch_size):
    pixels = Pixels(DATA)
    vectors = Vectors(captioner, pixels, IMAGE_IDS, batch_size)
    asked = [IMAGE_IDS[7], IMAGE_IDS[2], IMAGE_IDS[7]]
    with torch.no_grad():
        torch.testing.assert_close(vectors.read(asked), captioner.encoder(pixels.read(asked)))
        # The captioner scales them, once, whether it is given vectors or pixels.
        torch.testing.assert_close(
            captioner.annotations(vectors.read(asked)), captioner.annotations(pixels.read(asked))
        )


def test_a_decoder_trains_from_them_and_the_encoder_stays(captioner, tmp_path):
    captioner.save(tmp_path / "start.safetensors")
    vectors = Vectors(captioner, Pixels(DATA), IMAGE_IDS)
    trained = loop.train(
        captioner.recipe, DATA, vectors, tmp_path / "run", progress=False, start=tmp_path / "start.safetensors"
    )
    for name, weight in captioner.encoder.state_dict().items():
        torch.testing.assert_close(trained.encoder.state_dict()[name], weight)
    assert not torch.equal(trained.decoder.output.weight, captioner.decoder.output.weight)
