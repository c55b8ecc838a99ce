"""Any model's maps against boxes: measures by hand and by loops over pixels, files that are right or wrong on purpose."""

import dataclasses
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

from satlib.data import coco, images, scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import grounding, maps, plots
from satlib.evaluation.grounding import Entry, Judgement, Mention
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner


class TestBoxes:
    def file(self, tmp_path, boxes=(("dog", (100, 50, 200, 100)),), size=(500, 400)):
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
    @pytest.mark.parametrize("size", [(500, 400), (224, 224)])
    def test_boxes_are_where_the_encoder_sees_them(self, tmp_path, size, view):
        """Against the picture itself: a white box drawn on black, as encoders see it."""
        x, y, width, height = box = [round(size[i % 2] * share) for i, share in enumerate((0.3, 0.35, 0.3, 0.25))]
        photo = np.zeros((size[1], size[0], 3), dtype=np.uint8)
        photo[y : y + height, x : x + width] = 255
        ys, xs = np.nonzero(np.asarray(images.square(Image.fromarray(photo), view))[:, :, 0] > 127)
        boxes = coco.Boxes(self.file(tmp_path, [("dog", box), ("dog", [0, 0, 1, 1])], size))
        ((_, _, (found, *corner)),) = boxes.named("a.jpg", ["dog"], images.seen_part(size, view))
        seen = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
        assert np.abs(224 * np.array(found) - seen).max() <= 1.5
        assert len(corner) == (view == "whole" or size == (224, 224))  # the crop removes the corner

    def test_words_that_name_a_category(self, tmp_path):
        objects = {"dog": [0, 0, 100, 100], "person": [200, 0, 50, 400], "fire hydrant": [200, 200, 20, 20]}
        boxes = coco.Boxes(self.file(tmp_path, [*objects.items(), ("dog", [300, 300, 50, 50])]))
        words = scenes.grammar.split("two dogs and a man near a fire hydrant and a fire")
        assert [(words[index], name) for index, name, _ in boxes.named("a.jpg", words)] == [
            ("dogs", "dog"), ("man", "person"), ("hydrant", "fire hydrant")
        ]  # fmt: skip
        assert boxes.named("other.jpg", words) == []

    def test_by_hand(self, tmp_path):
        """A dog at columns 100 to 300 of 500 and rows 50 to 150 of 400, and a map with all weight in its middle."""
        alphas = torch.zeros(3, 7, 7)
        alphas[:, 1, 2] = 1
        entry = Entry("test/a.jpg", ("A", "Dog."), alphas)
        boxes = coco.Boxes(self.file(tmp_path))
        (dog,) = grounding.mentions(boxes, entry)
        assert dog == Mention(1, ("dog",), ((0.2, 0.125, 0.6, 0.375),))
        report, _ = grounding.judge([entry], boxes)
        assert report["generated"]["all"]["peak"] == 100
        assert report["true"]["all"] == {"phrases": 0}
        with pytest.raises(SatlibError, match=r"names something with boxes in .*; are these the right boxes"):
            grounding.judge([Entry("a.jpg", ("cat",), alphas[:1])], boxes)
        with pytest.raises(SatlibError, match=r"none of these 1 images \(b.jpg, for example\)"):
            grounding.judge([Entry("b.jpg", ("dog",), alphas[:1])], boxes)

    def test_not_boxes(self, tmp_path):
        path = tmp_path / "captions.json"
        path.write_text('{"images": [], "annotations": []}')
        with pytest.raises(SatlibError, match="is not a file of boxes"):
            coco.Boxes(path)
        with pytest.raises(SatlibError, match="none"):
            coco.Boxes(tmp_path / "none.json")


def measures(alpha, *boxes):
    """Those of a word with this map (h, w), against boxes."""
    entry = Entry("a.jpg", ("dog",), torch.stack([alpha, alpha]))
    return grounding.measure(entry, [Mention(0, (), boxes)])[0].values


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
    assert grounding.inside_boxes([box]).sum() == pixels


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


