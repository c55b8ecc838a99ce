"""Captions against Flickr30k Entities: which words are measured, their maps, the means of groups."""

import math
import re

import entities_files
import pytest
import tiny
import torch
from entities_files import CHILD, GIRL, annotation

from satlib.data.datasets import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, phrase_grounding, phrase_report
from satlib.evaluation.phrase_grounding import Measured, Named, Photo
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner

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
def world(tmp_path, monkeypatch):
    """A captioner that was never trained, three photographs, and the annotations of two of them."""
    monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
    examples = tuple(Example(f"{number}_x.jpg", "test", REFERENCES) for number in (17, 18, 19))
    data = CaptionSet(
        "photos", examples, draw=lambda example: tiny.draw(Example(f"test-{example.image_id[:2]}", "test", ()))
    )
    files = {number: (annotation(), [GIRL, CHILD]) for number in ("17", "18")}
    entities = Entities(entities_files.write(tmp_path / "entities", files))
    made = lambda *changes: Captioner(tiny.the_recipe(*changes), Vocabulary(WORDS), encoders.create("tiny")).eval()  # noqa: E731
    return made, data, entities


def test_measures_by_hand():
    """Two words on 2x2 maps: all weight in the left column has 7/8 in the left half (see test_pointing), in the right one 1/8."""
    left, right = torch.tensor([[0.5, 0], [0.5, 0]]), torch.tensor([[0, 0.5], [0, 0.5]])
    caption = Caption(
        ["dog", "ball"], 0.0, torch.stack([left, right, right]), torch.ones(3)
    )  # the end mark looks right
    names = [Named(0, ("animals",), (LEFT,)), Named(1, ("other",), (LEFT,))]
    dog, ball = phrase_grounding.measure("a.jpg", [(caption, names)])
    assert (dog.named, dog.image_id, ball.caption) == (names[0], "a.jpg", caption)
    even = {"mass even": 0.5, "mass mean map": 0.5, "mass best cell": 7 / 8, "peak centre": 0, "peak best cell": 1}
    # the mean of the words' maps is even, and its first pixel is in the left half
    assert dog.measures == pytest.approx({**even, "mass": 7 / 8, "peak": 1, "peak mean map": 1})
    assert ball.measures == pytest.approx({**even, "mass": 1 / 8, "peak": 0, "peak mean map": 1})
    (without,) = phrase_grounding.measure("a.jpg", [(caption, names[:1])], peaked=False)
    assert set(without.measures) == set(phrase_grounding.MASS)


def test_words_that_are_measured(world):
    _, data, entities = world
    example, photo = data.examples[0], Photo("17_x.jpg")
    true = [phrase_grounding.named_in_reference(entities, photo, text, "") for text in example.references]
    child, dress = ((0.1, 0.1, 0.3, 0.9),), ((0.1, 0.5, 0.3, 0.7),)
    assert true == [
        [Named(1, ("people",), child), Named(5, ("clothing",), dress)],  # "child" and "dress"; the hills have no box
        [Named(1, ("people",), child), Named(2, ("clothing", "other"), dress)],
        None,
    ]
    said = "dress on the girl and the hills dress"  # Entities writes "girl 's", so "girl" is a last word
    both = ("clothing", "other")
    assert phrase_grounding.named_in_caption(entities, photo, said.split()) == [
        Named(0, both, dress),
        Named(3, ("people",), child),
        Named(7, both, dress),
    ]


def test_boxes_of_all_phrases_with_the_same_last_word(tmp_path):
    objects = ((("1",), (0, 0, 100, 100)), (("2",), (100, 0, 200, 100)))
    captions = ["[/EN#1/people A man] and [/EN#2/people a tall man]", "[/EN#1/animals The man]"]
    entities = Entities(entities_files.write(tmp_path, {"1": (annotation(objects=objects), captions)}))
    (man,) = phrase_grounding.named_in_caption(entities, Photo("1.jpg"), ["one", "man"])
    assert man == Named(1, ("people", "animals"), (LEFT, RIGHT))


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_maps_of_true_captions(world, attention):
    """Against the decoder given one caption at a time, without padding, its words looked up by hand."""
    captioner = world[0](f"decoder.attention={attention}")
    a = Reader().read(["17", "18"])
    captions = phrase_grounding.forced(captioner, a, [REFERENCES[:2], REFERENCES[1:]])
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
    assert phrase_grounding.forced(captioner, a, [[], []]) == [[], []]


