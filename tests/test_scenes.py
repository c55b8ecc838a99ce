"""The procedural world: what is drawn, what is said of it, and that the two agree."""

import colorsys
import hashlib
import itertools
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.random import RandomState

from satlib.data import scenes, scenes_grammar, scenes_paint
from satlib.data.datasets import load
from satlib.data.scenes_grammar import RELATIONS, Kind, Meaning, captions, parse
from satlib.data.text import tokenise

ATTRIBUTES = [getattr(scenes_grammar, name) for name in ("SIZES", "COLOURS", "SHAPES", "TEXTURES")]
KINDS = st.builds(Kind, *map(st.sampled_from, ATTRIBUTES))
STAR, SQUARE = Kind("small", "red", "star", "striped"), Kind("big", "blue", "square")


@pytest.fixture(scope="module")
def world():
    """Sixty scenes of all splits, with their pictures and masks."""
    drawn = [scenes.scene(f"{split}-{index:06d}") for split in scenes.SPLITS for index in range(20)]
    return [(scene, *scene.render()) for scene in drawn]


# --- The grammar -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "text"),
    [
        ("above", "A tiny striped red star floats above a large blue square."),
        ("above", "a little red star with white stripes above a plain blue huge square"),
        ("above", "Big blue square with a small red striped star over it."),
        ("above", "There is a big plain blue square under a small red star with stripes"),
        ("above", "Below the small striped red star sits the large blue square"),
        ("above", tokenise("a large blue square and above it a small striped red star")),
        ("left of", "A big blue square is to the right of a small striped red star."),
        ("left of", "a small red star with stripes left of a big blue square"),
    ],
)
def test_sentences_read_by_hand(relation, text):
    assert parse(text) == Meaning(STAR, relation, SQUARE)


@pytest.mark.parametrize(
    "text",
    [
        "a small red star",
        "a small red star above a blue square",  # no size
        "a small red star above a big square",  # no colour
        "a small striped red star with dots above a big blue square",  # two textures
        "a small red star above a big blue <unknown>",
        "not a small red star above a big blue square",
    ],
)
def test_what_is_no_sentence_has_no_meaning(text):
    assert parse(text) is None


# Words that could stand in each other's place and say something else.
OTHERS = [
    *ATTRIBUTES[1:],
    ("stripes", "dots"),
    ("small", "huge"),
    ("above", "below"),
    ("under", "over"),
    ("left", "right"),
]
OTHERS = {word: [other for other in words if other != word] for words in OTHERS for word in words}


@settings(max_examples=60)
@given(KINDS, st.sampled_from(RELATIONS), KINDS, st.integers(0, 2**32 - 1), st.data())
def test_every_caption_says_its_meaning_and_no_other(first, relation, second, seed, data):
    assume(first.colour != second.colour)  # as in every scene; twins could change places unnoticed
    meaning = Meaning.of(first, relation, second)
    written = captions(RandomState(seed), meaning)
    assert len(set(written)) == 5
    for text in written:
        words = tokenise(text)
        assert parse(text) == parse(words) == meaning
        assert len(words) <= scenes_grammar.MAX_WORDS
        # One word for another of its sort is another meaning, or none: it is never overlooked.
        place = data.draw(
            st.sampled_from([index for index, word in enumerate(words) if word in OTHERS])
        )
        other = data.draw(st.sampled_from(OTHERS[words[place]]))
        assert parse([*words[:place], other, *words[place + 1 :]]) != meaning


def test_every_sentence_of_the_grammar_is_read_with_one_relation():
    phrases = {"x": "a small striped red star", "y": "a big blue square"}
    read = scenes_grammar._skeletons()
    for words, relation in read.items():
        text = " ".join(phrases.get(word, word) for word in words)
        assert parse(text) == Meaning.of(STAR, relation, SQUARE), text
    assert len(read) > 200
    assert set(read.values()) == set(RELATIONS)


# --- Scenes ------------------------------------------------------------------------------------------------------------


def test_captions_match_their_own_scene_alone(world):
    for (scene, *_), (other, *_) in itertools.pairwise(world):
        assert all(scenes.exact_match(text, scene) for text in scene.captions)
        assert not any(scenes.exact_match(text, other) for text in scene.captions)


def test_relation_holds_between_the_visible_pixels(world):
    for scene, _, masks in world:
        (y0, x0), (y1, x1) = (np.argwhere(mask).mean(axis=0) for mask in masks)
        if abs(y1 - y0) > abs(x1 - x0):
            assert scene.relation == ("above" if y0 < y1 else "below"), scene.image_id
        else:
            assert scene.relation == ("left of" if x0 < x1 else "right of"), scene.image_id


