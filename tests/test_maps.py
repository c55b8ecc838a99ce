"""Maps against regions: measures by hand and by loops over pixels; maps that are right or wrong on purpose; boxes of phrases."""

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

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps, plots
from satlib.evaluation.maps import Measurement, Target
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner


def box(left, top, right, bottom):
    return maps.in_boxes([(left, top, right, bottom)])


def measures(alpha, mask, **options):
    """Those of a word with this map (h, w), in a caption whose other word has an even map."""
    alphas = torch.stack([alpha, torch.full_like(alpha, alpha.mean())])
    (word,) = maps.measure("a", Caption(["dog", "runs"], 0.0, alphas, torch.ones(2)), [Target(0, (), mask)], **options)
    return word.values


def test_measures_by_hand():
    """A map of 2x2 whose left column has all the weight.

    Upsampled to 224 pixels, each row is 1 for 56 pixels, falls to 0 over 112, and is 0 for 56: it sums to 56 + 112 / 2 = 112. The
    left half has 56 + 56 * (1 + 0.5) / 2 = 98 of that, which is 7/8; the first quarter has 56, which is 1/2. The centre's pixel is
    right of the middle. The caption's mean map has half of this weight and half of an even map's.
    """
    alpha = torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    for region, mass, area, hits in (
        (box(0, 0, 0.5, 1), 7 / 8, 1 / 2, (1, 0, 1)), (box(0, 0, 0.25, 1), 1 / 2, 1 / 4, (1, 0, 1)),
        (box(0.5, 0, 1, 1), 1 / 8, 1 / 2, (0, 1, 0)),
    ):  # fmt: skip
        expected = (mass, area, (mass + area) / 2, *hits)
        assert measures(alpha, region) == pytest.approx(dict(zip(maps.MEASURES, expected, strict=True)))
        assert measures(3 * alpha, region) == measures(alpha, region)  # a map is divided by its sum
        assert set(measures(alpha, region, peaked=False)) == set(maps.MEASURES[:3])


def test_interpolation_by_hand():
    """Four pixels over two cells: their centres lie at -0.25, 0.25, 0.75 and 1.25 cells, the first and last beyond the cells'."""
    expected = torch.tensor([[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]], dtype=torch.float64)
    torch.testing.assert_close(maps.interpolation(2, 4), expected)


def test_pixels_of_boxes():
    """A box has each pixel that it touches: a thin one has a column, and one along the edges of pixels no more than it covers."""
    assert box(0.3, 0, 0.30001, 1).sum() == 224
    assert box(0.5, 0.5, 0.75, 0.75).sum() == 56**2
    assert maps.in_boxes([(0, 0, 0.5, 1), (0.25, 0, 0.5, 0.5)]).mean() == 0.5  # a pixel counts once


def by_loops(alpha, mask):
    """(mass, peak) with every pixel visited."""
    height, width = len(alpha), len(alpha[0])

    def around(pixel, cells):
        at = min(max((pixel + 0.5) * cells / 224 - 0.5, 0.0), cells - 1.0)
        low = min(int(at), max(cells - 2, 0))
        return low, min(low + 1, cells - 1), at - low

    total = inside = 0.0
    best, hit = -1.0, False
    for y in range(224):
        above, below, down = around(y, height)
        for x in range(224):
            before, after, right = around(x, width)
            upper = (1 - right) * alpha[above][before] + right * alpha[above][after]
            lower = (1 - right) * alpha[below][before] + right * alpha[below][after]
            value = (1 - down) * upper + down * lower
            total, inside = total + value, inside + value * mask[y, x]
            if value > best + 1e-12:
                best, hit = value, mask[y, x]
    return inside / total, hit


@settings(max_examples=5, phases=(Phase.generate,))  # shrinking would take minutes
@given(st.integers(1, 5), st.integers(2, 5), st.integers(0, 10**6))
def test_against_loops_over_pixels(height, width, seed):
    random = np.random.default_rng(seed)
    alpha = torch.tensor(random.dirichlet(np.ones(height * width)).reshape(height, width))
    mask = random.random((224, 224)) < 0.3
    found = measures(alpha, mask)
    mass, hit = by_loops(alpha.tolist(), mask)
    assert found["mass"] == pytest.approx(mass)
    assert found["peak"] == hit
    direct = functional.interpolate(alpha[None, None], size=(224, 224), mode="bilinear", align_corners=False)[0, 0]
    torch.testing.assert_close(maps.upsample(alpha), direct / direct.sum())


def measured(mass, even, *kinds, image="a.jpg"):
    return Measurement(image, "dog", kinds, {"mass": mass, "mass even": even, "mass mean map": 0.0})


