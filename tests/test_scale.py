"""`encoder.scale`: a model that scales by 1/4 is the model that does not, on annotation vectors that are 1/4 as large."""

import pytest
import tiny
import torch
from runs import without_clock

from satlib.data import images
from satlib.data.text import Vocabulary
from satlib.evaluation import evaluate
from satlib.model import encoders
from satlib.model.captioner import Captioner

WORDS = Vocabulary(["a", "red", "circle", "square", "on", "the", "left", "blue"])


class Scaled(tiny.Reader):
    """The same annotation vectors, a quarter as large: exact, since 1/4 is a power of two."""

    def read(self, image_ids):
        return super().read(image_ids) / 4


def both(train):
    """What `train(recipe changes, reader)` gives where the model scales, and where its reader has done so."""
    return train("encoder.scale=0.25", tiny.Reader()), train("encoder.scale=1.0", Scaled())


def test_annotations_are_scaled_from_pixels_and_from_vectors():
    made = Captioner(tiny.the_recipe("encoder.scale=0.25"), WORDS, encoders.create("tiny")).eval()
    batch = torch.stack([images.to_tensor(tiny.draw(example)) for example in tiny.data().examples[:3]])
    with torch.inference_mode():
        stored = made.encoder(batch)
        assert torch.equal(made.annotations(batch), stored / 4)
        assert torch.equal(made.annotations(stored), stored / 4)
        assert torch.equal(Captioner(tiny.the_recipe(), WORDS, made.encoder).annotations(batch), stored)


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_it_reaches_the_training_and_every_figure_of_dev(tmp_path, attention):
    """By the log (loss, penalty, NLL and BLEU on dev, the gradient's spread), the weights and the captions of test."""

    def train(scale, reader):
        changes = (scale, f"decoder.attention={attention}", "training.epochs=2")
        trained = tiny.train(tmp_path / scale, *changes, reader=reader)
        captions = evaluate.generate(trained, reader, tiny.data().split("test"), progress=False)
        return (
            without_clock(tiny.log(tmp_path / scale)),
            [value.tolist() for value in trained.state_dict().values()],
            {image_id: (caption.words, caption.log_probability) for image_id, caption in captions.items()},
        )

    scaled, beforehand = both(train)
    assert scaled == beforehand


def test_it_reaches_training_on_rewards(tmp_path):
    def train(scale, reader):
        begun, rewarded = tmp_path / scale, tmp_path / f"{scale} rewarded"
        changes = (scale, "training.epochs=1")
        tiny.train(begun, *changes, reader=reader)
        trained = tiny.train(rewarded, *changes, "objective.maximise=reward", reader=reader, start=begun)
        return [value.tolist() for value in trained.state_dict().values()]

    scaled, beforehand = both(train)
    assert scaled == beforehand