@settings(max_examples=5, phases=(Phase.generate,))  # shrinking would take minutes
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
    entry = Entry(
        "a.jpg", ("dog", "ball"), torch.stack([left, 3 * right, right])
    )  # the end mark looks right; sums are ignored
    names = [Mention(0, ("animals",), (LEFT,)), Mention(1, ("other",), (LEFT,))]
    dog, ball = grounding.measure(entry, names)
    even = {"mass even": 0.5, "mass mean map": 0.5, "mass best cell": 7 / 8, "peak centre": 0, "peak best cell": 1}
    # the mean of the words' maps is even, and its first pixel is in the left half
    assert dog.values == pytest.approx({**even, "mass": 7 / 8, "peak": 1, "peak mean map": 1})
    assert ball.values == pytest.approx({**even, "mass": 1 / 8, "peak": 0, "peak mean map": 1})
    (without,) = grounding.measure(entry, names[:1], peaked=False)
    assert set(without.values) == set(grounding.MASS)


def said_entry(text, reference=False):
    """A caption of photograph 17 with even maps."""
    words = tuple(text.split())
    return Entry("17_x.jpg", words, torch.full((len(words), 2, 2), 0.25), reference)


def test_words_that_are_measured(world):
    _, _, entities = world
    child, dress = ((0.1, 0.1, 0.3, 0.9),), ((0.1, 0.5, 0.3, 0.7),)
    assert [grounding.mentions(entities, said_entry(text, True)) for text in REFERENCES] == [
        [Mention(1, ("people",), child), Mention(5, ("clothing",), dress)],  # the hills have no box
        [Mention(1, ("people",), child), Mention(2, ("clothing", "other"), dress)],
        None,
    ]
    said = said_entry("Dress on the girl and the hills dress.")  # Entities writes "girl 's", so "girl" is a last word
    both = ("clothing", "other")
    expected = [Mention(0, both, dress), Mention(3, ("people",), child), Mention(7, both, dress)]
    assert grounding.mentions(entities, said) == expected


def test_a_caption_in_pieces_of_words(world):
    """Its phrases end with the last piece: by letters, however a tokeniser splits the words."""
    pieces = said_entry("The gi ##rl 's dre ##ss , which is pink .", True)
    assert [mention.index for mention in grounding.mentions(world[2], pieces)] == [2, 5]


def test_boxes_of_all_phrases_with_the_same_last_word(tmp_path):
    objects = ((("1",), (0, 0, 100, 100)), (("2",), (100, 0, 200, 100)))
    captions = ["[/EN#1/people A man] and [/EN#2/people a tall man]", "[/EN#1/animals The man]"]
    entities = Entities(entities_files.write(tmp_path, {"1": (annotation(objects=objects), captions)}))
    (man,) = grounding.mentions(entities, Entry("1.jpg", ("one", "man"), torch.ones(2, 2, 2)))
    assert man == Mention(1, ("people", "animals"), (LEFT, RIGHT))


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_maps_of_true_captions(world, attention):
    """Against the decoder given one caption at a time, without padding, its words looked up by hand."""
    captioner = world[0](f"decoder.attention={attention}")
    a = Reader().read(["17", "18"])
    captions = grounding.forced(captioner, a, [REFERENCES[:2], REFERENCES[1:]])
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
    assert grounding.forced(captioner, a, [[], []]) == [[], []]


def said(captioner, data):
    """The same generated caption of the first two photographs, and its maps, which are even."""
    caption = Caption(["a", "pink", "dress"], 0.0, torch.full((4, 2, 2), 0.25), torch.ones(4))
    return {example.image_id: caption for example in data.examples[:2]}


def judged(captioner, data, entities):
    """The entries of the first two photographs, and their report."""
    examples = data.examples[:2]
    entries = grounding.entries(captioner, data, Reader(), examples, said(captioner, data), progress=False)
    return entries, grounding.judge(entries, entities)[0]