def test_means_by_hand():
    words = [measured(0.2, 0.1, "people"), measured(0.4, 0.1, "people", "other"), measured(0.6, 0.4, "animals")]
    found = maps.summary(words)
    assert found["all"] == pytest.approx(
        {"words": 3, "mass": 40, "mass even": 20, "mass mean map": 0}
    )  # a single image has no interval
    kinds = {kind: (means["words"], round(means["mass"], 9)) for kind, means in found["by kind"].items()}
    assert list(kinds.items()) == [("people", (2, 30)), ("animals", (1, 60)), ("other", (1, 40))]
    assert maps.summary([]) == {"all": {"words": 0}, "by kind": {}}


def test_intervals_resample_images():
    """Against a bootstrap with loops: images with 1 to 4 words; every seventh has a word of a rare kind."""
    rng = np.random.default_rng(1)
    by_image = []
    for image in range(40):
        words = [measured(*rng.random(2).tolist(), "people", image=f"{image}.jpg") for _ in range(1 + image % 4)]
        by_image.append(words + [measured(*rng.random(2).tolist(), "rare", image=f"{image}.jpg")] * (image % 7 == 0))
    found = maps.summary([word for words in by_image for word in words])
    for group, kind in ((found["all"], None), (found["by kind"]["rare"], "rare")):
        means = []
        for _ in range(2000):
            drawn = [by_image[i] for i in rng.integers(0, 40, 40)]
            values = [word.values for words in drawn for word in words if kind is None or kind in word.kinds]
            if values:
                means.append(100 * np.mean([value["mass"] for value in values]))
        expected = np.percentile(means, (2.5, 97.5))
        assert group["intervals"]["mass"] == pytest.approx(expected, abs=0.15 * np.ptp(expected))


class TestScenes:
    def looking(self, look):
        """The true captions of some scenes, with maps made by look(mask of the object that the word names, or None)."""
        data, captions = scenes.load(0, 0, 12), {}
        for example in data.examples:
            scene = scenes.scene(example.image_id)
            words = tokenise(example.references[0])
            masks = [None if number is None else scene.masks[number] for number in scenes.mentions(words, scene)]
            alphas = torch.tensor(np.stack([look(mask) for mask in [*masks, None]]))
            captions[example.image_id] = Caption(words, 0.0, alphas, torch.ones(len(alphas)))
        return data, captions

    def on_it(self, mask):
        weights = np.ones((7, 7)) if mask is None else mask.reshape(7, 32, 7, 32).mean((1, 3))
        return weights / weights.sum()

    def test_maps_that_look_at_what_is_named(self):
        data, captions = self.looking(self.on_it)
        found = maps.summary(maps.measure_all(data.examples, captions))
        assert found["all"]["peak"] > 80
        assert found["all"]["mass"] > 2 * found["all"]["mass mean map"] > 2 * found["all"]["mass even"]
        assert set(found["by kind"]) == {"size", "colour", "shape", "texture"}

    def test_maps_that_look_nowhere_or_away(self):
        even = maps.summary(maps.measure_all(*self.examples(lambda mask: np.full((7, 7), 1 / 49))))["all"]
        assert even["mass"] == pytest.approx(even["mass even"])
        away = lambda mask: self.on_it(None if mask is None else ~mask)  # noqa: E731
        overall = maps.summary(maps.measure_all(*self.examples(away)))["all"]
        assert overall["mass"] < overall["mass even"]
        assert overall["peak"] < 5

    def examples(self, look):
        data, captions = self.looking(look)
        return data.examples, captions

    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_an_evaluation_has_the_same_peak(self, monkeypatch, attention):
        data, captions = self.looking(self.on_it)
        monkeypatch.setattr(evaluate, "generate", lambda *_: captions)
        monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
        captioner = Captioner(
            tiny.the_recipe(f"decoder.attention={attention}"), Vocabulary(["a"]), encoders.create("tiny")
        )
        found = evaluate.evaluate(captioner, data, None, "test")
        assert found["metrics"]["exact match"] == 100
        assert found["recipe"]["decoder"]["attention"] == attention
        means = maps.summary(maps.measure_all(data.examples, captions))["all"]
        assert found["metrics"].get("peak") == (means["peak"] if attention == "soft" else None)

    def test_words_that_are_false_of_what_their_phrase_describes(self):
        """A scene's true caption with words put wrong: another shape in one phrase, nothing wrong in the other."""
        for example in scenes.load(0, 0, 12).examples:
            scene = scenes.scene(example.image_id)
            first, second = scene.objects
            wrong = next(shape for shape in scenes.grammar.SHAPES if shape not in (first.shape, second.shape))
            words = (
                f"a {first.size} {first.colour} {wrong} above a {second.size} {second.colour} {second.shape}".split()
            )
            (target,) = maps.scene_mistakes(example, words)
            assert (target.index, target.kinds) == (3, ("shape",))
            assert (target.mask == scene.masks[0]).all()
            assert not maps.scene_mistakes(example, [*words[:3], first.shape, *words[4:]])
            assert all(target.index != each.index for each in maps.scene_targets(example, words))
            assert not maps.scene_mistakes(example, ["a", "white", "dog"])


