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

ATTRIBUTES = [
    scenes_grammar.SIZES,
    scenes_grammar.COLOURS,
    scenes_grammar.SHAPES,
    scenes_grammar.TEXTURES,
]
KINDS = st.builds(Kind, *map(st.sampled_from, ATTRIBUTES))
STAR = Kind("small", "red", "star", "striped")
SQUARE = Kind("big", "blue", "square")


@pytest.fixture(scope="module")
def world():
    """Sixty scenes of all splits, with their pictures and masks."""
    drawn = []
    for split in scenes.SPLITS:
        for index in range(20):
            scene = scenes.scene(f"{split}-{index:06d}")
            photo, masks = scene.render()
            drawn.append((scene, photo, masks))
    return drawn


# --- The grammar ------------------------------------------------------------------------------


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
        # No size, no colour, two textures,
        "a small red star above a blue square",
        "a small red star above a big square",
        "a small striped red star with dots above a big blue square",
        # and words that the grammar does not have.
        "a small red star above a big blue <unknown>",
        "not a small red star above a big blue square",
    ],
)
def test_what_is_no_sentence_has_no_meaning(text):
    assert parse(text) is None


# Words that could stand in each other's place and say something else.
EXCHANGEABLE = [
    *ATTRIBUTES[1:],
    ("stripes", "dots"),
    ("small", "huge"),
    ("above", "below"),
    ("under", "over"),
    ("left", "right"),
]
OTHERS = {}
for words in EXCHANGEABLE:
    for word in words:
        OTHERS[word] = [other for other in words if other != word]


@settings(max_examples=60)
@given(KINDS, st.sampled_from(RELATIONS), KINDS, st.integers(0, 2**32 - 1), st.data())
def test_every_caption_says_its_meaning_and_no_other(first, relation, second, seed, data):
    # As in every scene; twins could change places unnoticed.
    assume(first.colour != second.colour)
    meaning = Meaning.of(first, relation, second)
    written = captions(RandomState(seed), meaning)
    assert len(set(written)) == 5

    for text in written:
        words = tokenise(text)
        assert parse(text) == parse(words) == meaning
        assert len(words) <= scenes_grammar.MAX_WORDS

        # One word for another of its sort is another meaning, or none: it is never overlooked.
        places = [index for index, word in enumerate(words) if word in OTHERS]
        place = data.draw(st.sampled_from(places))
        other = data.draw(st.sampled_from(OTHERS[words[place]]))
        changed = [*words[:place], other, *words[place + 1 :]]
        assert parse(changed) != meaning


def test_every_sentence_of_the_grammar_is_read_with_one_relation():
    phrases = {"x": "a small striped red star", "y": "a big blue square"}
    read = scenes_grammar._skeletons()
    for words, relation in read.items():
        text = " ".join(phrases.get(word, word) for word in words)
        assert parse(text) == Meaning.of(STAR, relation, SQUARE), text

    # Otherwise the loop would show little.
    assert len(read) > 200
    assert set(read.values()) == set(RELATIONS)


# --- Scenes -----------------------------------------------------------------------------------


def test_captions_match_their_own_scene_alone(world):
    for (scene, *_), (other, *_) in itertools.pairwise(world):
        assert all(scenes.exact_match(text, scene) for text in scene.captions)
        assert not any(scenes.exact_match(text, other) for text in scene.captions)


def test_relation_holds_between_the_visible_pixels(world):
    for scene, _, masks in world:
        first, second = masks
        y0, x0 = np.argwhere(first).mean(axis=0)
        y1, x1 = np.argwhere(second).mean(axis=0)
        # The relation is along the axis on which the centres are further apart.
        if abs(y1 - y0) > abs(x1 - x0):
            expected = "above" if y0 < y1 else "below"
        else:
            expected = "left of" if x0 < x1 else "right of"
        assert scene.relation == expected, scene.image_id


def test_masks_lie_on_the_named_colour_and_texture(world):
    """Independent of the painter, by the pixels of the picture."""
    hues = {}
    for name, rgb in scenes_paint.RGB.items():
        hues[name], _, _ = colorsys.rgb_to_hsv(*rgb)
    # The least and the largest share of white.
    whites = {
        "plain": (0, 0.02),
        "dotted": (0.03, 0.4),
        "striped": (0.15, 0.6),
    }
    for scene, photo, masks in world:
        assert not (masks[0] & masks[1]).any()
        hsv = np.asarray(photo.convert("HSV")).astype(float) / 255
        for thing, mask in zip(scene.objects, masks, strict=True):
            # The commonest hue of the saturated pixels is the hue that is named.
            hue = hsv[mask][:, 0]
            saturation = hsv[mask][:, 1]
            hue = hue[saturation > 0.5]
            apart = {}
            for name, named in hues.items():
                # Hues are a circle: 0.95 is 0.1 from 0.05.
                distances = np.abs((hue - named + 0.5) % 1 - 0.5)
                apart[name] = np.median(distances)
            assert min(apart, key=apart.get) == thing.colour, scene.image_id

            white = (np.asarray(photo)[mask].min(axis=1) > 200).mean()
            low, high = whites[thing.texture]
            assert low <= white <= high, (scene.image_id, thing, white)


