"""Attention against masks: measures by hand, boxes through the crop, and maps that are right or wrong on purpose."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from satlib import recipe
from satlib.data import images, scenes
from satlib.data.datasets import CaptionSet, Example
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, ground, plots
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner


def mask(left, top, right, bottom):
    made = np.zeros((224, 224), dtype=bool)
    made[top:bottom, left:right] = True
    return made


def test_measures_by_hand():
    """A grid of 2x2: the object covers half of the top left cell (112 px) and is 15 px away from the other centres or more."""
    alphas = torch.tensor([[[0.6, 0.2], [0.1, 0.1]], [[0.0, 0.0], [1.0, 0.0]], [[0.25, 0.25], [0.25, 0.25]]])
    caption = Caption(["star", "red"], -1.0, alphas, torch.ones(3))
    star, red = ground.measure(
        caption, [ground.Target(0, "shape", mask(0, 0, 56, 112)), ground.Target(1, "colour", mask(0, 0, 56, 112))]
    )
    assert (star.word, star.kind, red.word) == ("star", "shape", "red")
    assert (star.mass, red.mass, star.mass_chance) == pytest.approx((0.3, 0, 0.125))
    assert star.mass_still == pytest.approx(0.15)  # the mean of the two words' maps: 0.3 in that cell
    assert (star.pointing, red.pointing, star.pointing_chance) == (1, 0, 0.25)
    assert star.pointing_still == 0  # the mean map's peak is below
    # upsampled, the first map is largest in all of the corner, the second below row 168; only the first cell's peak is in it
    assert (star.pointing_strict, red.pointing_strict, star.pointing_strict_chance) == (1, 0, 0.25)
    assert star.pointing_strict_still == 0


def test_strict_pointing_has_no_tolerance():
    """All weight in the second cell of 2x2: its peak is at column 168, which an object from column 169 on does not contain."""
    alphas = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]] * 2)
    for left, hit in ((168, 1), (169, 0)):
        (word,) = ground.measure(
            Caption(["star"], -1.0, alphas, torch.ones(2)), [ground.Target(0, "shape", mask(left, 0, 224, 112))]
        )
        assert (word.pointing, word.pointing_strict) == (1, hit)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("away", "hit"), [(14, True), (15, False)])
def test_pointing_tolerates_15_pixels(away, hit, turned):
    """The first cell of 4x4 has its centre at (27.5, 27.5): one pixel 14.5 or 15.5 away from it."""
    one = np.zeros((224, 224), dtype=bool)
    one[27, 28 + away] = True
    assert ground._cells(one.T if turned else one, (4, 4))[1][0, 0] == hit


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
        found = ground.summary(ground.ground(*captions_looking(cells)))
        overall = found["all"]
        assert overall["pointing"] > 95
        assert overall["mass"] > 2 * overall["mass_chance"]
        assert overall["pointing"] > overall["pointing_still"] > overall["pointing_chance"]
        assert set(found["by class"]) == {"size", "colour", "shape", "texture"}
        assert sum(figures["words"] for figures in found["by class"].values()) == overall["words"]
        assert all(figures["words"] >= 5 for figures in found["by word"].values())

    def test_maps_that_look_nowhere_are_at_chance(self):
        overall = ground.summary(ground.ground(*captions_looking(lambda of: np.full((7, 7), 1 / 49))))["all"]
        assert overall["mass"] == pytest.approx(overall["mass_chance"])
        assert overall["mass_still"] == pytest.approx(overall["mass_chance"])

    def test_maps_that_look_away(self):
        away = lambda of: cells(None if of is None else ~of & (cells(of) == 0).repeat(32, 0).repeat(32, 1))  # noqa: E731
        overall = ground.summary(ground.ground(*captions_looking(away)))["all"]
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
            overall = ground.summary(ground.ground(data, captions))["all"]
            assert figures["pointing"] == overall["pointing"]
            assert figures["pointing strict"] == overall["pointing strict"]
            assert figures["pointing by chance"] == overall["pointing_chance"]

    def test_render_and_figure(self, tmp_path):
        found = ground.summary(ground.ground(*captions_looking(cells)))
        text = ground.render(found)
        assert f"{found['all']['pointing']:.1f}" in text
        assert all(name in text for name in ("size", "colour", "shape", "texture"))
        plots.save(plots.ground_figure(found), tmp_path / "ground.png")
        assert Image.open(tmp_path / "ground.png").width > 1000


def test_words_that_are_false_of_what_their_phrase_describes():
    """A scene's true caption with words put wrong: another shape in one phrase, nothing wrong in the other."""
    for example in scenes.load(0, 0, 12).examples:
        scene = scenes.scene(example.image_id)
        first, second = scene.objects
        wrong = next(shape for shape in scenes.grammar.SHAPES if shape not in (first.shape, second.shape))
        words = f"a {first.size} {first.colour} {wrong} above a {second.size} {second.colour} {second.shape}".split()
        (target,) = ground.scene_mistakes(example, words)
        assert (target.index, target.kind) == (3, "shape")
        assert (target.mask == scene.masks[0]).all()
        assert not ground.scene_mistakes(example, [*words[:3], first.shape, *words[4:]])
        assert all(target.index != each.index for each in ground.scene_targets(example, words))
        assert not ground.scene_mistakes(example, ["a", "white", "dog"])