REFERENCES = (
    "A child in a pink dress near the hills.",
    "The girl's dress, which is pink.",
    "A caption that nobody annotated",
)
WORDS = ("a", "child", "in", "dress", "pink", "the", "is")
CHILD_BOX, DRESS_BOX = (0.1, 0.1, 0.3, 0.9), (0.1, 0.5, 0.3, 0.7)


class Reader:
    """Annotation vectors that only the image id decides."""

    def read(self, image_ids):
        seeds = (torch.Generator().manual_seed(int(name[:2])) for name in image_ids)
        return torch.stack([torch.randn(4, tiny.DIM, generator=seed) for seed in seeds])


class TestBoxes:
    @pytest.fixture
    def entities(self, tmp_path):
        """The annotations of two of three photographs."""
        files = {number: (annotation(), [GIRL, CHILD]) for number in ("17", "18")}
        return Entities(entities_files.write(tmp_path / "entities", files))

    def captioner(self, *changes):
        return Captioner(tiny.the_recipe(*changes), Vocabulary(WORDS), encoders.create("tiny")).eval()

    @pytest.mark.parametrize("attention", ["soft", "hard"])
    def test_maps_of_true_captions(self, attention):
        """Against the decoder given one caption at a time, without padding, its words looked up by hand."""
        captioner = self.captioner(f"decoder.attention={attention}")
        a = Reader().read(["17", "18"])
        captions = maps.forced(captioner, a, [REFERENCES[:2], REFERENCES[1:]])
        for image, references in enumerate((REFERENCES[:2], REFERENCES[1:])):
            for caption, reference in zip(captions[image], references, strict=True):
                assert caption.words == re.findall(r"[\w']+", reference.lower())
                ids = [2 + WORDS.index(word) if word in WORDS else 1 for word in caption.words] + [0]
                output = captioner.decoder(a[image : image + 1], torch.tensor([ids]))
                torch.testing.assert_close(caption.alphas.flatten(1), output.alphas[0])
                torch.testing.assert_close(caption.betas, output.betas[0])
                log_p = sum(output.logits[0, t].log_softmax(0)[word].item() for t, word in enumerate(ids))
                assert caption.log_probability == pytest.approx(log_p, rel=1e-5)

    @pytest.mark.parametrize("attention", ["soft", "none"])
    def test_the_words_of_phrases(self, entities, tmp_path, attention):
        """Of two of three photographs, two of three references: the child and the dress; the hills have no box."""
        examples = tuple(Example(f"{number}_x.jpg", "test", REFERENCES) for number in (17, 18, 19))
        data, captioner = CaptionSet("photos", examples), self.captioner(f"decoder.attention={attention}")
        words = maps.measure_true(captioner, data, Reader(), examples, entities)
        child, dress = ("child", ("people",), CHILD_BOX), ("dress", ("clothing",), DRESS_BOX)
        girl, also = ("girl's", ("people",), CHILD_BOX), ("dress", ("clothing", "other"), DRESS_BOX)
        expected = [
            (f"{n}_x.jpg", *word[:2], maps.in_boxes([word[2]])) for n in (17, 18) for word in (child, dress, girl, also)
        ]
        assert [(word.image_id, word.word, word.kinds) for word in words] == [each[:3] for each in expected]
        assert [word.values["mass even"] for word in words] == [each[3].mean() for each in expected]
        means = maps.summary(words)
        assert ("peak" in means["all"]) == (attention == "soft")
        even = math.isclose(means["all"]["mass"], means["all"]["mass even"], rel_tol=1e-6)
        assert even == (attention == "none")
        assert f"{means['all']['mass']:.1f}" in maps.render(means)
        plots.save(plots.ground_figure(means), tmp_path / "maps.png")
        assert Image.open(tmp_path / "maps.png").width > 1000
        with pytest.raises(SatlibError, match="has no boxes"):
            maps.measure_true(captioner, data, Reader(), examples[2:], entities)
