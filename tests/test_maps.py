"""Maps against regions: measures by hand and by loops over pixels; maps that are right or wrong on
purpose; boxes of phrases."""

import itertools
import math

import entities_files
import numpy as np
import pytest
import tiny
import torch
from entities_files import CHILD, GIRL, annotation
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from satcourse.lessons.mistakes import scene_mistakes
from satlib.data import scenes
from satlib.data.caption_set import Example
from satlib.data.entities import Entities
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps
from satlib.evaluation.maps import Measurement, Target
from satlib.model.captioner import Caption


def box(left, top, right, bottom):
    return maps.in_boxes([(left, top, right, bottom)])


def measures(alpha, mask, **options):
    """Those of a word with this map (h, w), in a caption whose other word has an even map."""
    even = torch.full_like(alpha, alpha.mean())
    target = Target(0, (), mask)
    (word,) = maps.measure("a", torch.stack([alpha, even]), [target], **options)
    return word.values


def test_measures_by_hand():
    """A map of 2x2 whose left column has all the weight.

    Upsampled to 224 pixels, each row is 1 for 56 pixels, falls to 0 over 112, and is 0 for 56: it
    sums to 56 + 112 / 2 = 112. The left half has 56 + 56 * (1 + 0.5) / 2 = 98 of that, which is
    7/8; the first quarter has 56, which is 1/2. The centre's pixel is right of the middle. The
    caption's mean map has half of this weight and half of an even map's.
    """
    alpha = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    left_half = box(0, 0, 0.5, 1)
    first_quarter = box(0, 0, 0.25, 1)
    right_half = box(0.5, 0, 1, 1)
    for region, mass, area, hits in (
        (left_half, 7 / 8, 1 / 2, (1, 0, 1)),
        (first_quarter, 1 / 2, 1 / 4, (1, 0, 1)),
        (right_half, 1 / 8, 1 / 2, (0, 1, 0)),
    ):
        values = (mass, area, (mass + area) / 2, *hits)
        expected = dict(zip(maps.MEASURES, values, strict=True))
        found = measures(alpha, region)
        assert found == pytest.approx(expected)

        # A map is divided by its sum.
        assert measures(3 * alpha, region) == found

        # Without a peak, only the first three are left.
        unpeaked = measures(alpha, region, peaked=False)
        assert set(unpeaked) == set(maps.MEASURES[:3])


def test_pixels_of_boxes():
    """A box has each pixel that it touches: a thin one has a column.

    One along the edges of pixels has no more than it covers.
    """
    column = box(0.3, 0, 0.30001, 1)
    assert column.sum() == 224
    quarter = box(0.5, 0.5, 0.75, 0.75)
    assert quarter.sum() == 56**2

    # A pixel in two boxes counts once.
    overlapping = [(0, 0, 0.5, 1), (0.25, 0, 0.5, 0.5)]
    assert maps.in_boxes(overlapping).mean() == 0.5


def by_loops(alpha, mask):
    """(mass, peak) with every pixel visited: between the centres of cells, values are linear."""
    height, width = len(alpha), len(alpha[0])

    def around(pixel, cells):
        """The cells before and after a pixel, and how far it is from the one to the other."""
        at = (pixel + 0.5) * cells / 224 - 0.5
        at = min(max(at, 0.0), cells - 1.0)
        low = min(int(at), max(cells - 2, 0))
        high = min(low + 1, cells - 1)
        return low, high, at - low

    def between(first, second, share):
        return (1 - share) * first + share * second

    total = 0.0
    inside = 0.0
    best = -1.0
    hit = False
    for y in range(224):
        above, below, down = around(y, height)
        for x in range(224):
            before, after, right = around(x, width)
            upper = between(alpha[above][before], alpha[above][after], right)
            lower = between(alpha[below][before], alpha[below][after], right)
            value = between(upper, lower, down)
            total += value
            inside += value * mask[y, x]
            # A pixel that only rounding makes larger is not the first peak.
            if value > best + 1e-12:
                best = value
                hit = mask[y, x]
    return inside / total, hit