class TestBoxes:
    def file(self, tmp_path, boxes=(("dog", [100, 50, 200, 100]),), size=(500, 400)):
        names = sorted({name for name, _ in boxes})
        content = {
            "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
            "images": [{"id": 7, "file_name": "a.jpg", "width": size[0], "height": size[1]}],
            "annotations": [{"image_id": 7, "category_id": names.index(name), "bbox": box} for name, box in boxes],
        }
        path = tmp_path / "instances.json"
        path.write_text(json.dumps(content))
        return path

    @pytest.mark.parametrize("view", images.VIEWS)
    @pytest.mark.parametrize("size", [(500, 400), (300, 900), (224, 224), (640, 480)])
    def test_in_square_is_where_the_encoder_sees_it(self, size, view):
        """Against the picture itself: a white box drawn on black, as encoders see it."""
        box = [size[0] * 0.3, size[1] * 0.35, size[0] * 0.3, size[1] * 0.25]
        photo = np.zeros((size[1], size[0], 3), dtype=np.uint8)
        x, y, width, height = (round(each) for each in box)
        photo[y : y + height, x : x + width] = 255
        seen = np.asarray(images.square(Image.fromarray(photo), view))[:, :, 0] > 127
        left, top, right, bottom = ground.in_square([x, y, width, height], size, view)
        ys, xs = np.nonzero(seen)
        assert (left, top, right, bottom) == pytest.approx((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1), abs=1.5)

    def test_words_that_name_a_category(self, tmp_path):
        boxes = ground.Boxes(
            self.file(
                tmp_path,
                (
                    ("dog", [0, 0, 100, 100]),
                    ("dog", [300, 300, 50, 50]),
                    ("person", [200, 0, 50, 400]),
                    ("fire hydrant", [200, 200, 20, 20]),
                ),
            )
        )
        words = scenes.grammar.split("two dogs and a man near a fire hydrant and a fire")
        targets = boxes.targets(Example("a.jpg", "test", ("x",)), words)
        assert [(words[t.index], t.kind) for t in targets] == [
            ("dogs", "dog"),
            ("man", "person"),
            ("hydrant", "fire hydrant"),
        ]
        assert boxes.targets(Example("other.jpg", "test", ("x",)), words) == []

    def test_ground_by_boxes(self, tmp_path):
        data = CaptionSet("photos", (Example("a.jpg", "test", ("A dog.",)),))
        alphas = torch.zeros(3, 7, 7)
        alphas[:, 2, 3] = 1
        captions = {"a.jpg": Caption(["a", "dog"], 0.0, alphas, torch.ones(3))}
        (dog,) = ground.ground(data, captions, ground.Boxes(self.file(tmp_path)))
        assert dog.pointing == 1
        with pytest.raises(SatlibError, match="give boxes"):
            ground.ground(data, captions)
        with pytest.raises(SatlibError, match="are these the right boxes"):
            ground.ground(data, captions, ground.Boxes(self.file(tmp_path, (("cat", [0, 0, 9, 9]),))))

    def test_not_boxes(self, tmp_path):
        path = tmp_path / "captions.json"
        path.write_text('{"images": [], "annotations": []}')
        with pytest.raises(SatlibError, match="is not a file of boxes"):
            ground.Boxes(path)
        with pytest.raises(SatlibError, match="none"):
            ground.Boxes(tmp_path / "none.json")
