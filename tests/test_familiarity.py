"""The distance of an image from the training images: by hand, by another library, through a model's file, and on real images."""

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from satlib.data import scenes
from satlib.data.datasets import CaptionSet, Example
from satlib.data.text import Vocabulary
from satlib.model import encoders, familiarity, shipped
from satlib.model.captioner import Captioner
from satlib.model.familiarity import Familiarity


class Vectors:
    """Annotation vectors by image id."""

    def __init__(self, vectors):
        self.vectors = vectors

    def read(self, image_ids):
        return torch.stack([self.vectors[image_id] for image_id in image_ids])


def a_set(**counts):
    examples = [Example(f"{split}-{i}", split, ("a",)) for split, count in counts.items() for i in range(count)]
    return CaptionSet("made", tuple(examples))


def random_set(dim=12, rank=5, train=300, dev=200):
    """Means near a subspace of `rank` directions, with a little of everything else."""
    random = np.random.default_rng(0)
    basis = random.standard_normal((rank, dim))
    data = a_set(train=train, dev=dev)
    near = {
        e.image_id: random.standard_normal((4, rank)) @ basis + 0.3 * random.standard_normal((4, dim))
        for e in data.examples
    }
    return data, Vectors({name: torch.from_numpy(value).float() for name, value in near.items()})


def learnt_from(data, reader):
    means = (torch.stack([reader.vectors[e.image_id].mean(0) for e in data.split(s)]) for s in ("train", "dev"))
    return familiarity.learn(*means)


def test_distances_by_hand():
    """P spans the first two of three axes: (3, 0, 4) has length 5, so the part outside is (4/5)^2; the scale of a is no matter."""
    measure = Familiarity(bytes([127, 0, 0, 0, 127, 0]), [1 / 127, 1 / 127], 0.5)
    a = torch.tensor([[[2.0, 0, 4], [4, 0, 4]], [[1, 2, 0], [3, 4, 0]], [[0, 0, 1], [0, 0, 9]]])
    assert torch.allclose(measure.distances(a), torch.tensor([16 / 25, 0.0, 1.0]), atol=1e-6)
    assert torch.allclose(measure.distances(7 * a), measure.distances(a), atol=1e-6)
    assert measure.unlike(a) == [True, False, True]


def test_directions_are_those_of_numpys_svd(monkeypatch):
    monkeypatch.setattr(familiarity, "DIRECTIONS", 5)
    data, reader = random_set()
    learnt = learnt_from(data, reader)
    means = torch.stack([reader.vectors[e.image_id].mean(0) for e in data.split("train")]).double().numpy()
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = np.linalg.svd(means, full_matrices=False)[2][:5]
    found = learnt.span().double().numpy()
    assert np.allclose(found @ found.T, np.eye(5), atol=0.03)
    assert np.allclose(np.linalg.svd(found @ expected.T)[1], 1, atol=0.01)  # the same span


def a_captioner():
    return Captioner(tiny.the_recipe(), Vocabulary(["a", "red", "circle"]), encoders.create("tiny")).eval()


def test_a_file_keeps_it_exactly(tmp_path):
    data, reader = random_set(dim=tiny.DIM)
    made = a_captioner()
    made.familiarity = learnt_from(data, reader)
    for storage in ("float32", "int8"):
        made.save(tmp_path / "model.safetensors", storage)
        read = Captioner.load(tmp_path / "model.safetensors").familiarity
        assert read == made.familiarity


def test_captions_say_so_and_a_file_without_it_says_nothing(tmp_path):
    made = a_captioner()
    photos = [tiny.draw(example) for example in tiny.data().examples[:3]]
    plain = made.caption(photos)
    assert [caption.unlike for caption in plain] == [None] * 3
    made.save(tmp_path / "old.safetensors")
    assert Captioner.load(tmp_path / "old.safetensors").familiarity is None
    every = Familiarity(bytes(tiny.DIM), [1.0], 0.5)  # spans nothing: all are unlike
    made.familiarity = every
    marked = made.caption(photos)
    assert [caption.unlike for caption in marked] == [True] * 3
    assert [caption.words for caption in marked] == [caption.words for caption in plain]
    assert all(
        one.log_probability == pytest.approx(other.log_probability) for one, other in zip(marked, plain, strict=True)
    )


@pytest.mark.slow
def test_the_shipped_model_recognises_noise_and_most_drawings():
    """Flickr8k's photographs cannot come along, so this holds only the other side: images that it must not take for one."""
    captioner = Captioner.load(shipped.model())
    random = np.random.default_rng(3)
    noise = [Image.fromarray(random.integers(0, 256, (224, 224, 3), dtype=np.uint8)) for _ in range(2)]
    drawn = scenes.load(0, 0, 20)
    drawings = [drawn.photo(example) for example in drawn.examples]
    unlike = [caption.unlike for caption in captioner.caption([*noise, *drawings], beam=1)]
    assert all(unlike[:2])
    assert sum(unlike[2:]) >= 15  # 16