def test_masks_lie_on_the_named_colour_and_texture(world):
    """Independent of the painter: the commonest hue of the saturated pixels of a mask is the hue that is named."""
    hues = {name: colorsys.rgb_to_hsv(*rgb)[0] for name, rgb in scenes_paint.RGB.items()}
    for scene, photo, masks in world:
        assert not (masks[0] & masks[1]).any()
        pixels = np.asarray(photo.convert("HSV")).astype(float) / 255
        for thing, mask in zip(scene.objects, masks, strict=True):
            hue, saturation = pixels[mask][:, 0], pixels[mask][:, 1]
            hue = hue[saturation > 0.5]
            apart = [np.median(np.abs((hue - named + 0.5) % 1 - 0.5)) for named in hues.values()]
            assert list(hues)[int(np.argmin(apart))] == thing.colour, scene.image_id
            white = (np.asarray(photo)[mask].min(axis=1) > 200).mean()
            low, high = {"plain": (0, 0.02), "dotted": (0.03, 0.4), "striped": (0.15, 0.6)}[
                thing.texture
            ]
            assert low <= white <= high, (scene.image_id, thing, white)


def test_clutter_hides_a_part_at_most():
    hidden = 0
    for index in range(40):
        scene = scenes.scene(f"test-{index:06d}")
        for number, (thing, mask) in enumerate(zip(scene.objects, scene.masks, strict=True)):
            canvas = scenes_paint.Canvas(np.zeros((3, 224, 224), dtype=np.float32))
            scenes_paint.named_object(
                canvas, RandomState(0), number, thing.centre, thing.diameter, thing.kind
            )
            whole = (canvas.owner == number).sum()
            hidden += mask.sum() < 0.97 * whole
            assert (
                mask.sum() >= (scenes.VISIBLE - 0.05) * whole
            )  # the tilt of the whole one is another
    assert hidden > 5


def test_attributes_are_independent_and_uniform():
    many = [scenes.scene(f"train-{index:06d}") for index in range(1000)]
    for attribute, values in (("shape", 4), ("colour", 6), ("texture", 3), ("size", 2)):
        pairs = Counter(
            tuple(getattr(thing, attribute) for thing in scene.objects) for scene in many
        )
        expected = values * (values - 1) if attribute == "colour" else values**2
        assert len(pairs) == expected
        # A count of mean n/k strays more than five of its standard deviations once in two million times.
        mean = 1000 / expected
        assert all(abs(count - mean) < 5 * mean**0.5 for count in pairs.values()), pairs


def test_words_are_traced_to_what_they_name():
    objects = (scenes.Thing(SQUARE, (100, 150), 80), scenes.Thing(STAR, (100, 50), 40))
    scene = replace(scenes.scene("train-000000"), objects=objects, relation="below")
    right = tokenise("a little red star with white stripes floats above the big blue square")
    assert scenes.mentions(right, scene) == [
        None,
        1,
        1,
        1,
        None,
        None,
        1,
        None,
        None,
        None,
        0,
        0,
        0,
    ]
    # The true words of half a sentence still point to their object, the untrue to nothing.
    wrong = tokenise("big green square under it a dotted red")
    assert scenes.mentions(wrong, scene) == [0, None, 0, None, None, None, None, 1]
    assert scenes.mentions(["a", "purple", "circle"], scene) == [None, None, None]


# --- Keys, seeds and the data set --------------------------------------------------------------------------------------


def test_the_caption_set_draws_its_examples():
    world = scenes.load(train=1, dev=2, test=1, seed=5)
    ids = [example.image_id for example in world.examples]
    assert ids == ["train-000000", "dev-000000", "dev-000001", "test-000000"]
    assert load("scenes", train_images=3).split("train") == scenes.load(3, 0, 0).examples
    example = pickle.loads(pickle.dumps(world)).split("dev")[1]  # worker processes get a copy
    scene, other = (scenes.scene("dev-000001", seed) for seed in (5, 0))
    assert example.references == scene.captions != other.captions
    assert world.photo(example).tobytes() == scene.photo().tobytes() != other.photo().tobytes()


def test_the_world_is_the_same_on_every_platform():
    """Seen equal with numpy 1.26 and 2.4, Pillow 11.3 and 13, with and without AVX. Changed on purpose? Put the new one in."""
    fingerprint = hashlib.sha256()
    for index in range(20):
        scene = scenes.scene(f"test-{index:06d}")
        photo, masks = scene.render()
        fingerprint.update("\n".join(scene.captions).encode() + photo.tobytes() + masks.tobytes())
    assert fingerprint.hexdigest()[:16] == "57eed6e417e08491"