@pytest.mark.parametrize(
    ("view", "seen"), [("whole", (0.0, 0.0, 1.0, 1.0)), ("crop", (144 / 512, 16 / 256, 368 / 512, 240 / 256))]
)
def test_the_part_that_the_maps_cover(world, view, seen):
    """Of 200 x 100 pixels, "crop" takes the middle 224 x 224 of 512 x 256."""
    data = CaptionSet("photos", world[1].examples[:1], draw=lambda _: Image.new("RGB", (200, 100)))
    captioner = world[0](f"encoder.view={view}")
    found = grounding.entries(captioner, data, Reader(), data.examples, said(captioner, data), progress=False)
    assert [entry.reference for entry in found] == [True, True, True, False]
    assert [entry.seen for entry in found] == [pytest.approx(seen)] * 4


def test_of_two_equal_references_one_is_measured(world):
    captioner_with, data, _ = world
    example = dataclasses.replace(data.examples[0], references=(REFERENCES[0], REFERENCES[1], REFERENCES[0]))
    found = grounding.entries(captioner_with(), data, Reader(), [example], {}, progress=False)
    assert [entry.words[:2] for entry in found] == [("a", "child"), ("the", "girl's")]


@pytest.mark.parametrize("attention", ["soft", "none"])
def test_a_split(world, attention):
    captioner_with, data, entities = world
    captioner = captioner_with(f"decoder.attention={attention}")
    entries, report = judged(captioner, data, entities)
    assert report["counts"] == {
        "images": 2, "images without annotations": 0, "references": 4, "references not found": 2
    }  # fmt: skip
    references = grounding.forced(captioner, Reader().read(["17", "18"]), [REFERENCES[:2]] * 2)
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
        assert set(grounding.PEAK) < set(overall)
    uncovered = Entry("19_x.jpg", ("a",), torch.ones(1, 2, 2), True)
    text = grounding.render(grounding.judge([*entries, uncovered], entities)[0])
    assert "1 photographs have no annotations" in text
    assert "4 reference captions of 2 photographs; 2 more are worded differently" in text


def test_none_of_the_captions(world):
    with pytest.raises(
        SatlibError, match=r"none of these 1 reference captions \('Another one' of 17_x.jpg, for example\)"
    ):
        grounding.judge([said_entry("Another one", True)], world[2])


def measured(mass, even, *kinds, image="a.jpg"):
    entry, mention = Entry(image, ("dog",), torch.ones(1, 2, 2)), Mention(0, kinds, ())
    return Judgement(entry, mention, {"mass": mass, "mass even": even})


def test_means_by_hand():
    words = [
        measured(0.2, 0.05, "people"),
        measured(0.4, 0.1, "people", "other"),
        measured(0.6, 0.4, "animals"),
        measured(1.0, 0.41, "people"),
    ]
    found = grounding.summary(words)
    assert found["all"] == pytest.approx({"phrases": 4, "mass": 55, "mass even": 24})  # a single image has no interval
    assert list(found["by kind"]) == ["people", "animals", "other"]
    assert {kind: (means["phrases"], round(means["mass"], 9)) for kind, means in found["by kind"].items()} == {
        "people": (3, round(100 * 1.6 / 3, 9)), "animals": (1, 60), "other": (1, 40)
    }  # fmt: skip
    assert {size: means["phrases"] for size, means in found["by size"].items()} == {
        "below 10 %": 1,
        "10 to 40 %": 2,
        "above 40 %": 1,
    }
    assert grounding.summary([]) == {"all": {"phrases": 0}, "by kind": {}, "by size": {}}


def test_intervals_resample_images():
    """Against a bootstrap with loops: images with 1 to 4 words; every seventh has a word of a rare kind."""
    rng = np.random.default_rng(1)
    of_images = []
    for image in range(40):
        words = [measured(*rng.random(2).tolist(), "people", image=f"{image}.jpg") for _ in range(1 + image % 4)]
        if image % 7 == 0:
            words.append(measured(*rng.random(2).tolist(), "rare", image=f"{image}.jpg"))
        of_images.append(words)
    found = grounding.summary([each for words in of_images for each in words])
    for group, kind in ((found["all"], None), (found["by kind"]["rare"], "rare")):
        means, gains = [], []
        for _ in range(2000):
            drawn = [of_images[i] for i in rng.integers(0, 40, 40)]
            values = [each.values for words in drawn for each in words if kind is None or kind in each.mention.kinds]
            if values:
                means.append(100 * np.mean([each["mass"] for each in values]))
                gains.append(100 * np.mean([each["mass"] - each["mass even"] for each in values]))
        expected, width = np.percentile(means, (2.5, 97.5)), np.ptp(np.percentile(means, (2.5, 97.5)))
        assert group["intervals"]["mass"] == pytest.approx(expected, abs=0.15 * width)
        gain, *interval = group["gains"]["mass - mass even"]
        assert gain == pytest.approx(group["mass"] - group["mass even"])
        assert interval == pytest.approx(np.percentile(gains, (2.5, 97.5)), abs=0.15 * np.ptp(interval))


