"""Attention against the objects of scenes: measures by hand, maps that are right or wrong on purpose."""

import numpy as np
import pytest
import torch
from PIL import Image

from satlib import recipe
from satlib.data import scenes
from satlib.data.caption_set import CaptionSet
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps, plots
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner


def mask(left, top, right, bottom):
    inside = np.zeros((224, 224), dtype=bool)
    inside[top:bottom, left:right] = True
    return inside


def test_measures_by_hand():
    """A grid of 2x2: the object covers half of the top left cell (112 px) and is 15 px away from the other centres or more.

    Upsampled, the first map is largest in all of the corner, the second below row 168; only the first cell's peak is in it. The
    mean of the two maps has 0.3 in that cell, and its peak below.
    """
    alphas = torch.tensor([[[0.6, 0.2], [0.1, 0.1]], [[0.0, 0.0], [1.0, 0.0]], [[0.25, 0.25], [0.25, 0.25]]])
    caption, corner = Caption(["star", "red"], -1.0, alphas, torch.ones(3)), mask(0, 0, 56, 112)
    star, red = maps.measure(caption, [maps.Target(0, "shape", corner), maps.Target(1, "colour", corner)])
    assert (star.word, star.kinds, red.word) == ("star", ("shape",), "red")
    chance = {"mass_still": 0.15, "mass_chance": 0.125, "pointing_still": 0, "pointing_chance": 0.25}
    chance |= {"pointing strict_still": 0, "pointing strict_chance": 0.25}
    assert star.values == pytest.approx({"mass": 0.3, "pointing": 1, "pointing strict": 1, **chance})
    assert red.values == pytest.approx({"mass": 0, "pointing": 0, "pointing strict": 0, **chance})


def test_strict_pointing_has_no_tolerance():
    """All weight in the second cell of 2x2: its peak is at column 168, which an object from column 169 on does not contain."""
    alphas = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]] * 2)
    for left, hit in ((168, 1), (169, 0)):
        target = maps.Target(0, "shape", mask(left, 0, 224, 112))
        (word,) = maps.measure(Caption(["star"], -1.0, alphas, torch.ones(2)), [target])
        assert (word.values["pointing"], word.values["pointing strict"]) == (1, hit)


class Planted:
    """In place of a captioner of scenes: true captions and light on the right objects, but for some faults."""

    def __init__(self, faults: dict[str, str]) -> None:
        self.of_pixels = {}
        for number in range(6):
            scene = scenes.scene(f"test-{number:06}")
            self.of_pixels[scene.photo().tobytes()] = scene
        self.faults = faults

    def caption(self, photos, beam):
        assert beam == 1
        scene = self.of_pixels[photos[0].tobytes()]
        words, fault = (
            scene.captions[0].lower().rstrip(".").replace(",", "").split(),
            self.faults.get(scene.image_id, ""),
        )
        alphas = torch.full((len(words) + 1, 14, 14), 1e-3)
        named = [index for index, thing in enumerate(scenes.mentions(words, scene)) if thing is not None]
        for index in named:
            mask = scene.masks[scenes.mentions(words, scene)[index]]
            if fault == "one peak beside" and index == named[-1]:
                mask = ~mask
            # The cell that the object fills most; all its light is there.
            alphas[index].view(-1)[torch.from_numpy(mask).float().view(14, 16, 14, 16).mean((1, 3)).argmax()] = 1
        if fault == "one word wrong":
            words = [
                "small" if word in ("big", "large") else "big" if word in ("small", "little") else word
                for word in words
            ]
        return [Caption(words, -1.0, alphas / alphas.sum((1, 2), keepdim=True), torch.ones(len(alphas)))]


def test_exemplary_scenes_are_right_and_lit_where_they_should_be():
    faults = {"test-000000": "one word wrong", "test-000001": "one peak beside", "test-000003": "one peak beside"}
    found = maps.exemplary(Planted(faults), beam=1)
    for expected in ("test-000002", "test-000004", "test-000005"):
        scene, caption = next(found)
        assert scene.image_id == expected
        assert scenes.exact_match(caption.words, scene)


def test_a_model_without_an_exemplary_scene_is_named(monkeypatch):
    few = scenes.load(0, 0, 3)
    monkeypatch.setattr(scenes, "load", lambda train, dev: few)
    with pytest.raises(SatlibError, match="train the model for longer"):
        next(maps.exemplary(Planted({f"test-{number:06}": "one word wrong" for number in range(3)}), beam=1))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("away", "hit"), [(14, True), (15, False)])
def test_pointing_tolerates_15_pixels(away, hit, turned):
    """The first cell of 4x4 has its centre at (27.5, 27.5): one pixel 14.5 or 15.5 away from it."""
    one = np.zeros((224, 224), dtype=bool)
    one[27, 28 + away] = True
    assert maps.cells(one.T if turned else one, (4, 4))[1][0, 0] == hit