@pytest.mark.parametrize("attention", ["soft", "none"])
def test_a_split(world, attention, monkeypatch):
    made, data, entities = world
    captioner = made(f"decoder.attention={attention}")
    spoken = Caption(["a", "pink", "dress"], 0.0, torch.full((4, 2, 2), 0.25), torch.ones(4))
    monkeypatch.setattr(
        evaluate, "generate", lambda _, __, examples, *___, **____: {e.image_id: spoken for e in examples}
    )
    found = phrase_grounding.ground(captioner, data, Reader(), entities, progress=False)
    assert found.counts == {"images": 2, "images without annotations": 1, "references": 4, "references not found": 2}
    assert [(one.image_id, one.named.index) for one in found.true] == [
        (name, index) for name in ("17_x.jpg", "18_x.jpg") for index in (1, 5, 1, 2)
    ]
    assert [(one.image_id, one.named.index) for one in found.generated] == [("17_x.jpg", 2), ("18_x.jpg", 2)]
    report = phrase_report.report(found)
    maps = [one.caption.alphas.flatten(1) for one in found.true[::2]]  # each caption has two named words
    entropy = sum(-(alpha * alpha.log()).sum(1).mean() for alpha in maps) / len(maps)
    assert report["entropy share"] == pytest.approx(100 * float(entropy) / math.log(4), rel=1e-5)
    assert report["movement"] == pytest.approx(
        float(sum(each.diff(dim=0).abs().sum(1).mean() / 2 for each in maps) / len(maps)), abs=1e-6
    )
    overall = report["true"]["all"]
    assert overall["phrases"] == 8
    assert overall["mass even"] == pytest.approx(100 * (45 * 180 + 45 * 46) / 2 / 224**2, rel=0.03)
    if attention == "none":
        assert "peak" not in overall
        assert overall["mass"] == pytest.approx(overall["mass even"])
    else:
        assert {"peak", "peak centre", "peak mean map", "peak best cell"} < set(overall)
    text = phrase_report.render(report)
    assert "Flickr30k Entities has no annotations of 1 photographs" in text
    assert "4 reference captions of 2 photographs; 2 more are worded differently" in text


def test_none_of_the_captions(world):
    made, data, entities = world
    others = CaptionSet("photos", (Example("17_x.jpg", "test", ("Another caption",)),), data.draw)
    with pytest.raises(SatlibError, match="has none of the captions of photos test"):
        phrase_grounding.ground(made(), others, Reader(), entities, progress=False)


def measured(mass, even, kinds, image="a.jpg", index=0):
    caption = Caption(["dog", "<b>"], 0.0, torch.tensor([[[0.7, 0.1], [0.1, 0.1]]] * 3), torch.ones(3))
    others = {
        "mass mean map": 0.5,
        "mass best cell": 1.0,
        "peak": 1.0,
        "peak centre": 0.0,
        "peak mean map": 0.0,
        "peak best cell": 1.0,
    }
    return Measured(image, caption, Named(index, kinds, (LEFT,)), {"mass": mass, "mass even": even, **others})


def test_means_by_hand():
    words = [
        measured(0.2, 0.05, ("people",)),
        measured(0.4, 0.1, ("people", "other")),
        measured(0.6, 0.4, ("animals",)),
        measured(1.0, 0.41, ("people",)),
    ]
    found = phrase_report.summary(words)
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
    assert phrase_report.summary([]) == {"all": {"phrases": 0}, "by kind": {}, "by size": {}}
