"""Attention against masks and boxes: measures by hand and by loops over pixels, maps that are right or wrong on purpose."""

import json
import math
import re

import entities_files
import numpy as np
import pytest
import tiny
import torch
from entities_files import CHILD, GIRL, annotation
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional

from satlib import recipe
from satlib.data import coco, images, scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps, plots
from satlib.evaluation.maps import Measurement, Mention
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
        left, top, right, bottom = coco.in_square([x, y, width, height], size, view)
        ys, xs = np.nonzero(seen)
        assert (left, top, right, bottom) == pytest.approx((xs.min(), ys.min(), xs.max() + 1, ys.max() + 1), abs=1.5)

    def test_words_that_name_a_category(self, tmp_path):
        objects = {"dog": [0, 0, 100, 100], "person": [200, 0, 50, 400], "fire hydrant": [200, 200, 20, 20]}
        boxes = coco.Boxes(self.file(tmp_path, [*objects.items(), ("dog", [300, 300, 50, 50])]))
        words = scenes.grammar.split("two dogs and a man near a fire hydrant and a fire")
        assert [(words[index], name) for index, name, _ in boxes.named("a.jpg", words)] == [
            ("dogs", "dog"), ("man", "person"), ("hydrant", "fire hydrant")
        ]  # fmt: skip
        assert boxes.named("other.jpg", words) == []

    def test_ground_by_boxes(self, tmp_path):
        data = CaptionSet("photos", (Example("a.jpg", "test", ("A dog.",)),))
        alphas = torch.zeros(3, 7, 7)
        alphas[:, 2, 3] = 1
        captions = {"a.jpg": Caption(["a", "dog"], 0.0, alphas, torch.ones(3))}
        (dog,) = maps.ground(data, captions, coco.Boxes(self.file(tmp_path)))
        assert dog.values["pointing"] == 1
        with pytest.raises(SatlibError, match="give boxes"):
            maps.ground(data, captions)
        with pytest.raises(SatlibError, match="are these the right boxes"):
            maps.ground(data, captions, coco.Boxes(self.file(tmp_path, (("cat", [0, 0, 9, 9]),))))

    def test_not_boxes(self, tmp_path):
        path = tmp_path / "captions.json"
        path.write_text('{"images": [], "annotations": []}')
        with pytest.raises(SatlibError, match="is not a file of boxes"):
            coco.Boxes(path)
        with pytest.raises(SatlibError, match="none"):
            coco.Boxes(tmp_path / "none.json")


def test_interpolation_by_hand():
    """Four pixels over two cells: their centres lie at -0.25, 0.25, 0.75 and 1.25 cells, the first and last beyond the cells'."""
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
    torch.testing.assert_close(maps.interpolation(2, 4), expected)


def measures(alpha, *boxes):
    """Those of a word with this map (h, w), against boxes."""
    caption = Caption(["dog"], 0.0, torch.stack([alpha, alpha]), torch.ones(2))
    return maps.measure_mentions([(caption, [Mention(0, (), boxes)])])[0].values


def test_boxes_by_hand():
    """A map of 2x2 whose left column has all the weight.

    Upsampled to 224 pixels, each row is 1 for 56 pixels, falls to 0 over 112, and is 0 for 56: it sums to 56 + 112 / 2 = 112. The
    left half has 56 + 56 * (1 + 0.5) / 2 = 98 of that, which is 7/8; the first quarter has 56, which is 1/2. The centre's pixel is
    right of the middle.
    """
    alpha = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    names = ("mass", "mass even", "mass best cell", "peak", "peak centre")
    for right, left, expected in (
        (0.5, 0, [7 / 8, 1 / 2, 7 / 8, 1, 0]), (0.25, 0, [1 / 2, 1 / 4, 1 / 2, 1, 0]), (1, 0.5, [1 / 8, 1 / 2, 7 / 8, 0, 1])
    ):  # fmt: skip
        found = measures(alpha, (left, 0, right, 1))
        assert [found[name] for name in names] == pytest.approx(expected)
    torch.testing.assert_close(maps.upsample(alpha)[0, [0, 55, 223]] * 112 * 224, torch.tensor([1.0, 1, 0]).double())
    assert maps.peaks(alpha) == 0  # the first of the pixels that are 1
    # The cells of 2x2 have their first largest pixel in rows and columns 0 and 168.
    assert maps.cell_peaks(2, 2).tolist() == [0, 168, 168 * 224, 168 * 224 + 168]
    assert [measures(alpha, (left / 224, 0.5, 1, 1))["peak best cell"] for left in (168, 169)] == [1, 0]
    union = measures(alpha, (0, 0, 0.5, 1), (0.25, 0, 0.5, 0.5), (0, 0, 1, 0.25))
    assert union["mass even"] == 0.5 + 0.5 * 0.25  # a pixel counts once