def captions_looking(look):
    """The true captions of some scenes, with maps made by look(mask of the object that the word names, or None)."""
    data = scenes.load(0, 0, 12)
    captions = {}
    for example in data.examples:
        words = scenes.grammar.split(example.references[0])
        masks = scenes.scene(example.image_id).masks
        numbers = scenes.mentions(words, scenes.scene(example.image_id))
        maps = [look(None if number is None else masks[number]) for number in numbers]
        alphas = torch.tensor(np.stack([*maps, maps[-1]]))
        captions[example.image_id] = Caption(words, 0.0, alphas, torch.ones(len(alphas)))
    return data, captions


def cells(of):
    weights = of.reshape(7, 32, 7, 32).mean((1, 3)) if of is not None else np.ones((7, 7))
    return weights / weights.sum()


class TestScenes:
    def test_maps_that_look_at_what_is_named(self):
        found = maps.summary(maps.ground(*captions_looking(cells)))
        overall = found["all"]
        assert overall["pointing"] > 95
        assert overall["mass"] > 2 * overall["mass_chance"]
        assert overall["pointing"] > overall["pointing_still"] > overall["pointing_chance"]
        assert set(found["by class"]) == {"size", "colour", "shape", "texture"}
        assert sum(figures["words"] for figures in found["by class"].values()) == overall["words"]
        assert all(figures["words"] >= 5 for figures in found["by word"].values())

    def test_maps_that_look_nowhere_are_at_chance(self):
        overall = maps.summary(maps.ground(*captions_looking(lambda of: np.full((7, 7), 1 / 49))))["all"]
        assert overall["mass"] == pytest.approx(overall["mass_chance"])
        assert overall["mass_still"] == pytest.approx(overall["mass_chance"])

    def test_maps_that_look_away(self):
        away = lambda of: cells(None if of is None else ~of & (cells(of) == 0).repeat(32, 0).repeat(32, 1))  # noqa: E731
        overall = maps.summary(maps.ground(*captions_looking(away)))["all"]
        assert overall["mass"] == pytest.approx(0)
        assert overall["pointing"] < overall["pointing_chance"]

    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_an_evaluation_has_the_same_pointing(self, monkeypatch, tmp_path, attention):
        monkeypatch.setenv("PATH", str(tmp_path))  # no Java: METEOR is not needed
        data, captions = captions_looking(cells)
        monkeypatch.setattr(evaluate, "generate", lambda *_: captions)
        chosen = recipe.load("scenes-soft", [f"decoder.attention={attention}"])
        captioner = Captioner(chosen, Vocabulary(["a"]), encoders.create("small", pretrained=False))
        figures = evaluate.evaluate(captioner, data, None, "test")["metrics"]
        assert figures["exact match"] == 100
        if attention == "none":
            assert "pointing" not in figures
        else:
            overall = maps.summary(maps.ground(data, captions))["all"]
            assert figures["pointing"] == overall["pointing"]
            assert figures["pointing strict"] == overall["pointing strict"]
            assert figures["pointing by chance"] == overall["pointing_chance"]

    def test_render_and_figure(self, tmp_path):
        found = maps.summary(maps.ground(*captions_looking(cells)))
        text = maps.render(found)
        assert f"{found['all']['pointing']:.1f}" in text
        assert all(name in text for name in ("size", "colour", "shape", "texture"))
        plots.save(plots.ground_figure(found), tmp_path / "maps.png")
        assert Image.open(tmp_path / "maps.png").width > 1000


def test_words_that_are_false_of_what_their_phrase_describes():
    """A scene's true caption with words put wrong: another shape in one phrase, nothing wrong in the other."""
    for example in scenes.load(0, 0, 12).examples:
        scene = scenes.scene(example.image_id)
        first, second = scene.objects
        wrong = next(shape for shape in scenes.grammar.SHAPES if shape not in (first.shape, second.shape))
        words = f"a {first.size} {first.colour} {wrong} above a {second.size} {second.colour} {second.shape}".split()
        (target,) = maps.scene_mistakes(example, words)
        assert (target.index, target.kind) == (3, "shape")
        assert (target.mask == scene.masks[0]).all()
        assert not maps.scene_mistakes(example, [*words[:3], first.shape, *words[4:]])
        assert all(target.index != each.index for each in maps.scene_targets(example, words))
        assert not maps.scene_mistakes(example, ["a", "white", "dog"])


def test_interpolation_by_hand():
    """Four pixels over two cells: their centres lie at -0.25, 0.25, 0.75 and 1.25 cells, the first and last beyond the cells'."""
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
    torch.testing.assert_close(maps.interpolation(2, 4), expected)


def test_photographs_have_no_masks():
    with pytest.raises(SatlibError, match="give boxes"):
        maps.ground(CaptionSet("photos", ()), {})