@settings(max_examples=5, phases=(Phase.generate,))  # shrinking would take minutes
@given(st.integers(1, 5), st.integers(2, 5), st.integers(0, 10**6))
def test_against_loops_over_pixels(height, width, seed):
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(height * width))
    alpha = torch.tensor(weights.reshape(height, width))
    mask = random.random((224, 224)) < 0.3

    values = measures(alpha, mask)

    mass, hit = by_loops(alpha.tolist(), mask)
    assert values["mass"] == pytest.approx(mass)
    assert values["peak"] == hit


def measured(mass, even, image="a.jpg"):
    values = {
        "mass": mass,
        "mass even": even,
        "mass mean map": 0.0,
    }
    return Measurement(image, values)


def test_means_by_hand():
    words = [
        measured(0.2, 0.1),
        measured(0.4, 0.1),
        measured(0.6, 0.4),
    ]
    # Means over the three words, in percent. A single image has no interval.
    expected = {
        "words": 3,
        "mass": 40,
        "mass even": 20,
        "mass mean map": 0,
    }
    assert maps.summary(words) == pytest.approx(expected)
    assert maps.summary([]) == {"words": 0}


def test_intervals_resample_images():
    """Against a bootstrap with loops: images with 1 to 4 words."""
    random = np.random.default_rng(1)
    by_image = []
    for image in range(40):
        words = []
        for _ in range(1 + image % 4):
            mass, even = random.random(2).tolist()
            words.append(measured(mass, even, image=f"{image}.jpg"))
        by_image.append(words)

    summary = maps.summary(list(itertools.chain(*by_image)))
    means = []
    for _ in range(2000):
        masses = []
        for image in random.integers(0, 40, 40):
            masses += [word.values["mass"] for word in by_image[image]]
        means.append(100 * np.mean(masses))

    # Both are drawn at random, so they agree only up to a part of the interval's width.
    expected = np.percentile(means, (2.5, 97.5))
    width = np.ptp(expected)
    found = summary["intervals"]["mass"]
    assert found == pytest.approx(expected, abs=0.15 * width)


SCENES = scenes.load(0, 0, 12)


def looking(look):
    """The true captions of some scenes, with maps made by look(mask).

    The mask is that of the object that the word names, or None.
    """
    captions = {}
    for example in SCENES.examples:
        scene = scenes.scene(example.image_id)
        words = tokenise(example.references[0])
        weights = []
        # The end mark names nothing.
        for number in (*scenes.mentions(words, scene), None):
            if number is None:
                mask = None
            else:
                mask = scene.masks[number]
            weights.append(look(mask))

        alphas = torch.tensor(np.stack(weights))
        betas = torch.ones(len(alphas))
        captions[example.image_id] = Caption(words, 0.0, alphas, betas)
    return captions


def on_it(mask):
    """Each cell's weight is its share of the object; of no object, an even map."""
    if mask is None:
        weights = np.ones((7, 7))
    else:
        cells = mask.reshape(7, 32, 7, 32)
        weights = cells.mean((1, 3))
    return weights / weights.sum()