@pytest.mark.parametrize(
    ("box", "pixels"), [((0.3, 0, 0.30001, 1), 224), ((0.5, 0.5, 0.75, 0.75), 56**2), ((0, 0, 1, 1), 224**2)]
)
def test_pixels_of_a_box(box, pixels):
    """A box has each pixel that it touches: a thin one has a column, and one along the edges of pixels has no more than it covers."""
    assert maps.inside_boxes([box]).sum() == pixels


shares = st.integers(0, 97).flatmap(
    lambda low: st.tuples(st.just(low / 97), st.integers(low + 1, 98).map(lambda high: high / 98))
)
boxes = (
    st.tuples(shares, shares)
    .filter(lambda axes: all(low < high for low, high in axes))
    .map(lambda axes: (axes[0][0], axes[1][0], axes[0][1], axes[1][1]))
)


def by_loops(alpha, boxes):
    """(mass, area, peak) with every pixel visited."""
    height, width = len(alpha), len(alpha[0])

    def around(pixel, cells):
        at = min(max((pixel + 0.5) * cells / 224 - 0.5, 0.0), cells - 1.0)
        low = min(int(at), max(cells - 2, 0))
        return low, min(low + 1, cells - 1), at - low

    total = inside = count = 0.0
    best, hit = -1.0, False
    for y in range(224):
        above, below, down = around(y, height)
        for x in range(width and 224):
            before, after, right = around(x, width)
            upper = (1 - right) * alpha[above][before] + right * alpha[above][after]
            lower = (1 - right) * alpha[below][before] + right * alpha[below][after]
            value = (1 - down) * upper + down * lower
            pixel = (x, y)
            within = any(
                all(box[i] * 224 < pixel[i] + 1 - 1e-9 and pixel[i] + 1e-9 < box[i + 2] * 224 for i in (0, 1))
                for box in boxes
            )
            total, inside, count = total + value, inside + value * within, count + within
            if value > best + 1e-12:
                best, hit = value, within
    return inside / total, count / 224**2, hit


@settings(max_examples=12, deadline=None, phases=(Phase.generate,))  # shrinking would take minutes
@given(st.integers(1, 5), st.integers(1, 5), st.lists(boxes, min_size=1, max_size=3), st.integers(0, 10**6))
def test_against_loops_over_pixels(height, width, boxes, seed):
    alpha = np.random.default_rng(seed).dirichlet(np.ones(height * width)).reshape(height, width)
    map_ = torch.tensor(alpha)
    found = measures(map_, *boxes)
    mass, area, hit = by_loops(alpha.tolist(), boxes)
    assert found["mass"] == pytest.approx(mass)
    assert found["mass even"] == pytest.approx(area)
    if height > 1 or width > 1:  # otherwise all pixels are equal, but for rounding
        assert found["peak"] == hit
    direct = functional.interpolate(map_[None, None], size=(224, 224), mode="bilinear", align_corners=False)[0, 0]
    torch.testing.assert_close(maps.upsample(map_), direct / direct.sum())
    cells = [measures(cell, *boxes)["mass"] for cell in torch.eye(height * width).view(-1, height, width)]
    assert found["mass best cell"] == pytest.approx(max(cells))
    assert mass <= max(cells) + 1e-9
    assert math.isclose(measures(map_, (0, 0, 1, 1))["mass"], 1)


LEFT, RIGHT = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)
REFERENCES = (
    "A child in a pink dress near the hills.",
    "The girl's dress, which is pink.",
    "A caption that nobody annotated",
)
WORDS = ("a", "child", "in", "dress", "pink", "the", "is")


