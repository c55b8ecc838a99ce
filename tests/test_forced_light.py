"""Light on the other object: which words are asked about, where the light is put, and how an answer is counted."""

import forced_light
import pytest
import tiny
import torch

from satlib.data import scenes
from satlib.model import shipped
from satlib.model.captioner import Captioner

SCENE = scenes.scene("test-000000")  # a big purple triangle left of a big green star with dots


def test_words_that_tell_the_objects_apart():
    """Both are big; the texture is not asked about, and neither is a false word."""
    words = ["a", "big", "purple", "triangle", "to", "the", "left", "of", "a", "big", "dotted", "red", "star"]
    assert forced_light.telling(words, SCENE) == [(2, "colour", 0), (3, "shape", 0), (12, "shape", 1)]


@pytest.mark.parametrize(
    ("answer", "outcome"), [("purple", (False, True)), ("green", (True, False)), ("red", (False, False))]
)
def test_light_and_answer(monkeypatch, answer, outcome):
    captioner = Captioner.load(shipped.model("scenes-soft"))
    number = captioner.vocabulary.number
    monkeypatch.setattr(forced_light, "telling", lambda words, scene: [(words.index("purple"), "colour", 0)])

    places = iter((0, 1))  # first on its own object, then on the other

    def look(captioner, a, captions, index, maps):
        assert captions[0][index[0]] == "purple"
        cover = torch.tensor(SCENE.masks[next(places)]).float().view(14, 16, 14, 16).mean((1, 3)).flatten()
        torch.testing.assert_close(maps, (cover / cover.sum()).unsqueeze(0))
        return torch.eye(len(captioner.vocabulary))[[number(answer)]]

    monkeypatch.setattr(forced_light, "look_again", look)
    assert forced_light.follow(captioner, SCENE) == {"own object": [outcome], "other object": [outcome]}


def test_lights_of_a_transformer():
    decoder = tiny.decided(
        changes=("decoder.kind=transformer", "decoder.hidden=16", "decoder.layers=2", "decoder.heads=2")
    ).decoder
    moved = {name: (other, maps.flatten().tolist()) for name, (other, maps) in forced_light.lights(decoder).items()}
    assert moved.pop("own object") == (False, [1, 1, 1, 1])
    assert all(other for other, _ in moved.values())
    assert {name: maps for name, (_, maps) in moved.items()} == {
        "other object": [1, 1, 1, 1],
        "layer 1": [1, 1, 0, 0],
        "layer 2": [0, 0, 1, 1],
        "layer 1, head 1": [1, 0, 0, 0],
        "layer 1, head 2": [0, 1, 0, 0],
        "layer 2, head 1": [0, 0, 1, 0],
        "layer 2, head 2": [0, 0, 0, 1],
    }