class TestScenes:
    def test_maps_that_look_at_what_is_named(self):
        words = maps.measure_all(SCENES.examples, looking(on_it))
        means = maps.summary(words)
        assert means["peak"] > 80
        # A map for the whole caption still looks at the objects, but at both of them.
        assert means["mass"] > 2 * means["mass mean map"] > 2 * means["mass even"]

    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_an_evaluation_has_the_same_peak(self, monkeypatch, attention):
        captions = looking(on_it)
        monkeypatch.setattr(evaluate, "generate", lambda *_: captions)
        evaluation = evaluate.evaluate(tiny.decided(attention), SCENES, None, "test")

        scores = evaluation["metrics"]
        assert scores["exact match"] == 100
        if attention == "soft":
            words = maps.measure_all(SCENES.examples, captions)
            means = maps.summary(words)
            assert scores.get("peak") == means["peak"]
        else:
            # Even maps have no peak.
            assert scores.get("peak") is None

    def test_words_that_are_false_of_what_their_phrase_describes(self):
        """A caption with another shape than the scene's in one phrase, and a true one."""
        for example in SCENES.examples:
            scene = scenes.scene(example.image_id)
            first, second = scene.objects
            shapes = (first.shape, second.shape)
            wrong = next(shape for shape in scenes.grammar.SHAPES if shape not in shapes)
            begin = ["a", first.size, first.colour]
            end = ["above", "a", second.size, second.colour, second.shape]
            words = [*begin, wrong, *end]

            (target,) = scene_mistakes(example, words)
            assert target.index == 3
            assert target.kinds == ("shape",)
            # The word is wrong about the first object, so that is where its map should be.
            assert (target.mask == scene.masks[0]).all()
            # What is a mistake is no target, and what is true is no mistake.
            assert 3 not in {target.index for target in maps.scene_targets(example, words)}
            assert not scene_mistakes(example, [*begin, first.shape, *end])

            # A phrase that describes neither object has no place to look at.
            assert not scene_mistakes(example, ["a", "white", "dog"])


REFERENCES = (
    "A child in a pink dress near the hills.",
    "The girl's dress, which is pink.",
    "A caption without boxes",
)
WORDS = ("a", "child", "in", "dress", "pink", "the", "is")
# The boxes of entities_files.annotation(), in shares of the photograph.
CHILD_BOX = (0.1, 0.1, 0.3, 0.9)
DRESS_BOX = (0.1, 0.5, 0.3, 0.7)


class Reader:
    def read(self, image_ids):
        names = [f"test-{image_id[:2]}" for image_id in image_ids]
        return tiny.Reader().read(names)


class TestBoxes:
    @pytest.mark.parametrize("attention", ["soft", "hard"])
    def test_maps_of_true_captions(self, attention):
        """Against the decoder given one caption at a time, without padding."""
        captioner = tiny.decided(attention, words=WORDS)
        a = tiny.Reader().read(["test-17", "test-18"])
        references = [REFERENCES[:2], REFERENCES[1:]]
        found = maps.forced(captioner, a, references)

        for image, maps_of_image in enumerate(found):
            vectors = a[image : image + 1]
            for alphas, reference in zip(maps_of_image, references[image], strict=True):
                ids = captioner.vocabulary.encode(reference)
                output = captioner.decoder(vectors, torch.tensor([ids]))
                torch.testing.assert_close(alphas.flatten(1), output.alphas[0])

    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_the_words_of_phrases(self, tmp_path, attention):
        """Of two of three photographs, two of three references: the child and the dress.

        The hills have no box.
        """
        files = {number: (annotation(), [GIRL, CHILD]) for number in ("17", "18")}
        entities = Entities(entities_files.write(tmp_path / "entities", files))
        examples = tuple(Example(f"{number}_x.jpg", "test", REFERENCES) for number in (17, 18, 19))
        captioner = tiny.decided(attention, words=WORDS)
        words = maps.measure_true(captioner, Reader(), examples, entities)

        # An even map has the box's share of the picture in the box.
        child_area = box(*CHILD_BOX).mean()
        dress_area = box(*DRESS_BOX).mean()
        expected = []
        for image in ("17_x.jpg", "18_x.jpg"):
            expected += [
                (image, child_area),
                (image, dress_area),
                (image, child_area),
                (image, dress_area),
            ]
        found = []
        for word in words:
            found.append((word.image_id, word.values["mass even"]))
        assert found == expected

        means = maps.summary(words)
        # Without attention all maps are even, which have no peak.
        assert ("peak" in means) == (attention == "soft")
        is_even = math.isclose(means["mass"], means["mass even"], rel_tol=1e-6)
        assert is_even == (attention == "none")
        assert f"{means['mass']:.1f}" in maps.render(means)

        # The third photograph was annotated by nobody.
        with pytest.raises(SatlibError, match="has no boxes"):
            maps.measure_true(captioner, Reader(), examples[2:], entities)
