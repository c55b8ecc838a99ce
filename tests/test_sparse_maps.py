"""Sparse normalisers in a whole captioner: each trains, is saved with its recipe, and leaves places at exactly 0; what they cannot do is refused."""

import pytest
import tiny
import torch

from satlib import recipe
from satlib.errors import SatlibError
from satlib.model import attention
from satlib.model.captioner import Captioner
from satlib.training import loop

CHANGES = ("training.learning_rate=0.03", "training.select=nll", "decoder.dropout=0.0")


def maps(captioner, data):
    """The maps of the test split's first references, all words of all images: (N, L)."""
    found = []
    for example in data.split("test"):
        a = tiny.Reader().read([example.image_id])
        ids = captioner.vocabulary.encode(example.references[0])
        with torch.no_grad():
            found.append(captioner.decoder(captioner.annotations(a), torch.tensor([ids])).alphas[0])
    return torch.cat(found)


def test_it_trains_and_is_loaded_as_it_was_saved(tmp_path):
    data = tiny.data()
    for normaliser in ("softmax", "sparsemax", "entmax"):
        chosen = tiny.the_recipe(f"decoder.normaliser={normaliser}", *CHANGES)
        trained = loop.train(chosen, data, tiny.Reader(), tmp_path / normaliser, progress=False)
        loaded = Captioner.load(tmp_path / normaliser / "model.safetensors")
        assert loaded.recipe.decoder.normaliser == normaliser
        assert loaded.decoder.attention.normalise is attention.NORMALISERS[normaliser]
        alphas = maps(loaded, data)
        torch.testing.assert_close(alphas, maps(trained.cpu(), data))
        torch.testing.assert_close(alphas.sum(1), torch.ones(len(alphas)))
        with torch.no_grad():
            loaded.decoder.attention.energy.energy.weight.mul_(30)  # energies that differ by more than 1
        assert bool((maps(loaded, data) == 0).any()) == (normaliser != "softmax")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("decoder.attention=hard", r'decoder\.attention = "soft", not "hard"'),
        ("decoder.attention=none", r'decoder\.attention = "soft", not "none"'),
        ("objective.boxes=1.0", r"objective\.boxes = 0"),
        ("objective.words=1.0", r"objective\.words = 0"),
    ],
)
@pytest.mark.parametrize("normaliser", ["sparsemax", "entmax"])
def test_what_does_not_go_together(normaliser, change, message):
    with pytest.raises(SatlibError, match=rf'decoder\.normaliser = "{normaliser}" needs ' + message):
        recipe.load("flickr8k-lite0-soft", [f"decoder.normaliser={normaliser}", change])