def test_best_middle_and_worst():
    words = [measured(mass / 100, 0.2, image=f"{image}.jpg") for image in range(30) for mass in (image, 99 - image)]
    rows = grounding.extremes(words, 3)
    assert {name: [round(100 * each.values["mass"]) for each in row] for name, row in rows.items()} == {
        "best": [99, 98, 97], "middle": [29, 28, 27], "worst": [3, 4, 5]
    }  # fmt: skip
    assert [len(row) for row in grounding.extremes(words[:2]).values()] == [1]


def test_the_sheet():
    """One photograph in each row; its map is where its box is, so the picture's brightest part is inside the box."""
    seen, photo = (-0.25, 0.0, 1.25, 1.0), Image.new("RGB", (200, 100), (180, 180, 180))
    alphas = torch.zeros(1, 4, 6)
    alphas[0, 1, 1] = 1
    entry = Entry("a.jpg", ("dog",), alphas, seen=seen)
    (judgement,) = grounding.measure(entry, [Mention(0, (), ((0.1, 0.2, 0.5, 0.6),))])
    opened = []
    figure = plots.sheet(
        {"best": [judgement, judgement], "worst": [judgement]}, lambda name: opened.append(name) or photo
    )
    assert opened == ["a.jpg"] * 3
    first = figure.axes[0]
    assert (first.get_title(), first.get_ylabel(), figure.axes[2].get_ylabel()) == ("dog", "best", "worst")
    pixels = first.images[0].get_array()
    assert pixels.shape[1] / pixels.shape[0] == pytest.approx(2 * (seen[2] - seen[0]), abs=0.05)
    _, x = np.unravel_index(pixels.sum(2).argmax(), pixels.shape[:2])
    box, (at,) = first.patches[0], first.lines
    height, width = pixels.shape[:2]
    corners = box.get_x(), box.get_y(), box.get_x() + box.get_width(), box.get_y() + box.get_height()
    assert (np.array(corners) + 0.5) / [width, height, width, height] == pytest.approx([0.1, 0.2, 0.5, 0.6])
    assert box.get_x() <= x <= box.get_x() + box.get_width()
    peak = (at.get_xdata()[0] + 0.5) / width, (at.get_ydata()[0] + 0.5) / height
    assert peak == pytest.approx((1.5 / 6, 1.5 / 4), abs=0.01)  # the middle of its cell
    assert f"mass {100 * judgement.values['mass']:.0f} %" in first.get_xlabel()