def test_clutter_hides_a_part_at_most():
    hidden = 0
    for index in range(40):
        scene = scenes.scene(f"test-{index:06d}")
        for number, (thing, mask) in enumerate(zip(scene.objects, scene.masks, strict=True)):
            # The same object alone on an empty canvas.
            canvas = scenes_paint.Canvas(np.zeros((3, 224, 224), dtype=np.float32))
            scenes_paint.named_object(
                canvas, RandomState(0), number, thing.centre, thing.diameter, thing.kind
            )
            whole = (canvas.owner == number).sum()
            visible = mask.sum()
            # It is tilted differently there, which may change its pixels a little.
            assert visible >= (scenes.VISIBLE - 0.05) * whole
            if visible < 0.97 * whole:
                hidden += 1

    # Some objects are hidden in part.
    assert hidden > 5


def test_attributes_are_independent_and_uniform():
    many = [scenes.scene(f"train-{index:06d}") for index in range(1000)]
    for attribute, values in (("shape", 4), ("colour", 6), ("texture", 3), ("size", 2)):
        pairs = Counter()
        for scene in many:
            first, second = scene.objects
            pairs[getattr(first, attribute), getattr(second, attribute)] += 1

        # The two colours of a scene differ.
        expected = values**2
        if attribute == "colour":
            expected = values * (values - 1)
        assert len(pairs) == expected

        # A count of mean n/k strays more than five of its standard deviations once in two million
        # times.
        mean = 1000 / expected
        for count in pairs.values():
            assert abs(count - mean) < 5 * mean**0.5, pairs


def test_words_are_traced_to_what_they_name():
    square = scenes.Thing(SQUARE, (100, 150), 80)
    star = scenes.Thing(STAR, (100, 50), 40)
    any_scene = scenes.scene("train-000000")
    scene = replace(any_scene, objects=(square, star), relation="below")

    # Object 0 is the square, 1 the star.
    star_words = tokenise("a little red star with white stripes")
    found = scenes.mentions([*star_words, *tokenise("floats above the big blue square")], scene)
    assert found[: len(star_words)] == [None, 1, 1, 1, None, None, 1]
    assert found[len(star_words) :] == [None, None, None, 0, 0, 0]

    # The true words of half a sentence still point to their object, the untrue to nothing.
    wrong = tokenise("big green square under it a dotted red")
    assert scenes.mentions(wrong, scene) == [0, None, 0, None, None, None, None, 1]
    assert scenes.mentions(["a", "purple", "circle"], scene) == [None, None, None]


# --- Keys, seeds and the data set -------------------------------------------------------------


def test_the_caption_set_draws_its_examples():
    world = scenes.load(train=1, dev=2, test=1, seed=5)
    ids = [example.image_id for example in world.examples]
    assert ids == ["train-000000", "dev-000000", "dev-000001", "test-000000"]
    assert load("scenes", train_images=3).split("train") == scenes.load(3, 0, 0).examples

    # Worker processes get a copy.
    copy = pickle.loads(pickle.dumps(world))
    _, example = copy.split("dev")
    scene = scenes.scene("dev-000001", 5)
    other = scenes.scene("dev-000001", 0)
    assert example.references == scene.captions != other.captions
    photo = world.photo(example).tobytes()
    assert photo == scene.photo().tobytes() != other.photo().tobytes()


def test_the_world_is_the_same_on_every_platform():
    """Seen equal with numpy 1.26 and 2.4, Pillow 11.3 and 13, with and without AVX."""
    fingerprint = hashlib.sha256()
    for index in range(20):
        scene = scenes.scene(f"test-{index:06d}")
        photo, masks = scene.render()
        text = "\n".join(scene.captions)
        fingerprint.update(text.encode())
        fingerprint.update(photo.tobytes())
        fingerprint.update(masks.tobytes())
    # Changed on purpose? Put the new one in.
    assert fingerprint.hexdigest()[:16] == "57eed6e417e08491"