class Reader:
    """Annotation vectors that only the image id decides."""

    def read(self, image_ids):
        made = [torch.randn(4, tiny.DIM, generator=torch.Generator().manual_seed(int(name[:2]))) for name in image_ids]
        return torch.stack(made)


@pytest.fixture
def world(tmp_path):
    """A captioner that was never trained, three photographs, and the annotations of two of them."""
    examples = tuple(Example(f"{number}_x.jpg", "test", REFERENCES) for number in (17, 18, 19))
    data = CaptionSet(
        "photos", examples, draw=lambda example: tiny.draw(Example(f"test-{example.image_id[:2]}", "test", ()))
    )
    files = {number: (annotation(), [GIRL, CHILD]) for number in ("17", "18")}
    entities = Entities(entities_files.write(tmp_path / "entities", files))
    made = lambda *changes: Captioner(tiny.the_recipe(*changes), Vocabulary(WORDS), encoders.create("tiny")).eval()  # noqa: E731
    return made, data, entities


def test_mentions_by_hand():
    """Two words on 2x2 maps: all weight in the left column has 7/8 in the left half (see test_boxes_by_hand), in the right one 1/8."""
    left, right = torch.tensor([[0.5, 0], [0.5, 0]]), torch.tensor([[0, 0.5], [0, 0.5]])
    caption = Caption(
        ["dog", "ball"], 0.0, torch.stack([left, right, right]), torch.ones(3)
    )  # the end mark looks right
    names = [Mention(0, ("animals",), (LEFT,)), Mention(1, ("other",), (LEFT,))]
    dog, ball = maps.measure_mentions([(caption, names)])
    assert (dog.word, dog.kinds, ball.word) == ("dog", ("animals",), "ball")
    even = {"mass even": 0.5, "mass mean map": 0.5, "mass best cell": 7 / 8, "peak centre": 0, "peak best cell": 1}
    # the mean of the words' maps is even, and its first pixel is in the left half
    assert dog.values == pytest.approx({**even, "mass": 7 / 8, "peak": 1, "peak mean map": 1})
    assert ball.values == pytest.approx({**even, "mass": 1 / 8, "peak": 0, "peak mean map": 1})
    (without,) = maps.measure_mentions([(caption, names[:1])], peaked=False)
    assert set(without.values) == set(maps.MASS)


def test_words_that_are_measured(world):
    _, data, entities = world
    example, photo = data.examples[0], ("17_x.jpg", "whole", None)
    true = [maps.in_reference(entities, photo, text, "") for text in example.references]
    child, dress = ((0.1, 0.1, 0.3, 0.9),), ((0.1, 0.5, 0.3, 0.7),)
    assert true == [
        [
            Mention(1, ("people",), child),
            Mention(5, ("clothing",), dress),
        ],  # "child" and "dress"; the hills have no box
        [Mention(1, ("people",), child), Mention(2, ("clothing", "other"), dress)],
        None,
    ]
    said = "dress on the girl and the hills dress"  # Entities writes "girl 's", so "girl" is a last word
    both = ("clothing", "other")
    assert maps.in_caption(entities, photo, said.split()) == [
        Mention(0, both, dress),
        Mention(3, ("people",), child),
        Mention(7, both, dress),
    ]


def test_boxes_of_all_phrases_with_the_same_last_word(tmp_path):
    objects = ((("1",), (0, 0, 100, 100)), (("2",), (100, 0, 200, 100)))
    captions = ["[/EN#1/people A man] and [/EN#2/people a tall man]", "[/EN#1/animals The man]"]
    entities = Entities(entities_files.write(tmp_path, {"1": (annotation(objects=objects), captions)}))
    (man,) = maps.in_caption(entities, ("1.jpg", "whole", None), ["one", "man"])
    assert man == Mention(1, ("people", "animals"), (LEFT, RIGHT))


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_maps_of_true_captions(world, attention):
    """Against the decoder given one caption at a time, without padding, its words looked up by hand."""
    captioner = world[0](f"decoder.attention={attention}")
    a = Reader().read(["17", "18"])
    captions = maps.forced(captioner, a, [REFERENCES[:2], REFERENCES[1:]])
    assert [[caption.words[0] for caption in each] for each in captions] == [["a", "the"], ["the", "a"]]
    for image, references in enumerate((REFERENCES[:2], REFERENCES[1:])):
        for caption, reference in zip(captions[image], references, strict=True):
            words = re.findall(r"[\w']+", reference.lower())
            assert caption.words == words
            ids = [2 + WORDS.index(word) if word in WORDS else 1 for word in words] + [0]
            output = captioner.decoder(a[image : image + 1], torch.tensor([ids]))
            torch.testing.assert_close(caption.alphas.flatten(1), output.alphas[0])
            torch.testing.assert_close(caption.betas, output.betas[0])
            log_p = sum(output.logits[0, t].log_softmax(0)[word].item() for t, word in enumerate(ids))
            assert caption.log_probability == pytest.approx(log_p, rel=1e-5)
    assert maps.forced(captioner, a, [[], []]) == [[], []]