class TestFiles:
    """Ragged captions and grids; and a clear line for each kind of damage."""

    ENTRIES = (
        Entry("17_x.jpg", ("a", "child"), torch.rand(3, 2, 2), True, (0.0, -0.5, 1.0, 1.5)),
        Entry("17_x.jpg", (), torch.rand(1, 3, 5).double()),
        Entry("18_x.jpg", ("é", "dress", "'s"), torch.rand(3, 7, 4)),
    )

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_what_is_written_is_read(self, tmp_path, suffix):
        path = tmp_path / f"maps{suffix}"
        grounding.write(path, self.ENTRIES)
        for got, expected in zip(grounding.read(path), self.ENTRIES, strict=True):
            assert torch.equal(got.alphas, expected.alphas)
            assert (got.image, got.words, got.reference, got.seen) == (
                expected.image, expected.words, expected.reference, expected.seen
            )  # fmt: skip

    def test_another_name(self, tmp_path):
        with pytest.raises(SatlibError, match=r"ends with .npz or .safetensors"):
            grounding.write(tmp_path / "maps.json", self.ENTRIES)

    CAPTIONS = ({"image": "a.jpg", "words": ["a", "dog"]},)
    MAPS = np.full((2, 2, 2), 0.25)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"captions": None}, "has no 'captions'"),
            ({"captions": "[{"}, "the entry 'captions' of .* is not valid JSON"),
            ({"captions": [{"image": "a.jpg"}]}, r"is not a list of captions \(\[0\].words is missing\)"),
            ({"captions": [{"image": "a.jpg", "words": "a dog"}]}, r"\[0\].words must be a list, not text"),
            ({"captions": [{"image": "a.jpg", "words": ["a", "dog"], "box": 1}]}, "unknown field box"),
            ({"captions": [{**CAPTIONS[0], "seen": [0, 0, 0, 1]}]}, r"'seen' of a.jpg is empty: \[0.0, 0.0, 0.0, 1.0\]"),
            ({"captions": []}, "an entry 'maps.0' that belongs to no caption"),
            ({"captions": [], "maps.0": None}, "has no captions"),
            ({"maps.0": None}, "has no 'maps.0', for a.jpg"),
            ({"maps.1": MAPS}, "an entry 'maps.1' that belongs to no caption"),
            ({"maps.0": MAPS[0]}, r"has the shape \(2, 2\); 2 words need \(2, h, w\), or one map more"),
            ({"maps.0": MAPS[:1]}, r"has the shape \(1, 2, 2\)"),
            ({"maps.0": MAPS[:, :1, :1]}, r"has the shape \(2, 1, 1\).* of two cells or more"),
            ({"maps.0": MAPS * [[[1]], [[-1]]]}, "has a negative value in the map of word 2; docs/maps.md describes"),
            ({"maps.0": MAPS * [[[1]], [[np.nan]]]}, "has a value that is not finite in the map of word 2"),
            ({"maps.0": MAPS * [[[0]], [[1]]]}, "has nothing but zeros in the map of word 1"),
            ({"maps.0": MAPS > 0}, "is of torch.bool, not of real numbers"),
            ({"maps.0": np.array([["a", "b"]])}, "is not a whole .npz file of numbers"),
            ({"maps.0": np.array([{}])}, "is not a whole .npz file of numbers .*allow_pickle=False"),
        ],
    )  # fmt: skip
    def test_damage(self, tmp_path, changes, said):
        values = {"captions": list(self.CAPTIONS), "maps.0": self.MAPS} | changes
        if isinstance(values["captions"], list):
            values["captions"] = json.dumps(values["captions"])
        np.savez(tmp_path / "maps.npz", **{name: value for name, value in values.items() if value is not None})
        with pytest.raises(SatlibError, match=said):
            grounding.read(tmp_path / "maps.npz")

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_no_whole_file(self, tmp_path, suffix):
        path = tmp_path / f"maps{suffix}"
        with pytest.raises(SatlibError, match=f"maps{suffix} does not exist"):
            grounding.read(path)
        grounding.write(path, self.ENTRIES)
        content = path.read_bytes()
        for part in (b"", content[: len(content) // 2], b"text"):
            path.write_bytes(part)
            with pytest.raises(SatlibError, match=r"maps.* whole .*; docs/maps.md describes the file") as refused:
                grounding.read(path)
            assert "unsafe" not in str(refused.value)
        middle = content.index(b"NUMPY", 200) + 150 if suffix == ".npz" else None
        if middle:  # a zip file has checksums
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
            with pytest.raises(SatlibError, match=r"is not a whole .npz file of numbers"):
                grounding.read(path)

    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_maps_from_a_file_are_judged_the_same(self, world, tmp_path, suffix):
        captioner_with, data, entities = world
        entries, report = judged(captioner_with(), data, entities)
        grounding.write(tmp_path / f"maps{suffix}", entries)
        assert grounding.judge(grounding.read(tmp_path / f"maps{suffix}"), entities)[0] == report