def said(captioner, data):
    """The same generated caption of the first two photographs, and its maps, which are even."""
    caption = Caption(["a", "pink", "dress"], 0.0, torch.full((4, 2, 2), 0.25), torch.ones(4))
    return {example.image_id: caption for example in data.examples[:2]}


@pytest.mark.parametrize("attention", ["soft", "none"])
def test_a_split(world, attention):
    captioner_with, data, entities = world
    captioner = captioner_with(f"decoder.attention={attention}")
    report = maps.ground_phrases(
        captioner, data, Reader(), entities, data.examples, said(captioner, data), progress=False
    )
    assert report["counts"] == {
        "images": 2, "images without annotations": 1, "references": 4, "references not found": 2
    }  # fmt: skip
    references = maps.forced(captioner, Reader().read(["17", "18"]), [REFERENCES[:2]] * 2)
    alphas = [caption.alphas.flatten(1) for image in references for caption in image]
    entropy = sum(-(alpha * alpha.log()).sum(1).mean() for alpha in alphas) / len(alphas)
    assert report["entropy share"] == pytest.approx(100 * float(entropy) / math.log(4), rel=1e-5)
    moved = sum(each.diff(dim=0).abs().sum(1).mean() / 2 for each in alphas) / len(alphas)
    assert report["movement"] == pytest.approx(float(moved), abs=1e-6)
    overall = report["true"]["all"]
    assert (overall["phrases"], report["generated"]["all"]["phrases"]) == (8, 2)
    assert overall["mass even"] == pytest.approx(100 * (45 * 180 + 45 * 46) / 2 / 224**2, rel=0.03)
    if attention == "none":
        assert "peak" not in overall
        assert overall["mass"] == pytest.approx(overall["mass even"])
    else:
        assert set(maps.PEAK) < set(overall)
    text = maps.render_phrases(report)
    assert "Flickr30k Entities has no annotations of 1 photographs" in text
    assert "4 reference captions of 2 photographs; 2 more are worded differently" in text


def test_none_of_the_captions(world):
    captioner_with, data, entities = world
    captioner, others = captioner_with(), (Example("17_x.jpg", "test", ("Another caption",)),)
    with pytest.raises(SatlibError, match="has none of the captions of photos test"):
        maps.ground_phrases(
            captioner, data, Reader(), entities, others, {"17_x.jpg": said(captioner, data)["17_x.jpg"]}
        )


def measured(mass, even, *kinds):
    return Measurement("dog", kinds, {"mass": mass, "mass even": even})


def test_means_by_hand():
    words = [
        measured(0.2, 0.05, "people"),
        measured(0.4, 0.1, "people", "other"),
        measured(0.6, 0.4, "animals"),
        measured(1.0, 0.41, "people"),
    ]
    found = maps.phrase_summary(words)
    assert found["all"]["mass"] == pytest.approx(55)
    assert list(found["by kind"]) == ["people", "animals", "other"]
    assert {kind: (means["phrases"], round(means["mass"], 9)) for kind, means in found["by kind"].items()} == {
        "people": (3, round(100 * 1.6 / 3, 9)), "animals": (1, 60), "other": (1, 40)
    }  # fmt: skip
    assert {size: means["phrases"] for size, means in found["by size"].items()} == {
        "below 10 %": 1,
        "10 to 40 %": 2,
        "above 40 %": 1,
    }
    assert maps.phrase_summary([]) == {"all": {"phrases": 0}, "by kind": {}, "by size": {}}
